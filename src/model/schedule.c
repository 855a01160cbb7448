/* Learning-rate schedules. */
#include "model/schedule.h"

#include <math.h>

int64_t schedule_steps(const SchedulePlans *plans, int64_t steps, int64_t t) {
  for (int i = 0; i < plans->count; i++)
    if (t < plans->items[i].until) return plans->items[i].steps;
  return steps;
}

/* Converts step t to a step of a run with the first planned length, *whole. */
static double first_plan_step(const Schedule *s, int64_t t, double *whole) {
  const SchedulePlans *plans = &s->plans;
  const double steps = (double)(plans->count ? plans->items[0].steps : s->steps);
  double time = 0;
  int64_t from = 0;
  *whole = steps;
  if (t >= s->steps) return steps;
  for (int i = 0; i < plans->count && from < t; i++) {
    const int64_t until = plans->items[i].until < t ? plans->items[i].until : t;
    time += (steps - time) * (double)(until - from) / (double)(plans->items[i].steps - from);
    from = until;
  }
  return time + (steps - time) * (double)(t - from) / (double)(s->steps - from);
}

float schedule_lr(const Schedule *s, int64_t step) {
  const double low = (double)s->lr * (double)s->min_lr_fraction, warmup = (double)s->warmup;
  double whole;
  const double t = first_plan_step(s, step, &whole);
  if (t <= warmup && warmup > 0) return (float)((double)s->lr * t / warmup);
  if (s->kind == SCHEDULE_CONSTANT) return s->lr;
  if (t >= whole) return (float)low;
  double start = warmup;
  if (s->kind == SCHEDULE_WSD) {
    start = fmax(whole - floor(whole / 5), warmup);
    if (t <= start) return s->lr;
  }
  const double progress = (t - start) / (whole - start);
  const double left = s->kind == SCHEDULE_COSINE   ? 0.5 * (1.0 + cos(3.141592653589793 * progress))
                      : s->kind == SCHEDULE_LINEAR ? 1.0 - progress
                                                   : 1.0 - sqrt(progress);
  return (float)(low + ((double)s->lr - low) * left);
}
