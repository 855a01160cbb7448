/* The processes of a sweep: runs of this program with other arguments. */
#include "train/sweep/internal.h"

#include "base/json.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The processes that run now. */
typedef struct Batch {
  Sweep *s;
  SweepEnded *ended;
  Process *processes;
  SweepRun **runs;
  int count, done;
} Batch;

static bool end(void *context, int which) {
  Batch *b = context;
  b->done++;
  b->runs[which]->status = b->processes[which].status;
  return !b->ended || b->ended(b->s, b->runs[which], b->done, b->count);
}

static bool add(Batch *b, SweepRun *run, Error *error) {
  const size_t count = json_array_size(run->words);
  const char **arguments = calloc(count + 1, sizeof *arguments);
  if (!arguments) return error_memory(error, "a sweep");
  for (size_t i = 0; i < count; i++) arguments[i] = json_string_value(json_array_get(run->words, i));
  run->status = 0;
  b->runs[b->count] = run;
  b->processes[b->count++] = (Process){.arguments = arguments, .out = run->out.text, .messages = run->messages.text};
  return json_memory_ok(error, "a sweep");
}

bool sweep_run_processes(Sweep *s, SweepEnded *ended, Error *error) {
  Batch b = {.s = s,
             .ended = ended,
             .processes = calloc((size_t)s->count, sizeof *b.processes),
             .runs = calloc((size_t)s->count, sizeof *b.runs)};
  bool ok = !error->code && ((b.processes && b.runs) || error_memory(error, "a sweep"));
  for (int i = 0; ok && i < s->count; i++)
    if (s->runs[i].words) ok = add(&b, &s->runs[i], error);
  ok = ok && processes_run(b.processes, b.count, s->at_once, end, &b, error);
  for (int i = 0; i < b.count; i++) free((void *)b.processes[i].arguments);
  for (int i = 0; i < s->count; i++) {
    json_decref(s->runs[i].words);
    s->runs[i].words = NULL;
  }
  free(b.processes);
  free(b.runs);
  return ok;
}

/* A path is given as it was when the sweep began, in whatever directory it is continued. */
static void add_setting(const Sweep *s, json_t *words, const char *name, const char *value) {
  json_t *word = json_sprintf("--%s=%s", name, value);
  json_t *absolute = json_object_get(json_object_get(s->file, "absolute"), word ? json_string_value(word) : "");
  json_array_append(words, json_is_string(absolute) ? absolute : word);
  json_decref(word);
}

void sweep_add_word(json_t *words, const char *name, const char *value) {
  json_array_append_new(words, json_sprintf("--%s=%s", name, value));
}

void sweep_add_count(json_t *words, const char *name, int64_t value) {
  json_array_append_new(words, json_sprintf("--%s=%" JSON_INTEGER_FORMAT, name, (json_int_t)value));
}

json_t *sweep_words(const Sweep *s, const SweepRun *run) {
  json_t *words = json_array(), *value;
  const char *name;
  size_t i;
  json_array_foreach(json_object_get(s->file, "arguments"), i,
                     value) if (!s->threads || strncmp(json_string_value(value), "--threads=", 10) != 0)
      json_array_append(words, value);
  json_object_foreach(run->settings, name, value) { add_setting(s, words, name, json_string_value(value)); }
  if (s->threads) sweep_add_count(words, "threads", s->threads);
  if (s->eval_tokens) sweep_add_count(words, "eval-tokens", s->eval_tokens);
  return words;
}

/* Copies the last line that a process has printed, without the name of the program; "": none. */
static OneLine last_message(const char *path) {
  OneLine out = {""};
  char line[1024], last[1024] = "";
  FILE *file = fopen(path, "r");
  if (!file) return out;
  while (fgets(line, sizeof line, file))
    if (line[strspn(line, " \n")]) memcpy(last, line, sizeof line);
  fclose(file);
  last[strcspn(last, "\n")] = 0;
  return text_one_line(strncmp(last, "train: ", 7) == 0 ? last + 7 : last, ONE_LINE_BYTES - 1);
}

OneLine sweep_message_of(const SweepRun *run) {
  OneLine message = last_message(run->messages.text);
  const int number = run->status - EXIT_SIGNALS;
  const bool says_why = number <= 0 || number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGUSR1;
  if (!says_why) snprintf(message.text, sizeof message.text, "ended by signal %d", number);
  else if (!*message.text) snprintf(message.text, sizeof message.text, "status %d", run->status);
  return message;
}
