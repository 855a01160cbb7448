#include "text/dataset/pairs.h"

#include "kernels.h"

enum { BLOCK = 64 }; /* tokens read at once; most pairs are not longer */

static bool damaged(const TokenRange *range, int64_t token, Error *error) {
  return fail(error, EXIT_CHECKPOINT, "%s: the document around token %lld is not a pair of a source and a target",
              range->file->path, (long long)token);
}

PairTokens pair_tokens(const Tokenizer *tokenizer, const Tokenizer *source) {
  return (PairTokens){.end = tokenizer_end(tokenizer),
                      .source_first = source ? tokenizer_vocab(tokenizer) : 0,
                      .source_end = tokenizer_end(source ? source : tokenizer)};
}

/* ---- finding pairs ---- */

/* Collects the lengths of pairs, or packs them. */
typedef struct PairFinder {
  Pairs *out;
  DocumentLengths *lengths; /* NULL: pack them */
  WindowFiller filler;
  int64_t shortest; /* longer side of the pair that needs the smallest context */
  Error *error;
} PairFinder;

static int64_t longer_side(PairSize size) { return size.source > size.target ? size.source : size.target; }

/* Finds whether a document is whole: the token before it and its last token are end tokens. */
static bool is_whole(const PairFinder *f, int64_t begin, int64_t stop, bool *whole) {
  const int32_t end = f->out->tokens.end;
  int32_t before = end, last;
  if (begin > 0 && !token_file_read(f->out->range.file, begin - 1, 1, &before, f->error)) return false;
  if (!token_file_read(f->out->range.file, stop - 1, 1, &last, f->error)) return false;
  *whole = before == end && last == end;
  return true;
}

static bool add_pair(PairFinder *f, int64_t begin, PairSize size) {
  Pairs *out = f->out;
  const int64_t longer = longer_side(size);
  if (size.source == 1 && out->empty_sources++ == 0) out->first_empty = size.number;
  if (longer > longer_side(out->longest)) out->longest = size;
  if (out->pairs == 1 || longer < f->shortest) f->shortest = longer;
  if (longer > out->ctx) {
    if (out->left_out++ == 0) out->first_left_out = size;
    return true;
  }
  out->used_source += size.source;
  out->used_target += size.target;
  return window_filler_add(&f->filler, begin, (const int[]){(int)size.source, (int)size.target}, f->error);
}

static bool find_pair(void *context, int64_t begin, int64_t stop) {
  PairFinder *f = context;
  const TokenRange *range = &f->out->range;
  bool whole;
  if (!is_whole(f, begin, stop, &whole)) return false;
  f->out->partial += !whole;
  if (!whole) return true;
  /* The source is what the loss ignores. The tokens after it, at least the end token, must all be targets. */
  const int64_t target = token_file_find(range->file, begin, stop, true);
  if (target == stop) return damaged(range, begin, f->error);
  const int64_t ignored = token_file_find(range->file, target, stop, false);
  if (ignored < stop) return damaged(range, ignored, f->error);
  const PairSize size = {++f->out->pairs, target - begin + 1, stop - target};
  if (!f->lengths) return add_pair(f, begin, size);
  document_lengths_add(f->lengths, longer_side(size));
  return true;
}

static bool find_pairs(PairFinder *f, Progress progress) {
  const Pairs *out = f->out;
  if (!out->range.file->info.loss_mask)
    return fail(f->error, EXIT_INPUT,
                "the text has no pairs of a prompt and a response: give a .tsv file, or JSON lines with --prompt-field "
                "and --response-field");
  return token_range_documents(&out->range, out->tokens.end, find_pair, f, progress, f->error);
}

bool pairs_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error) {
  Pairs pairs = {.range = *range, .tokens.end = end};
  *out = (DocumentLengths){0};
  return find_pairs(&(PairFinder){.out = &pairs, .lengths = out, .error = error}, progress);
}

static bool check_any_fits(const PairFinder *f) {
  const Pairs *made = f->out;
  if (made->pairs == 0 || made->left_out < made->pairs) return true;
  return fail(
      f->error, EXIT_INPUT,
      "none of the %lld pairs fits into a context of %d tokens: the shortest takes %lld, the longest %lld; give "
      "a larger --ctx",
      (long long)made->pairs, made->ctx, (long long)f->shortest, (long long)longer_side(made->longest));
}

bool pairs_make(Pairs *out, const TokenRange *range, int ctx, PairTokens tokens, Progress progress, Error *error) {
  *out = (Pairs){.range = *range, .ctx = ctx, .tokens = tokens};
  PairFinder finder = {.out = out, .error = error};
  const bool ok =
      window_filler_begin(&finder.filler, &out->table, WINDOW_ROWS, ctx, error) && find_pairs(&finder, progress);
  if (window_filler_end(&finder.filler, ok, error) && check_any_fits(&finder)) return true;
  pairs_free(out);
  return false;
}

void pairs_free(Pairs *pairs) {
  window_table_free(&pairs->table);
  *pairs = (Pairs){0};
}

/* ---- reading ---- */

/* A row of a window while it is filled. */
typedef struct Row {
  int32_t *tokens, *positions;
  int used, ctx; /* slots */
} Row;

typedef struct PairRows {
  const Pairs *pairs;
  const Window *out;
  Row source, target;
} PairRows;

/* Adds a token to a text that begins at slot `begin`. Returns false when the row is full. */
static bool add_token(Row *row, int32_t token, int begin) {
  if (row->used >= row->ctx) return false;
  row->tokens[row->used] = token;
  row->positions[row->used] = row->used - begin;
  row->used++;
  return true;
}

/* Reads the tokens of the pair that begins at token `begin`, without the end token of its source. */
static bool read_tokens(PairRows *rows, int64_t begin, int source_begin, int target_begin, Error *error) {
  const TokenRange *range = &rows->pairs->range;
  const int32_t end = rows->pairs->tokens.end, first = rows->pairs->tokens.source_first;
  int32_t before = end; /* the input of a slot is the token before its target */
  bool ended = false;
  for (; !ended && begin < range->end; begin += BLOCK) {
    int32_t ids[BLOCK], targets[BLOCK];
    const int64_t left = range->end - begin, count = left < BLOCK ? left : BLOCK;
    if (!token_file_read(range->file, begin, count, ids, error) ||
        !token_file_read_targets(range->file, begin, count, IGNORE_INDEX, targets, error))
      return false;
    for (int64_t i = 0; i < count && !ended; i++) {
      const bool of_source = targets[i] == IGNORE_INDEX;
      const bool valid = of_source ? rows->target.used == target_begin && ids[i] >= first : !first || ids[i] < first;
      if (!valid || !(of_source ? add_token(&rows->source, ids[i] - first, source_begin)
                                : add_token(&rows->target, before, target_begin)))
        return damaged(range, begin + i, error);
      if (of_source) continue;
      rows->out->targets[rows->target.used - 1] = before = ids[i];
      ended = before == end;
    }
  }
  return ended || damaged(range, range->end - 1, error);
}

static bool read_pair(PairRows *rows, int64_t begin, Error *error) {
  const int source_begin = rows->source.used, target_begin = rows->target.used;
  const Window *out = rows->out;
  if (!read_tokens(rows, begin, source_begin, target_begin, error)) return false;
  if (!add_token(&rows->source, rows->pairs->tokens.source_end, source_begin))
    return damaged(&rows->pairs->range, begin, error);
  for (int at = source_begin; at < rows->source.used; at++) {
    out->source_begin[at] = source_begin;
    out->source_end[at] = rows->source.used;
  }
  for (int at = target_begin; at < rows->target.used; at++) {
    out->cross_begin[at] = source_begin;
    out->cross_end[at] = rows->source.used;
  }
  return true;
}

bool pairs_read(const Pairs *p, int64_t index, const Window *out, Error *error) {
  PairRows rows = {.pairs = p,
                   .out = out,
                   .source = {out->source_tokens, out->source_positions, 0, p->ctx},
                   .target = {out->tokens, out->positions, 0, p->ctx}};
  const WindowTable *table = &p->table;
  if (index < table->windows)
    for (int64_t i = table->firsts[index]; i < table->firsts[index + 1]; i++)
      if (!read_pair(&rows, table->spans[i], error)) return false;
  for (int at = rows.source.used; add_token(&rows.source, p->tokens.source_end, at); at++) {
    out->source_begin[at] = at;
    out->source_end[at] = at + 1;
  }
  for (int at = rows.target.used; add_token(&rows.target, p->tokens.end, at); at++) {
    out->targets[at] = IGNORE_INDEX;
    out->cross_begin[at] = out->cross_end[at] = 0;
  }
  return true;
}
