/* What tokenizer.c and tokenizer_json.c share. */
#ifndef INKLING_TOKENIZER_INTERNAL_H
#define INKLING_TOKENIZER_INTERNAL_H

#include "tokenizer/tokenizer.h"

struct Tokenizer {
  Bpe *bpe;
  int32_t end;          /* id of the token that ends a document */
  const char *end_text; /* its text: static */
  bool begins_with_end; /* tokenizer_begins_with_end() */
  bool ends_with_end;
  bool separate_vocabs, starts_elsewhere;
  char *json; /* the whole tokenizer.json that was loaded; NULL: made of the above when it is saved */
  size_t json_size;
  bool json_differs; /* its post_processor does not say begins_with_end and ends_with_end */
};

#endif
