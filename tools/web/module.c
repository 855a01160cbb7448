/* The functions of the WebAssembly module: a model from a pack writes text, one token per call. It has one state and no
 * imports; tools/web/worker.js calls it (docs/exchange.md, "A page for browsers"). */
#include "files/formats/classes.h"
#include "inference/generation.h"
#include "model/decoder.h"
#include "generate/pack.h"
#include "text/tokenizer/bpe_encode.h"
#include "text/tokenizer/chat.h"
#include "tools/web/platform.h"

#include <stdlib.h>
#include <string.h>

enum { ALTERNATIVES = 5 };

#define EXPORT(name) __attribute__((export_name("inkling_" #name)))

/* ---- state ---- */

static Error error;
static ConfigFile config;
static Tokenizer *tokenizer, *source_tokenizer; /* source_tokenizer NULL: no encoder; may be the same */
static Context *context;
static Model *model;
static Decoder *decoder;

static Generation *generation; /* NULL: no text was begun */
static Text text;              /* its prompt is owned; in a chat it has all ids of the decoder */

static Chat *chat;      /* NULL: the model has no chat template that is supported */
static ChatTurn *turns; /* [turn_count]; their texts are from module_allocate() */
static size_t turn_count, turn_capacity;
static size_t dropped; /* the oldest messages of the chat that the model no longer sees */

extern const Backend cpu_generic_backend;

/* ---- memory ---- */

EXPORT(allocate) void *module_allocate(size_t bytes) {
  const uint64_t padded = pack_padded(bytes ? bytes : 1);
  return padded <= SIZE_MAX / 2 ? aligned_alloc(PACK_ALIGNMENT, (size_t)padded) : NULL;
}

EXPORT(release) void module_release(void *memory) { free(memory); }

EXPORT(error) const char *module_error(void) { return error.text; }

/* ---- opening ---- */

static bool open_tokenizer(Tokenizer **out, const char *path, int vocab) {
  return tokenizer_load(out, path, &error) &&
         (tokenizer_set_vocab(*out, vocab) || fail(&error, EXIT_CHECKPOINT, "%s has too many tokens", path));
}

static bool open_model(void) {
  size_t size = 0, name_size = 0;
  const char *name = platform_find(PACK_DTYPE, &name_size);
  void *image = (void *)platform_find(PACK_WEIGHTS, &size);
  DType weights = DTYPE_F32;
  while (weights < DTYPES && (strlen(dtype_name(weights)) != name_size || memcmp(name, dtype_name(weights), name_size)))
    weights++;
  if (!image || weights == DTYPES) return fail(&error, EXIT_CHECKPOINT, "the weights have no known data type");
  const ContextOptions options = {.dtype = DTYPE_F32, .weights = weights};
  return cpu_generic_backend.open(&context, &options, &error) &&
         model_open_image(&model, &cpu_generic_backend, context, &config.config, image, size, &error) &&
         decoder_open(&decoder, model, 1, &error);
}

static bool open_tokenizers(void) {
  static const char source[] = MODEL_FILE_SOURCE_TOKENIZER "/" TOKENIZER_JSON;
  size_t ignored;
  if (!open_tokenizer(&tokenizer, TOKENIZER_JSON, config.config.vocab)) return false;
  config_file_set_ends(&config, tokenizer);
  Error ignored_error = {0};
  chat_open(&chat, tokenizer, &ignored_error);
  if (!config.config.encoder_layers) return true;
  source_tokenizer = tokenizer;
  return !platform_find(source, &ignored) || open_tokenizer(&source_tokenizer, source, config.config.source_vocab);
}

EXPORT(open) bool module_open(const void *pack, size_t size) {
  error = (Error){0};
  if (context) return fail(&error, EXIT_INTERNAL, "a model is open; another one needs another instance of the module");
  tokenizer = source_tokenizer = NULL;
  text.sampling = sampling_initial();
  return platform_open_pack(pack, size, &error) && config_file_read("", &config, &error) && open_tokenizers() &&
         open_model();
}

EXPORT(encoder) bool module_encoder(void) { return source_tokenizer != NULL; }

/* ---- settings ---- */

EXPORT(set) bool module_set(const char *name, double value) {
  if (strcmp(name, "seed") == 0) {
    if (!(value >= 0 && value < 0x1p53) || value != (double)(uint64_t)value) return false;
    text.sampling.seed = (uint64_t)value;
    return true;
  }
  for (const SamplingSetting *s = sampling_settings; s->name; s++) {
    if (strcmp(s->name, name) != 0) continue;
    if (!(value >= s->min && value <= s->max) || (s->above && value == s->min)) return false;
    if (s->whole && value != (int)value) return false;
    sampling_set(&text.sampling, s, value);
    return true;
  }
  return false;
}

/* ---- writing ---- */

static bool fits(const char *what, const BpeIds *ids) {
  const int ctx = config.config.ctx;
  return ids->count <= (size_t)ctx ||
         fail(&error, EXIT_INPUT, "the %s has %zu tokens, more than the %d that the model can read", what, ids->count,
              ctx);
}

/* Ends the text so far; its prompt and the sampling stay. */
static bool end_text(void) {
  const int vocab = config.config.vocab, ctx = config.config.ctx;
  error = (Error){0};
  if (!decoder) return fail(&error, EXIT_INTERNAL, "no model is open");
  generation_close(generation);
  generation = NULL;
  generation_free_text(&text);
  text = (Text){.prompt = text.prompt,
                .sampling = text.sampling,
                .max_tokens = -1,
                .keep = ctx > 1 ? ctx / 2 : 1,
                .alternatives = vocab < ALTERNATIVES ? vocab : ALTERNATIVES};
  return true;
}

EXPORT(begin) bool module_begin(const uint8_t *prompt, size_t size, const uint8_t *answer, size_t answer_size) {
  if (!end_text()) return false;
  PromptTokens tokens = text.prompt;
  tokens.source.count = tokens.decoder.count = 0;
  const PromptEncoder with = {source_tokenizer, tokenizer, config.tokens.start >= 0 ? config.tokens.start : 0};
  const bool ok = generation_encode(&with, prompt, size, answer, answer_size, &tokens, &error) &&
                  fits("question", &tokens.source) && fits(source_tokenizer ? "answer" : "prompt", &tokens.decoder);
  text.prompt = tokens;
  return ok && generation_open(&generation, decoder, 1, tokenizer, &error) && generation_add(generation, &text, &error);
}

/* 1: a token was drawn; 0: the text has ended; -1: an error. */
EXPORT(next) int module_next(void) {
  if (!generation) return fail(&error, EXIT_INTERNAL, "no text was begun") - 1;
  const int64_t count = text.count;
  generation_drop_ready(&text); /* the page has them */
  text.ids.count = 0;
  if ((!text.ended && !generation_step(generation, &error)) ||
      (chat && text.count > count && !bpe_ids_sink(&text.prompt.decoder, &text.last, 1, &error))) {
    text.prompt.decoder.count = 0;
    return -1;
  }
  return text.ids.count > 0;
}

/* ---- a chat ---- */

EXPORT(dropped) size_t module_dropped(void) { return dropped; }

EXPORT(forget) void module_forget(void) {
  while (turn_count) free((void *)turns[--turn_count].text);
}

EXPORT(say) bool module_say(int role, uint8_t *message, size_t size) {
  error = (Error){0};
  if (role < 0 || role >= CHAT_ROLES) return fail(&error, EXIT_INPUT, "%d is no role", role);
  if (!array_reserve(&turns, &turn_capacity, turn_count + 1, sizeof *turns)) return error_memory(&error, "a chat");
  turns[turn_count++] = (ChatTurn){(ChatRole)role, message, size};
  return true;
}

/* Begins an answer to the messages. What the decoder has stays there if the messages begin with these ids. */
EXPORT(answer) bool module_answer(int most) {
  const size_t ctx = (size_t)config.config.ctx;
  if (!end_text()) return false;
  if (!chat || !turn_count) return fail(&error, EXIT_INPUT, chat ? "no message" : "the model has no chat template");
  if (dropped + (turns[0].role == CHAT_SYSTEM) >= turn_count) dropped = 0;
  const bool ok = chat_encode_newest(chat, tokenizer, turns, turn_count, ctx, chat_room(ctx, most), &dropped,
                                     &text.prompt.decoder, &text.cached, &error) &&
                  generation_open(&generation, decoder, 1, tokenizer, &error) &&
                  generation_add(generation, &text, &error);
  if (!ok) text.prompt.decoder.count = 0;
  return ok;
}

EXPORT(text) const char *module_text(void) { return (char *)text.bytes.bytes; }
EXPORT(text_size) size_t module_text_size(void) { return text.ready; }
EXPORT(token) int module_token(void) { return text.ids.ids[0]; }
EXPORT(logprob) double module_logprob(void) { return (double)text.tokens[0].logprob; }
EXPORT(alternatives) int module_alternatives(void) { return text.alternatives; }
EXPORT(alternative) int module_alternative(int i) { return text.top[i].id; }
EXPORT(alternative_logprob) double module_alternative_logprob(int i) { return (double)text.top[i].logprob; }
EXPORT(show) const char *module_show(int id) {
  static ShownToken shown;
  shown = tokenizer_show(tokenizer, id);
  return shown.text;
}
EXPORT(reason) const char *module_reason(void) { return generation_stop_name(text.reason); }
