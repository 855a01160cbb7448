/* Interactive generation (-i): the user adds a line, the model continues the text. */
#include "cli/startup.h"
#include "generate/line_input.h"
#include "generate/program.h"
#include "base/array.h"
#include "base/file.h"
#include "base/system.h"
#include "base/text.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A state of the session, as offsets into its text. */
typedef struct Turn {
  size_t size;     /* of the text */
  size_t begin;    /* of the current text; /new and /load set it */
  size_t document; /* the beginning of what the model sees: after the last end-of-text token */
  size_t typed;    /* the beginning of the last line that was typed */
  size_t answer;   /* the beginning of the model's answer to it */
  bool answered;   /* there is such an answer */
  bool ended;      /* the model ended it with an end-of-text token */
} Turn;

typedef struct Session {
  Program *p;
  LineInput input;
  uint8_t *text;
  size_t capacity;
  Turn now;
  Turn *before; /* [turns] the states before each turn, for /undo */
  int turns;
  size_t turns_capacity;
  uint64_t seed;            /* of the next answer */
  char *saved;              /* the file that /save wrote; it may replace the file while its time is saved_at */
  struct timespec saved_at; /* modification time */
  bool over;
  bool noted; /* the note about backslashes was printed */
} Session;

enum { TEXT_LIMIT = 64 << 20 }; /* bytes of a session */

static bool has_encoder(const Session *s) { return s->p->model.config.encoder_layers > 0; }

static bool no_memory(Error *error) { return error_memory(error, "a text of many turns"); }

/* EXIT_INPUT, EXIT_MEMORY. */
static bool add_text(Session *s, const uint8_t *bytes, size_t size, Error *error) {
  if (s->now.size + size > TEXT_LIMIT)
    return fail(error, EXIT_INPUT, "a session is limited to %d MiB of text; /save it and start another",
                TEXT_LIMIT >> 20);
  if (!array_reserve(&s->text, &s->capacity, s->now.size + size + 1, 1)) return no_memory(error);
  if (size) memcpy(s->text + s->now.size, bytes, size);
  s->now.size += size;
  return true;
}

/* ---- answers ---- */

/* Encodes what the model reads: with an encoder the last line without its newline, otherwise the document. */
static bool encode(const Session *s, Error *error) {
  Program *p = s->p;
  const bool encoder = has_encoder(s);
  const size_t from = encoder ? s->now.typed : s->now.document;
  return prompt_encode(p, s->text ? s->text + from : (const uint8_t *)"", s->now.size - from - encoder,
                       &p->prompt.tokens, error);
}

static bool answer(Session *s, Error *error) {
  Program *p = s->p;
  if (!encode(s, error)) return false;
  unseen_note(p, &p->prompt.tokens.source, 0);
  Text text = prompt_text(p, &p->prompt.tokens);
  text.sampling.seed = s->seed++;
  text.keep_tokens = true;
  const int64_t most = (int64_t)((TEXT_LIMIT - s->now.size) / 16) + 1; /* of an answer that does not end by itself */
  if (text.max_tokens < 0 || text.max_tokens > most) text.max_tokens = most;
  s->now.answer = s->now.size;
  s->now.answered = true;
  const bool ok = program_make_text(p, &text, true, error) && add_text(s, text.bytes.bytes, text.bytes.size, error);
  generation_free_text(&text);
  if (!ok) return false;
  if (s->now.size == s->now.answer || s->text[s->now.size - 1] != '\n') putchar('\n');
  program_flush(p);
  s->now.ended = text.reason == STOP_END;
  program_note_text(&p->console, &text);
  if (s->input.terminal) startup_take_interrupt();
  return program_check(p, error);
}

/* ---- turns ---- */

static bool begin_turn(Session *s, Error *error) {
  if (!array_reserve(&s->before, &s->turns_capacity, (size_t)s->turns + 1, sizeof *s->before)) return no_memory(error);
  s->before[s->turns++] = s->now;
  s->now.answered = false;
  return true;
}

/* Adds what was typed, on a line of its own, and the answer. */
static bool take_text(Session *s, const uint8_t *line, size_t size, Error *error) {
  if (has_encoder(s) && size == 0) {
    console_note(&s->p->console, "this model needs a prompt: type one");
    return true;
  }
  if (!begin_turn(s, error)) return false;
  if (s->now.ended) s->now.document = s->now.size;
  s->now.ended = false;
  const bool follows = size && s->now.size > s->now.begin && s->text[s->now.size - 1] != '\n';
  bool ok = !follows || add_text(s, (const uint8_t *)"\n", 1, error);
  if (s->now.document == s->now.size - follows) s->now.document = s->now.size;
  s->now.typed = s->now.size;
  ok = ok && add_text(s, line, size, error) && (!has_encoder(s) || add_text(s, (const uint8_t *)"\n", 1, error));
  if (ok) return answer(s, error);
  s->now = s->before[--s->turns];
  return false;
}

/* ---- commands ---- */

typedef struct Command {
  const char *name, *argument, *help;
  bool (*run)(Session *s, const char *argument, Error *error);
} Command;

static bool retry(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (!s->now.answered) return fail(error, EXIT_USAGE, "/retry: there is no answer yet");
  s->now.size = s->now.answer;
  s->now.ended = false;
  return answer(s, error);
}

static bool undo(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (!s->turns) return fail(error, EXIT_USAGE, "/undo: there is nothing to undo");
  s->now = s->before[--s->turns];
  console_note(&s->p->console, "back to %s of text", text_plural((double)(s->now.size - s->now.begin), "byte").text);
  return true;
}

static bool begin_anew(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (!begin_turn(s, error)) return false;
  s->now.begin = s->now.document = s->now.typed = s->now.answer = s->now.size;
  s->now.ended = false;
  return true;
}

static bool show(Session *s, const char *argument, Error *error) {
  (void)argument;
  if (s->now.size > s->now.begin) program_write(s->p, s->text + s->now.begin, s->now.size - s->now.begin);
  if (s->now.size > s->now.begin && s->text[s->now.size - 1] != '\n') putchar('\n');
  program_flush(s->p);
  if (s->input.terminal) startup_take_interrupt();
  return program_check(s->p, error);
}

/* Replaces only a file that it wrote itself. */
static bool save(Session *s, const char *path, Error *error) {
  if (!*path) return fail(error, EXIT_USAGE, "/save FILE: the name of a file is missing");
  struct stat info = {0};
  const bool there = lstat(path, &info) == 0;
  const struct timespec time = system_modified(&info);
  const bool own = there && s->saved && strcmp(s->saved, path) == 0 && time.tv_sec == s->saved_at.tv_sec &&
                   time.tv_nsec == s->saved_at.tv_nsec;
  if (there && !own) return fail(error, EXIT_USAGE, "/save: %s is there already; name another", path);
  const uint8_t *text = s->text ? s->text + s->now.begin : (const uint8_t *)"";
  if (!file_write(path, text, s->now.size - s->now.begin, error)) return false;
  console_note(&s->p->console, "%s in %s", text_plural((double)(s->now.size - s->now.begin), "byte").text, path);
  if (stat(path, &info) == 0) s->saved_at = system_modified(&info);
  if (own) return true;
  free(s->saved);
  s->saved = strdup(path);
  return s->saved || no_memory(error);
}

static bool load(Session *s, const char *path, Error *error) {
  MappedFile file;
  if (!*path) return fail(error, EXIT_USAGE, "/load FILE: the name of a file is missing");
  if (has_encoder(s)) return fail(error, EXIT_USAGE, "/load is for models without an encoder");
  if (!file_map(&file, path, EXIT_INPUT, error)) return false;
  const size_t mark = utf8_mark(file.bytes, file.size);
  if (file.size > TEXT_LIMIT - s->now.size) {
    file_unmap(&file);
    return fail(error, EXIT_INPUT, "/load: %s does not fit into the %d MiB of a session", path, TEXT_LIMIT >> 20);
  }
  const bool ok = text_check(&s->p->check, file.bytes, file.size, path, true, error) && begin_anew(s, path, error) &&
                  add_text(s, file.bytes + mark, file.size - mark, error);
  if (ok)
    console_note(&s->p->console, "%s of %s; an empty line continues the text",
                 text_plural((double)file.size, "byte").text, path);
  file_unmap(&file);
  return ok;
}

static bool quit(Session *s, const char *argument, Error *error) {
  (void)argument, (void)error;
  s->over = true;
  return true;
}

static bool help(Session *s, const char *argument, Error *error);

static const Command commands[] = {{"retry", "", "another answer, with the next seed", retry},
                                   {"undo", "", "take back the last line and its answer", undo},
                                   {"new", "", "begin a new text", begin_anew},
                                   {"text", "", "print the text so far", show},
                                   {"save", " FILE", "write the text to a file", save},
                                   {"load", " FILE", "begin with the text of a file", load},
                                   {"help", "", "this list", help},
                                   {"quit", "", "end (or Ctrl-D)", quit}};
enum { COMMANDS = sizeof commands / sizeof *commands };

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

static bool help(Session *s, const char *argument, Error *error) {
  (void)argument, (void)error;
  fprintf(
      stderr,
      "Type a line: it is added to the text, and the model continues. An empty line adds nothing. To add a line that\n"
      "begins with /, type // in place of the /.\n");
  for (int i = 0; i < COMMANDS; i++)
    fprintf(stderr, "  /%s%-*s %s\n", commands[i].name, (int)(12 - strlen(commands[i].name)), commands[i].argument,
            commands[i].help);
  fprintf(stderr, "  /NAME VALUE    change a setting; without VALUE print it:");
  for (int i = 0; i < SETTINGS; i++) fprintf(stderr, " %s", settings[i]);
  for (const SamplingSetting *row = sampling_settings; row->name; row++) fprintf(stderr, " %s", row->name);
  fprintf(stderr, "\n  Ctrl-C stops an answer.\n");
  (void)s;
  return true;
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
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(line, commands[i].name) == 0)
      return !*argument || *commands[i].argument ? commands[i].run(s, argument, error)
                                                 : fail(error, EXIT_USAGE, "/%s takes no argument", commands[i].name);
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
                 : (!escapes || prompt_replace_escapes(&text, error)) && take_text(s, text.bytes, text.size, error);
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
  console_note(console, "type a line and the model continues it; /help lists the commands");
  if (!s->input.edits) console_note(console, "without libedit, only the editing of the terminal itself works");
}

bool program_interactive(Program *p, Error *error) {
  Session s = {.p = p, .input.fd = -1, .seed = prompt_seed(p)};
  p->settings.truncate_prompt = 1; /* a text longer than the context loses its beginning */
  bool ok = line_input_open_session(&s.input, error);
  if (ok) greet(&s);
  if (ok && p->prompt.text.size) {
    program_write(p, p->prompt.text.bytes, p->prompt.text.size);
    ok = take_text(&s, p->prompt.text.bytes, p->prompt.text.size, error);
  }
  ok = ok && talk(&s, error);
  line_input_close(&s.input);
  free(s.text);
  free(s.before);
  free(s.saved);
  return ok;
}
