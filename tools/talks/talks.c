/* talks: writes small conversations with an animal of the stories' world, as JSON Lines, and counts right answers.
 *
 *   talks --lines 4000 -o talks.jsonl --test test.jsonl
 *   talks --check answers.jsonl
 *
 * A line of the training set is a conversation: {"messages": [{"role": "user", "content": "..."}, ...]}, with the roles
 * system (in some), user and assistant. A line of the test set is a conversation up to a question, and the key "answer"
 * with one right answer. The answers use what was said before: the user's name and favorite thing, and who the
 * character is.
 *
 * --check reads lines like those of the test set with the answers of a model, or chat completions as ./generate --prompts
 * prints them, and prints how many are right. An answer is right if some conversation of the grammar (tables.c) begins
 * with these messages and this answer, and if the model has ended it. In a line without an answer of either form, the
 * assistant's messages are the answers.
 *
 * No conversation of the test set has a name and a favorite thing that the training set has together: a model cannot
 * know them by heart (see is_of_test()).
 *
 * The information in an answer is -log2 P(answer | messages before it); tools/stories/stories.c describes how it is
 * computed. The roles and the end of an answer contain none. Bits per byte are averaged over the bytes of the answers.
 *
 * Exit status: 0 done, otherwise as in base/error.h. */
#include "base/hash.h"
#include "cli/option_rows.h"
#include "text/dataset/line.h"
#include "tools/output.h"
#include "tools/stories/writer.h"
#include "tools/talks/tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  TEST_RATIO = 10,      /* one of this many pairs of a name and a favorite thing is in the test set */
  LINE_BEGINS = 2,      /* bytes of "U " */
  CHECK_LIMIT = 1 << 30 /* bytes of a file of answers */
};

typedef struct TalkSettings {
  int64_t lines, test_lines;
  uint64_t seed;
  const char *output, *test, *report, *check;
  bool self_check, quiet;
} TalkSettings;

/* The answers of a set. */
typedef struct Answers {
  int64_t lines, count, bytes;
  double bits;
} Answers;

static void talk_options(Options *options, TalkSettings *s) {
  *s = (TalkSettings){.lines = 4000, .test_lines = 500, .seed = 1};
  const Option table[] = {
      INT64("lines", &s->lines, 0, 1e12, NULL, "conversations of the training set"),
      TEXT("output", &s->output, "FILE", "standard output", "file for the training set", .letter = 'o'),
      INT64("test-lines", &s->test_lines, 0, 1e12, NULL, "questions of the test set"),
      TEXT("test", &s->test, "FILE", "none is written",
           "file for the test set: conversations up to a question, with names and favorite things that no training set "
           "has together"),
      UINT64("seed", &s->seed, NULL, "same seed, same lines"),
      TEXT("report", &s->report, "FILE", "a line on standard error", "file for the report, a JSON object"),
      TEXT("check", &s->check, "FILE", NULL, "count the right answers in this file; writes no conversations"),
      FLAG("self-check", &s->self_check,
           "prove that the grammar is unambiguous and the entropy is correct; writes no conversations"),
  };
  *options = (Options){.program = "talks",
                       .usage = "[options]",
                       .about = "Writes small conversations as JSON Lines, and reports the exact entropy of their "
                                "answers in bits per byte."};
  options_init(options, table, sizeof table / sizeof *table);
}

/* ---- conversations ---- */

static int value_of(const Writer *w, const char *name) {
  int i = 0;
  while (strcmp(w->grammar->variable[i].name, name) != 0) i++;
  return w->value[i];
}

/* Returns whether the newest conversation belongs to the test set. This depends only on the user's name and favorite
 * thing, so both sets differ in them for all seeds. The user says them, so that the choice changes no probability of
 * an answer. */
static bool is_of_test(const Writer *w) {
  static const char *const things[] = {"color", "dish", "toy", "animal"}; /* by the words of "topic" */
  const int topic = value_of(w, "topic");
  const int32_t facts[] = {value_of(w, "user"), topic, value_of(w, things[topic])};
  return checksum_xxh64(facts, sizeof facts, 0) % TEST_RATIO == 0;
}

static bool next_talk(Writer *w, bool test, Error *error) {
  do
    if (!writer_story(w)) return fail(error, EXIT_INTERNAL, "internal error: %s", w->error);
  while (is_of_test(w) != test);
  w->length -= strlen(STORY_SEPARATOR);
  return true;
}

/* Returns where the line after the one at `at` begins. */
static size_t next_line(const Writer *w, size_t at) {
  return (size_t)((const char *)memchr(w->text + at, '\n', w->length - at) - w->text) + 1;
}

static int count_answers(const Writer *w) {
  int count = 0;
  for (size_t at = 0; at < w->length; at = next_line(w, at)) count += w->text[at] == 'A';
  return count;
}

static void add_answer(const Writer *w, size_t at, Answers *sum) {
  const size_t end = next_line(w, at);
  sum->count++;
  sum->bytes += (int64_t)(end - 1 - at - LINE_BEGINS);
  sum->bits += writer_bits(w, at + LINE_BEGINS, end);
}

static const char *role_of(char letter) { return letter == 'S' ? "system" : letter == 'U' ? "user" : "assistant"; }

/* Writes a conversation; `asked` > 0: only up to that answer, which is written apart. The grammar has no characters
 * that JSON escapes. */
static bool write_talk(const Writer *w, int asked, Output *out, Answers *sum) {
  const char *between = "{\"messages\": [";
  int answers = 0;
  for (size_t at = 0, end; at < w->length && w->text[at] != 'E'; at = end) {
    const char *text = w->text + at + LINE_BEGINS;
    end = next_line(w, at);
    const int length = (int)(end - 1 - at - LINE_BEGINS);
    const bool answer = w->text[at] == 'A', last = answer && ++answers == asked;
    if (answer && (last || !asked)) add_answer(w, at, sum);
    if (last) return fprintf(out->stream, "], \"answer\": \"%.*s\"}\n", length, text) >= 0;
    if (fprintf(out->stream, "%s{\"role\": \"%s\", \"content\": \"%.*s\"}", between, role_of(w->text[at]), length,
                text) < 0)
      return false;
    between = ", ";
  }
  return fprintf(out->stream, "]}\n") >= 0;
}

static bool write_lines(const TalkSettings *s, bool test, Writer *w, Output *out, Answers *sum, Error *error) {
  w->random = s->seed;
  for (sum->lines = 0; sum->lines < (test ? s->test_lines : s->lines); sum->lines++) {
    if (!next_talk(w, test, error)) return false;
    const int asked = test ? 1 + (int)(sum->lines % count_answers(w)) : 0;
    if (!write_talk(w, asked, out, sum)) return output_fail(out, "write", error);
  }
  return true;
}

static bool write_set(const TalkSettings *s, bool test, Writer *w, Answers *sum, Error *error) {
  Output out;
  return output_open(&out, test ? s->test : s->output, error) &&
         output_close(&out, write_lines(s, test, w, &out, sum, error), error);
}

/* ---- the report ---- */

static double per_byte(const Answers *a) { return a->bytes ? a->bits / (double)a->bytes : 0; }

static bool write_report(const TalkSettings *s, const Answers *train, const Answers *test, Error *error) {
  Output out;
  if (!output_open(&out, s->report, error)) return false;
  const int written = fprintf(out.stream,
                              "{\"seed\": %" PRIu64 ",\n"
                              " \"lines\": %" PRId64 ", \"answers\": %" PRId64 ", \"answer_bytes\": %" PRId64
                              ", \"answer_bits\": %.9f, \"bits_per_byte\": %.12f,\n"
                              " \"test_answers\": %" PRId64 ", \"test_answer_bytes\": %" PRId64
                              ", \"test_answer_bits\": %.9f, \"test_bits_per_byte\": %.12f}\n",
                              s->seed, train->lines, train->count, train->bytes, train->bits, per_byte(train),
                              test->count, test->bytes, test->bits, per_byte(test));
  return output_close(&out, written >= 0 || output_fail(&out, "write", error), error);
}

static void print_summary(const TalkSettings *s, const Answers *train, const Answers *test) {
  fprintf(stderr,
          "talks: %" PRId64 " conversations, seed %" PRIu64 "; their %" PRId64 " answers have %" PRId64
          " bytes, %.6f bits/byte; test: %" PRId64 " answers, %.6f bits/byte\n",
          train->lines, s->seed, train->count, train->bytes, per_byte(train), test->count, per_byte(test));
}

static bool write_all(const TalkSettings *s, Writer *w, Error *error) {
  Answers train = {0}, test = {0};
  if (s->output && s->test && strcmp(s->output, s->test) == 0)
    return fail(error, EXIT_USAGE, "--output and --test are the same file");
  if ((s->test && !write_set(s, true, w, &test, error)) || !write_set(s, false, w, &train, error)) return false;
  if (s->report) return write_report(s, &train, &test, error);
  if (!s->quiet) print_summary(s, &train, &test);
  return true;
}

/* ---- checking answers ---- */

/* A conversation as text of the grammar. */
typedef struct Talk {
  const Grammar *grammar;
  char text[MAX_STORY];
  size_t length;
  bool foreign; /* it has a message that no conversation of the grammar has */
} Talk;

/* Adds a message. One that contains the end of a line, or does not fit, is no message of the grammar. */
static void add_message(Talk *t, char letter, const json_t *content) {
  const char *text = json_string_value(content);
  const size_t length = json_string_length(content);
  t->foreign = t->foreign || memchr(text, '\n', length) || length + LINE_BEGINS + 1 > sizeof t->text - t->length;
  if (t->foreign) return;
  t->text[t->length++] = letter;
  t->text[t->length++] = ' ';
  memcpy(t->text + t->length, text, length);
  t->length += length;
  t->text[t->length++] = '\n';
}

static void judge(const Talk *t, Answers *all, Answers *right) {
  all->count++;
  right->count += !t->foreign && check_begins(t->grammar, t->text, t->length);
}

/* Returns the letter of a role; 0: there is no such role. */
static char letter_of(const char *role) {
  for (const char *letter = "SUA"; role && *letter; letter++)
    if (strcmp(role, role_of(*letter)) == 0) return *letter;
  return 0;
}

/* Returns the answer of a line; NULL: it has none apart from its messages. *cut: the model did not end it. */
static const json_t *answer_of(const json_t *line, bool *cut) {
  const json_t *choice = json_array_get(line_value(line, "choices"), 0);
  const char *reason = json_string_value(json_object_get(choice, "finish_reason"));
  *cut = choice && (!reason || strcmp(reason, "stop") != 0);
  return choice ? json_object_get(json_object_get(choice, "message"), "content") : line_value(line, "answer");
}

/* Judges the answers of one line. EXIT_INPUT for a line of another form. */
static bool check_line(const json_t *line, LineName name, Talk *t, Answers *all, Answers *right, Error *error) {
  bool cut;
  const json_t *answer = answer_of(line, &cut), *messages = line_value(line, "messages"), *message;
  size_t i;
  t->length = 0;
  t->foreign = false;
  json_array_foreach(messages, i, message) {
    const char letter = letter_of(json_string_value(json_object_get(message, "role")));
    const json_t *content = json_object_get(message, "content");
    if (!letter || !json_is_string(content))
      return fail(error, EXIT_INPUT, "%s: message %zu needs a role (system, user or assistant) and a content, a string",
                  name.text, i + 1);
    add_message(t, letter, content);
    if (!answer && letter == 'A') judge(t, all, right);
  }
  if (!json_is_array(messages) || (answer && !json_is_string(answer)))
    return fail(error, EXIT_INPUT, "%s needs \"messages\", a list, and \"answer\", a string", name.text);
  if (answer) {
    add_message(t, 'A', answer);
    t->foreign = t->foreign || cut;
    judge(t, all, right);
  }
  return true;
}

static bool check_lines(const TalkSettings *s, const MappedFile *file, Talk *t, Answers *all, Answers *right,
                        Error *error) {
  int64_t number = 0;
  for (size_t at = 0, size; at < file->size;) {
    const uint8_t *text = line_take(file->bytes, file->size, &at, &size);
    number++;
    if (line_is_blank(text, size)) continue;
    json_t *line = line_object(text, size, s->check, number, error);
    const bool ok = line && check_line(line, line_name(s->check, number), t, all, right, error);
    json_decref(line);
    if (!ok) return false;
  }
  return all->count || fail(error, EXIT_INPUT, "%s has no answers", s->check);
}

static bool check_answers(const TalkSettings *s, const Grammar *g, Error *error) {
  MappedFile file;
  Answers all = {0}, right = {0};
  Talk talk = {.grammar = g};
  if (!file_map(&file, s->check, EXIT_INPUT, error)) return false;
  const bool fits = file.size <= CHECK_LIMIT;
  const bool ok = fits ? check_lines(s, &file, &talk, &all, &right, error)
                       : fail(error, EXIT_INPUT, "%s has more than %d bytes", s->check, CHECK_LIMIT);
  file_unmap(&file);
  if (!ok) return false;
  printf("{\"answers\": %" PRId64 ", \"right\": %" PRId64 "}\n", all.count, right.count);
  return file_flush(stdout, "standard output", error);
}

/* ---- the program ---- */

static bool run(const Options *options, void *settings, Error *error) {
  static Grammar grammar;
  static Writer writer = {.grammar = &grammar};
  TalkSettings *s = settings;
  Output out;
  s->quiet = options->quiet;
  if (!grammar_compile(&grammar, &talk_tables, error)) return false;
  if (s->check) return check_answers(s, &grammar, error);
  if (!s->self_check) return write_all(s, &writer, error);
  return output_open(&out, NULL, error) && output_close(&out, check_grammar(&grammar, &writer, false, error), error);
}

int main(int argc, char **argv) {
  TalkSettings settings;
  Options options;
  talk_options(&options, &settings);
  return output_main(&options, argc, argv, run, &settings);
}
