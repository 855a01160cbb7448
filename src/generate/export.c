/* Export (--export): writes the model for Hugging Face transformers into a directory of its own, with a model card
 * (README.md, as model hubs show it). */
#include "files/checkpoint/directory.h"
#include "cli/startup.h"
#include "files/formats/gguf_model.h"
#include "generate/program.h"
#include "report/license.h"
#include "report/result.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Export {
  Program *p;
  TensorType type;   /* of the weights */
  const char *class; /* of transformers */
  bool own;          /* it is not a part of transformers */
  OneLine license;   /* "": none is known */
  Text sample;       /* a generated text for the model card, if `sampled` */
  bool sampled;
  bool chats; /* it has a chat template */
  bool gguf;  /* --gguf can write it */
} Export;

/* ---- the sample ---- */

/* Generates the text of -p, -n, ...; an encoder needs -p for it. */
static bool make_sample(Export *e, Error *error) {
  Program *p = e->p;
  const GenerateSettings *s = &p->settings;
  Prompt *prompt = &p->prompt;
  e->sampled = s->tokens && (!p->model.config.encoder_layers || s->prompt);
  if (!e->sampled) return true;
  if (!prompt_read(p, error) || !prompt_encode(p, prompt->text.bytes, prompt->text.size, &prompt->tokens, error))
    return false;
  e->sample = prompt_text(p, &prompt->tokens);
  return program_make_text(p, &e->sample, false, error) && startup_go_on("writing a sample", error);
}

/* ---- the model card: training ---- */

static void write_row(FILE *out, const char *name, double value, const char *unit) {
  if (isfinite(value)) fprintf(out, "| %s | %.6g%s |\n", name, value, unit);
}

static void write_kept(FILE *out, const MetricsLine *kept) {
  write_row(out, kept->all ? "validation loss" : "validation loss, on the beginning of the validation text",
            kept->val_loss, " nats per token");
  write_row(out, "the same", kept->bits_per_byte, " bits per byte");
  write_row(out, "answers that are exactly right", 100 * kept->exact, " %");
  write_row(out, "these weights are of step", (double)kept->step, "");
}

static void write_results(FILE *out, const json_t *result, const MetricsLine *kept) {
  fputs("\n## Training\n\n| | |\n|---|---|\n", out);
  write_row(out, "steps", result_value(result, "step"), "");
  write_row(out, "tokens seen", result_value(result, "tokens"), "");
  write_row(out, "passes over the text", result_value(result, "epochs"), "");
  if (kept) write_kept(out, kept);
}

/* Returns whether a setting comes from the base model of --init. */
static bool is_of_base(const char *key) {
  static const char *const keys[] = {"preset", "arch", "init-like", "init-std", "unk"};
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
  fprintf(out, " --%s %s", key, tokenizer_is_trained_name(name) ? name : "TOKENIZER");
}

/* Writes the options that say how the text is read. */
static void write_reading(FILE *out, const json_t *settings) {
  static const char *const keys[] = {"binary", "tsv", "fasta", "jsonl-field", "prompt-field", "response-field"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const json_t *value = json_object_get(settings, keys[i]);
    const char *field = json_string_value(value);
    if (field) fprintf(out, " --%s %s", keys[i], text_shell_word(field, ONE_LINE_BYTES - 1).text);
    else if (json_is_true(value)) fprintf(out, " --%s", keys[i]);
  }
}

static void write_command(FILE *out, const Options *training, const json_t *settings) {
  const char *key;
  json_t *value;
  const bool based = json_object_get(settings, "init");
  fprintf(out, "\nTrained with Inkling:\n\n```\n%s TEXT", program_name_elsewhere("train").text);
  if (json_object_get(settings, "val")) fputs(" --val VALIDATION", out);
  write_reading(out, settings);
  if (based) fputs(" --init MODEL", out);
  if (json_object_get(settings, "teacher")) fputs(" --teacher MODEL", out);
  write_tokenizer(out, settings, "tokenizer");
  write_tokenizer(out, settings, "source-tokenizer");
  json_object_foreach((json_t *)settings, key, value) {
    if (options_setting_kind(training, key) == SETTING_OF_MODEL && !(based && is_of_base(key)))
      write_flag(out, key, value);
  }
  fputs("\n```\n", out);
}

/* Writes nothing when the model is not a run of ./train. */
static bool write_training(FILE *out, const Program *p, Error *error) {
  const char *dir = p->model.dir;
  Error why = {0};
  History history = {0};
  json_t *result = result_json(dir, CHECKPOINT_RESULT, &why), *settings = result_settings(dir, &why);
  history_read(&history, path_in(dir, CHECKPOINT_METRICS).text, &why);
  if (p->training.failed) error_memory(&why, "the options");
  if (result) write_results(out, result, history_kept(&history));
  if (json_object_size(settings) > 0) write_command(out, &p->training, settings);
  history_free(&history);
  json_decref(result);
  json_decref(settings);
  return why.code != EXIT_MEMORY || fail(error, why.code, "%s", why.text);
}

/* ---- the model card: the rest ---- */

/* `license`: "": none is known. */
static void write_front(FILE *out, const ModelConfig *c, const char *license) {
  if (*license) fprintf(out, "---\nlicense: %s\n# Say which languages the text is in:\n", license);
  else
    fputs("---\n# Choose a license (mit, apache-2.0, cc-by-4.0, ...) and say which languages the text is in:\n"
          "# license: mit\n",
          out);
  fprintf(out, "# language: en\nlibrary_name: transformers\npipeline_tag: %s\ntags:\n- inkling\n---\n\n",
          c->encoder_layers ? "text2text-generation" : "text-generation");
}

static void write_model(FILE *out, const Export *e, const char *name) {
  const ModelConfig *c = &e->p->model.config;
  fprintf(out,
          "# %s\n\nA language model of %s parameters: %s of width %d, %s, a context of %d tokens, a "
          "vocabulary of %d (%s); `%s` of transformers, weights in %s.\n",
          name, text_count((double)model_parameters(c)).text, text_plural(c->layers, "layer").text, c->dim,
          text_plural(c->heads, "attention head").text, c->ctx, c->vocab, tokenizer_name(e->p->model.tokenizer),
          e->class, e->type == TENSOR_BF16 ? "bfloat16" : "float32");
  if (e->own)
    fputs("\nNo class of transformers has these parts: `modeling_inkling.py` computes them, which "
          "`trust_remote_code=True` lets it do.\n",
          out);
}

static void write_use(FILE *out, const Export *e) {
  static const char chat_lines[] =
      "messages = [{\"role\": \"user\", \"content\": \"Hello\"}]\n"
      "prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True, "
      "return_tensors=\"pt\")\n"
      "answer = model.generate(**prompt, max_new_tokens=200)[0, prompt[\"input_ids\"].shape[1]:]\n"
      "print(tokenizer.decode(answer, skip_special_tokens=True))\n";
  const ShellWord generate = program_name_elsewhere("generate");
  const bool encoder = e->p->model.config.encoder_layers;
  const char *auto_class = encoder ? "AutoModelForSeq2SeqLM" : "AutoModelForCausalLM";
  fprintf(out,
          "\n## Use\n\n```python\nfrom transformers import %s, AutoTokenizer\n"
          "model, tokenizer = %s.from_pretrained(\"DIR\"%s), AutoTokenizer.from_pretrained(\"DIR\")\n%s```\n\n"
          "```\n%s DIR %s\n"
          "lm_eval --model hf --model_args pretrained=DIR%s%s --tasks ...\n```\n",
          auto_class, auto_class, e->own ? ", trust_remote_code=True" : "", e->chats ? chat_lines : "", generate.text,
          e->chats ? "-i" : "-p \"...\"", e->own ? ",trust_remote_code=True" : "", encoder ? ",backend=seq2seq" : "");
  if (e->chats && e->gguf)
    fprintf(out,
            "\nA chat in Ollama:\n\n```\n%s DIR --gguf model.gguf --modelfile Modelfile\n"
            "ollama create my-model -f Modelfile\nollama run my-model\n```\n",
            generate.text);
}

/* Writes an indented block, which no text can end. Bytes that are not UTF-8 become U+FFFD. */
static void write_indented(FILE *out, const uint8_t *text, size_t size, bool *begins) {
  for (size_t i = 0, length; i < size; i += length) {
    const int32_t point = utf8_next(text + i, size - i, &length);
    if (*begins) fputs("    ", out);
    *begins = text[i] == '\n';
    if (point == UTF8_INVALID) fputs("\xEF\xBF\xBD", out);
    else if (point < 32 && point != '\n' && point != '\t') putc('?', out);
    else fwrite(text + i, 1, length, out);
  }
}

static void write_sample(FILE *out, const Export *e) {
  if (!e->sampled) return;
  fprintf(out, "\n## Sample\n\nWritten by the model (seed %" PRIu64 ")%s:\n\n", e->sample.sampling.seed,
          e->p->prompt.text.size ? ", the prompt first" : "");
  bool begins = true;
  write_indented(out, e->p->prompt.text.bytes, e->p->prompt.text.size, &begins);
  write_indented(out, e->sample.bytes.bytes, e->sample.bytes.size, &begins);
  if (!begins) putc('\n', out);
}

static bool write_card(const Export *e, const char *path, const char *name, Error *error) {
  FileWriter file;
  if (!file_writer_begin(&file, path, error)) return false;
  write_front(file.stream, &e->p->model.config, e->license.text);
  write_model(file.stream, e, name);
  if (!model_counts_ok(error) || !write_training(file.stream, e->p, error)) {
    file_writer_abort(&file);
    return false;
  }
  write_sample(file.stream, e);
  write_use(file.stream, e);
  return file_writer_commit(&file, error);
}

/* ---- the directory ---- */

static const char *const files[] = {MODEL_FILE_CONFIG, MODEL_FILE_GENERATION_CONFIG, MODEL_FILE_WEIGHTS,
                                    TOKENIZER_JSON,    TOKENIZER_CONFIG_JSON,        MODEL_FILE_CODE,
                                    MODEL_FILE_CARD,   CHAT_TEMPLATE_JINJA};

/* Fails unless the directory is new or empty. */
static bool check_directory(const char *dir, bool *exists, Error *error) {
  struct stat info;
  if (path_is_stdin(dir) || !text_is_plain(dir))
    return fail(error, EXIT_USAGE, "--export \"%s\": name a directory", text_one_line(dir, 100).text);
  *exists = stat(dir, &info) == 0;
  if (!*exists) return file_is_writable(dir) || file_fail_write(dir, error);
  if (!S_ISDIR(info.st_mode)) return fail(error, EXIT_USAGE, "--export %s: a file of that name exists", dir);
  return file_directory_is_empty(dir, NULL) ||
         fail(error, EXIT_USAGE, "--export %s: that directory is not empty; remove it or choose another name", dir);
}

static void remove_files(const char *dir) {
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) file_remove_in(dir, files[i]);
  model_files_remove_source_tokenizer(dir);
}

static bool write_files(const Export *e, const char *dir, const char *name, Error *error) {
  const LoadedModel *m = &e->p->model;
  const SpecialTokens special = model_files_tokens(m->special.start, m->tokenizer);
  tokenizer_set_starts_elsewhere(m->tokenizer, special.start != special.end);
  if (model_files_copy_weights(m->files, dir, e->type, error) &&
      model_files_write_tokenizers(dir, m->tokenizer, m->source_tokenizer, m->config.ctx, error) &&
      model_files_write_config(dir, &m->config, special, e->type, error) &&
      write_card(e, path_in(dir, MODEL_FILE_CARD).text, name, error))
    return true;
  remove_files(dir);
  return false;
}

/* Writes a new directory, which gets its name when it is complete; until then it is a hidden one beside it. */
static bool write_new(const Export *e, const char *dir, const char *name, Error *error) {
  char hidden[ONE_LINE_BYTES];
  snprintf(hidden, sizeof hidden, ".%s.inkling-%ld", path_base(dir), (long)getpid());
  const PathText temporary = path_in(path_directory(dir).text, hidden);
  if (mkdir(temporary.text, 0777) != 0) return file_fail_write(dir, error);
  if (write_files(e, temporary.text, name, error) && (rename(temporary.text, dir) == 0 || file_fail_write(dir, error)))
    return true;
  file_remove_tree(temporary.text);
  return false;
}

/* Changes `name` into one that a hub takes. */
static void print_commands(const Export *e, const char *dir, char *name) {
  const ShellWord word = text_shell_word(dir, 250);
  for (char *at = name; *at; at++)
    if (!isalnum((unsigned char)*at) && !strchr("._", *at)) *at = '-';
  console_note(&e->p->console, "%s holds the model, its tokenizer and a model card; %s", dir,
               *e->license.text ? "check its license" : "choose a license in the card");
  printf("hf upload NAME/%s %s\n", name + strspn(name, "-."), word.text);
  printf("lm_eval --model hf --model_args pretrained=%s%s%s --tasks lambada_openai\n", word.text,
         e->own ? ",trust_remote_code=True" : "", e->p->model.config.encoder_layers ? ",backend=seq2seq" : "");
}

/* Finds out what else can read the model. EXIT_MEMORY. */
static bool take_readers(Export *e, Error *error) {
  const LoadedModel *m = &e->p->model;
  Error why = {0};
  e->chats = tokenizer_chat_template(m->tokenizer) && !m->config.encoder_layers;
  e->gguf = gguf_model_check(&(GgufModel){.files = m->files, .tokenizer = m->tokenizer}, &why);
  return why.code != EXIT_MEMORY || fail(error, why.code, "%s", why.text);
}

bool program_export(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  if (s->tokens < 0)
    return fail(error, EXIT_USAGE, "-n %" PRId64 " has no end; the sample of a model card needs one", s->tokens);
  Export e = {
      .p = p, .type = s->export_type == EXPORT_BF16 ? TENSOR_BF16 : TENSOR_F32, .license = model_license(p->model.dir)};
  e.class = model_files_class(&p->model.config, &e.own);
  char *dir = strdup(s->export);
  for (size_t end = dir ? strlen(dir) : 0; end > 1 && dir[end - 1] == '/'; end--) dir[end - 1] = '\0';
  char *name = dir ? file_last_name(dir) : NULL;
  bool exists = false;
  const bool ok = ((dir && name) || error_memory(error, "a path")) && check_directory(dir, &exists, error) &&
                  take_readers(&e, error) && make_sample(&e, error) &&
                  (exists ? write_files : write_new)(&e, dir, text_one_line(name, 100).text, error);
  if (ok && !p->console.quiet) print_commands(&e, dir, name);
  generation_free_text(&e.sample);
  free(name);
  free(dir);
  return ok && program_check(p, error);
}
