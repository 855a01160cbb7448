#include "dataset/documents.h"

#include <stdlib.h>

enum {
  SCAN_TOKENS = 1 << 16, /* searched together for ends of documents */
  KEPT_TOKENS = 16 << 20 /* of the token file in memory while it is scanned */
};

bool documents_scan(const TokenRange *range, int32_t end, DocumentFound found, void *context, Progress progress,
                    Error *error) {
  int64_t begin = range->begin, dropped = begin;
  int32_t *ids = malloc(SCAN_TOKENS * sizeof *ids);
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
