/* How the loss depends on the size of a model, the text and the passes over it: the law by which ./train chooses a size
 * and compares time budgets (docs/learning.md). */
#ifndef INKLING_TRAIN_LOSS_LAW_H
#define INKLING_TRAIN_LOSS_LAW_H

#include <stdbool.h>

/* Returns the relative loss of a model with so many parameters, without embeddings, after `epochs` passes over a text
 * of so many bytes, without or with a teacher, if tokenizer, rates and weight decay suit them. Only ratios of losses of
 * the same text have a meaning. */
double loss_law(double parameters, double text_bytes, double epochs, bool taught);

#endif
