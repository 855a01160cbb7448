/* The functions of the WebAssembly module: a model from a pack writes text, one token per call. It has one state and no
 * imports; tools/web/worker.js calls it (docs/exchange.md, "A page for browsers"). */
#include "files/formats/classes.h"
#include "inference/generation.h"
#include "model/decoder.h"
#include "base/array.h"
#include "generate/pack.h"
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

static GenerationRequest request; /* its prompt is owned */
static bool requested;            /* the request was not taken yet */
static bool drawn;                /* the last step has drawn `token` */
static GenerationRun *run;
static char *text; /* of the last step */
static size_t text_bytes, text_capacity;
static GeneratedToken token;
static TokenAlternative top[ALTERNATIVES];
static StopReason reason;

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
  while (weights < DTYPES &&
         (strlen(dtype_name(weights)) != name_size || memcmp(name, dtype_name(weights), name_size)))
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
  if (!config.config.encoder_layers) return true;
  source_tokenizer = tokenizer;
  return !platform_find(source, &ignored) || open_tokenizer(&source_tokenizer, source, config.config.source_vocab);
}

EXPORT(open) bool module_open(const void *pack, size_t size) {
  error = (Error){0};
  if (context) return fail(&error, EXIT_INTERNAL, "a model is open; another one needs another instance of the module");
  tokenizer = source_tokenizer = NULL;
  request.sampling = sampling_initial();
  return platform_open_pack(pack, size, &error) && config_file_read("", &config, &error) && open_tokenizers() &&
         open_model();
}

EXPORT(encoder) bool module_encoder(void) { return source_tokenizer != NULL; }

/* ---- settings ---- */

EXPORT(set) bool module_set(const char *name, double value) {
  if (strcmp(name, "seed") == 0) {
    if (!(value >= 0 && value < 0x1p53) || value != (double)(uint64_t)value) return false;
    request.sampling.seed = (uint64_t)value;
    return true;
  }
  for (const SamplingSetting *s = sampling_settings; s->name; s++) {
    if (strcmp(s->name, name) != 0) continue;
    if (!(value >= s->min && value <= s->max) || (s->above && value == s->min)) return false;
    if (s->whole && value != (int)value) return false;
    sampling_set(&request.sampling, s, value);
    return true;
  }
  return false;
}

/* ---- writing ---- */

static bool next_request(void *unused, bool wait, GenerationRequest *out, bool *given, Error *why) {
  (void)unused, (void)wait, (void)why;
  *given = requested;
  if (requested) *out = request;
  requested = false;
  return true;
}

static bool take_text(void *unused, void *of_text, const uint8_t *bytes, size_t size, Error *why) {
  (void)unused, (void)of_text;
  if (!array_reserve(&text, &text_capacity, text_bytes + size, 1)) return error_memory(why, "the text");
  memcpy(text + text_bytes, bytes, size);
  text_bytes += size;
  return true;
}

static bool take_token(void *unused, void *of_text, const GeneratedToken *given, Error *why) {
  (void)unused, (void)of_text, (void)why;
  token = *given;
  drawn = true;
  memcpy(top, given->top, (size_t)request.alternatives * sizeof *top);
  return true;
}

static bool take_end(void *unused, void *of_text, const GenerationResult *result, Error *why) {
  (void)unused, (void)of_text, (void)why;
  reason = result->reason;
  return true;
}

static const Generation *generation(void) {
  static Generation g;
  g = (Generation){.decoder = decoder,
                   .rows = 1,
                   .tokenizer = tokenizer,
                   .next = next_request,
                   .emit = take_text,
                   .token = take_token,
                   .done = take_end};
  return &g;
}

static bool fits(const char *what, const BpeIds *ids) {
  const int ctx = config.config.ctx;
  return ids->count <= (size_t)ctx ||
         fail(&error, EXIT_INPUT, "the %s has %zu tokens, more than the %d that the model can read", what, ids->count,
              ctx);
}

EXPORT(begin) bool module_begin(const uint8_t *prompt, size_t size, const uint8_t *answer, size_t answer_size) {
  const int vocab = config.config.vocab, ctx = config.config.ctx;
  PromptTokens *to = &request.prompt;
  error = (Error){0};
  if (!decoder) return fail(&error, EXIT_INTERNAL, "no model is open");
  generation_end(run);
  run = NULL;
  to->source.count = to->decoder.count = 0;
  const PromptEncoder with = {source_tokenizer, tokenizer, config.tokens.start >= 0 ? config.tokens.start : 0};
  if (!generation_encode(&with, prompt, size, answer, answer_size, to, &error)) return false;
  if (!fits("question", &to->source) || !fits(source_tokenizer ? "answer" : "prompt", &to->decoder)) return false;
  request.max_tokens = -1;
  request.keep = ctx > 1 ? ctx / 2 : 1;
  request.alternatives = vocab < ALTERNATIVES ? vocab : ALTERNATIVES;
  requested = true;
  return generation_begin(&run, generation(), &error);
}

/* 1: a token was drawn; 0: the text has ended; -1: an error. */
EXPORT(next) int module_next(void) {
  bool more = true;
  text_bytes = 0;
  drawn = false;
  if (!run) return fail(&error, EXIT_INTERNAL, "no text was begun") - 1;
  while (more && !drawn)
    if (!generation_step(run, &more, &error)) return -1;
  return drawn;
}

EXPORT(text) const char *module_text(void) { return text; }
EXPORT(text_size) size_t module_text_size(void) { return text_bytes; }
EXPORT(token) int module_token(void) { return token.id; }
EXPORT(logprob) double module_logprob(void) { return (double)token.logprob; }
EXPORT(alternatives) int module_alternatives(void) { return request.alternatives; }
EXPORT(alternative) int module_alternative(int i) { return top[i].id; }
EXPORT(alternative_logprob) double module_alternative_logprob(int i) { return (double)top[i].logprob; }
EXPORT(show) const char *module_show(int id) {
  static ShownToken shown;
  shown = tokenizer_show(tokenizer, id);
  return shown.text;
}
EXPORT(reason) const char *module_reason(void) { return generation_stop_name(reason); }
