/* Learning-rate schedules. */
#ifndef INKLING_MODEL_SCHEDULE_H
#define INKLING_MODEL_SCHEDULE_H

#include <stdint.h>

typedef enum ScheduleKind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD } ScheduleKind;
/* Lengths that a run was to have until its length was changed while it trained: after step `until` it was no longer to
 * have `steps` steps. In rising order of `until`, each less than the length before and after it. */
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
  SchedulePlans plans;   /* then warmup and kind are of the first plan's steps; what is left of it at a change is
                            stretched, or pressed, to what is left of the run */
} Schedule;
/* Learning rate of step t in 1..steps; later steps keep the final value. WSD (warm-up, stable, decay) keeps lr until
 * the last fifth and then falls as 1 - sqrt(progress). A constant schedule has no end to fall to. */
float schedule_lr(const Schedule *schedule, int64_t t);
/* The length that the run was to have when step t had been made. */
int64_t schedule_steps(const SchedulePlans *plans, int64_t steps, int64_t t);

#endif
