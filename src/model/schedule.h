/* Learning-rate schedules. */
#ifndef INKLING_MODEL_SCHEDULE_H
#define INKLING_MODEL_SCHEDULE_H

#include <stdint.h>

typedef enum ScheduleKind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD } ScheduleKind;
typedef struct Schedule {
  ScheduleKind kind;
  float lr, min_lr_fraction;
  int64_t warmup, steps; /* lr * t / warmup for t <= warmup; from there to exactly lr * min_lr_fraction at t = steps */
  /* Set by schedule_change(): the first length, which the warm-up and the shape belong to, and 0 without a change; the
   * step of the last change, and the step of a run of the first length that is as far. */
  int64_t first_steps, changed_at;
  double changed_from;
} Schedule;
/* Returns the learning rate of step t in 1..steps, after a change of steps from the change on; later steps keep the
 * final value. WSD (warm-up, stable, decay) keeps lr until the last fifth and then falls as 1 - sqrt(progress). A
 * constant schedule does not decay. */
float schedule_lr(const Schedule *schedule, int64_t t);
/* Changes the length after step t < steps: the rest of the schedule is rescaled to the rest of the run. */
void schedule_change(Schedule *schedule, int64_t t, int64_t steps);

#endif
