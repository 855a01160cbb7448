/* Inside the model: what its files share. model.c has the mathematics; model/ has what surrounds it: parameters.c
 * (configuration, table, initial weights), schedule.c, activations.c (buffers of a pass, memory plan), device.c
 * (weights and tokens on the device), decoder.c (key/value cache, one token), generation.c (text), evaluation.c (the
 * loss of windows).
 *
 * B sequences, T positions, N = B*T rows, C = dim, H and G query and key/value heads, D head size, F = ffn, V
 * vocabulary, P padded vocabulary; dt the compute dtype. */
#ifndef INKLING_MODEL_INTERNAL_H
#define INKLING_MODEL_INTERNAL_H

#include "model.h"

enum { VOCAB_PAD = 64 }; /* the head's GEMM wants whole tiles */

static inline int64_t round_up64(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static inline int padded_vocab(const ModelConfig *config) { return (int)round_up64(config->vocab, VOCAB_PAD); }

static inline int query_width(const ModelConfig *config) { return config->heads * config->head_dim; }

static inline int key_width(const ModelConfig *config) { return config->kv_heads * config->head_dim; }

static inline int qkv_width(const ModelConfig *config) { return query_width(config) + 2 * key_width(config); }

static inline MlpShape mlp_of(const ModelConfig *c) { return (MlpShape){c->activation, c->gated, c->ffn}; }

/* What one part keeps for its backward; evaluation lets all parts of a kind share one. NORM_BEFORE: n = norm(x).
 * NORM_AFTER: x = n + branch, and norm(x) is the n of the next part. NORM_ON_BRANCH: x is the branch. */
typedef struct PartActivations {
  void *x, *n;       /* [N][C] what the norm reads, and what the part reads */
  NormStats stats;   /* [N] */
  void *in, *middle; /* SELF: [N][H*D + 2*G*D] rotated, [N][H*D] attention; MLP: [N][F] or [N][2F], which becomes its
                         gradient in the backward, [N][F] h */
  float *lse;        /* SELF: [B][H][T] */
} PartActivations;

typedef struct Activations {
  int64_t rows;           /* N they were made for */
  int head_rows;          /* rows of logits held at a time */
  PartActivations *parts; /* one a part, and one more: x, n and stats of what the head reads */
  void *branch;           /* [N][C] output of a part before the residual add */
  void *logits;           /* [head_rows][P]; becomes dlogits */
  float *losses;          /* [N] */
  /* training only */
  void *dx, *dn;        /* [N][C] gradients of the residual stream and, NORM_BEFORE, of a norm's output */
  void *dbranch;        /* [N][C] gradient of a branch that is dropped or normalized; else NULL */
  void *dmiddle, *dqkv; /* [N][larger of F and H*D], [N][H*D + 2*G*D] */
} Activations;

struct Model {
  const Backend *ops;
  Context *context;
  size_t dt; /* bytes of the compute dtype */
  ModelConfig config;
  ParameterTable table;
  Parameters params;
  float *rope_table; /* [ctx][D/2][2] */
  StepState *state, *eval_state;
  int32_t *tokens, *targets;      /* device, room for the larger of the training and evaluation batches */
  int32_t *positions, *key_begin; /* the same, of packed documents: a token sees keys from key_begin on */
  int32_t *first_keys;            /* host staging for key_begin */
  int64_t token_room;
  Activations train, eval;
  void *train_memory, *eval_memory;
  CapturedGraph *evaluation; /* of the shape below */
  int evaluation_batch, evaluation_length;
  bool evaluation_packed, train_packed;
  /* training */
  TrainConfig settings;
  CapturedGraph *first, *later, *update; /* micro-batches, optimizer */
  float *lr_table;                       /* device [steps + 1] */
  int32_t *target_count;                 /* device [1] */
  int32_t *offsets, *order;              /* device [V + 1], [N]: the batch's tokens, sorted */
  int32_t *place_offsets, *place_order;  /* POSITIONS_LEARNED: device [ctx + 1], [N], its positions, sorted */
  int32_t *sorted;                       /* host staging for either */
};

/* One pass: a batch, the buffers it uses, and whether dropout is on. */
typedef struct Pass {
  Model *model;
  const Activations *acts;
  int batch, length;
  bool train;
  bool packed;           /* sequences hold several documents: TokenBatch.positions */
  bool accumulate;       /* gradients are added to those of the micro-batches before */
  const KvCache *caches; /* NULL, or one a layer: keys and values of the prompt go there, into `slot` */
  int slot;
} Pass;

/* The context's first error, if any. */
static inline bool model_check_backend(Model *m, Error *error) {
  return m->ops->poll(m->context, NULL, 0, false, error) >= 0;
}

/* Room for the tokens of `rows` rows; graphs that read from the old room are dropped. */
bool model_reserve_tokens(Model *m, int64_t rows, Error *error);

/* `rows` rows of a batch, from `from` on. */
void model_upload_tokens(Model *m, const TokenBatch *batch, int64_t from, int64_t rows, int length);

/* Which rows each of `kinds` numbers has, for the gradient of an embedding (kernels.h). */
void model_upload_order(Model *m, const int32_t *numbers, int64_t rows, int kinds, int32_t *offsets, int32_t *order);

/* Lays out and allocates everything a pass over `rows` rows needs. */
bool activations_allocate(Model *m, Activations *a, void **memory, int64_t rows, bool train, int head_rows,
                          Error *error);

/* Tokens (already in model->tokens) to the final norm's output. */
void model_forward_body(const Pass *pass);

/* A forward pass without dropout over the buffers that are large enough (model_evaluate_begin). */
Pass model_evaluation_pass(Model *m, int batch, int length);

/* As operations take a norm of the table. */
static inline Norm norm_of(const Model *m, NormParameters norm) {
  return (Norm){m->config.norm, m->params.master + norm.weight.offset,
                norm.bias.rows ? m->params.master + norm.bias.offset : NULL, m->config.norm_eps};
}

/* The norm between the last part and the head, or NULL where there is none. */
static inline const Norm *final_norm(const Model *m, Norm *norm) {
  if (!m->table.final_norm.weight.rows) return NULL;
  *norm = norm_of(m, m->table.final_norm);
  return norm;
}

static inline Embedding embedding_of(const Model *m, const int32_t *positions) {
  return (Embedding){m->table.embedding, 1.0f, m->table.places, positions};
}

/* Element `index` of an array in the compute dtype. */
static inline void *element(const Model *m, void *array, int64_t index) {
  return (char *)array + index * (int64_t)m->dt;
}

#endif
