/* Interactive sessions (-i): reads lines and commands; what they do is in continuation.c and chat.c. */
#include "cli/startup.h"
#include "generate/session.h"
#include "base/file.h"
#include "base/system.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what the kinds share ---- */

bool session_answer(Session *s, size_t cached, size_t size, Text *text, Error *error) {
  Program *p = s->p;
  *text = prompt_text(p, &p->prompt.tokens);
  text->cached = cached;
  text->sampling.seed = s->seed++;
  text->keep_tokens = true;
  const int64_t most = (int64_t)((SESSION_LIMIT - size) / 16) + 1; /* of an answer that does not end by itself */
  if (text->max_tokens < 0 || text->max_tokens > most) text->max_tokens = most;
  if (!program_make_text(p, text, true, error)) return false;
  if (!text->bytes.size || text->bytes.bytes[text->bytes.size - 1] != '\n') putchar('\n');
  program_flush(p);
  program_note_text(&p->console, text);
  if (s->input.terminal) startup_take_interrupt();
  return program_check(p, error);
}

bool session_save(Session *s, const char *path, const void *bytes, size_t size, Error *error) {
  if (!*path) return fail(error, EXIT_USAGE, "/save FILE: the name of a file is missing");
  struct stat info = {0};
  const bool there = lstat(path, &info) == 0;
  const struct timespec time = system_modified(&info);
  const bool own = there && s->saved && strcmp(s->saved, path) == 0 && time.tv_sec == s->saved_at.tv_sec &&
                   time.tv_nsec == s->saved_at.tv_nsec;
  if (there && !own) return fail(error, EXIT_USAGE, "/save: %s is there already; name another", path);
  if (!file_write(path, bytes, size, error)) return false;
  console_note(&s->p->console, "%s in %s", text_plural((double)size, "byte").text, path);
  if (stat(path, &info) == 0) s->saved_at = system_modified(&info);
  if (own) return true;
  free(s->saved);
  s->saved = strdup(path);
  return s->saved || error_memory(error, "a name");
}

/* ---- commands ---- */

static bool quit(Session *s, const char *argument, Error *error) {
  (void)argument, (void)error;
  s->over = true;
  return true;
}

static bool help(Session *s, const char *argument, Error *error);

static const SessionCommand common_commands[] = {
    {"help", "", "this list", help}, {"quit", "", "end (or Ctrl-D)", quit}, {0}};

/* Names of options that may be changed here, in addition to all sampling settings. */
static const char *const settings[] = {"n", "greedy", "ignore-eos", "seed"};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* Returns the option with that name here; NULL: there is none. */
static const char *option_called(const char *name) {
  for (int i = 0; i < SETTINGS; i++)
    if (strcmp(name, settings[i]) == 0) return strcmp(name, "n") == 0 ? "tokens" : name;
  for (const SamplingSetting *s = sampling_settings; s->name; s++)
    if (strcmp(name, s->name) == 0) return s->name;
  return NULL;
}

static void list_commands(const SessionCommand *commands) {
  for (; commands->name; commands++)
    fprintf(stderr, "  /%s%-*s %s\n", commands->name, (int)(12 - strlen(commands->name)), commands->argument,
            commands->help);
}

static bool help(Session *s, const char *argument, Error *error) {
  (void)argument, (void)error;
  fprintf(stderr, "%s To add a line\nthat begins with /, type // in place of the /.\n", s->kind->help);
  list_commands(s->kind->commands);
  list_commands(common_commands);
  fprintf(stderr, "  /NAME VALUE   change a setting; without VALUE print it:");
  for (int i = 0; i < SETTINGS; i++) fprintf(stderr, " %s", settings[i]);
  for (const SamplingSetting *row = sampling_settings; row->name; row++) fprintf(stderr, " %s", row->name);
  fprintf(stderr, "\n  Ctrl-C stops an answer.\n");
  return true;
}

static const SessionCommand *find_command(const SessionCommand *commands, const char *name) {
  for (; commands->name; commands++)
    if (strcmp(name, commands->name) == 0) return commands;
  return NULL;
}

static bool change(Session *s, const char *name, const char *option, const char *value, Error *error) {
  Program *p = s->p;
  const bool is_temp = strcmp(name, "temp") == 0, is_seed = strcmp(name, "seed") == 0;
  char text[64];
  if (*value) {
    if (!options_set(&p->options, option, value, error)) return false;
    if (is_temp) p->settings.greedy = false;
    if (is_seed) s->seed = p->settings.seed;
    return true;
  }
  options_format_named(&p->options, option, text, sizeof text);
  if (is_seed) snprintf(text, sizeof text, "%" PRIu64 ", of the next answer", s->seed);
  if (is_temp && p->settings.greedy) snprintf(text, sizeof text, "0 (greedy)");
  console_note(&s->p->console, "%s %s", name, text);
  return true;
}

static bool run_command(Session *s, char *line, size_t size, Error *error) {
  if (strlen(line) != size) return fail(error, EXIT_USAGE, "a command must not contain a zero byte");
  const size_t length = strcspn(line, " ");
  const char *argument = line + length + strspn(line + length, " ");
  line[length] = '\0';
  const SessionCommand *command = find_command(s->kind->commands, line);
  if (!command) command = find_command(common_commands, line);
  if (command)
    return !*argument || *command->argument ? command->run(s, argument, error)
                                            : fail(error, EXIT_USAGE, "/%s takes no argument", command->name);
  const char *option = option_called(line);
  return option ? change(s, line, option, argument, error)
                : fail(error, EXIT_USAGE, "/%.40s is no command; /help lists them", line);
}

/* A line that begins with / is a command; one that begins with // is text without the first /. */
static bool take_line(Session *s, const uint8_t *line, size_t size, Error *error) {
  const bool slash = size && line[0] == '/', command = slash && !(size > 1 && line[1] == '/');
  const bool escapes = s->p->settings.escapes;
  ByteBuffer text = {0};
  bool ok = prompt_copy(line + slash, size - slash, &text, error);
  if (ok && !command && !escapes && !s->noted && prompt_has_escapes((char *)text.bytes, text.size)) {
    console_note(&s->p->console, "the backslash is taken as it is; with -i -e, \\n is a line break and \\t a tab");
    s->noted = true;
  }
  if (ok)
    ok = command ? run_command(s, (char *)text.bytes, text.size, error)
                 : (!escapes || prompt_replace_escapes(&text, error)) && s->kind->take(s, text.bytes, text.size, error);
  free(text.bytes);
  return ok;
}

/* ---- the session ---- */

/* Prints the mistake of a person and goes on; returns the mistake of a script as an error. */
static bool forgive(const Session *s, const Error *why, Error *error) {
  const bool mistake = why->code == EXIT_USAGE || why->code == EXIT_INPUT || why->code == EXIT_OUTPUT;
  if (!mistake || !s->input.terminal || s->p->write_error) return fail(error, why->code, "%s", why->text);
  console_error(&s->p->console, why);
  return true;
}

static bool talk(Session *s, Error *error) {
  const uint8_t *line;
  size_t size;
  while (!s->over && !s->p->write_error) {
    if (!line_input_ask(&s->input, &line, &size, error)) return false;
    Error why = {0};
    if (line) {
      if (s->input.terminal) startup_take_interrupt(); /* it was meant for the last answer, which is complete */
      if (!take_line(s, line, size, &why) && !forgive(s, &why, error)) return false;
    } else if (s->input.terminal) {
      if (startup_take_interrupt()) fputs("^C\n", stderr);
      else s->over = true;
      if (s->over && !stop_signal) fputc('\n', stderr);
    } else s->over = true;
  }
  return program_check(s->p, error);
}

static void greet(const Session *s) {
  Console *console = &s->p->console;
  if (!s->input.terminal) return;
  console_note(console, "%s", s->kind->greeting);
  if (!s->input.edits) console_note(console, "without libedit, only the editing of the terminal itself works");
}

static void close_session(Session *s) {
  line_input_close(&s->input);
  for (size_t i = 0; i < s->chat.count; i++) free((void *)s->chat.messages[i].text);
  free(s->chat.messages);
  free(s->text.text);
  free(s->text.before);
  free(s->saved);
}

bool program_interactive(Program *p, Error *error) {
  Session s = {
      .kind = p->model.chat ? &session_of_chat : &session_of_text, .p = p, .input.fd = -1, .seed = prompt_seed(p)};
  p->settings.truncate_prompt = 1; /* a text longer than the context loses its beginning */
  bool ok = line_input_open_session(&s.input, error);
  if (ok) greet(&s);
  ok = ok && (!s.kind->begin || s.kind->begin(&s, error));
  if (ok && p->prompt.text.size) {
    program_write(p, p->prompt.text.bytes, p->prompt.text.size);
    if (p->model.chat) putchar('\n');
    ok = s.kind->take(&s, p->prompt.text.bytes, p->prompt.text.size, error);
  }
  ok = ok && talk(&s, error);
  close_session(&s);
  return ok;
}
