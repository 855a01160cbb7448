/* What the tests of model.h share: models with the goldens' weights. */
#ifndef INKLING_TESTS_MODEL_HELPERS_H
#define INKLING_TESTS_MODEL_HELPERS_H

#include "model.h"
#include "tests/backends.h"
#include "model/parameters.h"

/* "dims" and "adamw" of a golden. */
typedef struct Setup {
  const Golden *golden, *start; /* start: where weights and batches are, the same tied or not */
  ModelConfig config;
  TrainConfig train;
  int steps;
  int32_t *tokens, *targets; /* [steps][micro_batches][batch][ctx] */
} Setup;

Setup setup_read(Fixture *f, bool tie);
Setup setup_read_muon(Fixture *f); /* the untied one, trained by Muon */

/* Fails the test where something was not done. */
void need(bool done, const Error *error);
size_t tensor_count(const ParameterTensor *t);
double *widen(Fixture *f, const float *values, size_t count);
/* Tensor "KIND.NAME" of a golden, which must be as large as the model's. */
double *named_values(Fixture *f, const Golden *g, const char *kind, const ParameterTensor *tensor);

/* That AdamW has every tensor of a new table, and Muon, when it is chosen, the matrices of layers and nothing else. */
void expect_optimizers(ParameterTable *table, const ModelConfig *c);

float *arena_new(Fixture *f, const Model *m);
float *arena_read(Fixture *f, Model *m, ArenaKind which);

/* With the golden's weights, ready to train. */
Model *model_start(Fixture *f, const Setup *s);
/* The loss; *out: the arena of gradients. */
double gradients(Fixture *f, Model *m, const TokenBatch *batch, float **out);

/* A tolerance: a whole model in bf16 adds up the rounding of all its operations. PyTorch, rounding in the same places,
 * is 1.2e-2 off in the logits of these models. */
double whole_model(const Fixture *f, double tolerance);
/* Every tensor of an arena with its golden; everything else in the arena is zero. */
void expect_tensors(Fixture *f, const Model *m, const float *arena, const Golden *g, const char *kind,
                    double tolerance);

/* Along each tensor's gradient the loss has to rise by the gradient's length: with dropout, a forward and a backward
 * that drop different elements do not agree. In fp32 alone; a step of 0.005 leaves 6e-5 of noise and its own square. */
void expect_slopes(Fixture *f, Model *m, const TokenBatch *batch, const float *grad);

#endif
