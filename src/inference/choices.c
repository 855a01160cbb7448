#include "inference/choices.h"

#include "base/array.h"
#include "base/text.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct Reading {
  ChoiceSet *set;
  const char *path;
  Tokenizer *tokenizer;
  int32_t start;
  int ctx;
  ByteBuffer joined; /* context, delimiter and text */
  bool context;      /* the question has one */
  size_t before;     /* its tokens before those of a text */
} Reading;

/* Returns whether str.isspace() of Python does. */
static bool is_space(int32_t point) {
  return (point >= '\t' && point <= '\r') || (point >= 0x1C && point <= ' ') || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

static size_t size_without_end_spaces(ChoiceText text) {
  size_t size = text.size;
  uint8_t character[4];
  for (int32_t point; size && is_space(point = utf8_previous(text.bytes, size));)
    size -= utf8_write((uint32_t)point, character);
  return size;
}

static int64_t characters_of(ChoiceText text) {
  int64_t count = 0;
  for (size_t at = 0, length; at < text.size; at += length, count++)
    utf8_next(text.bytes + at, text.size - at, &length);
  return count;
}

/* Appends the token before a text, if there is one, and the tokens of the text. */
static bool encode(const Reading *r, const uint8_t *text, size_t size, Error *error) {
  const int32_t begin = tokenizer_begin(r->tokenizer), first = begin >= 0 || r->context ? begin : r->start;
  return (first < 0 || bpe_ids_sink(&r->set->ids, &first, 1, error)) &&
         tokenizer_encode(r->tokenizer, text, size, &r->set->ids, error);
}

/* Counts the tokens before the scored ones. The first token has nothing before it. */
static bool take_context(Reading *r, ChoiceText context, Error *error) {
  BpeIds *ids = &r->set->ids;
  const size_t size = size_without_end_spaces(context), first = ids->count;
  r->context = size > 0;
  if (r->context && !encode(r, context.bytes, size, error)) return false;
  r->before = ids->count - first > 1 ? ids->count - first : 1;
  ids->count = first;
  return true;
}

static bool join(Reading *r, const ChoiceItem *item, ChoiceText text, Error *error) {
  r->joined.size = 0;
  return byte_buffer_add(&r->joined, item->context.bytes, item->context.size, error) &&
         byte_buffer_add(&r->joined, item->delimiter.bytes, item->delimiter.size, error) &&
         byte_buffer_add(&r->joined, text.bytes, text.size, error);
}

/* Keeps the last ctx + 1 of the ids from `first` on. */
static void cut(const Reading *r, Choice *choice) {
  BpeIds *ids = &r->set->ids;
  const size_t most = (size_t)r->ctx + 1, count = ids->count - choice->first;
  if (count <= most) return;
  memmove(ids->ids + choice->first, ids->ids + ids->count - most, most * sizeof *ids->ids);
  ids->count = choice->first + most;
  r->set->cut++;
}

static bool add_text(Reading *r, const ChoiceItem *item, size_t number, Error *error) {
  ChoiceSet *set = r->set;
  const ChoiceText text = item->texts[number];
  Choice choice = {.first = set->ids.count};
  if (!join(r, item, text, error) || !encode(r, r->joined.bytes, r->joined.size, error)) return false;
  const size_t all = set->ids.count - choice.first, scored = all > r->before ? all - r->before : 0;
  if (!scored)
    return fail(error, EXIT_INPUT,
                "%s, line %lld: text %zu has no token of its own after the context; change the text "
                "or the \"delimiter\"",
                text_one_line(r->path, 250).text, (long long)item->line, number + 1);
  cut(r, &choice);
  choice.count = (int)(set->ids.count - choice.first);
  choice.scored = scored < (size_t)choice.count ? (int)scored : choice.count - 1;
  choice.lengths[CHOICE_SUM] = 1;
  choice.lengths[CHOICE_TOKENS] = choice.scored;
  choice.lengths[CHOICE_CHARACTERS] = characters_of(text);
  choice.lengths[CHOICE_BYTES] = (int64_t)text.size;
  if (!array_reserve(&set->texts, &set->text_capacity, set->text_count + 1, sizeof *set->texts))
    return error_memory(error, "choices");
  set->texts[set->text_count++] = choice;
  return true;
}

static bool add_question(Reading *r, const ChoiceItem *item, Error *error) {
  ChoiceSet *set = r->set;
  if (!array_reserve(&set->questions, &set->capacity, set->count + 1, sizeof *set->questions))
    return error_memory(error, "choices");
  set->questions[set->count++] = (ChoiceQuestion){item->line, set->text_count, (int)item->count, (int)item->right};
  set->chance += (1.0 / (double)item->count - set->chance) / (double)set->count;
  if (!take_context(r, item->context, error)) return false;
  for (size_t i = 0; i < item->count; i++)
    if (!add_text(r, item, i, error)) return false;
  return true;
}

bool choices_read(ChoiceSet *out, const char *path, Tokenizer *tokenizer, int32_t start, int ctx, Error *error) {
  *out = (ChoiceSet){0};
  Reading r = {.set = out, .path = path, .tokenizer = tokenizer, .start = start, .ctx = ctx};
  ChoiceFile file = {0};
  const ChoiceItem *item = NULL;
  bool ok = choice_file_open(&file, path, error);
  do ok = ok && choice_file_next(&file, &item, error) && (!item || add_question(&r, item, error));
  while (ok && item);
  choice_file_close(&file);
  free(r.joined.bytes);
  return ok && (out->count || fail(error, EXIT_INPUT, "%s has no choices: write two or more texts on each line",
                                   text_one_line(path, 250).text));
}

void choices_free(ChoiceSet *set) {
  free(set->ids.ids);
  free(set->texts);
  free(set->questions);
  *set = (ChoiceSet){0};
}

size_t choices_within(const ChoiceSet *set, size_t tokens) {
  size_t count = 1;
  while (count < set->count && set->texts[set->questions[count].first].first <= tokens) count++;
  return count;
}

/* ---- scoring ---- */

/* A pass over one text in each row, from the left. */
typedef struct Scoring {
  ChoiceSet *set;
  Model *model;
  size_t room;               /* tokens in a pass */
  int32_t *tokens, *targets; /* [room] */
  float *losses;             /* [room] */
} Scoring;

/* Returns how many of the texts [first, end) fit into a pass, and the length of its rows. */
static int rows_of(const Scoring *s, size_t first, size_t end, int *length) {
  int rows = 0;
  *length = 0;
  for (size_t i = first; i < end; i++, rows++) {
    const int read = s->set->texts[i].count - 1, longest = read > *length ? read : *length;
    if ((size_t)longest * (size_t)(rows + 1) > s->room) break;
    *length = longest;
  }
  return rows;
}

static void fill_row(const Scoring *s, const Choice *choice, int row, int length) {
  const int32_t *ids = s->set->ids.ids + choice->first;
  const size_t at = (size_t)row * (size_t)length;
  for (int i = 0; i < length; i++) {
    const bool inside = i < choice->count - 1, scored = inside && i >= choice->count - 1 - choice->scored;
    s->tokens[at + (size_t)i] = ids[inside ? i : 0];
    s->targets[at + (size_t)i] = scored ? ids[i + 1] : IGNORE_INDEX;
  }
}

static double sum_row(const Scoring *s, int row, int length) {
  const float *losses = s->losses + (size_t)row * (size_t)length;
  double sum = 0;
  for (int i = 0; i < length; i++) sum -= (double)losses[i];
  return sum;
}

static bool score_texts(const Scoring *s, size_t end, Progress progress, Error *error) {
  Choice *texts = s->set->texts;
  for (size_t first = 0; first < end;) {
    int length;
    const int rows = rows_of(s, first, end, &length);
    for (int i = 0; i < rows; i++) fill_row(s, &texts[first + (size_t)i], i, length);
    const TokenBatch batch = {.tokens = s->tokens, .targets = s->targets};
    if (!model_losses(s->model, &batch, rows, length, s->losses, NULL, NULL, NULL, error)) return false;
    for (int i = 0; i < rows; i++) texts[first + (size_t)i].loglikelihood = sum_row(s, i, length);
    first += (size_t)rows;
    if (!progress_report(progress, (int64_t)first, error)) return !error->code;
  }
  return true;
}

bool choices_score(ChoiceSet *set, Model *model, size_t questions, int batch, Progress progress, Error *error) {
  const int ctx = model_config(model)->ctx;
  Scoring s = {.set = set, .model = model, .room = (size_t)batch * (size_t)ctx};
  s.tokens = malloc(s.room * sizeof *s.tokens);
  s.targets = malloc(s.room * sizeof *s.targets);
  s.losses = malloc(s.room * sizeof *s.losses);
  const ChoiceQuestion *last = &set->questions[questions - 1];
  const bool ok = ((s.tokens && s.targets && s.losses) || error_memory(error, "a batch of choices")) &&
                  model_evaluate_begin(model, batch, ctx, error) &&
                  score_texts(&s, last->first + (size_t)last->count, progress, error);
  free(s.tokens);
  free(s.targets);
  free(s.losses);
  return ok;
}

/* ---- results ---- */

int choices_chosen(const ChoiceSet *set, const ChoiceQuestion *question, ChoiceMeasure measure, bool *tie) {
  double highest = 0;
  int chosen = 0;
  *tie = false;
  for (int i = 0; i < question->count; i++) {
    const Choice *choice = &set->texts[question->first + (size_t)i];
    const double score = choice->loglikelihood / (double)choice->lengths[measure];
    if (i && score == highest) *tie = true;
    if (i && !(score > highest)) continue;
    highest = score;
    chosen = i;
    *tie = false;
  }
  return chosen;
}

ChoiceCount choices_count(const ChoiceSet *set, size_t questions) {
  ChoiceCount out = {.questions = questions};
  for (size_t i = 0; i < questions; i++)
    for (int m = 0; m < CHOICE_MEASURES; m++) {
      bool tie;
      const int chosen = choices_chosen(set, &set->questions[i], (ChoiceMeasure)m, &tie);
      out.ties[m] += tie;
      out.right[m] += !tie && chosen == set->questions[i].right;
    }
  return out;
}
