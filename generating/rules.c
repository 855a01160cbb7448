/* --bias and --ban. */
#include "generating/program.h"

#include "util/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef bool AddRule(Program *p, const char *text, size_t size, Error *error);

/* "TEXT=N", of which TEXT may have a "=" itself. */
static bool add_bias(Program *p, const char *given, size_t size, Error *error) {
  (void)size;
  const char *equals = strrchr(given, '=');
  char *end = NULL;
  const float value = equals ? strtof(equals + 1, &end) : NAN;
  BpeIds ids = {0};
  if (!equals || end == equals + 1 || *end || !(value < INFINITY) || equals == given)
    return fail(error, EXIT_USAGE, "--bias %s: need TEXT=N with a number N, such as ' Romeo=+2' or 'x=-inf'",
                text_one_line(given, 100).text);
  bool ok = tokenizer_encode(p->tokenizer, (const uint8_t *)given, (size_t)(equals - given), &ids, error);
  if (ok && ids.count != 1)
    ok = fail(error, EXIT_USAGE, "--bias %s: that text is %zu tokens here, not one; see --encode",
              text_one_line(given, 100).text, ids.count);
  ok = ok && token_rules_bias(&p->rules, ids.ids[0], value, error);
  free(ids.ids);
  return ok;
}

static bool add_ban(Program *p, const char *text, size_t size, Error *error) {
  return size ? token_rules_ban(&p->rules, (const uint8_t *)text, size, error)
              : fail(error, EXIT_USAGE, "--ban \"\": a text of nothing is everywhere");
}

static bool add_rules(Program *p, const TextList *given, AddRule *add, Error *error) {
  bool ok = true;
  for (int i = 0; ok && i < given->count; i++) {
    uint8_t *text;
    size_t size;
    ok = program_given_text(p, given->items[i], &text, &size, error) && add(p, (const char *)text, size, error);
    free(text);
  }
  return ok;
}

bool program_make_rules(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  if (!s->biases.count && !s->bans.count) return true;
  return token_rules_make(&p->rules, p->tokenizer, error) && add_rules(p, &s->biases, add_bias, error) &&
         add_rules(p, &s->bans, add_ban, error);
}
