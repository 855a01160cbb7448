/* stories: writes small English stories from the grammar of grammar.h and reports exactly how much information they
 * contain: the best possible loss of a language model that is trained on them.
 *
 *   stories --bytes 2000000 --seed 1 [--val-frac 0.1] [-o FILE] [--report FILE]
 *   stories --self-check
 *
 * The information in a text is -log2 P(text). Every text has one derivation (the rule in grammar.h), so P(text) is the
 * product of the probabilities of its choices, and
 *
 *   -log2 P(text) = sum over bytes t of -log2 P(byte t | bytes before t).
 *
 * The writer charges each choice byte by byte in that second form: when the bytes written so far leave alternatives of
 * total weight W possible and the next byte leaves W', that byte costs log2(W / W'). So the cost of the text up to any
 * byte is exact, even if the cut between the training and the validation set is inside a word. The self-check computes
 * every number a second time from the text alone. Bits per byte are averaged over the bytes of the stories, because for
 * a model a separator is a token, not text.
 *
 * Exit status: 0 done, otherwise as in base/error.h. */
#include "cli/option_rows.h"
#include "tools/output.h"
#include "tools/stories/writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct StorySettings {
  int64_t bytes;
  uint64_t seed;
  double val_frac;
  const char *output; /* NULL: standard output */
  const char *report; /* NULL: a line on standard error */
  bool self_check, quiet;
} StorySettings;

typedef struct Totals {
  uint64_t stories;
  uint64_t bytes;
  uint64_t train_bytes;
  uint64_t train_text, val_text; /* bytes outside of separators, which bits per byte are averaged over */
  double train_bits;
  double val_bits;
} Totals;

static void story_options(Options *options, StorySettings *s) {
  *s = (StorySettings){.seed = 1, .val_frac = 0.1};
  const Option table[] = {
      INT64("bytes", &s->bytes, 1, 1e12, NULL, "stop at the end of the first story at or after N bytes"),
      UINT64("seed", &s->seed, NULL, "same seed, same text"),
      DOUBLE("val-frac", &s->val_frac, 0, 1, NULL, "report the last X of the bytes separately, as validation set",
             .below = true),
      TEXT("output", &s->output, "FILE", "standard output", "file for the text", .letter = 'o'),
      TEXT("report", &s->report, "FILE", "a line on standard error", "file for the report, a JSON object"),
      FLAG("self-check", &s->self_check,
           "prove that the grammar is unambiguous and the entropy is correct; writes no stories"),
  };
  *options = (Options){.program = "stories",
                       .usage = "--bytes N [options]",
                       .about = "Writes small English stories, a line <|endoftext|> after each, and reports the exact "
                                "entropy of the text, in bits per byte of the stories."};
  options_init(options, table, sizeof table / sizeof *table);
}

/* ---- the stories ---- */

/* Returns the size of the whole text. The cut depends on it, so all stories are made twice. */
static uint64_t measure(const StorySettings *o, Writer *w) {
  uint64_t bytes = 0;
  w->random = o->seed;
  while (bytes < (uint64_t)o->bytes && writer_story(w)) bytes += w->length;
  return bytes;
}

/* Writes the stories and sums their bits on both sides of the cut. */
static bool write_stories(const StorySettings *o, Writer *w, Output *out, Totals *totals, Error *error) {
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

static void print_summary(const StorySettings *o, const Totals *t) {
  uint64_t val_bytes = t->bytes - t->train_bytes;
  fprintf(stderr,
          "stories: %" PRIu64 " stories, %" PRIu64 " bytes, seed %" PRIu64 ", %.6f bits/byte; "
          "train %" PRIu64 " bytes, %.3f bits, %.6f bits/byte; val %" PRIu64 " bytes, %.3f bits, %.6f bits/byte\n",
          t->stories, t->bytes, o->seed, per_byte(t->train_bits + t->val_bits, t->train_text + t->val_text),
          t->train_bytes, t->train_bits, per_byte(t->train_bits, t->train_text), val_bytes, t->val_bits,
          per_byte(t->val_bits, t->val_text));
}

static bool write_report(const StorySettings *o, const Totals *t, size_t max_distance, Error *error) {
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

static bool write_all(const StorySettings *o, Writer *w, Error *error) {
  Output out;
  Totals totals;
  if (!output_open(&out, o->output, error) || !output_close(&out, write_stories(o, w, &out, &totals, error), error))
    return false;
  if (out.reader_left) return true;
  if (o->report) return write_report(o, &totals, w->max_distance, error);
  if (!o->quiet) print_summary(o, &totals);
  return true;
}

static bool run(const Options *options, void *settings, Error *error) {
  static Grammar grammar;
  static Writer writer = {.grammar = &grammar};
  StorySettings *o = settings;
  Output out;
  o->quiet = options->quiet;
  if (!o->self_check && !options_given(options, &o->bytes))
    return fail(error, EXIT_USAGE, "--bytes is missing: say how much to write");
  if (!grammar_compile(&grammar, &story_tables, error)) return false;
  if (!o->self_check) return write_all(o, &writer, error);
  return output_open(&out, NULL, error) && output_close(&out, check_grammar(&grammar, &writer, true, error), error);
}

int main(int argc, char **argv) {
  StorySettings settings;
  Options options;
  story_options(&options, &settings);
  return output_main(&options, argc, argv, run, &settings);
}
