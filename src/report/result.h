/* result.json: the outcome of a run, written at its end. */
#ifndef INKLING_REPORT_RESULT_H
#define INKLING_REPORT_RESULT_H

#include "report/history.h"
#include "report/phases.h"

#include <jansson.h>

/* The reason why a run ended. A run without result.json is running, or was killed. */
typedef enum RunEnd {
  RUN_DONE,      /* made all steps */
  RUN_MINUTES,   /* made all steps that fit into --minutes */
  RUN_PATIENCE,  /* --patience */
  RUN_SIGNAL,    /* stopped by a signal and saved; --resume continues */
  RUN_NONFINITE, /* a loss or gradient was not finite */
  RUN_ENDS
} RunEnd;
extern const char *const run_end_names[RUN_ENDS + 1]; /* as RunEnd, then NULL */

/* Facts that are not in metrics.jsonl and config.txt. */
typedef struct RunResult {
  RunEnd end;
  const char *dir;     /* the settings are read from its config.txt */
  const char *version; /* of ./train */
  const char *device, *dtype;
  int64_t parameters, without_embeddings; /* model_parameters(), model_parameters_without_embeddings() */
  double flops_per_step;                  /* model_step_flops() */
  int64_t step, tokens;                   /* steps made, tokens seen */
  double epochs, seconds;
  const PhaseClock *phases;
  json_t *budgets; /* outlooks_json(); taken over. NULL: none */
} RunResult;

/* Writes DIR/result.json (docs/schemas/result.schema.json). Unknown numbers are null. EXIT_OUTPUT, EXIT_MEMORY. */
bool result_write(const RunResult *result, const History *history, Error *error);

/* ---- functions for tables and pages ---- */

/* Returns how a run ended, one of run_end_names; "damaged" for any other text; "running" or "killed" for a run without
 * a result. */
const char *result_state(const char *dir, const json_t *result);

/* Returns a state in words; `brief`, for a table: "done" also for a run that reached --minutes. Unknown states are
 * returned unchanged. */
const char *result_state_words(const char *state, bool brief);

json_t *result_number(double value);                        /* null when not finite */
double result_value(const json_t *object, const char *key); /* a number of a result; NaN when there is none */
/* Reads the settings in DIR/config.txt into an object: numbers, switches (true, false) and texts; a list for a repeated
 * setting. After an error the object contains the settings read so far. */
json_t *result_settings(const char *dir, Error *error);
json_t *result_settings_text(char *text, Error *error); /* the same from a text, which is modified */

/* Reads DIR/NAME. Returns NULL without an error when it does not exist, else with EXIT_INPUT or EXIT_MEMORY. */
json_t *result_json(const char *dir, const char *name, Error *error);

#endif
