/* TSV: every line of the file is a prompt, a tab and a response; further columns are ignored. There are no escapes,
 * quotes or header line: bytes are used unchanged, as in a text file, so neither column can contain a tab or a newline.
 * A carriage return at the end of a line is part of the line ending. */
#ifndef INKLING_DATASET_TSV_H
#define INKLING_DATASET_TSV_H

#include "util/error.h"
#include "dataset/record.h"

#include <stddef.h>
#include <stdint.h>

/* Parses one line, passed without its newline. Messages use `file` and `number` (from 1) for the position of the line.
 * An empty line, or one with two empty columns, is no document; one of the columns may be empty. EXIT_INPUT for a line
 * without a tab; EXIT_MEMORY. */
bool tsv_parse(Record *record, const uint8_t *line, size_t size, const char *file, int64_t number, Error *error);

#endif
