#include "dataset/pairs.h"

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

typedef struct PairFinder {
  const TokenRange *range;
  int32_t end;
  bool (*found)(void *context, int64_t begin, PairSize size); /* is called for every whole pair */
  void *context;
  int64_t pairs, partial;
  Error *error;
} PairFinder;

/* Finds whether a document is whole: the token before it and its last token are end tokens. */
static bool is_whole(const PairFinder *f, int64_t begin, int64_t stop, bool *whole) {
  int32_t before = f->end, last;
  if (begin > 0 && !token_file_read(f->range->file, begin - 1, 1, &before, f->error)) return false;
  if (!token_file_read(f->range->file, stop - 1, 1, &last, f->error)) return false;
  *whole = before == f->end && last == f->end;
  return true;
}

/* Counts the tokens of the source: those at the beginning that the loss ignores. The tokens after them, at least the
 * end token, must all be targets. */
static bool count_source(const PairFinder *f, int64_t begin, int64_t stop, int64_t *count) {
  *count = 0;
  for (int64_t at = begin; at < stop; at += BLOCK) {
    int32_t targets[BLOCK];
    const int64_t size = stop - at < BLOCK ? stop - at : BLOCK;
    if (!token_file_read_targets(f->range->file, at, size, IGNORE_INDEX, targets, f->error)) return false;
    for (int64_t i = 0; i < size; i++) {
      if (targets[i] != IGNORE_INDEX) continue;
      if (at + i != begin + *count) return damaged(f->range, at + i, f->error);
      ++*count;
    }
  }
  return *count < stop - begin || damaged(f->range, begin, f->error);
}

static bool find_pair(void *context, int64_t begin, int64_t stop) {
  PairFinder *f = context;
  bool whole;
  int64_t source;
  if (!is_whole(f, begin, stop, &whole)) return false;
  f->partial += !whole;
  if (!whole) return true;
  if (!count_source(f, begin, stop, &source)) return false;
  return f->found(f->context, begin, (PairSize){++f->pairs, source + 1, stop - begin - source});
}

static bool find_pairs(PairFinder *f, Progress progress) {
  if (!f->range->file->info.loss_mask)
    return fail(f->error, EXIT_INPUT,
                "the text has no pairs of a prompt and a response: give a .tsv file, or JSON lines with --prompt-field "
                "and --response-field");
  return token_range_documents(f->range, f->end, find_pair, f, progress, f->error);
}

static int64_t longer_side(PairSize size) { return size.source > size.target ? size.source : size.target; }

static bool add_length(void *lengths, int64_t begin, PairSize size) {
  (void)begin;
  document_lengths_add(lengths, longer_side(size));
  return true;
}

bool pairs_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error) {
  *out = (DocumentLengths){0};
  return find_pairs(&(PairFinder){.range = range, .end = end, .found = add_length, .context = out, .error = error},
                    progress);
}

/* ---- packing ---- */

typedef struct PairPacker {
  Pairs *pairs;
  WindowFiller filler;
  int64_t shortest; /* longer side of the pair that needs the smallest context */
  Error *error;
} PairPacker;

static bool add_pair(void *context, int64_t begin, PairSize size) {
  PairPacker *p = context;
  Pairs *out = p->pairs;
  const int64_t longer = longer_side(size);
  out->pairs++;
  if (size.source == 1 && out->empty_sources++ == 0) out->first_empty = size.number;
  if (longer > longer_side(out->longest)) out->longest = size;
  if (out->pairs == 1 || longer < p->shortest) p->shortest = longer;
  if (longer > out->ctx) {
    if (out->left_out++ == 0) out->first_left_out = size;
    return true;
  }
  out->used_source += size.source;
  out->used_target += size.target;
  return window_filler_add(&p->filler, begin, (const int[]){(int)size.source, (int)size.target}, p->error);
}

static bool check_any_fits(const PairPacker *p) {
  const Pairs *made = p->pairs;
  if (made->pairs == 0 || made->left_out < made->pairs) return true;
  return fail(
      p->error, EXIT_INPUT,
      "none of the %lld pairs fits into a context of %d tokens: the shortest takes %lld, the longest %lld; give "
      "a larger --ctx",
      (long long)made->pairs, made->ctx, (long long)p->shortest, (long long)longer_side(made->longest));
}

bool pairs_make(Pairs *out, const TokenRange *range, int ctx, PairTokens tokens, Progress progress, Error *error) {
  *out = (Pairs){.range = *range, .ctx = ctx, .tokens = tokens};
  PairPacker packer = {.pairs = out, .error = error};
  PairFinder finder = {.range = range, .end = tokens.end, .found = add_pair, .context = &packer, .error = error};
  const bool ok = window_filler_begin(&packer.filler, &out->table, WINDOW_ROWS, ctx, error) &&
                  find_pairs(&finder, progress) && window_filler_end(&packer.filler, error) && check_any_fits(&packer);
  window_filler_free(&packer.filler);
  out->partial = finder.partial;
  if (!ok) pairs_free(out);
  return ok;
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
