/* Declarations for tokenizer.c and the readers and writers of tokenizer files. */
#ifndef INKLING_TEXT_TOKENIZER_INTERNAL_H
#define INKLING_TEXT_TOKENIZER_INTERNAL_H

#include "text/tokenizer/tokenizer.h"

#include <jansson.h>

#define SEPARATE_VOCABS "separate_vocabs"

/* The part of the beginning of a decoded text that decoding removes. */
typedef enum Leading {
  LEADING_KEPT,
  LEADING_SPACE,  /* a space */
  LEADING_SPACES, /* all spaces that the first token begins with, written as SPACE_SYMBOL */
  LEADING_LINES   /* a space, also at the beginning of a line */
} Leading;

struct Tokenizer {
  Bpe *bpe;
  Pipeline pipeline;
  BpeEncoder *encoder; /* for tokenizer_encode(); NULL before its first call */
  BpeTokens decoded;   /* the text of ids; bytes NULL: as in `bpe` */
  Leading leading;
  int vocab;         /* the model's; its last ids may be unused */
  int32_t end;       /* id of the token that ends a document */
  EndTokens others;  /* tokens that also end a generated text */
  int32_t begin;     /* id of the token that the post_processor puts before a text; -1: none */
  AddedToken *added; /* [added_count], ascending ids; includes `end` and `begin` */
  size_t added_count;
  char *unknown; /* the text of the file's unk_token; NULL: none */
  bool ends_with_end;
  bool separate_vocabs, starts_elsewhere, takes_special;
  char *chat_template;    /* of a file beside the tokenizer.json; NULL: none */
  bool prefix_space;      /* encoding puts a space before a text that does not begin with one */
  uint64_t pipeline_hash; /* 0 for GPT-2's */
  char *json;             /* the whole tokenizer.json that was loaded; NULL: saving generates it from the fields
                            above */
  size_t json_size;
  bool json_differs; /* its post_processor does not match `begin` and ends_with_end */
};

/* The state of the reader of a tokenizer.json. */
typedef struct TokenizerReader {
  Tokenizer *out;
  const char *path;
  const json_t *root;   /* of tokenizer.json */
  const json_t *config; /* tokenizer_config.json; NULL: there is none, or it is not read */
  int32_t largest;      /* id */
  int32_t end;          /* the given end token; -1: the files determine it */
  bool bytes;           /* the pre_tokenizer is byte-level: tokens are written in the alphabet */
  WordLevel level;      /* of the model; without a level and `bytes`, the vocabulary is one of characters */
  Error *error;
} TokenizerReader;

/* ---- json_read.c ---- */

/* Fails with EXIT_CHECKPOINT. The message needs no path: tokenizer_load() puts it before all messages of the reader. */
#define json_refuse(r, ...) fail((r)->error, EXIT_CHECKPOINT, __VA_ARGS__)
#define SUPPORTED                                                                                                      \
  "; supported are BPEs of bytes (GPT-2, Llama 3, Qwen), of characters with byte_fallback (Llama 2), and Inkling's "   \
  "WordLevel"
bool json_is_absent(const json_t *value); /* NULL or null */
bool json_has_text(const json_t *object, const char *key, const char *text);
/* Returns the "type" of a model or of a step, or what its other keys imply if it has none: files of tokenizers before
 * 0.9, such as GPT-2's, have no model.type. Never NULL, so that messages can use it. */
const char *json_type_name(const json_t *object);
bool json_is_type(const json_t *object, const char *type);
int32_t json_id(const json_t *value); /* an id within the limits, or -1 */
enum {
  JSON_ID_LIMIT = 1 << 22,
  JSON_FILE_LIMIT = 256 << 20 /* bytes of a tokenizer.json; a vocabulary of 150,000 takes 10 MB, of a million 95 MB */
};
/* Reads a small JSON file beside `path`. NULL when it is missing or not JSON. */
json_t *json_read_beside(const char *path, const char *name);
/* Reads the text of a tokenizer.json, whose ownership it takes; `path` is for messages and for files beside it, as in
 * tokenizer_load_alone(). */
bool json_read_tokenizer(Tokenizer **out, char *text, size_t size, const char *path, int32_t end, Error *error);

/* ---- json_write.c ---- */

/* Makes the tokenizer of a vocabulary {piece: id} with ids from 0 on, of which it takes ownership; the end token is the
 * next id. EXIT_MEMORY, EXIT_INPUT. */
bool word_level_tokenizer(Tokenizer **out, WordLevel level, json_t *vocab, Error *error);

/* ---- json_added.c ---- */

/* Fills `added` and `end`. */
bool json_read_added(TokenizerReader *r);
/* Checks that the ids of added tokens are the ids that the tokenizers library would assign, because the library ignores
 * the ids in the file. Call it after reading the vocabulary. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool json_check_added_ids(const TokenizerReader *r);
/* Reads which tokens the post_processor puts before and after a text. */
bool json_read_post_processor(TokenizerReader *r);

/* ---- json_pipeline.c ---- */

bool json_find_kind(TokenizerReader *r); /* fills `bytes` and `level` */
/* Fills `pipeline`, `leading` and `pipeline_hash`. Needs `bpe` and `decoded`. */
bool json_read_pipeline(TokenizerReader *r);

#endif
