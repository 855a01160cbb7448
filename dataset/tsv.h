/* TSV: every line of the file is a prompt, a tab and a response; further columns are ignored. There are no escapes, no
 * quotes and no line of names: bytes are taken as they are, as in a text file, so neither column can hold a tab or a
 * newline. A carriage return at the end of a line belongs to the line's end. */
#ifndef INKLING_DATASET_TSV_H
#define INKLING_DATASET_TSV_H

#include "util/error.h"
#include "dataset/record.h"

#include <stddef.h>
#include <stdint.h>

/* Parses one line, given without its newline. `file` and `number` (from 1) tell in messages where the line is. An empty
 * line, and one of two empty columns, is no document; one of the columns may be empty. EXIT_INPUT for a line without a
 * tab; EXIT_MEMORY. */
bool tsv_parse(Record *record, const uint8_t *line, size_t size, const char *file, int64_t number, Error *error);

#endif
