#include "report/seeds.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>

int seeds_group(json_t *known, const json_t *settings, int run, Error *error) {
  static const char first[] = "first";
  json_t *same = json_copy((json_t *)settings);
  json_object_del(same, "seed");
  json_object_del(same, "out");
  char *key = json_text(same, JSON_SORT_KEYS, "the settings of a run", error);
  char *seed = json_value_text(json_object_get(settings, "seed"), 17);
  json_decref(same);
  int group = run;
  if (key && seed) {
    if (!json_object_get(known, key)) json_object_set_new(known, key, json_pack("{s:i}", first, run));
    json_t *members = json_object_get(known, key);
    if (!json_object_get(members, seed)) group = (int)json_integer_value(json_object_get(members, first));
    json_object_set_new(members, seed, json_true());
  }
  free(key);
  free(seed);
  return group;
}

/* Welford's algorithm: accurate where the values differ little. */
void seeds_add(SeedSum *s, double value) {
  const double before = s->count ? seeds_mean(s) : value;
  s->sum += value;
  s->count++;
  s->squares += (value - before) * (value - seeds_mean(s));
}

double seeds_mean(const SeedSum *s) { return s->sum / s->count; }

double seeds_deviation(const SeedSum *s) { return s->count < 2 ? (double)NAN : sqrt(s->squares / (s->count - 1)); }
