/* Conversations: JSON objects with messages, and plain text with a name at the beginning of each line. */
#ifndef INKLING_TEXT_DATASET_CONVERSATION_H
#define INKLING_TEXT_DATASET_CONVERSATION_H

#include "base/error.h"
#include "base/json.h"
#include "text/dataset/record.h"

#include <stddef.h>
#include <stdint.h>

/* Returns whether an object has the fields of a conversation: a list "messages" or "conversations", or "instruction"
 * and "output". */
bool conversation_is(const json_t *object);

/* Reads the turns of such an object into the record. Messages have "role" and "content", or "from" and "value"; the
 * roles are system, user or human, and assistant, gpt or model. A content is a text or a list of text parts, which
 * are joined. An "input" follows its "instruction" after a newline; "history" has earlier questions and answers.
 * "system" is the system prompt of any of them; an empty one counts as none. EXIT_INPUT, with file, line and what to
 * do, for other roles and contents, tool calls, empty messages, a system prompt that is not first, two messages of a
 * role in a row, messages of weight 0, and with `needs_answer` a conversation without one; EXIT_MEMORY. */
bool conversation_take(Record *record, const json_t *object, bool needs_answer, const char *file, int64_t number,
                       Error *error);

/* Reads a conversation from lines "NAME: content" up to a blank line or the end of `text`, and sets the number of
 * bytes and lines that it has read, with the blank line. The lines of `speaker` are the assistant's, those of all
 * other names the user's; lines in a row of one side are one turn. `number`: of the first line. EXIT_INPUT, with file
 * and line, for a line without a name or without a content, and for a conversation without a line of the speaker;
 * EXIT_MEMORY. */
bool conversation_parse(Record *record, const char *speaker, const uint8_t *text, size_t size, size_t *bytes,
                        int64_t *lines, const char *file, int64_t number, Error *error);

#endif
