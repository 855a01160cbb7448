/* stories: writes small English stories from the grammar of grammar.h and reports exactly how much information they
 * hold: a number for a language model trained on them to reach that nobody tuned.
 *
 *   stories --bytes 2000000 --seed 1 [--val-frac 0.1] [-o FILE] [--report FILE]
 *   stories --self-check
 *
 * The information in a text is -log2 P(text). Every text has one derivation (the law in grammar.h), so P(text) is the
 * product of the probabilities of its choices, and
 *
 *   -log2 P(text) = sum over bytes t of -log2 P(byte t | bytes before t).
 *
 * The writer charges each choice byte by byte in that second form: when the bytes written so far leave alternatives of
 * total weight W possible and the next byte leaves W', that byte costs log2(W / W'). So the cost of the text up to any
 * byte is exact, and so is the cut between training and validation part, even where it falls into a word. The
 * self-check derives every number a second time from the text alone. Bits per byte are over the bytes of the stories:
 * to a model a separator is a token, not text.
 *
 * Exit status: 0 done, otherwise as in util/error.h. */
#include "data/output.h"
#include "data/stories/check.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the command line ---- */

typedef struct Options {
  uint64_t bytes;
  uint64_t seed;
  double val_frac;
  const char *output; /* NULL: stdout */
  const char *report; /* NULL: stderr, for people */
  bool self_check;
} Options;

typedef struct Totals {
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

static bool usage(Error *error, const char *flag, const char *value, const char *problem) {
  return fail(error, EXIT_USAGE, "%s%s%s: %s", flag, value ? " " : "", value ? value : "", problem);
}

/* Stores the value of one flag. */
static bool set_option(Options *o, const char *flag, const char *value, Error *error) {
  if (strcmp(flag, "--bytes") == 0) {
    if (parse_whole(value, &o->bytes) && o->bytes >= 1 && o->bytes <= UINT64_C(1000000000000)) return true;
    return usage(error, flag, value, "not a whole number from 1 to 1000000000000");
  }
  if (strcmp(flag, "--seed") == 0)
    return parse_whole(value, &o->seed) || usage(error, flag, value, "not a whole number from 0 to 2^64-1");
  if (strcmp(flag, "--val-frac") == 0)
    return parse_fraction(value, &o->val_frac) || usage(error, flag, value, "not a number from 0 to below 1");
  if (value[0] == '\0') return usage(error, flag, NULL, "needs a file name");
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

/* "--key value" or "--key=value". */
static bool parse_options(int argc, char **argv, Options *o, Error *error) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--self-check") == 0) {
      o->self_check = true;
      continue;
    }
    char flag[MAX_NAME];
    const char *equals = strchr(argv[i], '=');
    size_t length = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
    snprintf(flag, sizeof flag, "%.*s", (int)(length < sizeof flag ? length : sizeof flag), argv[i]);
    if (!takes_value(flag)) return usage(error, argv[i], NULL, "unknown flag (see stories --help)");
    if (!equals && i + 1 == argc) return usage(error, flag, NULL, "needs a value");
    if (!set_option(o, flag, equals ? equals + 1 : argv[++i], error)) return false;
  }
  if (o->bytes == 0 && !o->self_check) return usage(error, "--bytes", NULL, "missing: say how much to write");
  return true;
}

/* ---- the stories ---- */

/* The size of the whole text: the cut depends on it, so the stories are written twice. */
static uint64_t measure(const Options *o, Writer *w) {
  uint64_t bytes = 0;
  w->random = o->seed;
  while (bytes < o->bytes && writer_story(w)) bytes += w->length;
  return bytes;
}

/* Writes the stories and adds up their bits on both sides of the cut. */
static bool write_stories(const Options *o, Writer *w, Output *out, Totals *totals, Error *error) {
  uint64_t bytes = measure(o, w);
  *totals = (Totals){.train_bytes = (uint64_t)floor((double)bytes * (1.0 - o->val_frac))};
  w->random = o->seed;
  while (totals->bytes < bytes && writer_story(w)) {
    uint64_t left = totals->train_bytes > totals->bytes ? totals->train_bytes - totals->bytes : 0;
    size_t cut = left < w->length ? (size_t)left : w->length;
    totals->train_bits += writer_bits(w, 0, cut);
    totals->val_bits += writer_bits(w, cut, w->length);
    size_t text = w->length - strlen(STORY_SEPARATOR), train_text = cut < text ? cut : text;
    totals->train_text += train_text;
    totals->val_text += text - train_text;
    totals->bytes += w->length;
    totals->stories++;
    if (fwrite(w->text, 1, w->length, out->stream) != w->length) return output_fail(out, "write", error);
  }
  if (w->error) return fail(error, EXIT_INTERNAL, "internal error: %s", w->error);
  return fflush(out->stream) == 0 || output_fail(out, "write", error);
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

static bool write_report(const Options *o, const Totals *t, size_t max_distance, Error *error) {
  Output out;
  if (!output_open(&out, o->report, error)) return false;
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
  bool ok = written >= 0 || output_fail(&out, "write", error);
  return output_close(&out, ok, error);
}

static bool write_all(const Options *o, Writer *w, Error *error) {
  Output out;
  Totals totals;
  if (!output_open(&out, o->output, error)) return false;
  bool ok = write_stories(o, w, &out, &totals, error);
  ok = output_close(&out, ok, error);
  if (!ok && out.reader_left) *error = (Error){0};
  if (!ok) return out.reader_left;
  if (o->report) return write_report(o, &totals, w->max_distance, error);
  print_summary(o, &totals);
  return true;
}

static bool flush_stdout(Error *error) {
  Output out = {.stream = stdout, .name = "standard output"};
  return output_close(&out, true, error);
}

static bool run(const Options *o, Grammar *g, Writer *w, Error *error) {
  if (!grammar_compile(g, error)) return false;
  w->grammar = g;
  if (o->self_check) return check_grammar(g, w, error) && flush_stdout(error);
  return write_all(o, w, error);
}

int main(int argc, char **argv) {
  Options options = {.seed = 1, .val_frac = 0.1};
  Error error = {0};
  bool help = false;
  for (int i = 1; i < argc; i++) help = help || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
  if (help) {
    fputs(HELP, stdout);
    flush_stdout(&error);
  } else if (parse_options(argc, argv, &options, &error)) {
    signal(SIGPIPE, SIG_IGN);
    Grammar *grammar = calloc(1, sizeof *grammar);
    Writer *writer = calloc(1, sizeof *writer);
    if (grammar && writer) run(&options, grammar, writer, &error);
    else fail(&error, EXIT_MEMORY, "out of memory");
    free(grammar);
    free(writer);
  }
  if (error.code) fprintf(stderr, "stories: %s\n", error.text);
  return (int)error.code;
}
