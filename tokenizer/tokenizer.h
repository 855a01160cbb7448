/* Text to token ids and back: a BPE (tokenizer/bpe.h), what a text goes through before it (tokenizer/pipeline.h), and
 * the token that ends a document.
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

/* Reads `tokenizer.json` as Hugging Face's tokenizers write it for a BPE of bytes, or of characters with byte_fallback.
 * What would give a text other ids than the library that wrote it does is refused. The token that ends a document is
 * the eos_token of tokenizer_config.json beside it; where that names none of its added tokens, the eos_token_id of
 * config.json beside it (the first of several); else <|endoftext|> or </s>. EXIT_CHECKPOINT. */
bool tokenizer_load(Tokenizer **out, const char *path, Error *error);
/* The same of a file that stands alone: the added token `end` ends documents. */
bool tokenizer_load_alone(Tokenizer **out, const char *path, int32_t end, Error *error);
/* Writes tokenizer.json and tokenizer_config.json into `dir`, each atomically. `ctx` becomes model_max_length. A
 * tokenizer.json that was loaded is written as it was, but for the post_processor when tokenizer_set_begins_with_end()
 * or tokenizer_set_ends_with_end() changed that. EXIT_OUTPUT. */
bool tokenizer_save(const Tokenizer *tokenizer, const char *dir, int ctx, Error *error);

/* That tokenizer.json, without a zero behind it; the caller frees it. EXIT_MEMORY. */
bool tokenizer_text(const Tokenizer *tokenizer, char **text, size_t *size, Error *error);

const char *tokenizer_name(const Tokenizer *tokenizer); /* "byte" or "BPE" */
int tokenizer_vocab(const Tokenizer *tokenizer);
int tokenizer_end(const Tokenizer *tokenizer); /* id of the token that ends a document */
const char *tokenizer_end_text(const Tokenizer *tokenizer);
int tokenizer_begin(const Tokenizer *tokenizer); /* id of the token that prompts begin with; -1: none */
/* What stands before a text: the token that prompts begin with, else the one that ends the text before. */
int tokenizer_before(const Tokenizer *tokenizer);
const Bpe *tokenizer_bpe(const Tokenizer *tokenizer);
/* What the file says of an added token; NULL for any other id. */
const AddedEntry *tokenizer_added(const Tokenizer *tokenizer, int32_t id);
/* The text of a special token, which has no bytes; NULL for any other id. */
const char *tokenizer_special(const Tokenizer *tokenizer, int32_t id);
/* Texts are cut as GPT-2 cuts them, and nothing else is done to them. */
bool tokenizer_is_gpt2(const Tokenizer *tokenizer);
const Pipeline *tokenizer_pipeline(const Tokenizer *tokenizer);

/* The vocabulary of the model, which may have more rows than the tokenizer has ids; the rows beyond stand for nothing.
 * False, with nothing changed: it has fewer. */
bool tokenizer_set_vocab(Tokenizer *tokenizer, int vocab);
/* Whether an id stands for a token. Those beyond the tokenizer do not, nor do gaps between its ids. */
bool tokenizer_has_id(const Tokenizer *tokenizer, int32_t id);
int tokenizer_tokens(const Tokenizer *tokenizer); /* ids below tokenizer_vocab() that stand for one */

/* That special tokens are found in the texts of tokenizer_encode() and convert_to_ids(). False until set: then
 * "<|endoftext|>" in a text is 13 bytes. */
void tokenizer_set_special(Tokenizer *tokenizer, bool special);
bool tokenizer_takes_special(const Tokenizer *tokenizer);

/* Whether the tokenizer's model has only seen texts that begin with the end token, as --pack docs trains it: then a
 * prompt has to begin with it, too, and ./generate --score packs documents as training did, as it does for a model
 * whose prompts begin with another token. A model directory says so in one place, the post_processor of tokenizer.json,
 * which transformers obeys as well: tokenizer_load() reads it from there and tokenizer_save() writes it. False until
 * set or loaded. */
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
/* What such a file beside a tokenizer.json, `path`, says; false where there is none, or none that can be read. */
bool tokenizer_read_separate_vocabs(const char *path);

/* Whether a file beside a tokenizer.json, `path`, has a template for chats: the model was trained on such texts. */
bool tokenizer_has_chat_template(const char *path);

/* Hash of everything that the ids of a corpus depend on: tokens of a tokenizer with another fingerprint are stale. It
 * does not cover tokenizer_begins_with_end() and _ends_with_end(), which concern prompts. */
uint64_t tokenizer_fingerprint(const Tokenizer *tokenizer);

/* Adds the ids of the raw bytes of one text to `out` (starts as {0}; the caller frees out->ids): no token added before
 * or behind it; special ones as tokenizer_set_special() has it. For prompts; corpora go through bpe_encode.h. The first
 * call makes an encoder of 2 MiB, which the tokenizer keeps: two threads cannot call this at a time. EXIT_MEMORY;
 * EXIT_CHECKPOINT for a pattern of the file that takes too long on the text. */
bool tokenizer_encode(Tokenizer *tokenizer, const uint8_t *text, size_t size, BpeIds *out, Error *error);
/* The bytes of one id (none for special tokens); valid as long as the tokenizer. */
const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, size_t *size);
/* The same of the next id of a text, of which *at_start says whether nothing of it has been decoded yet: a space that
 * encoding put before the text is left out. */
const uint8_t *tokenizer_decode_next(const Tokenizer *tokenizer, int32_t id, bool *at_start, size_t *size);
/* Whether one of the ids stands for bytes. */
bool tokenizer_has_text(const Tokenizer *tokenizer, const int32_t *ids, size_t count);

#endif
