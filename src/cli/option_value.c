/* Values of options: kinds, ranges, parsing and formatting. */
#define _DEFAULT_SOURCE /* getentropy(): musl declares it in unistd.h, glibc and macOS in sys/random.h */
#include "cli/option_internal.h"

#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* ---- the kinds and the variable ---- */

bool option_is_switch(const Option *row) { return row->kind == OPTION_FLAG || row->kind == OPTION_TRISTATE; }

bool option_is_whole(const Option *row) {
  return row->kind == OPTION_INT || row->kind == OPTION_INT64 || row->kind == OPTION_UINT64;
}

bool option_is_text(const Option *row) {
  return row->kind == OPTION_TEXT || row->kind == OPTION_OPTIONAL || row->kind == OPTION_LIST ||
         row->kind == OPTION_LETTERS;
}

OptionValue option_load(const Option *row) {
  OptionValue out = {0};
  switch (row->kind) {
  case OPTION_FLAG: out.integer = *(const bool *)row->value; break;
  case OPTION_TRISTATE:
  case OPTION_CHOICE:
  case OPTION_INT: out.integer = *(const int *)row->value; break;
  case OPTION_INT64: out.integer = *(const int64_t *)row->value; break;
  case OPTION_UINT64: out.natural = *(const uint64_t *)row->value; break;
  case OPTION_FLOAT: out.real = (double)*(const float *)row->value; break;
  case OPTION_DOUBLE: out.real = *(const double *)row->value; break;
  case OPTION_TEXT:
  case OPTION_OPTIONAL: out.text = *(const char *const *)row->value; break;
  case OPTION_LETTERS: out.text = *(const char *)row->value ? row->value : NULL; break;
  case OPTION_LIST: break;
  case OPTION_INTERVAL: out.interval = *(const Interval *)row->value; break;
  }
  return out;
}

void option_store(const Option *row, OptionValue value) {
  switch (row->kind) {
  case OPTION_FLAG: *(bool *)row->value = value.integer > 0; break;
  case OPTION_TRISTATE:
  case OPTION_CHOICE:
  case OPTION_INT: *(int *)row->value = (int)value.integer; break;
  case OPTION_INT64: *(int64_t *)row->value = value.integer; break;
  case OPTION_UINT64: *(uint64_t *)row->value = value.natural; break;
  case OPTION_FLOAT: *(float *)row->value = (float)value.real; break;
  case OPTION_DOUBLE: *(double *)row->value = value.real; break;
  case OPTION_TEXT:
  case OPTION_OPTIONAL: *(const char **)row->value = value.text; break;
  case OPTION_LETTERS:
    if (value.text != row->value) snprintf(row->value, (size_t)row->max + 1, "%s", value.text ? value.text : "");
    break;
  case OPTION_LIST: break;
  case OPTION_INTERVAL: *(Interval *)row->value = value.interval; break;
  }
}

static bool is_automatic(const Option *row) {
  return row->shown_default && strncmp(row->shown_default, "auto", 4) == 0;
}

OptionValue option_initial(const Option *row) {
  OptionValue out = option_load(row);
  if (!is_automatic(row) || (row->kind == OPTION_CHOICE && strcmp(row->choices[0], "auto") == 0)) return out;
  if (option_is_whole(row)) out.integer = row->min > 0 ? 0 : -1;
  if (row->kind == OPTION_TRISTATE || row->kind == OPTION_CHOICE) out.integer = -1;
  if (row->kind == OPTION_FLOAT || row->kind == OPTION_DOUBLE) out.real = NAN;
  return out;
}

/* ---- ranges and values as text ---- */

static bool has_range(const Option *row) { return row->min != 0 || row->max != 0; }

static bool in_range(const Option *row, double value) {
  double min = row->min, max = row->max;
  if (!has_range(row)) return true;
  if (row->kind == OPTION_FLOAT) { /* 0.1f lies above 0.1, and 0.99999999 becomes 1.0f: compare what is stored */
    value = (double)(float)value;
    min = (double)(float)min;
    max = (double)(float)max;
  }
  if (row->above ? value <= min : value < min) return false;
  return !(row->below ? value >= max : value > max);
}

void option_range_text(const Option *row, char *out, size_t size) {
  const bool low = isfinite(row->min), high = isfinite(row->max);
  char most[40] = "";
  out[0] = '\0';
  if (!has_range(row)) return;
  if (low && high && !row->above && !row->below) {
    snprintf(out, size, "%.10g..%.10g", row->min, row->max);
    return;
  }
  if (low) snprintf(out, size, "%s %.10g", row->above ? ">" : ">=", row->min);
  if (high) snprintf(most, sizeof most, "%s %.10g", row->below ? "<" : "<=", row->max);
  option_append(out, size, ", ", most);
}

static void interval_text(Interval interval, char *out, size_t size) {
  if (interval.seconds <= 0) {
    snprintf(out, size, "%lld", (long long)interval.steps);
    return;
  }
  double unit = fmod(interval.seconds, 3600) == 0 ? 3600 : fmod(interval.seconds, 60) == 0 ? 60 : 1;
  const ShortText number = text_number(interval.seconds / unit, false);
  snprintf(out, size, "%s%c", number.text, unit > 60 ? 'h' : unit > 1 ? 'm' : 's');
}

bool option_is_set(const Option *row, OptionValue value) {
  switch (row->kind) {
  case OPTION_FLAG:
  case OPTION_TRISTATE:
  case OPTION_CHOICE: return value.integer >= 0;
  case OPTION_INT:
  case OPTION_INT64: return in_range(row, (double)value.integer);
  case OPTION_UINT64: return in_range(row, (double)value.natural);
  case OPTION_FLOAT:
  case OPTION_DOUBLE: return isfinite(value.real) && in_range(row, value.real);
  case OPTION_TEXT:
  case OPTION_OPTIONAL:
  case OPTION_LETTERS: return value.text;
  case OPTION_LIST: return ((const TextList *)row->value)->count > 0;
  case OPTION_INTERVAL: return value.interval.steps >= 0;
  }
  return false;
}

void option_format(const Option *row, OptionValue value, char *out, size_t size) {
  out[0] = '\0';
  switch (row->kind) {
  case OPTION_FLAG:
  case OPTION_TRISTATE: snprintf(out, size, "%s", value.integer > 0 ? "yes" : "no"); break;
  case OPTION_CHOICE: snprintf(out, size, "%s", row->choices[value.integer]); break;
  case OPTION_INT:
  case OPTION_INT64: snprintf(out, size, "%lld", (long long)value.integer); break;
  case OPTION_UINT64: snprintf(out, size, "%llu", (unsigned long long)value.natural); break;
  case OPTION_FLOAT: snprintf(out, size, "%s", text_number(value.real, true).text); break;
  case OPTION_DOUBLE: snprintf(out, size, "%s", text_number(value.real, false).text); break;
  case OPTION_INTERVAL: interval_text(value.interval, out, size); break;
  case OPTION_LETTERS: snprintf(out, size, "%s", value.text); break;
  case OPTION_TEXT:
  case OPTION_OPTIONAL:
  case OPTION_LIST: break;
  }
}

void option_append(char *out, size_t size, const char *between, const char *text) {
  if (*text) text_append(out, size, "%s%s", *out ? between : "", text);
}

void option_choices_text(const Option *row, const char *between, char *out, size_t size) {
  out[0] = '\0';
  for (int i = 0; row->choices[i]; i++) option_append(out, size, between, row->choices[i]);
}

/* ---- parsing one value ---- */

uint64_t options_random_seed(void) {
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof seed) != 0) seed = (uint64_t)time(NULL) * 65537 + (uint64_t)getpid();
  return seed & 0xFFFFFFFFu; /* short enough to type again */
}

/* strtod() and strtoll() alone would take leading blanks, "0x10", "inf" and "nan". */
static bool looks_decimal(const char *text) { return *text && text[strspn(text, "0123456789+-.eE")] == '\0'; }

static bool parse_real(const char *text, double *out) {
  char *end;
  if (!looks_decimal(text)) return false;
  double value = strtod(text, &end);
  if (*end || !isfinite(value)) return false;
  const char *digit = strpbrk(text, "123456789");
  if (value == 0 && digit && digit < text + strcspn(text, "eE")) return false; /* 1e-400 is not 0 */
  *out = value;
  return true;
}

/* Also accepts 1e5 and 2.0, as long as a double holds the number exactly. */
static bool parse_integer(const char *text, int64_t *out) {
  char *end;
  double real;
  if (!looks_decimal(text)) return false;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (*end == '\0') {
    *out = value;
    return errno == 0;
  }
  if (!parse_real(text, &real) || floor(real) != real || fabs(real) > 0x1p53) return false;
  *out = (int64_t)real;
  return true;
}

static bool parse_natural(const char *text, bool seed, uint64_t *out) {
  char *end;
  int64_t small;
  if (seed && strcmp(text, "-1") == 0) {
    *out = options_random_seed();
    return true;
  }
  if (parse_integer(text, &small)) {
    *out = (uint64_t)small;
    return small >= 0;
  }
  if (!isdigit((unsigned char)text[0])) return false;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return *end == '\0' && errno == 0;
}

static bool parse_interval(const char *text, Interval *out) {
  char number[40];
  size_t length = strlen(text);
  *out = (Interval){0, 0};
  if (length == 0 || length >= sizeof number) return false;
  double unit = text[length - 1] == 's' ? 1 : text[length - 1] == 'm' ? 60 : text[length - 1] == 'h' ? 3600 : 0;
  if (unit == 0) return parse_integer(text, &out->steps) && out->steps >= 0;
  memcpy(number, text, length - 1);
  number[length - 1] = '\0';
  if (!parse_real(number, &out->seconds)) return false;
  out->seconds *= unit;
  return out->seconds > 0 && out->seconds < 1e9;
}

/* Returns the index of `text` in `names`, which ends with NULL; -1: not found. */
static int find_name(const char *const *names, const char *text) {
  for (int i = 0; names[i]; i++)
    if (strcmp(text, names[i]) == 0) return i;
  return -1;
}

/* Returns 1 for yes, 0 for no, -1 for anything else. */
static int parse_switch(const char *text) {
  static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1", NULL};
  const int found = find_name(words, text);
  return found < 0 ? -1 : found & 1;
}

void option_demand_text(const Option *row, char *out, size_t size) {
  char range[80];
  option_range_text(row, range, sizeof range);
  switch (row->kind) {
  case OPTION_FLAG:
  case OPTION_TRISTATE: snprintf(out, size, "yes or no"); break;
  case OPTION_CHOICE:
    snprintf(out, size, "one of ");
    option_choices_text(row, ", ", out + strlen(out), size - strlen(out));
    break;
  case OPTION_INTERVAL:
    snprintf(out, size, "steps (500) or a time (90s, 10m, 2h)%s%s", *range ? ", steps " : "", range);
    break;
  case OPTION_LETTERS: snprintf(out, size, "1 to %.0f of the letters %s", row->max, row->letters); break;
  default:
    if (!*range && row->kind == OPTION_INT) snprintf(range, sizeof range, "%d..%d", INT_MIN, INT_MAX);
    if (!*range && row->kind == OPTION_UINT64) snprintf(range, sizeof range, ">= 0");
    snprintf(out, size, "a %snumber%s%s%s", option_is_whole(row) ? "whole " : "", *range ? " " : "", range,
             row->seed ? ", or -1 for a random one" : "");
  }
}

static bool is_auto(const Option *row, const char *text) { return is_automatic(row) && strcmp(text, "auto") == 0; }

bool option_parse(const Option *row, const char *text, OptionValue *out) {
  *out = row->initial;
  if (is_auto(row, text)) return true;
  switch (row->kind) {
  case OPTION_FLAG:
  case OPTION_TRISTATE: out->integer = parse_switch(text); return out->integer >= 0;
  case OPTION_CHOICE: out->integer = find_name(row->choices, text); return out->integer >= 0;
  case OPTION_INT:
    return parse_integer(text, &out->integer) && out->integer >= INT_MIN && out->integer <= INT_MAX &&
           in_range(row, (double)out->integer);
  case OPTION_INT64: return parse_integer(text, &out->integer) && in_range(row, (double)out->integer);
  case OPTION_UINT64: return parse_natural(text, row->seed, &out->natural) && in_range(row, (double)out->natural);
  case OPTION_FLOAT:
    return parse_real(text, &out->real) && fabs(out->real) <= (double)FLT_MAX && in_range(row, out->real);
  case OPTION_DOUBLE: return parse_real(text, &out->real) && in_range(row, out->real);
  case OPTION_INTERVAL:
    return parse_interval(text, &out->interval) &&
           (out->interval.seconds > 0 || in_range(row, (double)out->interval.steps));
  case OPTION_LETTERS:
    out->text = text;
    return *text && strlen(text) <= (size_t)row->max && text[strspn(text, row->letters)] == '\0';
  case OPTION_TEXT:
  case OPTION_OPTIONAL:
  case OPTION_LIST: out->text = text; return true;
  }
  return false;
}
