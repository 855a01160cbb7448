/* Many texts: of one prompt (-N, --json), of each line of text (--lines) or of JSON (--prompts). */
#include "text/dataset/line.h"
#include "generate/completion.h"
#include "generate/line_input.h"
#include "generate/novelty.h"
#include "base/system.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_TEXTS = 1000000 };

/* Keys with a whole number, in addition to the sampling settings. */
enum { KEY_N, KEY_TOKENS, KEY_SEED, KEY_LOGPROBS, KEYS };
static const SamplingSetting number_keys[KEYS] = {{.key = "n", .whole = true, .min = 1, .max = MOST_TEXTS},
                                                  {.key = "max_tokens", .whole = true, .min = -1, .max = 1e12},
                                                  {.key = "seed", .whole = true, .min = -1, .max = 9e18},
                                                  {.key = "logprobs", .whole = true, .min = 0, .max = 1000}};

typedef struct Lines {
  Outputs outputs;
  Program *p;
  LineInput input; /* ended: there is only the prompt of the command line */
  bool json;
  GenerationRequest request; /* the settings of the command line */
  int64_t begun;             /* texts; with JSON each has the next seed */
  /* the prompt whose texts are being begun: text `next` of `n` is the next one */
  Completion *completion; /* NULL: not JSON */
  GenerationRequest own;  /* its settings */
  PromptTokens tokens;
  int n, next;
  bool given[KEYS]; /* its line has that key */
  bool scored;      /* the line's "score" is true */
  bool noted;       /* the note about "n" was printed */
  int held;         /* the number of texts that wait for the copied passages to underline */
} Lines;

/* ---- a line of JSON ---- */

static bool check_number(const char *name, const json_t *value, const SamplingSetting *row, Error *why) {
  const double number = json_number_value(value);
  if ((row->whole ? json_is_integer(value) : json_is_number(value)) && number <= row->max &&
      (row->above ? number > row->min : number >= row->min))
    return true;
  return fail(why, EXIT_INPUT, "\"%s\" must be a %snumber from %g%s to %g", name, row->whole ? "whole " : "", row->min,
              row->above ? " (excluded)" : "", row->max);
}

static void set_number(Lines *l, int key, const json_t *value) {
  GenerationRequest *r = &l->own;
  const double number = json_number_value(value);
  const int vocab = l->p->model.config.vocab;
  l->given[key] = true;
  if (key == KEY_N) l->n = (int)number;
  if (key == KEY_TOKENS) r->max_tokens = (int64_t)number;
  if (key == KEY_SEED) r->sampling.seed = number < 0 ? options_random_seed() : (uint64_t)json_integer_value(value);
  if (key == KEY_LOGPROBS) r->alternatives = number < vocab ? (int)number : vocab;
}

static bool take_number(Lines *l, const char *name, const json_t *value, bool *known, Error *why) {
  const SamplingSetting *row = sampling_settings;
  int key = 0;
  while (row->name && strcmp(name, row->key) != 0 && strcmp(name, row->name) != 0) row++;
  while (key < KEYS && strcmp(name, number_keys[key].key) != 0) key++;
  *known = row->name || key < KEYS;
  if (!*known) return true;
  if (!check_number(name, value, row->name ? row : &number_keys[key], why)) return false;
  if (row->name) sampling_set(&l->own.sampling, row, json_number_value(value));
  else set_number(l, key, value);
  return true;
}

static bool add_stop(Completion *c, const json_t *text, Error *why) {
  if (!json_is_string(text) || !json_string_length(text))
    return fail(why, EXIT_INPUT, "\"stop\" must be a non-empty string or a list of them");
  return pattern_list_add(&c->stops, json_string_value(text), json_string_length(text), why);
}

static bool take_stops(Completion *c, const json_t *value, Error *why) {
  if (!json_is_array(value)) return add_stop(c, value, why);
  for (size_t i = 0; i < json_array_size(value); i++)
    if (!add_stop(c, json_array_get(value, i), why)) return false;
  return true;
}

static bool take_score(Lines *l, const json_t *value, Error *why) {
  if (!json_is_boolean(value)) return fail(why, EXIT_INPUT, "\"score\" must be true or false");
  if (l->p->model.config.encoder_layers && json_is_true(value))
    return fail(why, EXIT_INPUT, "\"score\" is for models without an encoder");
  l->scored = json_is_true(value);
  return true;
}

static bool fail_key(const char *name, Error *why) {
  fail(why, EXIT_INPUT, "unknown key \"%s\"; the keys are prompt, id, stop, score", text_one_line(name, 60).text);
  for (int key = 0; key < KEYS; key++) error_append(why, ", %s", number_keys[key].key);
  for (const SamplingSetting *row = sampling_settings; row->name; row++) error_append(why, ", %s", row->key);
  return false;
}

static bool take_key(Lines *l, const char *name, json_t *value, Error *why) {
  Completion *c = l->completion;
  bool known;
  if (!take_number(l, name, value, &known, why) || known) return !why->code;
  if (strcmp(name, "stop") == 0) return take_stops(c, value, why);
  if (strcmp(name, "id") == 0) return true; /* see read_object() */
  if (strcmp(name, "score") == 0) return take_score(l, value, why);
  if (strcmp(name, "prompt") != 0) return fail_key(name, why);
  if (!json_is_string(value)) return fail(why, EXIT_INPUT, "\"prompt\" must be a string");
  c->prompt = json_incref(value);
  return true;
}

static bool read_object(Lines *l, json_t *object, Error *why) {
  Completion *c = l->completion;
  const char *name;
  json_t *value;
  if (json_is_string(object)) c->prompt = json_incref(object);
  if (json_is_string(object)) return true;
  if (!json_is_object(object)) return fail(why, EXIT_INPUT, "a line must be a string or an object with \"prompt\"");
  c->id = json_incref(line_value(object, "id"));
  json_object_foreach(object, name, value) if (!json_is_null(value) && !take_key(l, name, value, why)) return false;
  return c->prompt || fail(why, EXIT_INPUT, "\"prompt\" is missing");
}

/* Computes the same score as --score --per-line. */
static bool score_prompt(Lines *l, Error *why) {
  const json_t *prompt = l->completion->prompt;
  TextScore score = {.take = NULL};
  if (!score_text(&l->p->model, &l->p->console, json_string_value(prompt), json_string_length(prompt), &score, why))
    return false;
  l->completion->score = json_pack("{s:f,s:I,s:I}", "nats", score.nats, "tokens", (json_int_t)score.tokens, "bytes",
                                   (json_int_t)score.bytes);
  return l->completion->score || error_memory(why, "a score");
}

/* Explains "n", which may be mistaken for -n, the length. */
static void note_number(Lines *l) {
  Program *p = l->p;
  if (l->noted || !l->given[KEY_N] || l->given[KEY_TOKENS] || l->n < 2 ||
      options_given(&p->options, &p->settings.tokens))
    return;
  console_note(&p->console,
               "line %" PRId64 ": \"n\" is the number of texts, here %d of up to %" PRId64
               " tokens each; \"max_tokens\" is their length",
               l->input.taken, l->n, l->own.max_tokens);
  l->noted = true;
}

static bool read_json(Lines *l, const uint8_t *bytes, size_t size, Error *why) {
  Completion *c = l->completion;
  json_error_t cause;
  const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
  json_t *object = json_parse(bytes, size, flags, &cause, "a line", why);
  if (!object) return !why->code && fail(why, EXIT_INPUT, "not JSON: %.200s", cause.text);
  const bool ok =
      read_object(l, object, why) && prompt_encode(&l->p->model, &l->p->settings, json_string_value(c->prompt),
                                                   json_string_length(c->prompt), &l->tokens, why);
  json_decref(object);
  if (ok && l->scored && !score_prompt(l, why)) return false;
  if (!l->given[KEY_SEED]) l->own.sampling.seed = l->request.sampling.seed + (uint64_t)l->begun;
  if (ok) note_number(l);
  if (c->stops.count) l->own.stops = c->stops;
  c->prompt_tokens = (int64_t)prompt_tokens_count(&l->tokens);
  c->n = l->n;
  return ok;
}

/* ---- a line ---- */

static Output *add_output(Lines *l, Error *error) {
  Output *output = outputs_add(&l->outputs, error);
  if (!output) return NULL;
  output->completion = l->completion;
  output->index = l->next++;
  output->keep_ids = l->json || l->p->novelty;
  output->request = l->own;
  output->request.prompt = l->tokens;
  output->request.text = output;
  output->request.sampling.seed += (uint64_t)output->index;
  return output;
}

/* Adds the refusal of a line as an output without text, so that it is printed in order. */
static bool refuse_line(Lines *l, const Error *why, Error *error) {
  Completion *c = l->completion;
  if (c) c->why = *why, c->line = l->input.taken, c->n = 1, l->input.refused++;
  else line_input_refuse(&l->input, &l->p->console, why->text);
  Output *output = add_output(l, error);
  if (output) output->done = true;
  else completion_free(c);
  return output && outputs_print(&l->outputs, error);
}

static bool take_line(Lines *l, const uint8_t *bytes, size_t size, Error *error) {
  Error why = {0};
  l->completion = l->json ? completion_new(error) : NULL;
  if (l->json && !l->completion) return false;
  l->own = l->request;
  if (!l->json) l->own.stream = (uint32_t)(l->input.taken - 1);
  l->n = l->p->settings.samples;
  l->next = 0;
  l->scored = false;
  memset(l->given, 0, sizeof l->given);
  if (l->json ? read_json(l, bytes, size, &why)
              : prompt_encode(&l->p->model, &l->p->settings, bytes, size, &l->tokens, &why)) {
    unseen_count(&l->p->seen, &l->p->model, l->input.taken, &l->tokens.source);
    l->begun += l->n;
    return true;
  }
  l->n = 0;
  if (why.code == EXIT_INPUT) return refuse_line(l, &why, error);
  completion_free(l->completion);
  return fail(error, why.code, "%s", why.text);
}

static bool next_output(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Lines *l = context;
  while (l->outputs.count < OUTPUTS_WAITING) {
    if (l->next < l->n) {
      const Output *output = add_output(l, error);
      *given = output;
      if (output) *out = output->request;
      return output;
    }
    const uint8_t *line;
    size_t size;
    if (!line_input_next(&l->input, wait, &line, &size, error)) return false;
    if (!line) return true;
    if (l->json && line_is_blank(line, size)) continue;
    if (!take_line(l, line, size, error)) return false;
  }
  return true;
}

/* ---- answers to lines ---- */

/* Prints an answer as one line, with each newline as \n and each backslash as two. */
static bool print_line(void *lines, const Output *output, Error *error) {
  for (size_t i = 0; i < output->text.size; i++) {
    const uint8_t byte = output->text.bytes[i];
    if (byte == '\n' || byte == '\\') putchar('\\');
    putchar(byte == '\n' ? 'n' : byte);
  }
  putchar('\n');
  return stdout_check(&((Lines *)lines)->p->out, error);
}

static bool print_json(void *lines, const Output *output, Error *error) {
  Program *p = ((Lines *)lines)->p;
  Completion *c = output->completion;
  if (!c->why.code && !completion_add(p->model.tokenizer, c, output, error)) return false;
  return output->index < c->n - 1 || completion_print(p->model.dir, c, &p->out, error);
}

/* Frees the completion with its last output. */
static void release_output(Output *output) {
  if (output->completion && output->index == output->completion->n - 1) completion_free(output->completion);
}

static bool answer_all(Lines *l, Error *error) {
  Program *p = l->p;
  const double start = clock_seconds();
  if (!outputs_run(l, OUTPUTS_ROWS, next_output, error)) return false;
  const PluralText lines = text_plural((double)l->input.taken, "line");
  console_note(&p->console, "%s, %s in %s; seed %" PRIu64, lines.text,
               text_plural((double)l->outputs.tokens, "token").text, text_duration(clock_seconds() - start).text,
               l->request.sampling.seed);
  unseen_note_lines(&p->seen, &p->model, l->input.taken, &p->console);
  if (!l->json) return line_input_check(&l->input, "got an empty answer", error);
  return !l->input.refused || p->out.error ||
         fail(error, EXIT_INPUT, "refused: %" PRId64 " of %s; the answers say why", l->input.refused, lines.text);
}

typedef bool PrintOutput(void *lines, const Output *output, Error *error);

static Lines lines_of(Program *p, bool json, PrintOutput *print) {
  return (Lines){.p = p,
                 .input = {.fd = -1, .ended = true},
                 .json = json,
                 .outputs = {.model = &p->model, .out = &p->out, .print = print, .release = release_output},
                 .request = request_make(p, &p->prompt.tokens)};
}

static void close_lines(Lines *l) {
  line_input_close(&l->input);
  outputs_free(&l->outputs);
  if (l->next < l->n) completion_free(l->completion);
  prompt_tokens_free(&l->tokens);
}

bool program_lines(Program *p, Error *error) {
  Lines l = lines_of(p, false, print_line);
  if (p->settings.prompt) return fail(error, EXIT_USAGE, "--lines reads standard input or -f FILE, not -p");
  l.request.keep = 0;
  const bool ok = line_input_open(&l.input, p->settings.prompt_file, &p->check, error) && answer_all(&l, error);
  close_lines(&l);
  return ok;
}

bool program_prompts(Program *p, Error *error) {
  Lines l = lines_of(p, true, print_json);
  const bool ok = line_input_open(&l.input, p->settings.prompts, &p->check, error) && answer_all(&l, error);
  close_lines(&l);
  return ok;
}

/* ---- several texts for one prompt ---- */

/* Prints the heading of a text, and the prompt with --echo; false when writing failed. */
static bool print_head(const Lines *l, int index) {
  const Prompt *prompt = &l->p->prompt;
  if (l->n > 1)
    printf("%s--- %d of %d, seed %" PRIu64 "\n", index ? "\n" : "", index + 1, l->n,
           l->request.sampling.seed + (uint64_t)index);
  if (l->p->settings.echo) stdout_write(&l->p->out, prompt->text.bytes, prompt->text.size);
  return !l->p->out.error;
}

static void print_end(const Lines *l, int index) {
  if (index == l->n - 1 && isatty(STDOUT_FILENO)) putchar('\n');
  stdout_flush(&l->p->out);
}

/* On a terminal, texts are printed at the end, when the copied passages to underline are known. */
static bool print_sample(void *lines, const Output *o, Error *error) {
  Lines *l = lines;
  Program *p = l->p;
  if (p->novelty && !novelty_add(p->novelty, o, error)) return false;
  if (p->novelty && isatty(STDOUT_FILENO)) return l->held++, true;
  if (print_head(l, o->index) && (!o->text.size || stdout_write(&p->out, o->text.bytes, o->text.size)))
    print_end(l, o->index);
  return stdout_check(&p->out, error);
}

/* Compares all texts at once, because the other text may be long. Prints the texts that wait, even after an error. */
static bool finish_samples(const Lines *l, bool ok, Error *error) {
  Program *p = l->p;
  ok = ok && (!p->novelty || novelty_compare(p->novelty, error));
  for (int i = 0; i < l->held && print_head(l, i) && novelty_print(p->novelty, (size_t)i); i++) print_end(l, i);
  return ok;
}

static bool open_completion(Lines *l, Error *error) {
  const Prompt *prompt = &l->p->prompt;
  l->completion = completion_new(error);
  if (!l->completion) return false;
  l->completion->n = l->n;
  l->completion->prompt_tokens = (int64_t)prompt_tokens_count(&l->tokens);
  l->completion->prompt = completion_string(prompt->text.bytes, prompt->text.size, NULL);
  return l->completion->prompt || error_memory(error, "a completion");
}

/* Text i has seed + i. */
bool program_samples(Program *p, Error *error) {
  const bool json = p->settings.json;
  const int count = p->settings.samples;
  Lines l = lines_of(p, json, json ? print_json : print_sample);
  const double start = clock_seconds();
  l.own = l.request;
  l.n = count;
  l.tokens = p->prompt.tokens;
  p->prompt.tokens = (PromptTokens){0};
  bool ok = (!json || open_completion(&l, error)) &&
            outputs_run(&l, count < OUTPUTS_ROWS ? count : OUTPUTS_ROWS, next_output, error);
  ok = finish_samples(&l, ok, error);
  if (ok && !p->out.error)
    console_note(&p->console, "%s in %s in %s; seed %" PRIu64, text_plural((double)l.outputs.tokens, "token").text,
                 text_plural(count, "text").text, text_duration(clock_seconds() - start).text, l.request.sampling.seed);
  if (ok && p->novelty) novelty_note(p->novelty);
  close_lines(&l);
  return ok && stdout_check(&p->out, error);
}
