/* What ./generate says about texts that it reads, and ./train about a file of --choose: what the file is, by the checks
 * of the text doctor (text/doctor/doctor.h) that ./train makes of its texts. */
#ifndef INKLING_CLI_TEXT_CHECK_H
#define INKLING_CLI_TEXT_CHECK_H

#include "cli/console.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct TextCheck {
  Console *console; /* NULL: texts are not checked (--binary) */
  unsigned said;    /* a bit for each kind of finding that was warned of, which is not repeated for other texts */
} TextCheck;

/* Warns of bytes that are hardly text and suggests a command. `name`: the path, or "-"; `whole`: false if these bytes
 * are only the beginning of the text. EXIT_INPUT for another file type, such as an archive or a document, and for
 * UTF-16 and UTF-32. */
bool text_check(TextCheck *check, const uint8_t *bytes, size_t size, const char *name, bool whole, Error *error);
/* The same for the file at `path`; EXIT_INPUT also when it cannot be read. */
bool text_check_file(TextCheck *check, const char *path, const char *name, Error *error);

#endif
