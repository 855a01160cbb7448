/* Learning-rate schedules. */
#include "model.h"

#include <math.h>

float schedule_lr(const Schedule *s, int64_t t) {
  double low = (double)s->lr * (double)s->min_lr_fraction;
  if (t <= s->warmup && s->warmup > 0) return (float)((double)s->lr * (double)t / (double)s->warmup);
  if (s->kind == SCHEDULE_CONSTANT) return s->lr;
  if (t >= s->steps) return (float)low;
  int64_t start = s->warmup;
  if (s->kind == SCHEDULE_WSD) {
    start = s->steps - s->steps / 5;
    if (start < s->warmup) start = s->warmup;
    if (t <= start) return s->lr;
  }
  double progress = (double)(t - start) / (double)(s->steps - start);
  double left = s->kind == SCHEDULE_COSINE   ? 0.5 * (1.0 + cos(3.141592653589793 * progress))
                : s->kind == SCHEDULE_LINEAR ? 1.0 - progress
                                             : 1.0 - sqrt(progress);
  return (float)(low + ((double)s->lr - low) * left);
}
