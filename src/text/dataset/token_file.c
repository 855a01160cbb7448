#define _DEFAULT_SOURCE /* madvise() */

#include "text/dataset/token_file.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Numbers are little-endian, like all supported machines. */
typedef struct Header {
  char magic[8];
  TokenFileInfo info;
  uint64_t checksum; /* of all bytes before this field */
} Header;
_Static_assert(sizeof(Header) == 80, "the file's layout");

static const char MAGIC[8] = {'I', 'N', 'K', 'T', 'O', 'K', 'S', '2'};
enum {
  HELD_WORDS = 1 << 16, /* capacity of a writer's buffer */
  VOCAB_LIMIT = 1 << 30,
  SCAN_TOKENS = 1 << 16, /* tokens read at once by a scan for documents */
  KEPT_TOKENS = 16 << 20 /* tokens between two releases of the pages that were read */
};

static uint64_t checksum_of(const Header *header) { return checksum_xxh64(header, offsetof(Header, checksum), 0); }

static uint32_t word_bytes_for(const TokenFileInfo *info) {
  return info->vocab <= (info->loss_mask ? 1 << 15 : 1 << 16) ? 2 : 4;
}

static uint32_t mask_bit(const TokenFileInfo *info) {
  return info->loss_mask ? (info->word_bytes == 2 ? 1u << 15 : 1u << 31) : 0;
}

/* ---- writing ---- */

static bool write_header(TokenWriter *w, Error *error) {
  Header header = {.info = w->info};
  memcpy(header.magic, MAGIC, sizeof MAGIC);
  header.checksum = checksum_of(&header);
  return file_writer_add(&w->file, &header, sizeof header, error);
}

bool token_writer_begin(TokenWriter *w, const char *path, const TokenFileInfo *info, Error *error) {
  *w = (TokenWriter){.info = {.word_bytes = word_bytes_for(info),
                              .loss_mask = info->loss_mask,
                              .conversations = info->conversations,
                              .fingerprint = info->fingerprint,
                              .vocab = info->vocab}};
  if (info->vocab < 1 || info->vocab > VOCAB_LIMIT)
    return fail(error, EXIT_INTERNAL, "a vocabulary of %d tokens", info->vocab);
  w->words = malloc((size_t)HELD_WORDS * w->info.word_bytes);
  if (!w->words) return fail(error, EXIT_MEMORY, "out of memory for writing %s", path);
  if (file_writer_begin(&w->file, path, error) && write_header(w, error))
    return true; /* the header is only reserved; commit writes it again */
  token_writer_abort(w);
  return false;
}

static bool flush(TokenWriter *w, Error *error) {
  const size_t bytes = w->held * w->info.word_bytes;
  w->held = 0;
  if (!bytes) return true;
  w->info.sum = checksum_xxh64(w->words, bytes, w->info.sum);
  return file_writer_add(&w->file, w->words, bytes, error);
}

bool token_writer_add(TokenWriter *w, const int32_t *ids, size_t count, bool in_loss, Error *error) {
  const uint32_t mask = in_loss ? 0 : mask_bit(&w->info);
  const bool narrow = w->info.word_bytes == 2;
  if (!in_loss && !mask) return fail(error, EXIT_INTERNAL, "a token outside the loss in a file without a loss mask");
  for (size_t i = 0; i < count; i++) {
    if (ids[i] < 0 || ids[i] >= w->info.vocab)
      return fail(error, EXIT_INTERNAL, "token %d in a vocabulary of %d", ids[i], w->info.vocab);
    const uint32_t word = (uint32_t)ids[i] | mask;
    if (narrow) ((uint16_t *)w->words)[w->held++] = (uint16_t)word;
    else ((uint32_t *)w->words)[w->held++] = word;
    if (w->held == HELD_WORDS && !flush(w, error)) return false;
  }
  w->info.tokens += (int64_t)count;
  return true;
}

bool token_writer_commit(TokenWriter *w, int64_t documents, int64_t bytes, Error *error) {
  w->info.documents = documents;
  w->info.bytes = bytes;
  const size_t groups = w->info.groups * sizeof *w->groups;
  bool ok = flush(w, error) && file_writer_add(&w->file, w->groups, groups, error);
  if (groups) w->info.sum = checksum_xxh64(w->groups, groups, w->info.sum);
  if (ok && fseek(w->file.stream, 0, SEEK_SET) != 0) ok = file_fail_write(w->file.path, error);
  ok = ok && write_header(w, error) && file_writer_commit(&w->file, error);
  token_writer_abort(w);
  return ok;
}

void token_writer_abort(TokenWriter *w) {
  file_writer_abort(&w->file);
  free(w->words);
  w->words = NULL;
}

/* ---- reading ---- */

/* Returns the first token of a group; that of the one after the last is the end. */
static int64_t group_begin(const TokenFile *f, int group) {
  int64_t begin = group ? f->info.tokens : 0;
  const uint8_t *begins = f->file.bytes + sizeof(Header) + (size_t)f->info.tokens * f->info.word_bytes;
  if (group && group <= (int)f->info.groups) memcpy(&begin, begins + (size_t)(group - 1) * sizeof begin, sizeof begin);
  return begin;
}

TokenRange token_file_group(const TokenFile *f, int group) {
  return (TokenRange){f, group_begin(f, group), group_begin(f, group + 1)};
}

static bool read_header(TokenFile *f, Error *error) {
  Header header;
  if (f->file.size < sizeof header)
    return fail(error, EXIT_CHECKPOINT, "%s has %zu bytes, less than a token file's header", f->path, f->file.size);
  memcpy(&header, f->file.bytes, sizeof header);
  f->info = header.info;
  if (memcmp(header.magic, MAGIC, sizeof MAGIC) != 0 || !checksum_accept(header.checksum == checksum_of(&header)) ||
      f->info.loss_mask > 1 || f->info.conversations > f->info.loss_mask || f->info.vocab < 1 ||
      f->info.vocab > VOCAB_LIMIT || f->info.word_bytes != word_bytes_for(&f->info))
    return fail(error, EXIT_CHECKPOINT, "%s is not a token file, or its header is damaged", f->path);
  const uint64_t groups = f->info.groups * sizeof(int64_t), all = f->file.size - sizeof header;
  const uint64_t size = all < groups ? 0 : all - groups, words = size / f->info.word_bytes;
  if (f->info.groups > TOKEN_GROUPS || f->info.tokens < 0 || (uint64_t)f->info.tokens != words ||
      size % f->info.word_bytes)
    return fail(error, EXIT_CHECKPOINT, "%s holds %llu tokens and should hold %lld", f->path, (unsigned long long)words,
                (long long)f->info.tokens);
  for (int i = 0; i <= (int)f->info.groups; i++)
    if (group_begin(f, i) > group_begin(f, i + 1))
      return fail(error, EXIT_CHECKPOINT, "%s is damaged: text %d of it ends before it begins", f->path, i + 1);
  return true;
}

bool token_file_check(const TokenFile *f, Error *error) {
  struct stat now;
  if (stat(f->path, &now) != 0 || now.st_dev != f->device || now.st_ino != f->number)
    return true; /* deleted or replaced; the old file stays mapped */
  if ((uint64_t)now.st_size >= f->file.size) return true;
  return fail(error, EXIT_INPUT, "%s was cut short from %zu bytes to %lld", f->path, f->file.size,
              (long long)now.st_size);
}

bool token_file_open(TokenFile *out, const char *path, Error *error) {
  struct stat info = {0};
  *out = (TokenFile){.path = strdup(path)};
  if (!out->path) return error_memory(error, "a path");
  if (stat(path, &info) == 0) {
    out->device = info.st_dev;
    out->number = info.st_ino;
  }
  if (file_map(&out->file, path, EXIT_CHECKPOINT, error) && read_header(out, error)) return true;
  token_file_close(out);
  return false;
}

void token_file_close(TokenFile *f) {
  file_unmap(&f->file);
  free(f->path);
  f->path = NULL;
}

static uint32_t word_at(const void *words, bool narrow, int64_t token) {
  return narrow ? ((const uint16_t *)words)[token] : ((const uint32_t *)words)[token];
}

/* Reads ids when `ignored` is NULL, else targets. */
static bool read_words(const TokenFile *f, int64_t begin, int64_t count, const int32_t *ignored, int32_t *out,
                       Error *error) {
  const uint32_t mask = mask_bit(&f->info), vocab = (uint32_t)f->info.vocab;
  const void *words = f->file.bytes + sizeof(Header);
  const bool narrow = f->info.word_bytes == 2;
  for (int64_t i = 0; i < count; i++) {
    const uint32_t word = word_at(words, narrow, begin + i), id = word & ~mask;
    if (id >= vocab)
      return fail(error, EXIT_CHECKPOINT, "%s: token %lld is %u in a vocabulary of %u: the file is damaged; delete it",
                  f->path, (long long)(begin + i), id, vocab);
    out[i] = ignored && (word & mask) ? *ignored : (int32_t)id;
  }
  return true;
}

int64_t token_file_find(const TokenFile *f, int64_t begin, int64_t end, bool in_loss) {
  const uint32_t mask = mask_bit(&f->info);
  const void *words = f->file.bytes + sizeof(Header);
  const bool narrow = f->info.word_bytes == 2;
  while (begin < end && !(word_at(words, narrow, begin) & mask) != in_loss) begin++;
  return begin;
}

bool token_file_read(const TokenFile *f, int64_t begin, int64_t count, int32_t *ids, Error *error) {
  return read_words(f, begin, count, NULL, ids, error);
}

bool token_file_read_targets(const TokenFile *f, int64_t begin, int64_t count, int32_t ignored, int32_t *targets,
                             Error *error) {
  return read_words(f, begin, count, &ignored, targets, error);
}

bool token_file_verify(const TokenFile *f, Progress progress, Error *error) {
  const uint8_t *words = f->file.bytes + sizeof(Header);
  const size_t word = f->info.word_bytes;
  uint64_t sum = 0;
  for (int64_t at = 0, dropped = 0; at < f->info.tokens; at += HELD_WORDS) {
    const int64_t left = f->info.tokens - at, count = left < HELD_WORDS ? left : HELD_WORDS;
    sum = checksum_xxh64(words + (size_t)at * word, (size_t)count * word, sum);
    if (at - dropped >= KEPT_TOKENS) token_file_drop_pages(f), dropped = at;
    if (!progress_report(progress, at + count, error)) return false;
  }
  const size_t groups = f->info.groups * sizeof(int64_t);
  if (groups) sum = checksum_xxh64(words + (size_t)f->info.tokens * word, groups, sum);
  return sum == f->info.sum || fail(error, EXIT_CHECKPOINT, "%s is damaged: its checksum does not match", f->path);
}

void token_file_read_randomly(const TokenFile *f) {
  madvise((void *)(uintptr_t)f->file.bytes, f->file.size, MADV_RANDOM);
}

void token_file_prefetch(const TokenFile *f, int64_t begin, int64_t count) {
  const size_t word = f->info.word_bytes, page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t from = (sizeof(Header) + (size_t)begin * word) / page * page;
  const size_t end = sizeof(Header) + (size_t)(begin + count) * word;
  madvise((void *)(uintptr_t)(f->file.bytes + from), end - from, MADV_WILLNEED);
}

void token_file_drop_pages(const TokenFile *f) { file_forget(f->file.bytes, f->file.size); }

/* ---- ranges ---- */

bool token_range_documents(const TokenRange *range, int32_t end, DocumentFound found, void *context, Progress progress,
                           Error *error) {
  int64_t begin = range->begin, dropped = begin;
  int32_t *ids = calloc(SCAN_TOKENS, sizeof *ids);
  if (!ids) return error_memory(error, "the lengths of documents");
  bool ok = true;
  for (int64_t at = begin; ok && at < range->end; at += SCAN_TOKENS) {
    int64_t count = range->end - at < SCAN_TOKENS ? range->end - at : SCAN_TOKENS;
    if (at - dropped >= KEPT_TOKENS) token_file_drop_pages(range->file), dropped = at;
    ok = token_file_read(range->file, at, count, ids, error);
    for (int64_t i = 0; ok && i < count; i++) {
      if (ids[i] != end) continue;
      ok = found(context, begin, at + i + 1);
      begin = at + i + 1;
    }
    ok = ok && progress_report(progress, at + count - range->begin, error);
  }
  free(ids);
  return ok && (begin == range->end || found(context, begin, range->end));
}

void document_lengths_add(DocumentLengths *lengths, int64_t tokens) {
  int k = 0;
  while (((int64_t)1 << k) < tokens) k++;
  lengths->counts[k]++;
  lengths->documents++;
}
