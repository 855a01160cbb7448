/* Text to token ids and back: a byte-level BPE (tokenizer/bpe.h) and the token that ends a document.
 *
 * The byte tokenizer is the one without merges: 257 entries, id = byte, 256 = <|endoftext|>. */
#ifndef INKLING_TOKENIZER_TOKENIZER_H
#define INKLING_TOKENIZER_TOKENIZER_H

#include "util/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/bpe_encode.h"

#include <stddef.h>
#include <stdint.h>

#define END_OF_TEXT "<|endoftext|>"
/* The files of a tokenizer in a model directory. */
#define TOKENIZER_JSON "tokenizer.json"
#define TOKENIZER_CONFIG_JSON "tokenizer_config.json"

typedef struct Tokenizer Tokenizer;

Tokenizer *tokenizer_byte(void); /* NULL when out of memory */
/* Bytes, merges, the end token. EXIT_MEMORY. */
bool tokenizer_from_merges(Tokenizer **out, const BpeMerge *merges, size_t merge_count, Error *error);
void tokenizer_free(Tokenizer *tokenizer);

/* Reads `tokenizer.json` as Hugging Face's tokenizers write it for a byte-level BPE that splits as GPT-2 does. What
 * would give a text other ids than the library that wrote it does is refused. EXIT_CHECKPOINT. */
bool tokenizer_load(Tokenizer **out, const char *path, Error *error);
/* Writes tokenizer.json and tokenizer_config.json into `dir`, each atomically. `ctx` becomes model_max_length. A
 * tokenizer.json that was loaded is written as it was, but for the post_processor when tokenizer_set_begins_with_end()
 * or tokenizer_set_ends_with_end() changed that. EXIT_OUTPUT. */
bool tokenizer_save(const Tokenizer *tokenizer, const char *dir, int ctx, Error *error);

/* That tokenizer.json, without a zero behind it; the caller frees it. EXIT_MEMORY. */
bool tokenizer_text(const Tokenizer *tokenizer, char **text, size_t *size, Error *error);

const char *tokenizer_name(const Tokenizer *tokenizer); /* "byte" or "BPE" */
int tokenizer_vocab(const Tokenizer *tokenizer);
int tokenizer_end(const Tokenizer *tokenizer); /* id of the token that ends a document */
const Bpe *tokenizer_bpe(const Tokenizer *tokenizer);
/* The text of a special token, as long as the tokenizer; NULL for any other id. */
const char *tokenizer_special(const Tokenizer *tokenizer, int32_t id);

/* Whether the tokenizer's model has only seen texts that begin with the end token, as --pack docs trains it: then a
 * prompt has to begin with it, too, and ./generate --score packs documents as training did. A model directory says so
 * in one place, the post_processor of tokenizer.json, which transformers obeys as well: tokenizer_load() reads it from
 * there and tokenizer_save() writes it. False until set or loaded. */
bool tokenizer_begins_with_end(const Tokenizer *tokenizer);
void tokenizer_set_begins_with_end(Tokenizer *tokenizer, bool begins);

/* Whether texts end with it: sources, and the targets that are learned, of a model with an encoder. The post_processor
 * says that, too; a text cannot do both. transformers is then also told to pad batches of sources, with the end token,
 * which its attention mask hides. */
bool tokenizer_ends_with_end(const Tokenizer *tokenizer);
void tokenizer_set_ends_with_end(Tokenizer *tokenizer, bool ends);

/* That text without a prompt does not start from the end token: then tokenizer_config.json names no bos_token, and the
 * bos_token_id of the model's configuration is the only word about it. (As a special token, what it does start from
 * would be left out of decoded texts.) */
void tokenizer_set_starts_elsewhere(Tokenizer *tokenizer, bool elsewhere);

/* That the tokenizer is of targets alone, and sources have another one. tokenizer_save() writes so into
 * tokenizer_config.json, as "separate_vocabs", the word that tokenizers of Marian have for it. */
void tokenizer_set_separate_vocabs(Tokenizer *tokenizer, bool separate);
/* What such a file says; false where there is none, or none that can be read. */
bool tokenizer_read_separate_vocabs(const char *path);

/* Hash of everything that the ids of a corpus depend on: tokens of a tokenizer with another fingerprint are stale. It
 * does not cover tokenizer_begins_with_end() and _ends_with_end(), which concern prompts. */
uint64_t tokenizer_fingerprint(const Tokenizer *tokenizer);

/* Adds the ids of the raw bytes of one text to `out` (starts as {0}; the caller frees out->ids): no end token added
 * (also where texts begin with it), special tokens not recognized. For prompts; corpora go through bpe_encode.h.
 * EXIT_MEMORY. */
bool tokenizer_encode(const Tokenizer *tokenizer, const uint8_t *text, size_t size, BpeIds *out, Error *error);
/* The bytes of one id (none for special tokens); valid as long as the tokenizer. */
const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, size_t *size);

#endif
