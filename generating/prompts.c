/* Batch mode (--prompts): JSON lines in, JSON lines out. */
#include "generating/completion.h"
#include "generating/line_input.h"
#include "generating/program.h"
#include "tokenizer/bpe_encode.h"
#include "util/clock.h"
#include "util/json.h"
#include "util/text.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_TEXTS = 1000000 };

typedef struct Prompts {
  Outputs outputs;
  Program *p;
  LineInput input;
  GenerationRequest request; /* the settings of the command line */
  int64_t begun;             /* texts; each has the next seed */
  int64_t bad;               /* lines that were refused */
  /* the line whose texts are being begun: text `next` of `n` is the next one */
  Completion *completion;
  GenerationRequest own; /* the settings of the line */
  PromptTokens tokens;
  int n, next;
  bool noted; /* the note about "n" was printed */
} Prompts;

/* ---- a line ---- */

/* Keys with a whole number, in addition to the sampling settings. */
enum { KEY_N, KEY_TOKENS, KEY_SEED, KEY_LOGPROBS, KEYS };
static const SamplingSetting number_keys[KEYS] = {{.key = "n", .whole = true, .min = 1, .max = MOST_TEXTS},
                                                  {.key = "max_tokens", .whole = true, .min = -1, .max = 1e12},
                                                  {.key = "seed", .whole = true, .min = -1, .max = 9e18},
                                                  {.key = "logprobs", .whole = true, .min = 0, .max = 1000}};

typedef struct Line {
  Prompts *s;
  bool given[KEYS]; /* it has that key */
  bool scored;      /* its "score" is true */
} Line;

static bool check_number(const char *name, const json_t *value, const SamplingSetting *row, Error *why) {
  const double number = json_number_value(value);
  if ((row->whole ? json_is_integer(value) : json_is_number(value)) && number <= row->max &&
      (row->above ? number > row->min : number >= row->min))
    return true;
  return fail(why, EXIT_INPUT, "\"%s\" has to be a %snumber from %g%s to %g", name, row->whole ? "whole " : "",
              row->min, row->above ? " (excluded)" : "", row->max);
}

static void set_number(Line *line, int key, const json_t *value) {
  GenerationRequest *r = &line->s->own;
  const double number = json_number_value(value);
  const int vocab = line->s->p->model.config.vocab;
  line->given[key] = true;
  if (key == KEY_N) line->s->n = (int)number;
  if (key == KEY_TOKENS) r->max_tokens = (int64_t)number;
  if (key == KEY_SEED) r->sampling.seed = number < 0 ? options_random_seed() : (uint64_t)json_integer_value(value);
  if (key == KEY_LOGPROBS) r->alternatives = number < vocab ? (int)number : vocab;
}

static bool take_number(Line *line, const char *name, const json_t *value, bool *known, Error *why) {
  const SamplingSetting *row = sampling_settings;
  int key = 0;
  while (row->name && strcmp(name, row->key) != 0 && strcmp(name, row->name) != 0) row++;
  while (key < KEYS && strcmp(name, number_keys[key].key) != 0) key++;
  *known = row->name || key < KEYS;
  if (!*known) return true;
  if (!check_number(name, value, row->name ? row : &number_keys[key], why)) return false;
  if (row->name) sampling_set(&line->s->own.sampling, row, json_number_value(value));
  else set_number(line, key, value);
  return true;
}

static bool add_stop(Completion *c, const json_t *text, Error *why) {
  if (!json_is_string(text) || !json_string_length(text))
    return fail(why, EXIT_INPUT, "\"stop\" has to be a text that is not empty, or a list of such texts");
  return request_add_stop(&c->stops, json_string_value(text), json_string_length(text), why);
}

static bool take_stops(Completion *c, const json_t *value, Error *why) {
  if (!json_is_array(value)) return add_stop(c, value, why);
  for (size_t i = 0; i < json_array_size(value); i++)
    if (!add_stop(c, json_array_get(value, i), why)) return false;
  return true;
}

static bool take_score(Line *line, const json_t *value, Error *why) {
  if (!json_is_boolean(value)) return fail(why, EXIT_INPUT, "\"score\" has to be true or false");
  if (line->s->p->model.config.encoder_layers && json_is_true(value))
    return fail(why, EXIT_INPUT, "\"score\" is for models without an encoder");
  line->scored = json_is_true(value);
  return true;
}

static bool fail_key(const char *name, Error *why) {
  fail(why, EXIT_INPUT, "\"%s\" is not known here; a line has prompt and id, stop, score",
       text_one_line(name, 60).text);
  for (int key = 0; key < KEYS; key++) error_append(why, ", %s", number_keys[key].key);
  for (const SamplingSetting *row = sampling_settings; row->name; row++) error_append(why, ", %s", row->key);
  return false;
}

static bool take_key(Line *line, const char *name, json_t *value, Error *why) {
  Completion *c = line->s->completion;
  bool known;
  if (!take_number(line, name, value, &known, why) || known) return !why->code;
  if (strcmp(name, "stop") == 0) return take_stops(c, value, why);
  if (strcmp(name, "id") == 0) return true; /* see read_object() */
  if (strcmp(name, "score") == 0) return take_score(line, value, why);
  if (strcmp(name, "prompt") != 0) return fail_key(name, why);
  if (!json_is_string(value)) return fail(why, EXIT_INPUT, "\"prompt\" has to be a text");
  c->prompt = json_incref(value);
  return true;
}

static bool read_object(Line *line, json_t *object, Error *why) {
  Completion *c = line->s->completion;
  const char *name;
  json_t *value;
  if (json_is_string(object)) c->prompt = json_incref(object);
  if (json_is_string(object)) return true;
  if (!json_is_object(object)) return fail(why, EXIT_INPUT, "a line has to be a text or an object with \"prompt\"");
  c->id = json_incref(json_object_get(object, "id"));
  json_object_foreach(object, name, value) if (!take_key(line, name, value, why)) return false;
  return c->prompt || fail(why, EXIT_INPUT, "there is no \"prompt\"");
}

static bool encode_prompt(Prompts *s, Error *why) {
  const json_t *prompt = s->completion->prompt;
  return prompt_encode(&s->p->model, &s->p->command.settings, (const uint8_t *)json_string_value(prompt),
                       json_string_length(prompt), &s->tokens, why);
}

/* Computes the same score as --score --per-line. */
static bool score_prompt(Prompts *s, Error *why) {
  const json_t *prompt = s->completion->prompt;
  TextScore score;
  if (!score_text(&s->p->model, &s->p->console, (const uint8_t *)json_string_value(prompt), json_string_length(prompt),
                  NULL, NULL, &score, why))
    return false;
  s->completion->score = json_pack("{s:f,s:I,s:I}", "nats", score.nats, "tokens", (json_int_t)score.tokens, "bytes",
                                   (json_int_t)score.bytes);
  return s->completion->score || error_memory(why, "a score");
}

/* Explains "n", which may be mistaken for -n, the length. */
static void note_number(Prompts *s, const Line *line) {
  const CommandLine *c = &s->p->command;
  if (s->noted || !line->given[KEY_N] || line->given[KEY_TOKENS] || s->n < 2 ||
      options_given(&c->options, &c->settings.tokens))
    return;
  console_note(&s->p->console,
               "line %" PRId64 ": \"n\" is the number of texts, here %d of up to %" PRId64
               " tokens each; \"max_tokens\" is their length",
               s->input.taken, s->n, s->own.max_tokens);
  s->noted = true;
}

static bool read_line(Prompts *s, const uint8_t *bytes, size_t size, Error *why) {
  json_error_t cause;
  Line line = {.s = s};
  const size_t flags = JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES;
  json_t *object = json_parse(bytes, size, flags, &cause, "a line", why);
  if (!object) return !why->code && fail(why, EXIT_INPUT, "not JSON: %.200s", cause.text);
  const bool ok = read_object(&line, object, why) && encode_prompt(s, why);
  json_decref(object);
  if (ok && line.scored && !score_prompt(s, why)) return false;
  if (!line.given[KEY_SEED]) s->own.sampling.seed = s->request.sampling.seed + (uint64_t)s->begun;
  if (ok) note_number(s, &line);
  if (ok) unseen_count(&s->p->seen, &s->p->model, s->input.taken, &s->tokens.source);
  if (s->completion->stops.count) s->own.stops = s->completion->stops;
  s->completion->prompt_tokens = (int64_t)prompt_tokens_count(&s->tokens);
  return ok;
}

/* ---- outputs ---- */

static Output *add_output(Prompts *s, int index, Error *error) {
  Output *output = outputs_add(&s->outputs, error);
  if (!output) return NULL;
  output->completion = s->completion;
  output->index = index;
  output->keep_ids = true;
  output->request = s->own;
  output->request.sampling.seed += (uint64_t)index;
  return output;
}

/* Adds the refusal of a line as an output without text, so that it is printed in order. */
static bool refuse_line(Prompts *s, const Error *why, Error *error) {
  s->bad++;
  s->completion->why = *why;
  s->completion->line = s->input.taken;
  s->completion->n = 1;
  Output *output = add_output(s, 0, error);
  if (output) output->done = true;
  else completion_free(s->completion);
  return output && outputs_print(&s->outputs, error);
}

static bool take_line(Prompts *s, const uint8_t *bytes, size_t size, Error *error) {
  Error why = {0};
  s->completion = completion_new(error);
  if (!s->completion) return false;
  s->own = s->request;
  s->n = s->p->command.settings.samples;
  s->next = 0;
  if (read_line(s, bytes, size, &why)) {
    s->completion->n = s->n;
    s->begun += s->n;
    return true;
  }
  s->n = 0;
  if (why.code == EXIT_INPUT) return refuse_line(s, &why, error);
  completion_free(s->completion);
  return fail(error, why.code, "%s", why.text);
}

static bool begin_output(Prompts *s, GenerationRequest *out, Error *error) {
  Output *output = add_output(s, s->next, error);
  if (!output) return false;
  s->next++;
  if (!bpe_ids_sink(&output->prompt.source, s->tokens.source.ids, s->tokens.source.count, error) ||
      !bpe_ids_sink(&output->prompt.decoder, s->tokens.decoder.ids, s->tokens.decoder.count, error))
    return false;
  *out = output_request(output);
  return true;
}

static bool next_output(void *context, bool wait, GenerationRequest *out, bool *given, Error *error) {
  Prompts *s = context;
  while (s->outputs.count < OUTPUTS_WAITING) {
    *given = s->next < s->n;
    if (*given) return begin_output(s, out, error);
    const uint8_t *line;
    size_t size;
    if (!line_input_next(&s->input, wait, &line, &size, error)) return false;
    if (!line) return true;
    if (!take_line(s, line, size, error)) return false;
  }
  return true;
}

static bool print_output(void *program, const Output *output, Error *error) {
  Program *p = program;
  Completion *c = output->completion;
  if (!c->why.code && !completion_add(p->model.tokenizer, c, output, error)) return false;
  if (output->index < c->n - 1) return true;
  return completion_print(p->model.dir, c, &p->out, error) && stdout_check(&p->out, error);
}

/* Frees the completion with its last output. */
static void release_output(Output *output) {
  if (output->index == output->completion->n - 1) completion_free(output->completion);
}

static bool answer_all(Prompts *s, Error *error) {
  Program *p = s->p;
  const double start = clock_seconds();
  if (!outputs_run(s, &p->model, &p->out, OUTPUTS_ROWS, next_output, error)) return false;
  outputs_note_lines(&s->outputs, &p->console, s->input.taken, start, s->request.sampling.seed);
  unseen_note_lines(&p->seen, &p->model, s->input.taken, &p->console);
  return !s->bad || p->out.error ||
         fail(error, EXIT_INPUT, "refused: %" PRId64 " of %s; the answers say why", s->bad,
              text_plural((double)s->input.taken, "line").text);
}

bool program_prompts(Program *p, Error *error) {
  Prompts s = {.p = p,
               .input.fd = -1,
               .outputs = {.print = print_output, .release = release_output, .context = p},
               .request = request_make(&p->command, &p->model, &p->prompt.tokens)};
  bool ok = line_input_open(&s.input, p->command.settings.prompts, error) && answer_all(&s, error);
  line_input_close(&s.input);
  outputs_free(&s.outputs);
  if (s.next < s.n) completion_free(s.completion);
  prompt_tokens_free(&s.tokens);
  return ok;
}
