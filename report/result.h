/* result.json: how a run ended, written when it does. */
#ifndef INKLING_REPORT_RESULT_H
#define INKLING_REPORT_RESULT_H

#include "report/history.h"

#include <jansson.h>

/* Why a run ended. A run that has no result.json is running, or was killed. */
typedef enum RunEnd {
  RUN_DONE,      /* all its steps */
  RUN_MINUTES,   /* all that fit into --minutes */
  RUN_PATIENCE,  /* --patience */
  RUN_SIGNAL,    /* stopped and saved; --resume goes on */
  RUN_NONFINITE, /* a loss or gradient that is not finite */
  RUN_ENDS
} RunEnd;
extern const char *const run_end_names[RUN_ENDS + 1]; /* as RunEnd, then NULL */

/* What metrics.jsonl and config.txt do not say. */
typedef struct RunResult {
  RunEnd end;
  const char *dir;     /* its settings are read from its config.txt */
  const char *version; /* of ./train */
  const char *device, *dtype;
  int64_t parameters, without_embeddings; /* model_parameters(), model_parameters_without_embeddings() */
  double flops_per_step;                  /* model_step_flops() */
  int64_t step, tokens;                   /* made, seen */
  double epochs, seconds;
} RunResult;

/* Writes DIR/result.json (its fields: docs/formats.md). Numbers that are not known are null. EXIT_OUTPUT,
 * EXIT_MEMORY. */
bool result_write(const RunResult *result, const History *history, Error *error);

/* ---- its parts, for tables ---- */

/* How it ended, one of run_end_names; "damaged" where that is none; NULL without a result. */
const char *result_end(const json_t *result);

/* The same, and "running" or "killed" of a run that has no result. */
const char *result_state(const char *dir, const json_t *result);

/* A state for people; brief, for a table: "done" also where the time was up. Of what is no state the same text. */
const char *result_state_words(const char *state, bool brief);

json_t *result_number(double value); /* null where it is not finite */
/* The settings in DIR/config.txt as an object: numbers, switches (true, false) and texts; a list of those that stand
 * there several times. With an error what was read until then. */
json_t *result_settings(const char *dir, Error *error);
json_t *result_settings_text(char *text, Error *error); /* of its text in memory, which is changed */

/* What a setting is about. */
typedef enum SettingKind {
  SETTING_OF_MODEL,
  SETTING_PATH,    /* it names a file, or may: private */
  SETTING_ASIDE,   /* says nothing of the model: where it is written, how often, on which machine */
  SETTING_INTERNAL /* what a repeat of the run needs, and nobody reads */
} SettingKind;
SettingKind result_setting_kind(const char *name);

/* DIR/NAME; NULL while there is none, or with an error: EXIT_INPUT, EXIT_MEMORY. */
json_t *result_json(const char *dir, const char *name, Error *error);
/* Tokens per second of training time: pauses to evaluate, save and sample left out. NaN: nothing was logged. */
double result_training_speed(const History *history);
json_t *result_evaluation(const HistoryEvaluation *evaluation); /* as an object; null where there is none */

#endif
