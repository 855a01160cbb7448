#include "text/dataset.h"

#include "kernels/philox.h"
#include "store/file.h"

#include <stdlib.h>
#include <string.h>

/* Where a document begins, in the file and in the stream. The last entry of the array is no document but the end of
 * both. All else follows: document k has begins[k + 1].token - begins[k].token - 1 bytes of text, then the end token,
 * which stands for the bytes left before begins[k + 1].byte: a separator line, or none at the end of the file. */
typedef struct Begin {
  int64_t byte, token;
} Begin;

struct Dataset {
  MappedFile file;
  int32_t end; /* id of the end token */
  Begin *begins;
  int64_t count, capacity; /* of `begins`, the last entry included */
  int64_t documents;       /* those that are not empty */
};

/* ---- Documents --------------------------------------------------------------------------------------------------- */

static bool add_begin(Dataset *dataset, Begin begin, Error *error) {
  if (dataset->count == dataset->capacity) {
    int64_t capacity = dataset->capacity ? 2 * dataset->capacity : 16;
    Begin *begins = realloc(dataset->begins, (size_t)capacity * sizeof *begins);
    if (!begins) {
      return fail(error, EXIT_MEMORY, "out of memory for a table of %lld documents", (long long)dataset->count);
    }
    dataset->begins = begins;
    dataset->capacity = capacity;
  }
  dataset->begins[dataset->count++] = begin;
  return true;
}

/* Closes the document whose text ends at byte `text_end`; the next one begins at `next`. */
static bool add_document(Dataset *dataset, int64_t text_end, int64_t next, Error *error) {
  Begin last = dataset->begins[dataset->count - 1];
  int64_t length = text_end - last.byte;
  if (length > 0) dataset->documents++;
  return add_begin(dataset, (Begin){next, last.token + length + 1}, error);
}

/* Bytes of the separator line at `at`, its line end (\n, \r\n or the end of the file) included; 0: there is none. */
static int64_t separator_at(const MappedFile *file, int64_t at) {
  const int64_t mark = sizeof END_OF_TEXT - 1;
  const uint8_t *bytes = file->bytes + at;
  int64_t left = (int64_t)file->size - at;
  if (at > 0 && bytes[-1] != '\n') return 0;
  if (left < mark || memcmp(bytes, END_OF_TEXT, (size_t)mark) != 0) return 0;
  if (left == mark) return mark;
  if (bytes[mark] == '\n') return mark + 1;
  return left > mark + 1 && bytes[mark] == '\r' && bytes[mark + 1] == '\n' ? mark + 2 : 0;
}

/* One pass at the speed of memchr: '<' is rare in text, and only one at the start of a line is looked at. */
static bool find_documents(Dataset *dataset, Error *error) {
  const MappedFile *file = &dataset->file;
  int64_t size = (int64_t)file->size, at = 0;
  if (!add_begin(dataset, (Begin){0, 0}, error)) return false;
  while (at < size) {
    const uint8_t *mark = memchr(file->bytes + at, END_OF_TEXT[0], (size_t)(size - at));
    if (!mark) break;
    at = mark - file->bytes;
    int64_t length = separator_at(file, at);
    if (length > 0 && !add_document(dataset, at, at + length, error)) return false;
    at += length > 0 ? length : 1;
  }
  bool closed = dataset->begins[dataset->count - 1].byte == size; /* by a separator at the very end */
  return closed || add_document(dataset, size, size, error);
}

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

static bool open_text(Dataset *dataset, const char *path, const Tokenizer *tokenizer, Error *error) {
  if (strcmp(tokenizer_name(tokenizer), "byte") != 0) {
    return fail(error, EXIT_USAGE,
                "%s: a text is read by the byte tokenizer only in this version, and the model's is %s", path,
                tokenizer_name(tokenizer));
  }
  dataset->end = tokenizer_end(tokenizer);
  if (!file_map(&dataset->file, path, EXIT_INPUT, error)) return false;
  if (dataset->file.size == 0) return fail(error, EXIT_INPUT, "%s is empty: there is nothing to learn from", path);
  return find_documents(dataset, error);
}

bool dataset_open(Dataset **out, const char *path, const Tokenizer *tokenizer, Error *error) {
  *out = NULL;
  Dataset *dataset = calloc(1, sizeof *dataset);
  if (!dataset) return fail(error, EXIT_MEMORY, "out of memory while opening %s", path);
  if (!open_text(dataset, path, tokenizer, error)) {
    dataset_close(dataset);
    return false;
  }
  *out = dataset;
  return true;
}

void dataset_close(Dataset *dataset) {
  if (!dataset) return;
  file_unmap(&dataset->file);
  free(dataset->begins);
  free(dataset);
}

/* ---- Reading ----------------------------------------------------------------------------------------------------- */

int64_t dataset_tokens(const Dataset *dataset) { return dataset->begins[dataset->count - 1].token; }

int64_t dataset_documents(const Dataset *dataset) { return dataset->documents; }

/* The last entry that begins at `token` or before. */
static int64_t document_of(const Dataset *dataset, int64_t token) {
  int64_t low = 0, high = dataset->count;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (dataset->begins[middle].token <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

void dataset_read(const Dataset *dataset, int64_t begin, int64_t count, int32_t *ids) {
  if (count <= 0) return;
  int64_t token = begin, last = begin + count;
  for (int64_t k = document_of(dataset, begin); token < last; k++) {
    const Begin *document = &dataset->begins[k];
    int64_t text_end = document[1].token - 1;
    const uint8_t *text = dataset->file.bytes + document->byte;
    int64_t stop = text_end < last ? text_end : last;
    for (; token < stop; token++) *ids++ = text[token - document->token];
    if (token < last) { /* then it is the end token's turn */
      *ids++ = dataset->end;
      token++;
    }
  }
}

/* The byte of the file at which a token begins; the file's size for the end of the stream. */
static int64_t byte_at(const Dataset *dataset, int64_t token) {
  const Begin *document = &dataset->begins[document_of(dataset, token)];
  return document->byte + (token - document->token);
}

int64_t dataset_bytes(const Dataset *dataset, int64_t begin, int64_t end) {
  return byte_at(dataset, end) - byte_at(dataset, begin);
}

/* ---- Parts and windows ------------------------------------------------------------------------------------------- */

void dataset_split(const Dataset *dataset, double fraction, int64_t max_tail, Split *train, Split *tail) {
  int64_t tokens = dataset_tokens(dataset);
  double kept = fraction > 0 ? fraction < 1 ? 1 - fraction : 0 : 1; /* a NaN keeps all */
  int64_t cut = (int64_t)((double)tokens * kept);
  if (cut > tokens) cut = tokens;
  if (tokens - cut > max_tail) cut = tokens - (max_tail > 0 ? max_tail : 0);
  *train = (Split){dataset, 0, cut};
  *tail = (Split){dataset, cut, tokens};
}

/* floor(u / 2^64 * range): the upper half of a 128-bit product, from 32-bit halves. */
static uint64_t scale_down(uint64_t u, uint64_t range) {
  uint64_t u0 = u & UINT32_MAX, u1 = u >> 32, r0 = range & UINT32_MAX, r1 = range >> 32;
  uint64_t middle = u1 * r0 + (u0 * r0 >> 32);
  uint64_t carry = (middle & UINT32_MAX) + u0 * r1;
  return u1 * r1 + (middle >> 32) + (carry >> 32);
}

int64_t split_window(const Split *split, uint64_t seed, uint32_t step, uint32_t sequence, int ctx) {
  PhiloxWords words = philox(seed, 0, SITE_WINDOW, step, sequence);
  uint64_t u = (uint64_t)words.word[1] << 32 | words.word[0];
  uint64_t windows = (uint64_t)(split->end - split->begin - ctx);
  return split->begin + (int64_t)scale_down(u, windows);
}
