/* Learning-rate schedules. */
#ifndef INKLING_MODEL_SCHEDULE_H
#define INKLING_MODEL_SCHEDULE_H

#include <stdint.h>

typedef enum ScheduleKind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD } ScheduleKind;
/* Earlier planned lengths of a run whose length was changed while it trained: up to step `until` it was planned to have
 * `steps` steps. In ascending order of `until`, each less than the lengths before and after the change. */
enum { SCHEDULE_PLANS = 64 };
typedef struct SchedulePlans {
  int count;
  struct {
    int64_t until, steps;
  } items[SCHEDULE_PLANS];
} SchedulePlans;
typedef struct Schedule {
  ScheduleKind kind;
  float lr, min_lr_fraction;
  int64_t warmup, steps; /* lr * t / warmup for t <= warmup; from there to exactly lr * min_lr_fraction at t = steps */
  SchedulePlans plans;   /* warmup and kind are those of the first plan; at each change the rest of the schedule is
                            rescaled to the rest of the run */
} Schedule;
/* Returns the learning rate of step t in 1..steps; later steps keep the final value. WSD (warm-up, stable, decay) keeps
 * lr until the last fifth and then falls as 1 - sqrt(progress). A constant schedule does not decay. */
float schedule_lr(const Schedule *schedule, int64_t t);
/* Returns the length that was planned at step t. */
int64_t schedule_steps(const SchedulePlans *plans, int64_t steps, int64_t t);

#endif
