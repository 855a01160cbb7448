/* Novelty (--novelty): generated passages that appear in another text, such as the training text. All texts of a call
 * are searched for at once. */
#ifndef INKLING_GENERATE_NOVELTY_H
#define INKLING_GENERATE_NOVELTY_H

#include "generate/program.h"

typedef struct Novelty Novelty;

/* Opens or makes the tokens of the other text as p->novelty, which the caller frees also after a failure.
 * EXIT_CHECKPOINT for a run without tokens or with another tokenizer, and the errors of program_encode_file(). */
bool novelty_open(Program *p, Error *error);
void novelty_free(Novelty *novelty); /* NULL is harmless */

/* Returns the largest number of tokens per text when there are `texts` texts. */
int64_t novelty_most_tokens(int texts);

/* Adds a copy of a generated text, which has kept its tokens. EXIT_MEMORY. */
bool novelty_add(Novelty *novelty, const Text *text, Error *error);
/* Searches for the added texts. A signal ends the search without an error, and a failed stdout prevents it; then
 * nothing is underlined or reported. EXIT_MEMORY, EXIT_CHECKPOINT, EXIT_INPUT. */
bool novelty_compare(Novelty *novelty, Error *error);
/* Writes a text to stdout and underlines the passages found; false when writing failed. */
bool novelty_print(const Novelty *novelty, size_t text);
void novelty_note(Novelty *novelty); /* prints the percentage found, and the passages */

#endif
