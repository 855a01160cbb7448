/* Tables of windows that are filled with spans of a token file, and packing of documents into windows of ctx tokens
 * (--pack docs): several short documents share a window; a document longer than ctx is cut into whole windows and a
 * remainder. The rest of a window is padding.
 * Every token of a document is a target, including its end token; the input before its first token is the token that
 * prompts begin with, or the end token, as after another document. So a document takes as many slots as it has
 * tokens.
 * In a token file with conversations, documents begin with their first input, and so have a slot less than tokens. A
 * conversation that is longer than ctx is not cut into windows: its system prompt stays, followed by as many of its
 * newest turns, from a user's on, as fit. If the last question and answer do not fit, it is left out. */
#ifndef INKLING_TEXT_DATASET_PACKING_H
#define INKLING_TEXT_DATASET_PACKING_H

#include "base/error.h"
#include "base/progress.h"
#include "text/dataset/token_file.h"
#include "text/dataset/windows.h"
#include "text/tokenizer/tokenizer.h"

#include <stdint.h>

/* ---- best-fit packing of spans of tokens into windows: a window has one row of slots for tokens, or two rows that are
 * filled in parallel ---- */

/* The spans of each window. Begins as {0}, freed by window_table_free. */
typedef struct WindowTable {
  int64_t windows; /* number of them */
  int64_t *firsts; /* [windows + 1] the first span of each window */
  int64_t *spans;  /* [firsts[windows]] the first token of each span */
} WindowTable;

void window_table_free(WindowTable *table); /* harmless on a zeroed struct */

enum {
  OPEN_WINDOWS = 64, /* windows that still accept spans */
  WINDOW_ROWS = 2    /* the most rows */
};

/* A window that still has free slots. */
typedef struct OpenWindow {
  int free[WINDOW_ROWS]; /* slots */
  int64_t *spans;
  size_t count, capacity;
} OpenWindow;

/* Fills a table; all fields are private. */
typedef struct WindowFiller {
  WindowTable *table;
  int rows, slots;
  OpenWindow open[OPEN_WINDOWS];
  int open_count, most_open;
  size_t spans, spans_capacity, firsts_capacity; /* of the table */
} WindowFiller;

/* Begins to fill a table of zeros with windows of `rows` (1..WINDOW_ROWS) rows of `slots` each. Memory: 8 bytes per
 * span and 8 per window. All three functions: EXIT_MEMORY. Free the filler with window_filler_end and the table with
 * window_table_free, also after a failure. */
bool window_filler_begin(WindowFiller *filler, WindowTable *table, int rows, int slots, Error *error);
/* Adds the span that begins at token `begin` and takes `sizes` (1..slots) of each row. It goes into the open window in
 * which it leaves the fewest free slots over all rows. */
bool window_filler_add(WindowFiller *filler, int64_t begin, const int *sizes, Error *error);
/* Ends the filling and frees the filler. If all went well so far (`ok`), adds the open windows to the table and returns
 * whether that went well. */
bool window_filler_end(WindowFiller *filler, bool ok, Error *error);

/* ---- packing of documents ---- */

typedef struct PackTokens {
  int32_t before; /* the input before a document's first token */
  int32_t end;    /* the token that ends documents */
} PackTokens;

PackTokens pack_tokens(const Tokenizer *tokenizer);

/* Created by packing_make, freed by packing_free; read-only. */
typedef struct Packing {
  TokenRange range;
  int ctx;
  PackTokens tokens;
  WindowTable table; /* its spans are documents, or parts of one */
  int64_t used;      /* number of slots with tokens, of table.windows * ctx */
  int64_t documents; /* of the range */
  int64_t cut;       /* number of documents longer than a window */
  int64_t left_out;  /* tokens in windows that were left out because they contain only prompts and so no target */
  int64_t shortened, dropped; /* number of conversations that lost their oldest turns, that were left out */
  int64_t lost;               /* tokens of these turns and conversations */
} Packing;

/* Computes the histogram of document lengths. `progress` counts tokens. EXIT_CHECKPOINT for a damaged token file;
 * EXIT_MEMORY; the error of `progress`. */
bool packing_measure(const TokenRange *range, int32_t end, DocumentLengths *out, Progress progress, Error *error);

/* Packs the documents of the range with window_filler_add. Memory: 8 bytes per document and 8 per window. Errors as
 * above. On failure there is nothing to free. */
bool packing_make(Packing *out, const TokenRange *range, int ctx, PackTokens tokens, Progress progress, Error *error);
/* The same, but documents and their parts stay in the order of the range, which takes more windows. */
bool packing_make_in_order(Packing *out, const TokenRange *range, int ctx, PackTokens tokens, Progress progress,
                           Error *error);
void packing_free(Packing *packing); /* harmless on a zeroed struct */

/* Reads window `index`; windows from table.windows on have only padding. Padding attends only to itself and the loss
 * ignores it. EXIT_CHECKPOINT for a damaged token file. */
bool packing_read(const Packing *packing, int64_t index, const Window *out, Error *error);

#endif
