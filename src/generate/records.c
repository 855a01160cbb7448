#include "generate/records.h"

#include "text/dataset/file_list.h"
#include "generate/completion.h"
#include "inference/evaluation.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const record_format_names[] = {"csv", "tsv", NULL};

bool records_wanted(const GenerateSettings *s) { return s->per_token || s->per_word; }

bool records_have_ids(const GenerateSettings *s) {
  return s->per_line && (s->tsv || text_format_of(s->score) == FORMAT_TSV);
}

bool records_open(Records *r, Program *p, Error *error) {
  *r = (Records){.p = p};
  if (p->model.config.encoder_layers)
    return fail(error, EXIT_USAGE,
                "--per-token and --per-word are for models without an encoder; --score FILE scores "
                "pairs");
  return char_classes_create(&r->classes, error);
}

void records_free(Records *r) {
  free(r->classes);
  free(r->held.bytes);
  free(r->word.bytes);
  free(r->unknown.bytes);
}

/* ---- columns: values, or their names before the first record ---- */

static RecordFormat format_of(const Records *r) {
  return r->p->settings.json ? RECORDS_JSON : (RecordFormat)r->p->settings.record_format;
}

static char separator_of(const Records *r) { return format_of(r) == RECORDS_TSV ? '\t' : ','; }

/* Begins a column. Returns whether its value is to be printed. */
static bool begin_column(Records *r, const char *name) {
  const bool first = r->columns++ == 0;
  if (format_of(r) == RECORDS_JSON) {
    printf("%s\"%s\": ", first ? "{" : ", ", name);
    return true;
  }
  if (!first) putchar(separator_of(r));
  if (!r->titled) fputs(name, stdout);
  return r->titled;
}

static void put_integer(Records *r, const char *name, int64_t value) {
  if (begin_column(r, name)) printf("%" PRId64, value);
}

/* A missing value is empty, which R and pandas read as NA in a column of numbers; "NA" is also a word. */
static void put_number(Records *r, const char *name, double value) {
  if (!begin_column(r, name)) return;
  if (isfinite(value)) printf("%.9g", value + 0.0); /* not -0 */
  else if (format_of(r) == RECORDS_JSON) fputs("null", stdout);
}

/* Frees `text`; NULL: no memory. */
static bool put_text(Records *r, const char *name, json_t *text, Error *error) {
  if (text && begin_column(r, name)) {
    if (format_of(r) == RECORDS_JSON) json_dumpf(text, stdout, JSON_ENCODE_ANY);
    else text_print_csv(stdout, json_string_value(text), json_string_length(text), separator_of(r));
  }
  const bool ok = text;
  json_decref(text);
  return ok || error_memory(error, "a record");
}

static bool print_line(Records *r, int64_t begin, int64_t bytes, const RecordNumbers *n, json_t *text, Error *error) {
  const GenerateSettings *s = &r->p->settings;
  r->columns = 0;
  put_integer(r, s->per_line ? "line" : "document", r->text);
  if (records_have_ids(s) && !put_text(r, "id", completion_string(r->id, r->id_size, NULL), error)) {
    json_decref(text);
    return false;
  }
  put_integer(r, s->per_word ? "word" : "token", r->number);
  put_integer(r, "start", begin);
  put_integer(r, "end", begin + bytes);
  put_integer(r, "bytes", bytes);
  if (!put_text(r, "text", text, error)) return false;
  if (s->per_word) put_integer(r, "tokens", n->tokens);
  put_number(r, "nats", n->tokens ? n->nats : NAN);
  put_number(r, "bits", n->tokens ? n->nats / NATS_PER_BIT : NAN);
  if (s->entropy) put_number(r, "entropy", n->measures.rank ? n->measures.entropy : (double)NAN);
  if (s->entropy) put_number(r, "rank", n->measures.rank ? (double)n->measures.rank : (double)NAN);
  fputs(format_of(r) == RECORDS_JSON ? "}\n" : format_of(r) == RECORDS_CSV ? "\r\n" : "\n", stdout);
  return true;
}

/* Prints the names of the columns, once. */
static bool print_title(Records *r, Error *error) {
  const RecordNumbers none = {0};
  const bool ok = r->titled || format_of(r) == RECORDS_JSON || print_line(r, 0, 0, &none, json_string(""), error);
  r->titled = true;
  return ok;
}

static bool print_record(Records *r, int64_t begin, int64_t bytes, const RecordNumbers *n, json_t *text, Error *error) {
  r->number++;
  console_work_end(&r->p->console);
  if (print_title(r, error)) return print_line(r, begin, bytes, n, text, error);
  json_decref(text);
  return false;
}

/* ---- words ---- */

static bool end_word(Records *r, Error *error) {
  const ByteBuffer *word = &r->word;
  const bool ok = !word->size || print_record(r, r->begin, (int64_t)word->size, &r->of_word,
                                              completion_bytes(word->bytes, word->size), error);
  r->word.size = 0;
  r->of_word = (RecordNumbers){0};
  return ok;
}

static void add_numbers(RecordNumbers *to, const RecordNumbers *n) {
  if (!to->tokens) to->measures = n->measures;
  to->tokens += n->tokens;
  to->nats += n->nats;
}

/* The tokens that wait count for the word of this character. */
static bool add_character(Records *r, const uint8_t *bytes, size_t size, Error *error) {
  if (!r->word.size) r->begin = r->at;
  add_numbers(&r->of_word, &r->waiting);
  r->waiting = (RecordNumbers){0};
  return byte_buffer_add(&r->word, bytes, size, error);
}

/* Adds the characters of `held` to words; an incomplete one stays, unless the text has ended. */
static bool add_characters(Records *r, bool ended, Error *error) {
  ByteBuffer *held = &r->held;
  const size_t size = ended || !held->size ? held->size : utf8_complete(held->bytes, held->size);
  size_t at = 0;
  for (size_t length; at < size; at += length, r->at += (int64_t)length) {
    const bool space = char_class(r->classes, held->bytes + at, size - at, &length) == CHAR_SPACE;
    if (!(space ? end_word(r, error) : add_character(r, held->bytes + at, length, error))) return false;
  }
  held->size -= at;
  if (at) memmove(held->bytes, held->bytes + at, held->size);
  return true;
}

/* ---- texts ---- */

void records_begin_text(Records *r, int64_t number, const Document *text, const uint8_t *id, size_t size) {
  r->text = number;
  r->source = *text;
  r->responds = false;
  r->piece_end = 0;
  r->id = id;
  r->id_size = size;
  r->number = r->at = 0;
  r->at_start = true;
  r->of_word = r->waiting = (RecordNumbers){0};
}

/* Finds the next piece of the text. */
static bool next_piece(Records *r, WordLevel level, const uint8_t **piece, size_t *size) {
  const Document *text = &r->source;
  for (;; r->responds = true, r->piece_end = 0) {
    const uint8_t *part = text->text + (r->responds ? text->prompt : 0);
    const size_t part_size = r->responds ? text->size - text->prompt : text->prompt;
    size_t begin;
    const bool found = word_level_next(level, r->classes, part, part_size, &begin, &r->piece_end);
    *piece = part + begin;
    *size = r->piece_end - begin;
    if (found || r->responds) return found;
  }
}

/* In a vocabulary of whole pieces, replaces the bytes of a token that stands for any piece by those of the text. */
static bool take_piece(Records *r, int32_t token, const uint8_t **bytes, size_t *size, Error *error) {
  const Bpe *bpe = tokenizer_bpe(r->p->model.tokenizer);
  const uint8_t *piece;
  size_t piece_size, name;
  const bool replaces = bpe->level && bpe->unknown >= 0 && r->source.text;
  if (!replaces || !next_piece(r, bpe->level, &piece, &piece_size) || token != bpe->unknown) return true;
  bpe_token(&bpe->tokens, token, &name);
  const size_t after = strlen(word_level_kinds[bpe->level].after), before = *size - name - after;
  r->unknown.size = 0;
  if (!byte_buffer_add(&r->unknown, *bytes, before, error) || !byte_buffer_add(&r->unknown, piece, piece_size, error) ||
      !byte_buffer_add(&r->unknown, *bytes + *size - after, after, error))
    return false;
  *bytes = r->unknown.bytes;
  *size = r->unknown.size;
  return true;
}

bool records_add(Records *r, int32_t token, double nats, const PredictionMeasures *measures, Error *error) {
  const LoadedModel *m = &r->p->model;
  const char *special = tokenizer_special(m->tokenizer, token);
  RecordNumbers n = {.tokens = 1, .nats = nats};
  size_t size, name;
  const uint8_t *decoded = tokenizer_decode_next(m->tokenizer, token, &r->at_start, &name), *bytes = decoded;
  size = name;
  if (!special && !take_piece(r, token, &bytes, &size, error)) return false;
  if (measures) n.measures = *measures;
  if (r->p->settings.per_word) {
    add_numbers(&r->waiting, &n);
    return byte_buffer_add(&r->held, bytes, size, error) && add_characters(r, false, error);
  }
  json_t *text = special ? json_string(special) : completion_bytes(decoded, name);
  const bool ok = print_record(r, r->at, (int64_t)size, &n, text, error);
  r->at += (int64_t)size;
  return ok;
}

bool records_end_word(Records *r, Error *error) {
  const bool ok = add_characters(r, true, error) && end_word(r, error);
  r->waiting = (RecordNumbers){0};
  return ok;
}

bool records_finish(Records *r, Error *error) { return print_title(r, error) && program_check(r->p, error); }
