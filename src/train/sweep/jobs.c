/* The processes of a sweep: runs of this program with other arguments. */
#include "train/sweep/internal.h"

#include "base/json.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void sweep_jobs_free(Jobs *b) {
  for (int i = 0; i < b->count; i++) {
    free((void *)b->processes[i].arguments);
    json_decref(b->words[i]);
    unlink(b->runs[i]->out.text);
  }
  free(b->processes);
  free(b->words);
  free(b->runs);
}

bool sweep_jobs_make(Jobs *b, const Sweep *s, Error *error) {
  const size_t most = (size_t)s->count;
  *b = (Jobs){.processes = calloc(most, sizeof *b->processes),
              .words = calloc(most, sizeof *b->words),
              .runs = calloc(most, sizeof *b->runs)};
  return (b->processes && b->words && b->runs) || error_memory(error, "a sweep");
}

bool sweep_jobs_add(Jobs *b, SweepRun *run, json_t *words, Error *error) {
  const size_t count = json_array_size(words);
  const char **arguments = calloc(count + 1, sizeof *arguments);
  const int i = b->count++;
  b->words[i] = words;
  b->runs[i] = run;
  b->processes[i] = (Process){.arguments = arguments, .out = run->out.text, .messages = run->messages.text};
  if (!arguments) return error_memory(error, "a sweep");
  for (size_t k = 0; k < count; k++) arguments[k] = json_string_value(json_array_get(words, k));
  return json_memory_ok(error, "a sweep");
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
  json_object_foreach(run->settings, name, value) add_setting(s, words, name, json_string_value(value));
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

OneLine sweep_message_of(const Process *process) {
  OneLine message = last_message(process->messages);
  const int number = process->status - EXIT_SIGNALS;
  const bool says_why = number <= 0 || number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGUSR1;
  if (!says_why) snprintf(message.text, sizeof message.text, "ended by signal %d", number);
  else if (!*message.text) snprintf(message.text, sizeof message.text, "status %d", process->status);
  return message;
}
