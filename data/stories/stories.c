/*
 * stories: writes small English stories from the grammar in stories_grammar.h and says exactly how much
 * information they hold, so that a language model trained on them has a number to reach that nobody tuned.
 *
 *   stories --bytes 2000000 --seed 1 [--val-frac 0.1] [-o FILE] [--report FILE]
 *   stories --self-check
 *
 * The information in a text is -log2 P(text). Every text has one derivation (the law in stories_grammar.h),
 * so P(text) is the product of the probabilities of its choices, and
 *
 *   -log2 P(text) = sum over bytes t of -log2 P(byte t | bytes before t).
 *
 * The writer charges each choice byte by byte in that second form: when the bytes written so far leave
 * alternatives of total weight W possible and the next byte leaves W', that byte costs log2(W / W'). So the
 * cost of the text up to any byte is exact, and so is the cut between training and validation part, even
 * where it falls into a word. The self-check derives every number a second time from the text alone.
 * Bits per byte are over the bytes of the stories: a separator is a token to a model, and no text.
 *
 * Exit codes: 0 done, 1 self-check or internal error, 2 usage, 5 out of memory, 7 output failure.
 */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compile.h"

enum { EXIT_INTERNAL = 1, EXIT_USAGE = 2, EXIT_MEMORY = 5, EXIT_OUTPUT = 7 };

static const char SEPARATOR[] = "<|endoftext|>\n";

/* ---- random numbers: SplitMix64 (Steele, Lea, Flood 2014) ---- */

static uint64_t random_next(uint64_t *state) {
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* Exactly uniform on 0 .. n-1: numbers from the last, incomplete run of n are thrown away. */
static int random_below(uint64_t *state, int n) {
  uint64_t range = (uint64_t)n;
  uint64_t limit = UINT64_MAX - UINT64_MAX % range;
  uint64_t r = random_next(state);
  while (r >= limit) r = random_next(state);
  return (int)(r % range);
}

/* ---- the writer ---- */

/* Where a variable was last written, as an offset in the story: the word, or any form of it. */
typedef struct {
  size_t word;
  size_t any;
} LastMention;

/* One story. bits[t] = -log2 P(byte t | the bytes before it). */
typedef struct {
  const Grammar *grammar;
  uint64_t random;
  size_t length;
  char text[MAX_STORY];
  double bits[MAX_STORY];
  int value[MAX_VARIABLES];
  LastMention last[MAX_VARIABLES];
  size_t max_distance; /* over all stories: bytes from a fact's last mention to its next use */
  const char *max_distance_name;
  bool rule_used[MAX_RULES][MAX_ALTERNATIVES];
  bool word_used[MAX_VARIABLES][MAX_WORDS];
  const char *error; /* sticky; NULL while all is well */
} Writer;

static void write_span(Writer *w, Span span) {
  if (span.length > MAX_STORY - w->length) {
    w->error = "a story is longer than MAX_STORY";
    return;
  }
  memcpy(w->text + w->length, span.text, span.length);
  w->length += span.length;
}

/* Charges the choice of heads[chosen], about to be written, to the bytes that reveal it. */
static void charge_choice(Writer *w, const Head *heads, const int *weights, int count, int chosen) {
  bool possible[MAX_ALTERNATIVES > MAX_WORDS ? MAX_ALTERNATIVES : MAX_WORDS];
  int total = 0;
  for (int i = 0; i < count; i++) {
    possible[i] = true;
    total += weights[i];
  }
  for (size_t t = 0; total > weights[chosen]; t++) {
    if (t >= heads[chosen].length || w->length + t >= MAX_STORY) {
      w->error = "a choice does not show in the text";
      return;
    }
    int left = 0;
    for (int i = 0; i < count; i++) {
      possible[i] = possible[i] && t < heads[i].length && heads[i].text[t] == heads[chosen].text[t];
      if (possible[i]) left += weights[i];
    }
    if (left < total) w->bits[w->length + t] += log2((double)total / (double)left);
    total = left;
  }
}

static void note_use(Writer *w, int variable, size_t mentioned_at) {
  size_t distance = w->length - mentioned_at;
  if (distance <= w->max_distance) return;
  w->max_distance = distance;
  w->max_distance_name = w->grammar->variable[variable].name;
}

static void write_draw(Writer *w, int variable) {
  const Variable *v = &w->grammar->variable[variable];
  Head heads[MAX_WORDS];
  int weights[MAX_WORDS];
  for (int i = 0; i < v->words; i++) {
    heads[i].length = 0;
    head_append(&heads[i], v->word[i].form[0]);
    weights[i] = 1;
  }
  int chosen = random_below(&w->random, v->words);
  charge_choice(w, heads, weights, v->words, chosen);
  w->value[variable] = chosen;
  w->word_used[variable][chosen] = true;
  w->last[variable] = (LastMention){w->length, w->length};
  write_span(w, v->word[chosen].form[0]);
}

static void write_mention(Writer *w, int variable, int form) {
  LastMention *last = &w->last[variable];
  note_use(w, variable, form == 0 ? last->word : last->any);
  last->any = w->length;
  if (form == 0) last->word = w->length;
  write_span(w, w->grammar->variable[variable].word[w->value[variable]].form[form]);
}

static int choose_alternative(Writer *w, const Rule *r) {
  if (r->alternatives == 1) return 0;
  Head heads[MAX_ALTERNATIVES];
  int weights[MAX_ALTERNATIVES] = {0};
  for (int i = 0; i < r->alternatives; i++) {
    alternative_head(w->grammar, &r->alternative[i], w->value, &heads[i]);
    weights[i] = r->alternative[i].weight;
  }
  int chosen = 0;
  for (int draw = random_below(&w->random, r->weight); draw >= weights[chosen]; chosen++) draw -= weights[chosen];
  charge_choice(w, heads, weights, r->alternatives, chosen);
  return chosen;
}

static void write_rule(Writer *w, int rule, int depth) {
  const Rule *r = &w->grammar->rule[rule];
  if (depth == MAX_DEPTH) {
    w->error = "the rules nest too deep";
    return;
  }
  int chosen = choose_alternative(w, r);
  const Alternative *a = &r->alternative[chosen];
  w->rule_used[rule][chosen] = true;
  for (int i = 0; i < a->items && w->error == NULL; i++) {
    const Item *item = &a->item[i];
    switch (item->kind) {
    case ITEM_TEXT: write_span(w, item->text); break;
    case ITEM_DRAW: write_draw(w, item->variable); break;
    case ITEM_MENTION: write_mention(w, item->variable, item->form); break;
    case ITEM_RULE: write_rule(w, item->rule, depth + 1); break;
    case ITEM_SWITCH:
      note_use(w, item->variable, w->last[item->variable].any);
      write_rule(w, item->rule_of[w->value[item->variable]], depth + 1);
      break;
    }
  }
}

/* Writes the next story, separator included. False: w->error says why. */
static bool write_story(Writer *w) {
  w->length = 0;
  memset(w->bits, 0, sizeof w->bits);
  write_rule(w, 0, 0);
  write_span(w, span_of(SEPARATOR));
  return w->error == NULL;
}

static double sum_bits(const Writer *w, size_t begin, size_t end) {
  double sum = 0;
  for (size_t t = begin; t < end; t++) sum += w->bits[t];
  return sum;
}

#include "check.h"

/* ---- the command ---- */

typedef struct {
  uint64_t bytes;
  uint64_t seed;
  double val_frac;
  const char *output; /* NULL: stdout */
  const char *report; /* NULL: stderr, for people */
  bool self_check;
} Options;

typedef struct {
  uint64_t stories;
  uint64_t bytes;
  uint64_t train_bytes;
  uint64_t train_text, val_text; /* bytes outside of separators: what bits per byte are measured over */
  double train_bits;
  double val_bits;
} Totals;

static const char HELP[] =
    "usage: stories --bytes N [--seed N] [--val-frac X] [-o FILE] [--report FILE]\n"
    "       stories --self-check\n"
    "Writes small English stories, a line <|endoftext|> after each, and reports the exact entropy of the "
    "text, in bits per byte of the stories.\n"
    "\n"
    "  --bytes N         stop at the first story's end at or after N bytes (1 to 10^12)\n"
    "  --seed N          same seed, same text (0 to 2^64-1; default 1)\n"
    "  --val-frac X      report the last X of the bytes apart, as validation part (0 <= X < 1; default 0.1)\n"
    "  -o, --output FILE write the text to FILE (default: standard output)\n"
    "  --report FILE     write the report to FILE as a JSON object (default: a line on standard error)\n"
    "  --self-check      prove that the grammar is unambiguous and the entropy right; writes no stories\n"
    "  --help            this text\n";

static bool parse_whole(const char *text, uint64_t *out) {
  char *end = NULL;
  errno = 0;
  if (text[0] < '0' || text[0] > '9') return false;
  unsigned long long value = strtoull(text, &end, 10);
  if (errno != 0 || *end != '\0') return false;
  *out = value;
  return true;
}

static bool parse_fraction(const char *text, double *out) {
  char *end = NULL;
  double value = strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= 0 && value < 1)) return false;
  *out = value;
  return true;
}

static bool usage_error(const char *flag, const char *value, const char *problem) {
  fprintf(stderr, "stories: %s%s%s: %s\n", flag, value != NULL ? " " : "", value != NULL ? value : "", problem);
  return false;
}

/* Stores the value of one flag. */
static bool set_option(Options *o, const char *flag, const char *value) {
  if (strcmp(flag, "--bytes") == 0) {
    if (parse_whole(value, &o->bytes) && o->bytes >= 1 && o->bytes <= UINT64_C(1000000000000)) return true;
    return usage_error(flag, value, "not a whole number from 1 to 1000000000000");
  }
  if (strcmp(flag, "--seed") == 0)
    return parse_whole(value, &o->seed) || usage_error(flag, value, "not a whole number from 0 to 2^64-1");
  if (strcmp(flag, "--val-frac") == 0)
    return parse_fraction(value, &o->val_frac) || usage_error(flag, value, "not a number from 0 to below 1");
  if (value[0] == '\0') return usage_error(flag, NULL, "needs a file name");
  if (strcmp(flag, "--report") == 0) o->report = value;
  else o->output = value;
  return true;
}

static bool takes_value(const char *flag) {
  static const char *const flags[] = {"--bytes", "--seed", "--val-frac", "--report", "--output", "-o"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    if (strcmp(flag, flags[i]) == 0) return true;
  return false;
}

/* Reads the command line; "--key value" or "--key=value". False: said what is wrong. */
static bool parse_options(int argc, char **argv, Options *o) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--self-check") == 0) {
      o->self_check = true;
      continue;
    }
    char flag[MAX_NAME];
    const char *equals = strchr(argv[i], '=');
    size_t length = equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]);
    snprintf(flag, sizeof flag, "%.*s", (int)(length < sizeof flag ? length : sizeof flag), argv[i]);
    if (!takes_value(flag)) return usage_error(argv[i], NULL, "unknown flag (see stories --help)");
    if (equals == NULL && i + 1 == argc) return usage_error(flag, NULL, "needs a value");
    if (!set_option(o, flag, equals != NULL ? equals + 1 : argv[++i])) return false;
  }
  if (o->bytes == 0 && !o->self_check) return usage_error("--bytes", NULL, "missing: say how much to write");
  return true;
}

/* A file that appears under its name only when it is complete. */
typedef struct {
  FILE *stream;
  const char *name;
  char *temporary; /* NULL where the bytes go straight to a pipe or device */
} Output;

static int output_error(const char *name, const char *what) {
  fprintf(stderr, "stories: cannot %s %s: %s\n", what, name, strerror(errno));
  return EXIT_OUTPUT;
}

static int flush_stdout(void) { return fflush(stdout) == 0 ? 0 : output_error("standard output", "write"); }

static int output_open(Output *out, const char *name) {
  *out = (Output){.stream = stdout, .name = name != NULL ? name : "standard output"};
  if (name == NULL) return 0;
  struct stat status;
  if (stat(name, &status) == 0 && !S_ISREG(status.st_mode)) {
    out->stream = fopen(name, "wb");
    return out->stream != NULL ? 0 : output_error(name, "open");
  }
  size_t size = strlen(name) + sizeof ".part";
  out->temporary = malloc(size);
  if (out->temporary == NULL) {
    fputs("stories: out of memory\n", stderr);
    return EXIT_MEMORY;
  }
  snprintf(out->temporary, size, "%s.part", name);
  out->stream = fopen(out->temporary, "wb");
  if (out->stream != NULL) return 0;
  int code = output_error(name, "open");
  free(out->temporary);
  return code;
}

/* Ends an output after everything was written (code 0) or after a failure. Returns the exit code. */
static int output_close(Output *out, int code) {
  bool named = out->stream != stdout;
  if (code == 0 && fflush(out->stream) != 0) code = output_error(out->name, "write");
  if (named && fclose(out->stream) != 0 && code == 0) code = output_error(out->name, "write");
  if (out->temporary != NULL) {
    if (code == 0 && rename(out->temporary, out->name) != 0) code = output_error(out->name, "rename to");
    if (code != 0) remove(out->temporary);
    free(out->temporary);
  }
  return code;
}

/* The size of the whole text is needed before the cut is known, so the stories are told twice. */
static uint64_t measure(const Options *o, Writer *w) {
  uint64_t bytes = 0;
  w->random = o->seed;
  while (bytes < o->bytes && write_story(w)) bytes += w->length;
  return bytes;
}

/* Writes the stories and adds up their bits on both sides of the cut. */
static int write_stories(const Options *o, Writer *w, FILE *stream, Totals *totals) {
  uint64_t bytes = measure(o, w);
  if (w->error != NULL) return EXIT_INTERNAL;
  *totals = (Totals){.train_bytes = (uint64_t)floor((double)bytes * (1.0 - o->val_frac))};
  w->random = o->seed;
  while (totals->bytes < bytes) {
    if (!write_story(w)) return EXIT_INTERNAL;
    uint64_t left = totals->train_bytes > totals->bytes ? totals->train_bytes - totals->bytes : 0;
    size_t cut = left < w->length ? (size_t)left : w->length;
    totals->train_bits += sum_bits(w, 0, cut);
    totals->val_bits += sum_bits(w, cut, w->length);
    size_t text = w->length - strlen(SEPARATOR), train_text = cut < text ? cut : text;
    totals->train_text += train_text;
    totals->val_text += text - train_text;
    totals->bytes += w->length;
    totals->stories++;
    if (fwrite(w->text, 1, w->length, stream) != w->length) return EXIT_OUTPUT;
  }
  return fflush(stream) == 0 ? 0 : EXIT_OUTPUT;
}

static double per_byte(double bits, uint64_t bytes) { return bytes > 0 ? bits / (double)bytes : 0; }

static void print_summary(const Options *o, const Totals *t) {
  uint64_t val_bytes = t->bytes - t->train_bytes;
  fprintf(stderr,
          "stories: %" PRIu64 " stories, %" PRIu64 " bytes, seed %" PRIu64 ", %.6f bits/byte; "
          "train %" PRIu64 " bytes, %.3f bits, %.6f bits/byte; val %" PRIu64 " bytes, %.3f bits, %.6f bits/byte\n",
          t->stories, t->bytes, o->seed, per_byte(t->train_bits + t->val_bits, t->train_text + t->val_text),
          t->train_bytes, t->train_bits, per_byte(t->train_bits, t->train_text), val_bytes, t->val_bits,
          per_byte(t->val_bits, t->val_text));
}

static int write_report(const Options *o, const Totals *t, size_t max_distance) {
  Output out;
  int code = output_open(&out, o->report);
  if (code != 0) return code;
  uint64_t val_bytes = t->bytes - t->train_bytes;
  int written = fprintf(
      out.stream,
      "{\"seed\": %" PRIu64 ", \"val_frac\": %.17g, \"stories\": %" PRIu64 ", \"max_reference_distance\": %zu,\n"
      " \"bytes\": %" PRIu64 ", \"bits\": %.9f, \"bits_per_byte\": %.12f,\n"
      " \"train_bytes\": %" PRIu64 ", \"train_bits\": %.9f, \"train_bits_per_byte\": %.12f,\n"
      " \"val_bytes\": %" PRIu64 ", \"val_bits\": %.9f, \"val_bits_per_byte\": %.12f}\n",
      o->seed, o->val_frac, t->stories, max_distance, t->bytes, t->train_bits + t->val_bits,
      per_byte(t->train_bits + t->val_bits, t->train_text + t->val_text), t->train_bytes, t->train_bits,
      per_byte(t->train_bits, t->train_text), val_bytes, t->val_bits, per_byte(t->val_bits, t->val_text));
  if (written < 0) code = output_error(o->report, "write");
  return output_close(&out, code);
}

static int tell_stories(const Options *o, Writer *w) {
  Output out;
  Totals totals;
  int code = output_open(&out, o->output);
  if (code != 0) return code;
  code = write_stories(o, w, out.stream, &totals);
  int reason = errno;
  bool reader_left = code == EXIT_OUTPUT && reason == EPIPE;
  if (code == EXIT_INTERNAL) fprintf(stderr, "stories: internal error: %s\n", w->error);
  if (code == EXIT_OUTPUT && !reader_left) output_error(out.name, "write");
  code = output_close(&out, code);
  if (reader_left) return 0; /* head, less: enough was read */
  if (code != 0) return code;
  if (o->report != NULL) return write_report(o, &totals, w->max_distance);
  print_summary(o, &totals);
  return 0;
}

static int run(const Options *o, Grammar *g, Writer *w) {
  if (!grammar_compile(g)) return EXIT_INTERNAL;
  w->grammar = g;
  if (o->self_check) return self_check(g, w) ? flush_stdout() : EXIT_INTERNAL;
  return tell_stories(o, w);
}

int main(int argc, char **argv) {
  Options options = {.seed = 1, .val_frac = 0.1};
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
      fputs(HELP, stdout);
      return flush_stdout();
    }
  if (!parse_options(argc, argv, &options)) return EXIT_USAGE;
  signal(SIGPIPE, SIG_IGN);
  Grammar *grammar = calloc(1, sizeof *grammar);
  Writer *writer = calloc(1, sizeof *writer);
  int code = EXIT_MEMORY;
  if (grammar != NULL && writer != NULL) code = run(&options, grammar, writer);
  else fputs("stories: out of memory\n", stderr);
  free(grammar);
  free(writer);
  return code;
}
