/* Wherever a text may be cut, the tokens of its parts are those of the whole. */
#ifndef INKLING_TESTS_CUT_HELPERS_H
#define INKLING_TESTS_CUT_HELPERS_H

#include "text/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static inline bool encode_cut(BpeEncoder *encoder, PipelineText whole, size_t cut, BpeIds *ids, Error *error) {
  enum { END = 0 };
  const PipelineText first = {whole.text, cut}, rest = {whole.text + cut, whole.size - cut};
  ids->count = 0;
  return (cut == 0 || bpe_encode(encoder, &first, 1, -1, bpe_ids_sink, ids, error)) &&
         bpe_encode(encoder, &rest, 1, END, bpe_ids_sink, ids, error);
}

/* The first place of a cut that changes tokens, or 0; *cuts grows by the places that were tried. What encoding cannot
 * do is in *error. */
static inline size_t find_wrong_cut(const Tokenizer *tokenizer, PipelineText whole, bool special, int *cuts,
                                    Error *error) {
  const Pipeline *pipeline = tokenizer_pipeline(tokenizer);
  BpeEncoder *encoder = NULL;
  BpeIds wanted = {0}, ids = {0};
  size_t wrong = 0;
  bool ok =
      bpe_encoder_create(&encoder, pipeline, special, 1, NULL, error) && encode_cut(encoder, whole, 0, &wanted, error);
  for (size_t at = 0; ok && !wrong && (at = pipeline_cut(pipeline, whole.text, whole.size, at + 1)) < whole.size;) {
    ok = encode_cut(encoder, whole, at, &ids, error);
    if (ok && (ids.count != wanted.count || memcmp(ids.ids, wanted.ids, ids.count * sizeof *ids.ids) != 0)) wrong = at;
    ++*cuts;
  }
  bpe_encoder_free(encoder);
  free(wanted.ids);
  free(ids.ids);
  return wrong;
}

#endif
