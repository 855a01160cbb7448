/* Makes models of any architecture and shows what they compute: what scripts/measure/check_transformers.py compares.
 *
 *   dump_model make DIR FIELD=NUMBER ...     writes a model with random weights, biases and norms included
 *   dump_model class DIR                     prints the class that DIR's model is written as
 *   dump_model logits DIR TOKEN ...          writes the logits at each token to stdout, fp32 [tokens][vocabulary]
 *   dump_model greedy DIR COUNT TOKEN ...    prints the COUNT likeliest next tokens
 *                                            (both: of a model with an encoder, "of" and the source's tokens follow)
 *   dump_model copy DIR OUT                  reads a model and writes it again
 *
 * The fields are those of ModelConfig, enums by number; what is not given is a small LLaMA's. */
#include "tests/config_fields.h"
#include "tests/model_files_helpers.h"
#include "files/formats/model_files.h"
#include "model/parameters.h"
#include "model/decoder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TOKENS = 1024 };

static bool set_field(ModelConfig *config, const char *assignment, Error *error) {
  const char *equals = strchr(assignment, '=');
  for (int i = 0; equals && i < CONFIG_FIELDS; i++) {
    const char *name = config_fields[i].name, kind = config_fields[i].kind;
    if (strncmp(assignment, name, (size_t)(equals - assignment)) != 0 || name[equals - assignment] != '\0') continue;
    void *field = (char *)config + config_fields[i].offset;
    const double value = strtod(equals + 1, NULL);
    if (kind == 's') snprintf(field, sizeof config->mixers, "%s", equals + 1);
    else if (kind == 'f') *(float *)field = (float)value;
    else *(int *)field = (int)value;
    return true;
  }
  return fail(error, EXIT_USAGE, "%s is no field of ModelConfig", assignment);
}

/* Weights as a trained model might have them: nothing is left at 0 or 1. The table of sinusoids stays. */
static void draw(const ParameterTable *table, float *arena) {
  uint32_t word = 12345;
  parameter_table_init(table, (Initialization){INIT_GPT2, INIT_DEFAULT_STD}, arena, 1);
  for (int i = 0; i < table->count; i++) {
    const ParameterTensor *t = &table->tensors[i];
    for (size_t j = 0; t->role != ROLE_SINUSOIDS && j < (size_t)t->rows * (size_t)t->cols; j++) {
      word = word * 1664525u + 1013904223u;
      arena[t->offset + j] += 0.5f * ((float)(word >> 8) / 0x1p24f - 0.5f);
    }
  }
}

static bool write_model(const char *dir, const ModelConfig *config, const ParameterTable *table, const float *arena,
                        SpecialTokens tokens, Error *error) {
  return model_files_write_weights(dir, config, table, arena, error) && write_config(dir, config, tokens, error);
}

static bool make(const char *dir, char **assignments, int count, Error *error) {
  ModelConfig config = {.vocab = 257,
                        .ctx = 64,
                        .layers = 2,
                        .heads = 4,
                        .kv_heads = 4,
                        .dim = 32,
                        .head_dim = 8,
                        .ffn = 48,
                        .rope_base = 10000,
                        .norm_eps = 1e-5f,
                        .gated = true};
  ParameterTable table = {0};
  for (int i = 0; i < count; i++)
    if (!set_field(&config, assignments[i], error)) return false;
  if (!model_config_check(&config, EXIT_USAGE, error) || !parameter_table_make(&table, &config, error)) return false;
  float *arena = calloc(table.arena, sizeof *arena);
  Tokenizer *tokenizer = tokenizer_byte();
  if (arena) draw(&table, arena);
  if (tokenizer) tokenizer_set_ends_with_end(tokenizer, config.encoder_layers > 0);
  bool ok = arena && tokenizer &&
            write_model(dir, &config, &table, arena, (SpecialTokens){.start = 256, .end = 256}, error) &&
            tokenizer_save(tokenizer, dir, config.ctx, error);
  tokenizer_free(tokenizer);
  free(arena);
  parameter_table_free(&table);
  return ok;
}

static bool copy(const char *dir, const char *out, Error *error) {
  ModelConfig config;
  SpecialTokens tokens;
  ParameterTable table = {0};
  if (!read_config(dir, &config, &tokens, error) || !parameter_table_make(&table, &config, error)) return false;
  float *arena = calloc(table.arena, sizeof *arena);
  bool ok = arena && read_weights(dir, &config, &table, arena, error) &&
            write_model(out, &config, &table, arena, tokens, error);
  free(arena);
  parameter_table_free(&table);
  return ok;
}

static bool print_class(const char *dir, Error *error) {
  ModelConfig config;
  SpecialTokens tokens;
  bool own;
  if (!read_config(dir, &config, &tokens, error)) return false;
  const char *name = model_files_class(&config, &own);
  printf("%s%s\n", name, own ? " (own)" : "");
  return true;
}

/* What a model reads: tokens of the decoder and, above an encoder, of the source. */
typedef struct Input {
  int32_t tokens[MAX_TOKENS], source[MAX_TOKENS];
  int count, source_count;
} Input;

static bool read_input(Input *out, char **given, int count, Error *error) {
  bool source = false;
  *out = (Input){.count = 0};
  if (count > MAX_TOKENS) return fail(error, EXIT_USAGE, "%d tokens", count);
  for (int i = 0; i < count; i++)
    if (strcmp(given[i], "of") == 0) source = true;
    else if (source) out->source[out->source_count++] = (int32_t)strtol(given[i], NULL, 10);
    else out->tokens[out->count++] = (int32_t)strtol(given[i], NULL, 10);
  return out->count > 0 || fail(error, EXIT_USAGE, "no tokens");
}

/* One sequence of the decoder and, as long, one of the source. */
static bool logits(Model *m, const Input *in, Error *error) {
  const int vocab = model_config(m)->vocab, encoder = model_config(m)->encoder_layers > 0;
  const int length = in->count > in->source_count ? in->count : in->source_count;
  int32_t positions[MAX_TOKENS], targets[MAX_TOKENS], zeros[MAX_TOKENS] = {0}, ends[MAX_TOKENS];
  double sum = 0;
  int64_t counted = 0;
  for (int i = 0; i < length; i++) positions[i] = i, targets[i] = IGNORE_INDEX, ends[i] = in->source_count;
  TokenBatch batch = {.tokens = in->tokens, .targets = targets};
  if (encoder) batch = (TokenBatch){in->tokens, targets, positions, in->source, positions, zeros, ends, zeros, ends};
  float *out = calloc((size_t)length * (size_t)vocab, sizeof *out);
  bool ok = out && model_evaluate_begin(m, 1, length, error) &&
            model_evaluate(m, &batch, 1, length, &sum, &counted, out, error);
  if (ok) fwrite(out, sizeof *out, (size_t)in->count * (size_t)vocab, stdout);
  free(out);
  return ok;
}

static bool greedy(Model *m, const Input *in, int wanted, Error *error) {
  const Sampling likeliest = {.repeat_penalty = 1, .top_p = 1};
  Decoder *d = NULL;
  bool ok = decoder_open(&d, m, 1, error) &&
            (!in->source_count || decoder_source(d, 0, in->source, in->source_count, error)) &&
            decoder_prompt(d, 0, in->tokens, in->count, error);
  if (ok) decoder_sampling(d, 0, &likeliest, 0);
  for (int i = 0; ok && i < wanted; i++) {
    int32_t next;
    ok = decoder_next(d, &next, error);
    if (ok) printf("%d\n", next);
  }
  decoder_close(d);
  return ok;
}

/* `wanted` 0: logits. */
static bool compute(const char *dir, char **given, int count, int wanted, Error *error) {
  const ContextOptions options = {.dtype = DTYPE_F32, .threads = 1};
  const Backend *cpu = backend_find("cpu", NULL, 1u << DTYPE_F32);
  ModelConfig config;
  SpecialTokens special;
  Context *context = NULL;
  Model *m = NULL;
  Input in;
  if (!read_input(&in, given, count, error) || !read_config(dir, &config, &special, error)) return false;
  if ((config.encoder_layers > 0) != (in.source_count > 0))
    return fail(error, EXIT_USAGE, "a model with an encoder needs a source, and no other does");
  if (!cpu->open(&context, &options, error)) return false;
  bool ok =
      load_model(&m, dir, cpu, context, error) && (wanted ? greedy(m, &in, wanted, error) : logits(m, &in, error));
  model_close(m);
  cpu->close(context);
  return ok;
}

static bool run(int argc, char **argv, Error *error) {
  const char *what = argc > 2 ? argv[1] : "", *dir = argc > 2 ? argv[2] : NULL;
  if (strcmp(what, "make") == 0) return make(dir, argv + 3, argc - 3, error);
  if (strcmp(what, "class") == 0) return print_class(dir, error);
  if (strcmp(what, "logits") == 0) return compute(dir, argv + 3, argc - 3, 0, error);
  if (strcmp(what, "greedy") == 0 && argc > 3)
    return compute(dir, argv + 4, argc - 4, (int)strtol(argv[3], NULL, 10), error);
  if (strcmp(what, "copy") == 0 && argc > 3) return copy(dir, argv[3], error);
  return fail(error, EXIT_USAGE, "usage: dump_model make|class|logits|greedy|copy DIR ...");
}

int main(int argc, char **argv) {
  Error error = {0};
  if (run(argc, argv, &error)) return 0;
  fprintf(stderr, "dump_model: %s\n", error.text);
  return error.code ? (int)error.code : 1;
}
