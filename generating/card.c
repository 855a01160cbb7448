#include "generating/card.h"

#include "checkpoint/directory.h"
#include "formats/model_files.h"
#include "report/result.h"
#include "util/file.h"
#include "util/path.h"
#include "util/text.h"
#include "util/utf8.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- records of the run ---- */

static double number_of(const json_t *object, const char *key) {
  const json_t *value = json_object_get(object, key);
  return json_is_number(value) ? json_number_value(value) : NAN;
}

static void write_row(FILE *out, const char *name, double value, const char *unit) {
  if (isfinite(value)) fprintf(out, "| %s | %.6g%s |\n", name, value, unit);
}

static void write_kept(FILE *out, const HistoryEvaluation *kept) {
  write_row(out, kept->all ? "validation loss" : "validation loss, on the beginning of the validation text", kept->loss,
            " nats per token");
  write_row(out, "the same", kept->bits_per_byte, " bits per byte");
  write_row(out, "answers that are exactly right", 100 * kept->exact, " %");
  write_row(out, "these weights are of step", (double)kept->step, "");
}

static void write_results(FILE *out, const json_t *result, const HistoryEvaluation *kept) {
  fputs("\n## Training\n\n| | |\n|---|---|\n", out);
  write_row(out, "steps", number_of(result, "step"), "");
  write_row(out, "tokens seen", number_of(result, "tokens"), "");
  write_row(out, "passes over the text", number_of(result, "epochs"), "");
  if (kept) write_kept(out, kept);
}

/* Returns whether a setting comes from the base model of --init. */
static bool is_of_base(const char *key) {
  static const char *const keys[] = {"preset", "arch", "init-like", "init-std"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

static void write_flag(FILE *out, const char *key, const json_t *value) {
  if (json_is_true(value)) fprintf(out, " --%s", key);
  else if (json_is_false(value)) fprintf(out, " --no-%s", key);
  else if (json_is_integer(value)) fprintf(out, " --%s %lld", key, (long long)json_integer_value(value));
  else if (json_is_real(value)) fprintf(out, " --%s %s", key, text_number(json_real_value(value), false).text);
  else if (json_is_string(value) && !strpbrk(json_string_value(value), "/\\ '\"\n`$"))
    fprintf(out, " --%s %s", key, json_string_value(value));
}

/* Writes the option of a tokenizer without its path. */
static void write_tokenizer(FILE *out, const json_t *settings, const char *key) {
  const char *name = json_string_value(json_object_get(settings, key));
  if (!name) return;
  const bool made = strcmp(name, "byte") == 0 || strcmp(name, "bpe") == 0;
  fprintf(out, " --%s %s", key, made ? name : "TOKENIZER");
}

static void write_command(FILE *out, const json_t *settings) {
  const char *key;
  json_t *value;
  const bool based = json_object_get(settings, "init");
  fputs("\nTrained with Inkling:\n\n```\n./train TEXT", out);
  if (json_object_get(settings, "val")) fputs(" --val VALIDATION", out);
  if (based) fputs(" --init MODEL", out);
  write_tokenizer(out, settings, "tokenizer");
  write_tokenizer(out, settings, "source-tokenizer");
  json_object_foreach((json_t *)settings, key, value) {
    if (result_setting_kind(key) == SETTING_OF_MODEL && !(based && is_of_base(key))) write_flag(out, key, value);
  }
  fputs("\n```\n", out);
}

/* Writes nothing when the model is not a run of ./train. */
static bool write_training(FILE *out, const char *dir, Error *error) {
  Error why = {0};
  History history = {0};
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &why), *settings = result_settings(dir, &why);
  history_read(&history, path_in(dir, CHECKPOINT_METRICS).text, &why);
  if (result) write_results(out, result, history_kept(&history));
  if (json_object_size(settings) > 0) write_command(out, settings);
  history_free(&history);
  json_decref(result);
  json_decref(settings);
  return why.code != EXIT_MEMORY || fail(error, why.code, "%s", why.text);
}

/* ---- the model ---- */

static void write_front(FILE *out, const LoadedModel *m) {
  fprintf(out,
          "---\n# Choose a license (mit, apache-2.0, cc-by-4.0, ...) and say which languages the text is in:\n"
          "# license: mit\n# language: en\nlibrary_name: transformers\npipeline_tag: %s\ntags:\n- inkling\n---\n\n",
          m->config.encoder_layers ? "text2text-generation" : "text-generation");
}

static void write_model(FILE *out, const LoadedModel *m, const char *name, TensorType type) {
  const ModelConfig *c = &m->config;
  bool own;
  const char *class = model_files_class(c, &own);
  fprintf(out,
          "# %s\n\nA language model of %s parameters: %s of width %d, %s, a context of %d tokens, a "
          "vocabulary of %d (%s); `%s` of transformers, weights in %s.\n",
          name, text_count((double)model_parameters(c)).text, text_plural(c->layers, "layer").text, c->dim,
          text_plural(c->heads, "attention head").text, c->ctx, c->vocab, tokenizer_name(m->tokenizer), class,
          type == TENSOR_BF16 ? "bfloat16" : "float32");
  if (own)
    fputs("\nNo class of transformers has these parts: `modeling_inkling.py` computes them, which "
          "`trust_remote_code=True` lets "
          "it do.\n",
          out);
}

static void write_use(FILE *out, const LoadedModel *m) {
  bool own;
  model_files_class(&m->config, &own);
  const char *trust = own ? ", trust_remote_code=True" : "";
  const char *auto_class = m->config.encoder_layers ? "AutoModelForSeq2SeqLM" : "AutoModelForCausalLM";
  fprintf(out,
          "\n## Use\n\n```python\nfrom transformers import %s, AutoTokenizer\n"
          "model, tokenizer = %s.from_pretrained(\"DIR\"%s), AutoTokenizer.from_pretrained(\"DIR\")\n```\n\n"
          "```\n./generate DIR -p \"...\"\n"
          "lm_eval --model hf --model_args pretrained=DIR%s%s --tasks ...\n```\n",
          auto_class, auto_class, trust, own ? ",trust_remote_code=True" : "",
          m->config.encoder_layers ? ",backend=seq2seq" : "");
}

/* Writes an indented block, which no text can end. Bytes that are not UTF-8 become U+FFFD. */
static void write_indented(FILE *out, const char *text, size_t size, bool *begins) {
  uint32_t point;
  for (size_t i = 0, length; i < size; i += length ? length : 1) {
    const char c = text[i];
    length = utf8_read((const uint8_t *)text + i, size - i, &point);
    if (*begins) fputs("    ", out);
    *begins = c == '\n';
    if (!length) fputs("\xEF\xBF\xBD", out);
    else if (length == 1 && (unsigned char)c < 32 && c != '\n' && c != '\t') putc('?', out);
    else fwrite(text + i, 1, length, out);
  }
}

static void write_sample(FILE *out, const CardSample *sample) {
  if (!sample->text) return;
  fprintf(out, "\n## Sample\n\nWritten by the model (seed %llu)%s:\n\n", (unsigned long long)sample->seed,
          sample->prompt_size ? ", the prompt first" : "");
  bool begins = true;
  write_indented(out, sample->prompt, sample->prompt_size, &begins);
  write_indented(out, sample->text, sample->text_size, &begins);
  if (!begins) putc('\n', out);
}

bool card_write(const LoadedModel *m, const char *path, const char *name, TensorType type, const CardSample *sample,
                Error *error) {
  FileWriter file;
  if (!file_writer_begin(&file, path, error)) return false;
  write_front(file.stream, m);
  write_model(file.stream, m, name, type);
  if (!write_training(file.stream, m->dir, error)) {
    file_writer_abort(&file);
    return false;
  }
  write_sample(file.stream, sample);
  write_use(file.stream, m);
  return file_writer_commit(&file, error);
}
