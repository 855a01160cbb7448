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

/* The rows of a window while they are filled. */
typedef struct PairRows {
  const Pairs *pairs;
  const Window *out;
  int source, target; /* filled slots */
} PairRows;

static bool add_source(PairRows *rows, int32_t token, int begin) {
  const int at = rows->source;
  if (at >= rows->pairs->ctx) return false;
  rows->out->source_tokens[at] = token;
  rows->out->source_positions[at] = at - begin;
  rows->source++;
  return true;
}

/* Adds a token of the file; false for an id that is not in the vocabulary of sources. */
static bool add_source_token(PairRows *rows, int32_t token, int begin) {
  const int32_t first = rows->pairs->tokens.source_first;
  return token >= first && add_source(rows, token - first, begin);
}

static bool add_target(PairRows *rows, int32_t input, int32_t target, int begin) {
  const int at = rows->target;
  if (at >= rows->pairs->ctx) return false;
  rows->out->tokens[at] = input;
  rows->out->targets[at] = target;
  rows->out->positions[at] = at - begin;
  rows->target++;
  return true;
}

static bool add_target_token(PairRows *rows, int32_t input, int32_t target, int begin) {
  const int32_t first = rows->pairs->tokens.source_first;
  return (!first || target < first) && add_target(rows, input, target, begin);
}

/* Reads the tokens of the pair that begins at token `begin`, without the end token of its source. */
static bool read_tokens(PairRows *rows, int64_t begin, int source_begin, int target_begin, Error *error) {
  const TokenRange *range = &rows->pairs->range;
  const int32_t end = rows->pairs->tokens.end;
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
      const bool fits = of_source ? rows->target == target_begin && add_source_token(rows, ids[i], source_begin)
                                  : add_target_token(rows, before, ids[i], target_begin);
      if (!fits) return damaged(range, begin + i, error);
      if (of_source) continue;
      before = ids[i];
      ended = before == end;
    }
  }
  return ended || damaged(range, range->end - 1, error);
}

static bool read_pair(PairRows *rows, int64_t begin, Error *error) {
  const int source_begin = rows->source, target_begin = rows->target;
  const Window *out = rows->out;
  if (!read_tokens(rows, begin, source_begin, target_begin, error)) return false;
  if (!add_source(rows, rows->pairs->tokens.source_end, source_begin))
    return damaged(&rows->pairs->range, begin, error);
  for (int at = source_begin; at < rows->source; at++) {
    out->source_begin[at] = source_begin;
    out->source_end[at] = rows->source;
  }
  for (int at = target_begin; at < rows->target; at++) {
    out->cross_begin[at] = source_begin;
    out->cross_end[at] = rows->source;
  }
  return true;
}

static void add_padding(PairRows *rows) {
  const Window *out = rows->out;
  const PairTokens *tokens = &rows->pairs->tokens;
  for (int at = rows->source; at < rows->pairs->ctx; at++) {
    add_source(rows, tokens->source_end, at);
    out->source_begin[at] = at;
    out->source_end[at] = at + 1;
  }
  for (int at = rows->target; at < rows->pairs->ctx; at++) {
    add_target(rows, tokens->end, IGNORE_INDEX, at);
    out->cross_begin[at] = out->cross_end[at] = 0;
  }
}

bool pairs_read(const Pairs *p, int64_t index, const Window *out, Error *error) {
  PairRows rows = {.pairs = p, .out = out};
  const WindowTable *table = &p->table;
  if (index < table->windows)
    for (int64_t i = table->firsts[index]; i < table->firsts[index + 1]; i++)
      if (!read_pair(&rows, table->spans[i], error)) return false;
  add_padding(&rows);
  return true;
}
