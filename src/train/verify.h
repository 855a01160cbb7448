/* Repeats a run and compares the result: `./train --verify RUN`. */
#ifndef INKLING_TRAIN_VERIFY_H
#define INKLING_TRAIN_VERIFY_H

#include "cli/console.h"
#include "base/error.h"

/* Trains again with the settings of the run in `dir`, in another process and a temporary directory, and compares what
 * does not depend on time: the numbers of metrics.jsonl in the order of steps, the tokenizer, the configuration, the
 * samples, and the weights, bit for bit. Says on stdout that they are equal. EXIT_CHECKPOINT: they differ; the message
 * names the file and the step or the tensor, and the repeated run is kept. EXIT_USAGE: the run has not ended. Other
 * errors as of training. */
bool verify_run(const char *dir, Console *console, Error *error);

#endif
