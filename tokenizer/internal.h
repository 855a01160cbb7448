/* What tokenizer.c and the readers and writers of its files share. */
#ifndef INKLING_TOKENIZER_INTERNAL_H
#define INKLING_TOKENIZER_INTERNAL_H

#include "tokenizer/tokenizer.h"

#include <jansson.h>

#define SEPARATE_VOCABS "separate_vocabs"

/* What of the beginning of a decoded text is left out. */
typedef enum Leading {
  LEADING_KEPT,
  LEADING_SPACE, /* a space */
  LEADING_SPACES /* all that the first token begins with, written as SPACE_SYMBOL */
} Leading;

struct Tokenizer {
  Bpe *bpe;
  Pipeline pipeline;
  BpeEncoder *encoder; /* of tokenizer_encode(); NULL until it is called */
  BpeTokens decoded;   /* what ids stand for in texts; bytes NULL: as in `bpe` */
  Leading leading;
  int vocab;         /* of the model: its last ids may stand for nothing */
  int32_t end;       /* id of the token that ends a document */
  int32_t begin;     /* of the token that the post_processor puts before a text; -1: none */
  AddedEntry *added; /* [added_count], of rising ids; `end` and `begin` among them */
  size_t added_count;
  char *unknown; /* the text of the file's unk_token; NULL: it has none */
  bool ends_with_end;
  bool separate_vocabs, starts_elsewhere, takes_special;
  bool prefix_space;     /* a text that does not begin with a space gets one */
  uint64_t pipeline_sum; /* of what a text goes through, but for GPT-2's: 0 */
  char *json;            /* the whole tokenizer.json that was loaded; NULL: made of the above when it is saved */
  size_t json_size;
  bool json_differs; /* its post_processor does not say `begin` and ends_with_end */
};

/* What the parts of the reader share while a file is read. */
typedef struct TokenizerReader {
  Tokenizer *out;
  const char *path;
  const json_t *root;
  int32_t largest; /* id */
  int32_t end;     /* that is given; -1: found in the files */
  bool bytes;      /* pre_tokenizer turns texts into bytes: tokens are written in the alphabet of GPT-2 */
  Error *error;
} TokenizerReader;

/* ---- json_read.c ---- */

bool json_refuse(const TokenizerReader *r, const char *reason); /* EXIT_CHECKPOINT; false */
bool json_unsupported(const TokenizerReader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool json_is_absent(const json_t *value); /* NULL or null */
bool json_has_text(const json_t *object, const char *key, const char *text);
const char *json_type_name(const json_t *object); /* its "type", for messages, too: never NULL */
int32_t json_id(const json_t *value);             /* inside the limits, or -1 */
enum { JSON_ID_LIMIT = 1 << 22 };
/* A small file that may be missing or not JSON: NULL. */
json_t *json_read_beside(const char *path, const char *name);

/* ---- json_added.c ---- */

/* Fills `added`, and the token that ends documents. */
bool json_read_added(TokenizerReader *r);
/* The library that writes such files ignores the ids of added tokens when it reads them. This refuses a file whose ids
 * are not those that the library would give. Needs a vocabulary that was read. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool json_check_added_ids(const TokenizerReader *r);
/* What the post_processor puts beside a text. */
bool json_read_post_processor(TokenizerReader *r);

/* ---- json_pipeline.c ---- */

bool json_find_kind(TokenizerReader *r); /* fills `bytes` */
/* Fills the pipeline, what decoding leaves out, and the sum of it all. Needs `bpe` and `decoded`. */
bool json_read_pipeline(TokenizerReader *r);

#endif
