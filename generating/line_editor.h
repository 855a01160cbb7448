/* Input lines: typed at a terminal with editing and a history (libedit), or read unchanged from a file or pipe. */
#ifndef INKLING_GENERATING_LINE_EDITOR_H
#define INKLING_GENERATING_LINE_EDITOR_H

#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LineEditor LineEditor;

/* Opens standard input. Prompts and echo on a terminal go to stderr. libedit is loaded here; if it is missing at run
 * time or build time, the terminal's own editing is used. EXIT_MEMORY. */
bool line_editor_open(LineEditor **out, Error *error);
void line_editor_close(LineEditor *editor); /* harmless on NULL */
bool line_editor_is_terminal(const LineEditor *editor);
bool line_editor_edits(const LineEditor *editor); /* with libedit */

/* Reads the next line, without its newline, valid until the next call; NULL at the end of the input and when a signal
 * asked to stop. EXIT_INPUT, EXIT_MEMORY. */
bool line_editor_read(LineEditor *editor, const uint8_t **line, size_t *size, Error *error);

#endif
