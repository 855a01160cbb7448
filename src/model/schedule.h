/* Learning-rate schedules. */
#ifndef INKLING_MODEL_SCHEDULE_H
#define INKLING_MODEL_SCHEDULE_H

#include <stdint.h>

typedef enum ScheduleKind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD } ScheduleKind;

/* A length that was changed on the way; zeros: it was not. */
typedef struct ScheduleChange {
  int64_t first_steps; /* the first length, which the warm-up and the shape belong to */
  int64_t at;          /* the step of the last change */
  double from;         /* the step of a run of the first length that is as far */
} ScheduleChange;

typedef struct Schedule {
  ScheduleKind kind;
  float lr, min_lr_fraction;
  int64_t warmup, steps; /* lr * t / warmup for t <= warmup; from there to exactly lr * min_lr_fraction at t = steps */
  ScheduleChange change;
} Schedule;

/* Returns the learning rate of step t in 1..steps, after a change of steps from the change on; later steps keep the
 * final value. WSD (warm-up, stable, decay) keeps lr until the last fifth and then falls as 1 - sqrt(progress). A
 * constant schedule does not decay. */
float schedule_lr(const Schedule *schedule, int64_t t);
/* Changes the length after step t < steps: the rest of the schedule is rescaled to the rest of the run. */
void schedule_change(Schedule *schedule, int64_t t, int64_t steps);

#endif
