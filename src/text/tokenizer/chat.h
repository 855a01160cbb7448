/* Conversations as tokens: the forms in which chat models expect turns, and the ids of a conversation in such a form.
 * Only the texts of a form become special tokens; a content never does, whatever it says. The ids are those of
 * transformers' apply_chat_template() for contents without the texts of special tokens. */
#ifndef INKLING_TEXT_TOKENIZER_CHAT_H
#define INKLING_TEXT_TOKENIZER_CHAT_H

#include "base/array.h"
#include "base/error.h"
#include "text/tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef enum ChatRole { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_ROLES } ChatRole;
extern const char *const chat_role_names[CHAT_ROLES]; /* as in "role" of messages */

typedef struct ChatTurn {
  ChatRole role;
  const uint8_t *text; /* UTF-8 */
  size_t size;
} ChatTurn;

/* What one conversation consists of: special tokens, and texts that are encoded without them. */
typedef struct ChatPiece {
  int32_t id;        /* of a token; -1: a text */
  bool in_loss;      /* of a token: the loss counts it */
  bool opens;        /* a user's turn begins, so that a cut conversation may go on here after its system prompt */
  size_t begin, end; /* of a text: its bytes in ChatText.text */
  size_t learned;    /* of a text: the first byte that the loss counts; `end`: none */
} ChatPiece;

/* Conversations in order. Begins as {0}, freed by chat_text_free. */
typedef struct ChatText {
  ByteBuffer text;
  ChatPiece *pieces; /* [count] */
  size_t count, capacity;
} ChatText;
void chat_text_free(ChatText *text);
/* Adds a token. EXIT_MEMORY. */
bool chat_text_add_token(ChatText *text, int32_t id, bool in_loss, Error *error);
/* Adds a text as a piece of its own. EXIT_MEMORY. */
bool chat_text_add(ChatText *text, const uint8_t *bytes, size_t size, bool in_loss, Error *error);

/* The form of a tokenizer's chat template. */
typedef struct Chat Chat;

/* Recognizes the template of the tokenizer, which must outlive *out. EXIT_CHECKPOINT: it has none, or one that is not
 * supported; EXIT_MEMORY. Freed by chat_close. */
bool chat_open(Chat **out, const Tokenizer *tokenizer, Error *error);
void chat_close(Chat *chat); /* NULL is harmless */

/* Appends the pieces of a conversation: with the form's default system prompt if it has none and the form adds one.
 * The loss counts the assistant's contents and the tokens that end them, or with `all` those of every turn. `reply`:
 * the text goes on to where the assistant's next turn begins. EXIT_INPUT for turns that the form cannot have;
 * EXIT_MEMORY. */
bool chat_render(const Chat *chat, const ChatTurn *turns, size_t count, bool all, bool reply, ChatText *out,
                 Error *error);

/* Appends the ids of a conversation. `tokenizer`: that of chat_open(). Errors as above, and those of
 * tokenizer_encode(). */
bool chat_encode(const Chat *chat, Tokenizer *tokenizer, const ChatTurn *turns, size_t count, bool reply, BpeIds *ids,
                 Error *error);

/* Returns how many tokens of a context stay free for an answer of up to `most` tokens (< 0: of any length). */
size_t chat_room(size_t ctx, int64_t most);

/* Replaces `ids` by those of a conversation, up to where the next answer begins. The conversation loses its oldest
 * messages where fewer than `room` tokens of the context would stay free: then half of it becomes free. Its system
 * prompt stays. *dropped: how many messages after the system prompt are left out; unchanged after an error. *cached:
 * the number of old ids if the new ones begin with them, else 0. Errors of chat_encode(), after which there are no ids;
 * EXIT_INPUT when the last message alone is too long. */
bool chat_encode_newest(const Chat *chat, Tokenizer *tokenizer, const ChatTurn *turns, size_t count, size_t ctx,
                        size_t room, size_t *dropped, BpeIds *ids, size_t *cached, Error *error);

int32_t chat_end(const Chat *chat);     /* the token that ends an answer */
bool chat_has_system(const Chat *chat); /* the form has a system prompt */

/* Writes the form as a template of ollama (of Go's text/template), without the token that begins texts, which ollama
 * adds. Contents are not trimmed, and answers keep their thoughts. A failed write is no error yet. */
void chat_write_ollama(const Chat *chat, FILE *out);

/* Replaces a tokenizer by one that also has <|im_start|> and <|im_end|>, the new end token, and the ChatML template.
 * EXIT_INPUT for a vocabulary of ids; EXIT_MEMORY. */
bool chat_extend_tokenizer(Tokenizer **tokenizer, Error *error);

#endif
