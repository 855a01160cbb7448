/* The model as a page that runs in a browser (--html): one file with the weights, the tokenizer, the WebAssembly module
 * and the program of the page (tools/web/). */
#include "files/checkpoint/directory.h"
#include "cli/device.h"
#include "cli/startup.h"
#include "generate/program.h"
#include "model/decoder.h"
#include "report/license.h"
#include "report/result.h"
#include "base/array.h"
#include "base/file.h"
#include "base/html.h"
#include "base/path.h"
#include "base/text.h"
#include "generate/pack.h"
#include "generate/parts.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LARGEST (300.0 * (1 << 20)) /* a page: browsers fail on larger texts */
#define LARGEST_PICTURE (1 << 20)
#define LARGEST_MEMORY (2.0 * (1 << 30)) /* of the module, which addresses 4 GiB */

typedef struct WebPage {
  Program *p;
  OneLine title;
  ByteBuffer pack; /* generate/pack.h */
  char *facts;     /* JSON */
  char *picture;   /* a URL with its bytes; NULL: none */
  FILE *out;
  uint32_t check; /* FNV-1a of the parts so far */
} WebPage;

/* ---- files ---- */

static bool add_file(WebPage *w, const char *name, const void *bytes, size_t size, Error *error) {
  static const uint8_t zeros[PACK_ALIGNMENT];
  PackEntry entry = {.size = size};
  snprintf(entry.name, sizeof entry.name, "%s", name);
  return byte_buffer_add(&w->pack, &entry, sizeof entry, error) && byte_buffer_add(&w->pack, bytes, size, error) &&
         byte_buffer_add(&w->pack, zeros, (size_t)(pack_padded(size) - size), error);
}

/* Adds a file of a directory if it exists. */
static bool add_file_of(WebPage *w, const char *dir, const char *name, Error *error) {
  const PathText path = path_in(dir, name);
  MappedFile file;
  if (access(path.text, F_OK) != 0) return true;
  if (!file_map(&file, path.text, EXIT_OUTPUT, error)) return false;
  const bool ok = add_file(w, name, file.bytes, file.size, error);
  file_unmap(&file);
  return ok;
}

/* Adds the configuration and the tokenizers as for transformers, without anything that was beside them. */
static bool add_files(WebPage *w, Error *error) {
  static const char *const names[] = {MODEL_FILE_CONFIG,
                                      MODEL_FILE_GENERATION_CONFIG,
                                      TOKENIZER_JSON,
                                      TOKENIZER_CONFIG_JSON,
                                      MODEL_FILE_SOURCE_TOKENIZER "/" TOKENIZER_JSON,
                                      MODEL_FILE_SOURCE_TOKENIZER "/" TOKENIZER_CONFIG_JSON};
  const LoadedModel *m = &w->p->model;
  const SpecialTokens special = model_files_tokens(m->special.start, m->tokenizer);
  char *dir;
  if (!file_temporary_directory(&dir, error)) return false;
  bool ok = model_files_write_config(dir, &m->config, special, TENSOR_F32, error) &&
            model_files_write_tokenizers(dir, m->tokenizer, m->source_tokenizer, m->config.ctx, error);
  for (size_t i = 0; ok && i < sizeof names / sizeof *names; i++) ok = add_file_of(w, dir, names[i], error);
  file_remove_tree(dir);
  free(dir);
  return ok;
}

/* ---- the model ---- */

/* About the size of the page, with the files so far. */
static double page_bytes(const WebPage *w) {
  const size_t text = strlen(web_style) + strlen(web_page) + strlen(web_worker);
  return (double)text + 4.0 / 3 * (double)(web_engine_size + w->pack.size);
}

static bool check_page(double bytes, DType type, Error *error) {
  return bytes <= LARGEST ||
         fail(error, EXIT_USAGE, "the page would have %s, more than the %s that browsers read safely%s",
              text_bytes(bytes).text, text_bytes(LARGEST).text,
              type == DTYPE_I8 ? "" : "; with --dtype int8 it is smaller");
}

/* Refuses a page that would be too large, before its weights are read, and one whose model would need more memory than
 * the module can address. */
static bool check_size(const WebPage *w, DType type, Error *error) {
  const ModelConfig *c = &w->p->model.config;
  const ContextInfo module = {.dtype = DTYPE_F32};
  const double each = type == DTYPE_I8 ? 1.125 /* with scales */ : (double)dtype_bytes(type);
  const double weights = (double)model_parameters(c) * each;
  const double memory = weights + (double)decoder_cache_bytes(c, sizeof(float)) +
                        (double)model_evaluation_memory(c, c->ctx, &module).activations;
  if (memory > LARGEST_MEMORY)
    return fail(error, EXIT_USAGE, "with its context of %d tokens, the model would need %s in a browser, more than %s",
                c->ctx, text_bytes(memory).text, text_bytes(LARGEST_MEMORY).text);
  return model_counts_ok(error) && check_page(page_bytes(w) + 4.0 / 3 * weights, type, error);
}

/* Loads the weights on a CPU in the type of --dtype, or int8, and adds their image. */
static bool add_image(WebPage *w, Error *error) {
  LoadedModel *m = &w->p->model;
  ContextInfo info;
  m->backend->info(m->context, &info);
  const DType type = info.weights ? info.weights : info.dtype;
  if (!check_size(w, type, error) || !model_files_load(m->files, &m->model, m->backend, m->context, error) ||
      !startup_go_on("loading the model", error))
    return false;
  const size_t bytes = model_image_bytes(m->model);
  void *image = malloc(bytes);
  if (!image) return error_memory(error, "the weights of the page");
  model_write_image(m->model, image);
  const bool ok = add_file(w, PACK_DTYPE, dtype_name(type), strlen(dtype_name(type)), error) &&
                  add_file(w, PACK_WEIGHTS, image, bytes, error);
  free(image);
  return ok && check_page(page_bytes(w), type, error);
}

/* ---- facts ---- */

/* Returns the type of a picture by its first bytes; NULL: none that all browsers show. */
static const char *picture_type(const uint8_t *bytes, size_t size) {
  if (size < 12) return NULL;
  if (memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0) return "png";
  if (memcmp(bytes, "\xff\xd8\xff", 3) == 0) return "jpeg";
  if (memcmp(bytes, "GIF8", 4) == 0) return "gif";
  return memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0 ? "webp" : NULL;
}

/* Reads the file of --picture, if it is given. */
static bool read_picture(WebPage *w, Error *error) {
  const char *path = w->p->settings.picture;
  MappedFile file;
  if (!path) return true;
  if (!file_map(&file, path, EXIT_INPUT, error)) return false;
  const char *type = picture_type(file.bytes, file.size);
  bool ok = type || fail(error, EXIT_INPUT, "--picture %s is no PNG, JPEG, GIF or WebP", text_one_line(path, 250).text);
  if (ok && file.size > LARGEST_PICTURE)
    ok = fail(error, EXIT_INPUT, "--picture %s has %s, more than the %s of a page; make it smaller, such as 256x256",
              text_one_line(path, 250).text, text_bytes((double)file.size).text, text_bytes(LARGEST_PICTURE).text);
  w->picture = ok ? malloc(file.size / 3 * 4 + 40) : NULL;
  if (w->picture) {
    char *at = w->picture + sprintf(w->picture, "data:image/%s;base64,", type);
    for (size_t i = 0; i < file.size; i += 3, at += 4) text_base64(file.bytes + i, file.size - i, at);
    *at = 0;
  }
  file_unmap(&file);
  return ok && (w->picture || error_memory(error, "a picture"));
}

__attribute__((format(printf, 3, 4))) static void add_fact(json_t *facts, const char *name, const char *format, ...) {
  char text[80];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  json_array_append_new(facts, json_pack("[ss]", name, text));
}

/* What the page tells about the model: nothing about its text, and no paths. */
static bool make_facts(WebPage *w, Error *error) {
  const LoadedModel *m = &w->p->model;
  Error ignored = {0};
  json_t *result = result_json(m->dir, CHECKPOINT_RESULT, &ignored), *facts = json_array();
  json_t *defaults = json_object();
  const json_t *kept = json_object_get(result, "kept");
  const double loss = result_value(kept, "loss"), bits = result_value(kept, "bits_per_byte");
  const double tokens = result_value(result, "tokens");
  add_fact(facts, "parameters", "%s", text_count((double)model_parameters(&m->config)).text);
  add_fact(facts, "context", "%d tokens", m->config.ctx);
  add_fact(facts, "vocabulary", "%d tokens", tokenizer_tokens(m->tokenizer));
  if (isfinite(tokens)) add_fact(facts, "trained on", "%s tokens", text_count(tokens).text);
  if (isfinite(loss)) add_fact(facts, "validation loss", "%.4f nats per token", loss);
  if (isfinite(bits)) add_fact(facts, "validation loss in bits", "%.3f per byte", bits);
  const OneLine license = model_license(m->dir);
  if (*license.text) add_fact(facts, "license", "%s", license.text);
  for (const SamplingSetting *s = sampling_settings; s->name; s++)
    json_object_set_new(defaults, s->name, json_real(s->initial));
  json_t *all = json_pack("{s:s, s:o, s:o, s:b, s:b}", "title", w->title.text, "facts", facts, "defaults", defaults,
                          "pairs", m->config.encoder_layers > 0, "chat", m->chat != NULL);
  if (all && w->picture) json_object_set_new(all, "picture", json_string(w->picture));
  if (all && m->chat && chat_has_system(m->chat))
    json_object_set_new(all, "system", json_string(w->p->settings.system ? w->p->settings.system : ""));
  w->facts = all ? json_dumps(all, JSON_ENSURE_ASCII | JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
  json_decref(result);
  json_decref(all);
  return (w->facts || error_memory(error, "the facts of the page")) && model_counts_ok(error);
}

/* ---- writing ---- */

static void add_check(WebPage *w, const char *text, size_t size) {
  for (size_t i = 0; i < size; i++) w->check = (w->check ^ (uint8_t)text[i]) * UINT32_C(16777619);
}

static void put_checked(WebPage *w, const char *text, size_t size) {
  add_check(w, text, size);
  fwrite(text, 1, size, w->out);
}

static void put_text(WebPage *w, const char *text) { put_checked(w, text, strlen(text)); }

/* JSON in which no character begins a tag. */
static void put_json(WebPage *w, const char *json) {
  for (const char *at = json; *at; at++)
    if (*at == '<') put_text(w, "\\u003c");
    else put_checked(w, at, 1);
}

static void put_base64(WebPage *w, const uint8_t *bytes, size_t size) {
  char text[4];
  for (size_t i = 0; i < size; i += 3) {
    text_base64(bytes + i, size - i, text);
    put_checked(w, text, sizeof text);
  }
}

/* The checksum covers the program first, because it is written before the program. */
static void put_page(WebPage *w) {
  w->check = UINT32_C(2166136261);
  add_check(w, web_page, strlen(web_page));
  fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline' "
        "'wasm-unsafe-eval' blob:; worker-src blob:; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'\">\n<title>",
        w->out);
  html_write_text(w->out, w->title.text);
  fputs("</title>\n<style id=\"style\">", w->out);
  put_text(w, web_style);
  fputs("</style></head>\n<body><p id=\"damaged\">This page is loading. If this sentence stays, the file is damaged or "
        "incomplete, or the browser is old or does not run scripts.</p>\n<script type=\"text/plain\" id=\"facts\">",
        w->out);
  put_json(w, w->facts);
  fputs("</script>\n<script type=\"text/plain\" id=\"engine\">", w->out);
  put_base64(w, web_engine, web_engine_size);
  fputs("</script>\n<script type=\"text/plain\" id=\"model\">", w->out);
  put_base64(w, w->pack.bytes, w->pack.size);
  fputs("</script>\n<script type=\"text/plain\" id=\"worker\">", w->out);
  put_text(w, web_worker);
  fprintf(w->out,
          "</script>\n<script type=\"text/plain\" id=\"check\">%08" PRIx32
          "</script>\n<script id=\"page\">%s</script></body></html>\n",
          w->check, web_page);
}

static bool write_page(WebPage *w, Error *error) {
  const char *path = w->p->settings.html;
  const double bytes = page_bytes(w);
  FileWriter file;
  if (!byte_buffer_add(&w->pack, &(PackEntry){0}, sizeof(PackEntry), error)) return false; /* the end */
  console_note(&w->p->console, "writing %s: %s", path, text_bytes(bytes).text);
  if (!file_writer_begin(&file, path, error)) return false;
  w->out = file.stream;
  put_page(w);
  if (startup_go_on("writing", error)) return file_writer_commit(&file, error);
  file_writer_abort(&file);
  return false;
}

/* ---- the mode ---- */

static bool open_on_cpu(Program *p, Error *error) {
  DeviceSettings machine = p->settings.machine;
  for (machine.device = 0; strcmp(device_choices[machine.device], "cpu") != 0;) machine.device++;
  if (!options_typed(&p->options, "dtype"))
    for (machine.dtype = 0; strcmp(weight_dtype_choices[machine.dtype], "int8") != 0;) machine.dtype++;
  return device_open(&machine, &p->model.config, &p->console, &p->model.backend, &p->model.context, error);
}

/* Returns the title of --title, in which newlines are spaces, or the default when it is blank. */
static OneLine page_title(const char *given) {
  char text[ONE_LINE_BYTES];
  const bool blank = !given || !given[strspn(given, " \t\r\n")];
  snprintf(text, sizeof text, "%s", blank ? DEFAULT_TITLE : given);
  for (char *c = text; *c; c++)
    if (strchr("\t\r\n", *c)) *c = ' ';
  return text_one_line(text, 250);
}

bool program_html(Program *p, Error *error) {
  WebPage w = {.p = p, .title = page_title(p->settings.title)};
  if (!web_engine_size)
    return fail(
        error, EXIT_USAGE,
        "this build has no WebAssembly module, which --html needs; build Inkling from its source by `make wasm`");
  const bool ok = program_check_file("--html", p->settings.html, &p->settings, error) && program_open_chat(p, error) &&
                  read_picture(&w, error) && open_on_cpu(p, error) && add_files(&w, error) && add_image(&w, error) &&
                  make_facts(&w, error) && write_page(&w, error);
  if (ok && p->settings.open) console_open_page(&p->console, p->settings.html);
  free(w.pack.bytes);
  free(w.facts);
  free(w.picture);
  return ok;
}
