/* Lines that a person types, with editing and a history of what was typed before (libedit); or lines of a file or pipe,
 * as they are. */
#ifndef INKLING_GENERATING_LINE_EDITOR_H
#define INKLING_GENERATING_LINE_EDITOR_H

#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct LineEditor LineEditor;

/* Of standard input. What a terminal shows is written to stderr. libedit is loaded here; where it is missing, or was
 * when the program was built, terminals edit as they do by themselves. EXIT_MEMORY. */
bool line_editor_open(LineEditor **out, Error *error);
void line_editor_close(LineEditor *editor); /* harmless on NULL */
bool line_editor_is_terminal(const LineEditor *editor);
bool line_editor_edits(const LineEditor *editor); /* with libedit */

/* The next line, without its end and valid until the next call; NULL at the end of the input, and where a signal asked
 * to stop. EXIT_INPUT, EXIT_MEMORY. */
bool line_editor_read(LineEditor *editor, const uint8_t **line, size_t *size, Error *error);

#endif
