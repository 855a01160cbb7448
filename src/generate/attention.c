/* Attention weights (--attention): every layer and head as a small map in HTML, or as numbers in JSON. */
#include "generate/completion.h"
#include "generate/program.h"
#include "model/attention_maps.h"
#include "base/file.h"
#include "base/html.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

enum {
  KINDS = 3,           /* AttentionKind */
  LEVELS = 12,         /* shades */
  PICTURE_TOKENS = 256 /* the longest text that is drawn */
};
static const char *const kind_names[KINDS] = {"encoder", "self", "cross"};
static const char *const kind_titles[KINDS] = {"Encoder self-attention", "Self-attention", "Cross-attention"};

/* The tokens of an axis of the maps. */
typedef struct TokenAxis {
  const int32_t *ids;
  int count;
  const Tokenizer *tokenizer;
} TokenAxis;

typedef struct Maps {
  const LoadedModel *model;
  TokenAxis source, text;
  FILE *out;
  AttentionKind kind; /* HTML: the kind that is written */
  bool any;           /* JSON: a map was written */
} Maps;

/* ---- names of tokens ---- */

/* Returns a token as one line of valid UTF-8, with visible spaces. */
static OneLine label(const TokenAxis *of, int at) {
  char text[128];
  size_t size, used = 0;
  const uint8_t *bytes = tokenizer_decode(of->tokenizer, of->ids[at], &size);
  if (size == 0) return text_one_line("<end>", 8);
  for (size_t i = 0; i < size && used + 4 < sizeof text; i++) {
    const char *shown = bytes[i] == ' ' ? "\u00b7" : bytes[i] == '\n' ? "\u21b5" : bytes[i] == '\t' ? "\u2192" : NULL;
    if (shown) used += (size_t)snprintf(text + used, sizeof text - used, "%s", shown);
    else text[used++] = bytes[i] ? (char)bytes[i] : '?';
  }
  text[used] = '\0';
  return text_one_line(text, 40);
}

static bool run_model(Maps *m, AttentionSeen *map, Error *error) {
  return model_attention(m->model->model, m->source.count ? m->source.ids : NULL, m->source.count, m->text.ids,
                         m->text.count, map, m, error);
}

/* ---- JSON ---- */

static bool put_text(const Maps *m, const char *name, const TokenAxis *text, Error *error) {
  fprintf(m->out, " \"%s\": {\"ids\": [", name);
  for (int i = 0; i < text->count; i++) fprintf(m->out, "%s%d", i ? ", " : "", text->ids[i]);
  fputs("], \"tokens\": [", m->out);
  for (int i = 0; i < text->count; i++) {
    size_t size;
    const uint8_t *bytes = tokenizer_decode(text->tokenizer, text->ids[i], &size);
    fputs(i ? ", " : "", m->out);
    if (!completion_write(m->out, bytes, size, error)) return false;
  }
  fputs("]},\n", m->out);
  return true;
}

static bool json_map(void *context, AttentionKind kind, int layer, const float *weights, int queries, int keys,
                     Error *error) {
  Maps *m = context;
  (void)error;
  fprintf(m->out, "%s\n  {\"kind\": \"%s\", \"layer\": %d, \"weights\": [", m->any ? "," : "", kind_names[kind], layer);
  for (int h = 0; h < m->model->config.heads; h++)
    for (int i = 0; i < queries; i++) {
      fputs(i ? ", [" : h ? ", [[" : "[[", m->out);
      for (int j = 0; j < keys; j++) fprintf(m->out, "%s%.7g", j ? ", " : "", (double)*weights++);
      fputs(i + 1 < queries ? "]" : "]]", m->out);
    }
  fputs("]}", m->out);
  m->any = true;
  return true;
}

static bool write_json(Maps *m, Error *error) {
  fputs("{\n", m->out);
  if ((m->source.count && !put_text(m, "source", &m->source, error)) || !put_text(m, "text", &m->text, error))
    return false;
  fputs(" \"maps\": [", m->out);
  if (!run_model(m, json_map, error)) return false;
  fputs("\n ]\n}\n", m->out);
  return true;
}

/* ---- HTML ---- */

/* Draws the cells of each shade as one path, with one rectangle for neighbors in a row. The shade shows the square root
 * of a weight, so that small weights are visible. */
static void put_paths(FILE *out, const float *weights, int queries, int keys) {
  for (int level = 1; level <= LEVELS; level++) {
    bool began = false;
    for (int i = 0; i < queries; i++)
      for (int j = 0, run; j < keys; j += run) {
        for (run = 0; j + run < keys && (int)lrintf(sqrtf(weights[i * keys + j + run]) * (float)LEVELS) == level;)
          run++;
        if (run == 0) {
          run = 1;
          continue;
        }
        if (!began) fprintf(out, "<path fill-opacity=\"%.2f\" d=\"", (double)level / (double)LEVELS);
        began = true;
        fprintf(out, "M%d %dh%dv1h-%dz", j, i, run, run);
      }
    if (began) fputs("\"/>", out);
  }
}

/* Returns the number of characters of the longest label. */
static int longest_label(const TokenAxis *text) {
  int longest = 0;
  for (int i = 0; i < text->count; i++) {
    const OneLine name = label(text, i);
    const int length = utf8_characters(name.text);
    longest = length > longest ? length : longest;
  }
  return longest;
}

enum { LETTER = 8, GAP = 6, UPRIGHT = 2 }; /* pixels; labels of more than UPRIGHT characters slant */

static int cell_size(int tokens) { return tokens <= 12 ? 36 : tokens <= 24 ? 26 : 18; }

/* Writes the labels above the columns; their lower ends are at `bottom`. */
static void put_columns(FILE *out, const TokenAxis *to, int left, int bottom, int cell, bool upright) {
  for (int j = 0; j < to->count; j++) {
    const int middle = left + j * cell + cell / 2;
    if (upright) fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", middle, bottom);
    else fprintf(out, "<text transform=\"translate(%d %d) rotate(-45)\">", middle + GAP / 2, bottom);
    html_write_text(out, label(to, j).text);
    fputs("</text>", out);
  }
}

/* Draws the map again, with labels of the queries (left) and of the keys (above). */
static void put_large(FILE *out, const char *id, const TokenAxis *from, const TokenAxis *to) {
  const int cell = cell_size(from->count > to->count ? from->count : to->count);
  const int longest = longest_label(to), slanted = LETTER * longest * 3 / 4;
  const bool upright = longest <= UPRIGHT;
  const int left = 2 * GAP + LETTER * longest_label(from), top = 2 * GAP + LETTER + (upright ? GAP : slanted);
  const int width = left + to->count * cell + GAP + (upright ? 0 : slanted), height = top + from->count * cell + GAP;
  fprintf(out,
          "<div class=\"big\"><svg width=\"%d\" height=\"%d\"><use href=\"#%s\" transform=\"translate(%d %d) "
          "scale(%d)\"/>",
          width, height, id, left, top, cell);
  for (int i = 0; i < from->count; i++) {
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", left - GAP, top + i * cell + cell / 2 + 4);
    html_write_text(out, label(from, i).text);
    fputs("</text>", out);
  }
  put_columns(out, to, left, top - GAP, cell, upright);
  fputs("</svg></div>", out);
}

static bool html_map(void *context, AttentionKind kind, int layer, const float *weights, int queries, int keys,
                     Error *error) {
  Maps *m = context;
  FILE *out = m->out;
  const TokenAxis *from = kind == ATTENTION_ENCODER ? &m->source : &m->text;
  const TokenAxis *to = kind == ATTENTION_SELF ? &m->text : &m->source;
  (void)error;
  if (kind != m->kind) return true;
  fprintf(out, "<h3>layer %d</h3>\n<div class=\"layer\">\n", layer + 1);
  for (int h = 0; h < m->model->config.heads; h++, weights += queries * keys) {
    char id[64];
    snprintf(id, sizeof id, "%s-%d-%d", kind_names[kind], layer + 1, h + 1);
    fprintf(out,
            "<details><summary>head %d<svg viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\"><title>layer %d, head "
            "%d</title><g id=\"%s\">",
            h + 1, keys, queries, layer + 1, h + 1, id);
    put_paths(out, weights, queries, keys);
    fputs("</g></svg></summary>", out);
    put_large(out, id, from, to);
    fputs("</details>\n", out);
  }
  fputs("</div>\n", out);
  return true;
}

/* Writes the maps of each kind together; a pass over the model, which is short, yields the kinds of a layer in turn. */
static bool write_html(Maps *m, Error *error) {
  OneLine heading = {"Attention of "};
  text_append(heading.text, sizeof heading.text, "%s", text_one_line(m->model->dir, 80).text);
  html_begin(m->out, "maps", "Attention", heading.text);
  fputs("<p>Each row is a query token, each column a token it attends to; the stronger the color, the greater "
        "the attention weight. Click a map to see it with its tokens.</p>\n",
        m->out);
  for (int kind = 0; kind < KINDS; kind++) {
    m->kind = (AttentionKind)kind;
    if (kind != ATTENTION_SELF && !m->source.count) continue;
    fprintf(m->out, "<h2>%s</h2>\n", kind_titles[kind]);
    if (!run_model(m, html_map, error)) return false;
  }
  html_end(m->out);
  return true;
}

/* ---- files ---- */

static bool is_html(const char *path) { return text_ends_with(path, ".html") || text_ends_with(path, ".htm"); }

bool attention_check(const GenerateSettings *s, Error *error) {
  const TextList *files = &s->attention;
  for (int i = 0; i < files->count; i++)
    if (!is_html(files->items[i]) && !text_ends_with(files->items[i], ".json"))
      return fail(error, EXIT_USAGE, "--attention %s: its name must end in .html (pictures) or .json (numbers)",
                  text_one_line(files->items[i], 250).text);
  for (int i = 0; i < files->count; i++)
    if (!program_check_file("--attention", files->items[i], s, error)) return false;
  return true;
}

/* The layers of the decoder with attention: with an encoder all have cross-attention. */
static int attention_layers(const ModelConfig *c) {
  return c->encoder_layers ? c->layers : c->layers - model_count_mixers(c, MIXER_CONVOLUTION);
}

bool attention_check_model(const Program *p, Error *error) {
  const LoadedModel *m = &p->model;
  if (!p->settings.attention.count || attention_layers(&m->config)) return true;
  return fail(error, EXIT_USAGE, "--attention: %s has convolutions in all layers, and no attention to show",
              text_one_line(m->dir, 200).text);
}

static bool write_file(Program *p, const char *path, Error *error) {
  const LoadedModel *m = &p->model;
  const BpeIds *source = &p->prompt.tokens.source, *ids = &p->prompt.tokens.decoder;
  /* the last token was drawn but may not have been read */
  const int count = ids->count < (size_t)m->config.ctx ? (int)ids->count : m->config.ctx;
  Maps maps = {.model = m,
               .source = {source->ids, (int)source->count, loaded_source_tokenizer(m)},
               .text = {ids->ids, count, m->tokenizer}};
  const int longest = maps.source.count > count ? maps.source.count : count;
  FileWriter file;
  if (is_html(path) && longest > PICTURE_TOKENS)
    return fail(error, EXIT_INPUT,
                "--attention %s: %d tokens are too many for a picture; the limit is %d, and a .json file has none",
                text_one_line(path, 200).text, longest, PICTURE_TOKENS);
  if (!file_writer_begin(&file, path, error)) return false;
  maps.out = file.stream;
  if (!(is_html(path) ? write_html(&maps, error) : write_json(&maps, error))) {
    file_writer_abort(&file);
    return false;
  }
  if (!file_writer_commit(&file, error)) return false;
  console_note(&p->console, "attention of %s x %s is in %s", text_plural(attention_layers(&m->config), "layer").text,
               text_plural(m->config.heads, "head").text, path);
  return true;
}

bool attention_write(Program *p, Error *error) {
  const TextList *files = &p->settings.attention;
  for (int i = 0; i < files->count; i++)
    if (!write_file(p, files->items[i], error)) return false;
  return true;
}
