/* A tokenizer converts text to token ids and back. It consists of a pipeline (text/tokenizer/pipeline.h), a BPE
 * (text/tokenizer/bpe.h) and the token that ends a document.
 * The byte tokenizer has no merges: 257 entries, id = byte, 256 = <|endoftext|>. */
#ifndef INKLING_TEXT_TOKENIZER_TOKENIZER_H
#define INKLING_TEXT_TOKENIZER_TOKENIZER_H

#include "base/error.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/bpe_encode.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define END_OF_TEXT "<|endoftext|>"
/* The files of a tokenizer in a model directory. */
#define TOKENIZER_JSON "tokenizer.json"
#define TOKENIZER_CONFIG_JSON "tokenizer_config.json"
#define CHAT_TEMPLATE_JINJA "chat_template.jinja"

typedef struct Tokenizer Tokenizer;

Tokenizer *tokenizer_byte(void); /* NULL when out of memory */
/* Creates a tokenizer of the bytes, the merges and the end token. EXIT_MEMORY. */
bool tokenizer_from_merges(Tokenizer **out, const BpeMerge *merges, size_t merge_count, Error *error);
void tokenizer_free(Tokenizer *tokenizer);

/* Reads `tokenizer.json` as Hugging Face's tokenizers write it for a BPE of bytes, or of characters with byte_fallback,
 * and for the vocabularies of whole pieces that we write.
 * It refuses a file for which it would produce other ids than the tokenizers library. The token that ends a document is
 * the eos_token of tokenizer_config.json in the same directory; if that is none of the added tokens, the eos_token_id
 * of config.json or generation_config.json there (the first of several); else <|endoftext|> or </s>.
 * EXIT_CHECKPOINT. */
bool tokenizer_load(Tokenizer **out, const char *path, Error *error);
/* Reads a tokenizer.json without the files beside it; the added token `end` ends documents. (-1: with the files,
 * which determine it.) */
bool tokenizer_load_alone(Tokenizer **out, const char *path, int32_t end, Error *error);
/* Writes tokenizer.json and tokenizer_config.json into `dir`, each atomically. `ctx` becomes model_max_length. A loaded
 * tokenizer.json is written unchanged, except for its post_processor when tokenizer_set_begins_with_end() or
 * tokenizer_set_ends_with_end() changed it. EXIT_OUTPUT. */
bool tokenizer_save(const Tokenizer *tokenizer, const char *dir, int ctx, Error *error);

/* Returns the text of that tokenizer.json, not zero-terminated; the caller frees it. EXIT_MEMORY. */
bool tokenizer_text(const Tokenizer *tokenizer, char **text, size_t *size, Error *error);

const char *tokenizer_name(const Tokenizer *tokenizer); /* "byte", "BPE" or that of a WordLevelKind */
/* Returns whether `--tokenizer NAME` makes a tokenizer; another name is the path of one. */
bool tokenizer_is_trained_name(const char *name);
int tokenizer_vocab(const Tokenizer *tokenizer);
int tokenizer_end(const Tokenizer *tokenizer); /* id of the token that ends a document */
const char *tokenizer_end_text(const Tokenizer *tokenizer);

/* Tokens that end a generated text, besides the one that ends documents. */
enum { END_TOKENS = 16 };
typedef struct EndTokens {
  int count;
  int32_t ids[END_TOKENS];
} EndTokens;

/* Sets the other tokens that end a text: those of the model's files, which may include tokenizer_end(). Default
 * none. */
void tokenizer_set_other_ends(Tokenizer *tokenizer, const EndTokens *ends);
const EndTokens *tokenizer_other_ends(const Tokenizer *tokenizer);
/* Returns whether a token ends a generated text. */
bool tokenizer_is_end(const Tokenizer *tokenizer, int32_t id);

int tokenizer_begin(const Tokenizer *tokenizer); /* id of the token that prompts begin with; -1: none */
/* Returns the token before a text: the token that prompts begin with, else the end token of the previous text. */
int tokenizer_before(const Tokenizer *tokenizer);
const Bpe *tokenizer_bpe(const Tokenizer *tokenizer);
/* Returns the file's entry of an added token; NULL for any other id. */
const AddedToken *tokenizer_added(const Tokenizer *tokenizer, int32_t id);
/* Returns the text of a special token, which has no bytes; NULL for any other id. */
const char *tokenizer_special(const Tokenizer *tokenizer, int32_t id);
/* Returns whether the pipeline only splits texts as GPT-2 does. */
bool tokenizer_is_gpt2(const Tokenizer *tokenizer);
const Pipeline *tokenizer_pipeline(const Tokenizer *tokenizer);

/* Sets the vocabulary size of the model, which may have more rows than the tokenizer has ids; the additional rows are
 * unused. Returns false, without changes, when it has fewer. */
bool tokenizer_set_vocab(Tokenizer *tokenizer, int vocab);
/* Returns whether an id has a token. Ids beyond the tokenizer's and gaps between its ids have none. */
bool tokenizer_has_id(const Tokenizer *tokenizer, int32_t id);
int tokenizer_tokens(const Tokenizer *tokenizer); /* number of ids below tokenizer_vocab() that have a token */

/* Sets whether tokenizer_encode() and convert_to_ids() recognize special tokens in texts. Default false:
 * "<|endoftext|>" in a text is 13 bytes. */
void tokenizer_set_special(Tokenizer *tokenizer, bool special);

/* Returns whether the tokenizer's model was trained only on texts that begin with the end token (--pack docs). Then a
 * prompt must begin with it, too, and ./generate --score packs documents as in training; it also does so for a model
 * whose prompts begin with another token. A model directory stores this only in the post_processor of tokenizer.json,
 * which transformers also applies: tokenizer_load() reads it and tokenizer_save() writes it. Default false. */
bool tokenizer_begins_with_end(const Tokenizer *tokenizer);
void tokenizer_set_begins_with_end(Tokenizer *tokenizer, bool begins);

/* Returns whether texts end with the end token: sources and training targets of a model with an encoder. The
 * post_processor stores this, too; a text cannot both begin and end with the token. tokenizer_save() then also tells
 * transformers to pad batches of sources with the end token, which its attention mask hides. */
bool tokenizer_ends_with_end(const Tokenizer *tokenizer);
void tokenizer_set_ends_with_end(Tokenizer *tokenizer, bool ends);

/* Sets that generation without a prompt does not start from the end token. Then tokenizer_config.json has no bos_token,
 * and only the bos_token_id of the model's configuration gives the start token. (As a special token, the start token
 * would be missing from decoded texts.) */
void tokenizer_set_starts_elsewhere(Tokenizer *tokenizer, bool elsewhere);

/* Sets that the tokenizer is only for targets and that sources have another one. tokenizer_save() writes it into
 * tokenizer_config.json as "separate_vocabs", the key that Marian tokenizers use. */
void tokenizer_set_separate_vocabs(Tokenizer *tokenizer, bool separate);
/* Returns what was set, or what tokenizer_load() read from there. */
bool tokenizer_has_separate_vocabs(const Tokenizer *tokenizer);

/* Returns the chat template, in Jinja, that tokenizer_load() found beside the tokenizer.json or that was set; NULL:
 * none. A model with one was trained on conversations. tokenizer_save() writes it into tokenizer_config.json and into
 * chat_template.jinja, where newer versions of transformers look for it. */
const char *tokenizer_chat_template(const Tokenizer *tokenizer);
/* Sets a copy of a template; NULL: none. EXIT_MEMORY. */
bool tokenizer_set_chat_template(Tokenizer *tokenizer, const char *text, Error *error);

/* Returns a hash of everything that the ids of a corpus depend on; tokens from a tokenizer with another fingerprint are
 * stale. It does not cover tokenizer_begins_with_end() and _ends_with_end(), which affect only prompts. */
uint64_t tokenizer_fingerprint(const Tokenizer *tokenizer);

/* Adds the ids of the raw bytes of one text to `out` (starts as {0}; the caller frees out->ids): no token is added
 * before or after it; special tokens as set with tokenizer_set_special(). For prompts; for corpora see bpe_encode.h.
 * The first call creates an encoder of 2 MiB, which the tokenizer keeps, so only one thread may call this at a time.
 * EXIT_MEMORY; EXIT_CHECKPOINT for a pattern of the file that takes too long on the text. */
bool tokenizer_encode(Tokenizer *tokenizer, const uint8_t *text, size_t size, BpeIds *out, Error *error);
/* Returns the bytes of one id (none for special tokens), valid as long as the tokenizer. */
const uint8_t *tokenizer_decode(const Tokenizer *tokenizer, int32_t id, size_t *size);
/* Returns the bytes of the next id of a text, without a space that encoding put before the text. *at_start is true
 * until some of the text is decoded; the function updates it. */
const uint8_t *tokenizer_decode_next(const Tokenizer *tokenizer, int32_t id, bool *at_start, size_t *size);
/* Returns the bytes of an id after the id `before`, -1: at the start of a text; the same as tokenizer_decode(), but for
 * vocabularies of words, without the space that the first word of a text or of a line does not have. */
const uint8_t *tokenizer_decode_after(const Tokenizer *tokenizer, int32_t before, int32_t id, size_t *size);
/* Returns *at_start of tokenizer_decode_next() after these ids of a text. */
bool tokenizer_at_start(const Tokenizer *tokenizer, const int32_t *ids, size_t count);

/* The text of a token for messages: in quotes, with \n, \t, \', \\ and \xHH; or <|endoftext|>, or <token 7> for a token
 * without text (show.c). */
typedef struct ShownToken {
  char text[96];
} ShownToken;
ShownToken tokenizer_show(const Tokenizer *tokenizer, int32_t id);
/* Fails with EXIT_INPUT: a piece of a text is not in a vocabulary of whole pieces. */
bool tokenizer_refuse_piece(const Bpe *bpe, const uint8_t *piece, size_t size, Error *error);

/* ---- conversion of text to token ids and back, from one stream to another, of any length (convert.c) ---- */

/* Encodes all bytes of `in` as one text and prints one id per line, without an end token; special tokens as set with
 * tokenizer_set_special(). Messages use `name` for the input. EXIT_INPUT when reading `in` fails, EXIT_OUTPUT (with the
 * cause in errno) when writing `out` fails, EXIT_MEMORY; EXIT_CHECKPOINT for a pattern of tokenizer.json that takes too
 * long on the text. */
bool convert_to_ids(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error);

/* Reads ids from `in`, separated by white space or commas, and writes their bytes; special tokens have no bytes.
 * EXIT_INPUT, with the position of the word, for a word that is not an id of the vocabulary; EXIT_OUTPUT as above. */
bool convert_to_text(const Tokenizer *tokenizer, FILE *in, const char *name, FILE *out, Error *error);

#endif
