/* Learning-rate schedules. */
#include "model/schedule.h"

#include <math.h>

/* Converts step t to a step of a run of the first length, *whole. */
static double first_length_step(const Schedule *s, int64_t t, double *whole) {
  const double steps = (double)(s->first_steps ? s->first_steps : s->steps);
  *whole = steps;
  if (t >= s->steps) return steps;
  return s->changed_from + (steps - s->changed_from) * (double)(t - s->changed_at) / (double)(s->steps - s->changed_at);
}

void schedule_change(Schedule *s, int64_t t, int64_t steps) {
  double whole;
  s->changed_from = first_length_step(s, t, &whole);
  s->changed_at = t;
  s->first_steps = (int64_t)whole;
  s->steps = steps;
}

float schedule_lr(const Schedule *s, int64_t step) {
  const double low = (double)s->lr * (double)s->min_lr_fraction, warmup = (double)s->warmup;
  double whole;
  const double t = first_length_step(s, step, &whole);
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
