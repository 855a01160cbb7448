/* Values of options: kinds, ranges, parsing and formatting. */
#define _DEFAULT_SOURCE /* getentropy(): musl declares it in unistd.h, glibc and macOS in sys/random.h */
#include "cli/option_internal.h"

#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* ---- the variable ---- */

bool option_is_switch(const Option *row) { return row->kind == OPTION_SWITCH; }
bool option_is_text(const Option *row) { return row->kind == OPTION_TEXT || row->kind == OPTION_LIST; }
static bool is_float(const Option *row) { return row->kind == OPTION_REAL && row->size == sizeof(float); }

OptionValue option_load(const Option *row) {
  const void *at = row->value;
  const TextList *list = at;
  OptionValue out = {0};
  if (row->kind == OPTION_LIST) out.text = list->count ? list->items[0] : NULL;
  else if (row->letters) out.text = *(const char *)at ? at : NULL;
  else if (is_float(row)) out.real = (double)*(const float *)at;
  else if (row->size == sizeof(bool)) out.integer = *(const bool *)at;
  else if (row->size == sizeof(int)) out.integer = *(const int *)at;
  else memcpy(&out, at, row->size); /* the type of a member */
  return out;
}

void option_store(const Option *row, OptionValue value) {
  void *at = row->value;
  if (row->kind == OPTION_LIST || (row->letters && value.text == at)) return;
  if (row->letters) snprintf(at, (size_t)row->max + 1, "%s", value.text ? value.text : "");
  else if (is_float(row)) *(float *)at = (float)value.real;
  else if (row->size == sizeof(bool)) *(bool *)at = value.integer > 0;
  else if (row->size == sizeof(int)) *(int *)at = (int)value.integer;
  else memcpy(at, &value, row->size);
}

static bool is_automatic(const Option *row) {
  return row->shown_default && strncmp(row->shown_default, "auto", 4) == 0;
}

OptionValue option_initial(const Option *row) {
  OptionValue out = option_load(row);
  if (!is_automatic(row) || (row->choices && strcmp(row->choices[0], "auto") == 0)) return out;
  if (row->kind == OPTION_WHOLE) out.integer = row->min > 0 ? 0 : -1;
  if (row->kind == OPTION_SWITCH || row->kind == OPTION_CHOICE) out.integer = -1;
  if (row->kind == OPTION_REAL) out.real = NAN;
  return out;
}

/* ---- ranges ---- */

static bool has_range(const Option *row) { return row->min != 0 || row->max != 0; }

static bool in_range(const Option *row, double value) {
  double min = row->min, max = row->max;
  if (!has_range(row)) return true;
  if (is_float(row)) { /* 0.1f lies above 0.1, and 0.99999999 becomes 1.0f: compare what is stored */
    value = (double)(float)value;
    min = (double)(float)min;
    max = (double)(float)max;
  }
  if (row->above ? value <= min : value < min) return false;
  return !(row->below ? value >= max : value > max);
}

void option_append(char *out, size_t size, const char *between, const char *text) {
  if (*text) text_append(out, size, "%s%s", *out ? between : "", text);
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

/* ---- reading numbers ---- */

uint64_t options_random_seed(void) {
  uint64_t seed = 0;
  if (getentropy(&seed, sizeof seed) != 0) seed = (uint64_t)time(NULL) * 65537 + (uint64_t)getpid();
  return seed & 0xFFFFFFFFu; /* short enough to type again */
}

/* strtod() and strtoll() alone would take leading blanks, "0x10", "inf" and "nan". */
static bool looks_decimal(const char *text) { return *text && text[strspn(text, "0123456789+-.eE")] == '\0'; }

static bool read_real(const char *text, double *out) {
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
static bool read_integer(const char *text, int64_t *out) {
  char *end;
  double real;
  if (!looks_decimal(text)) return false;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (*end == '\0') {
    *out = value;
    return errno == 0;
  }
  if (!read_real(text, &real) || floor(real) != real || fabs(real) > 0x1p53) return false;
  *out = (int64_t)real;
  return true;
}

/* ---- switches and choices ---- */

/* Returns the index of `text` in `names`, which ends with NULL; -1: not found. */
static int find_name(const char *const *names, const char *text) {
  for (int i = 0; names[i]; i++)
    if (strcmp(text, names[i]) == 0) return i;
  return -1;
}

static const char *const switch_words[] = {"no", "yes", "off", "on", "false", "true", "0", "1", NULL};

static bool parse_switch(const Option *row, const char *text, OptionValue *out) {
  (void)row;
  const int found = find_name(switch_words, text);
  out->integer = found < 0 ? -1 : found & 1;
  return true;
}

static bool parse_choice(const Option *row, const char *text, OptionValue *out) {
  out->integer = find_name(row->choices, text);
  return true;
}

static bool is_not_negative(const Option *row, OptionValue value) {
  (void)row;
  return value.integer >= 0;
}

static void format_choice(const Option *row, OptionValue value, char *out, size_t size) {
  snprintf(out, size, "%s", (row->choices ? row->choices : switch_words)[value.integer]);
}

/* ---- numbers ---- */

static bool parse_whole(const Option *row, const char *text, OptionValue *out) {
  char *end;
  if (row->seed && strcmp(text, "-1") == 0) {
    out->natural = options_random_seed();
    return true;
  }
  if (read_integer(text, &out->integer)) return !row->natural || out->integer >= 0;
  if (!row->natural || !isdigit((unsigned char)text[0])) return false;
  errno = 0;
  out->natural = strtoull(text, &end, 10);
  return *end == '\0' && errno == 0;
}

static bool is_whole(const Option *row, OptionValue value) {
  const bool fits = row->size > sizeof(int) || (value.integer >= INT_MIN && value.integer <= INT_MAX);
  return fits && in_range(row, row->natural ? (double)value.natural : (double)value.integer);
}

static void format_whole(const Option *row, OptionValue value, char *out, size_t size) {
  if (row->natural) snprintf(out, size, "%" PRIu64, value.natural);
  else snprintf(out, size, "%" PRId64, value.integer);
}

static bool parse_real(const Option *row, const char *text, OptionValue *out) {
  (void)row;
  return read_real(text, &out->real);
}

static bool is_real(const Option *row, OptionValue value) {
  return fabs(value.real) <= (is_float(row) ? (double)FLT_MAX : DBL_MAX) && in_range(row, value.real);
}

static void format_real(const Option *row, OptionValue value, char *out, size_t size) {
  snprintf(out, size, "%s", text_number(value.real, is_float(row)).text);
}

/* ---- texts ---- */

static bool parse_text(const Option *row, const char *text, OptionValue *out) {
  (void)row;
  out->text = text;
  return true;
}

static bool is_text(const Option *row, OptionValue value) {
  const char *text = value.text, *letters = row->letters;
  return text && (!letters || (*text && strlen(text) <= (size_t)row->max && text[strspn(text, letters)] == '\0'));
}

static void format_text(const Option *row, OptionValue value, char *out, size_t size) {
  (void)row;
  snprintf(out, size, "%s", value.text);
}

/* ---- intervals ---- */

static bool parse_interval(const Option *row, const char *text, OptionValue *out) {
  (void)row;
  char number[40];
  const size_t length = strlen(text);
  Interval *interval = &out->interval;
  *interval = (Interval){0, 0};
  if (length == 0 || length >= sizeof number) return false;
  double unit = text[length - 1] == 's' ? 1 : text[length - 1] == 'm' ? 60 : text[length - 1] == 'h' ? 3600 : 0;
  if (unit == 0) return read_integer(text, &interval->steps);
  snprintf(number, length, "%s", text);
  if (!read_real(number, &interval->seconds)) return false;
  interval->seconds *= unit;
  return interval->seconds > 0 && interval->seconds < 1e9;
}

static bool is_interval(const Option *row, OptionValue value) {
  (void)row;
  return value.interval.steps >= 0;
}

static void format_interval(const Option *row, OptionValue value, char *out, size_t size) {
  (void)row;
  const double seconds = value.interval.seconds;
  const double unit = fmod(seconds, 3600) == 0 ? 3600 : fmod(seconds, 60) == 0 ? 60 : 1;
  if (seconds <= 0) snprintf(out, size, "%" PRId64, value.interval.steps);
  else snprintf(out, size, "%s%c", text_number(seconds / unit, false).text, unit > 60 ? 'h' : unit > 1 ? 'm' : 's');
}

/* ---- the kinds ---- */

static const struct {
  const char *argument, *demand; /* words for help and errors, unless the row has its own */
  bool (*parse)(const Option *row, const char *text, OptionValue *out);
  bool (*is_set)(const Option *row, OptionValue value); /* checks what parse() has returned, too */
  void (*format)(const Option *row, OptionValue value, char *out, size_t size);
} kinds[] = {
    [OPTION_SWITCH] = {"", "yes or no", parse_switch, is_not_negative, format_choice},
    [OPTION_CHOICE] = {"", "one of", parse_choice, is_not_negative, format_choice},
    [OPTION_WHOLE] = {"N", "a whole number", parse_whole, is_whole, format_whole},
    [OPTION_REAL] = {"X", "a number", parse_real, is_real, format_real},
    [OPTION_TEXT] = {"TEXT", "", parse_text, is_text, format_text},
    [OPTION_LIST] = {"TEXT", "", parse_text, is_text, format_text},
    [OPTION_INTERVAL] = {"N|10m", "steps (500) or a time (90s, 10m, 2h)", parse_interval, is_interval, format_interval},
};

bool option_is_set(const Option *row, OptionValue value) { return kinds[row->kind].is_set(row, value); }

void option_format(const Option *row, OptionValue value, char *out, size_t size) {
  kinds[row->kind].format(row, value, out, size);
}

bool option_parse(const Option *row, const char *text, OptionValue *out) {
  *out = row->initial;
  if (is_automatic(row) && strcmp(text, "auto") == 0) return true;
  return kinds[row->kind].parse(row, text, out) && option_is_set(row, *out);
}

static void choices_text(const Option *row, const char *between, char *out, size_t size) {
  out[0] = '\0';
  for (int i = 0; row->choices[i]; i++) option_append(out, size, between, row->choices[i]);
}

void option_argument_text(const Option *row, char *out, size_t size) {
  if (row->choices) choices_text(row, "|", out, size);
  else snprintf(out, size, "%s", row->argument ? row->argument : kinds[row->kind].argument);
}

void option_demand_text(const Option *row, char *out, size_t size) {
  char limits[300];
  option_range_text(row, limits, sizeof limits);
  if (row->choices) choices_text(row, ", ", limits, sizeof limits);
  else if (row->letters) snprintf(limits, sizeof limits, "1 to %.0f of the letters %s", row->max, row->letters);
  else if (row->natural && !*limits) snprintf(limits, sizeof limits, ">= 0");
  else if (row->kind == OPTION_WHOLE && row->size == sizeof(int) && !*limits)
    snprintf(limits, sizeof limits, "%d..%d", INT_MIN, INT_MAX);
  snprintf(out, size, "%s", kinds[row->kind].demand);
  option_append(out, size, " ", limits);
  if (row->seed) option_append(out, size, ", ", "or -1 for a random one");
}
