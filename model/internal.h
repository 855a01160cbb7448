/* Inside the model: what its files share. model.c has the mathematics of a step. Around it: config.c (ranges and sizes
 * of configurations), parameters.c (the table, initial weights), sharding.c (which process updates what), schedule.c,
 * activations.c (buffers of a pass, memory plan, operations), device.c (weights and tokens to the device and back),
 * decoder.c (one token at a time over a key/value cache), attention_maps.c (attention weights to look at).
 *
 * B sequences, T positions, N = B*T rows, C = dim, H and G query and key/value heads, D head size, F = ffn, V
 * vocabulary, P padded vocabulary; dt the compute dtype. */
#ifndef INKLING_MODEL_INTERNAL_H
#define INKLING_MODEL_INTERNAL_H

#include "model.h"
#include "model/attention_maps.h"
#include "model/parameters.h"

enum { VOCAB_PAD = 64 }; /* the head's GEMM wants whole tiles */

static inline int64_t round_up64(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static inline int padded_vocab(int vocab) { return (int)round_up64(vocab, VOCAB_PAD); }

static inline int query_width(const ModelConfig *config) { return config->heads * config->head_dim; }

static inline int key_width(const ModelConfig *config) { return config->kv_heads * config->head_dim; }

static inline int qkv_width(const ModelConfig *config) { return query_width(config) + 2 * key_width(config); }

static inline bool has_encoder(const ModelConfig *config) { return config->encoder_layers > 0; }

static inline MlpShape mlp_of(const ModelConfig *c) { return (MlpShape){c->activation, c->gated, c->ffn}; }

/* What one sublayer keeps for its backward; evaluation lets all of a kind share one. NORM_BEFORE: n = norm(x).
 * NORM_AFTER: x = n + branch, and norm(x) is the n of the next sublayer. NORM_ON_BRANCH: x is the branch. */
typedef struct SublayerActivations {
  void *x, *n;       /* [N][C] what the norm reads, and what the sublayer reads */
  NormStats stats;   /* [N] */
  void *in, *middle; /* SELF: [N][H*D + 2*G*D] rotated, [N][H*D] attention; CROSS: [N][H*D] queries, [N][H*D]; MLP:
                        [N][F] or [N][2F], which becomes its gradient in the backward, [N][F] h */
  void *memory;      /* CROSS: [N of the source][2*G*D] */
  float *lse;        /* SELF, CROSS: [B][H][T] */
} SublayerActivations;

typedef struct Activations {
  int64_t rows;  /* N they were made for */
  int head_rows; /* rows of logits held at a time */
  SublayerActivations *encoder,
      *decoder;             /* one a sublayer, and one more: x, n and stats of what is read after the last */
  SublayerActivations *all; /* the array that both lie in */
  void *branch;             /* [N][C] output of a sublayer before the residual add */
  void *logits;             /* [head_rows][P]; becomes dlogits */
  float *losses;            /* [N] */
  /* training only */
  void *dx, *dn;         /* [N][C] gradients of the residual stream and, NORM_BEFORE, of a norm's output */
  void *dbranch;         /* [N][C] gradient of a branch that is dropped or normalized; else NULL */
  void *dmiddle, *din;   /* [N][larger of F and H*D], [N][H*D + 2*G*D]: of a sublayer's middle and, in attention, in */
  void *dkeys, *dmemory; /* of an encoder, [N][2*G*D] keys and values in cross-attention, [N][C] its output */
} Activations;

/* SourceBatch on the device. */
typedef struct SourceTokens {
  int32_t *tokens, *positions, *begin, *end, *cross_begin, *cross_end;
} SourceTokens;

/* A batch's numbers, sorted: the rows of number v are order[offsets[v] .. offsets[v+1]). */
typedef struct RowOrder {
  int32_t *offsets, *order; /* device [numbers + 1], [N] */
} RowOrder;

struct Model {
  const Backend *ops;
  Context *context;
  size_t dt; /* bytes of the compute dtype */
  ModelConfig config;
  ParameterTable table;
  Parameters params;
  float *rope_table; /* [ctx][D/2][2] */
  StepState *state, *eval_state;
  int32_t *tokens, *targets;      /* device, as many as the larger of the training and evaluation batches */
  int32_t *positions, *key_begin; /* the same, of packed documents: a token sees keys from key_begin on */
  SourceTokens source;
  int32_t *first_keys; /* host staging for key_begin */
  int64_t token_capacity;
  Activations train, eval;
  void *train_memory, *eval_memory;
  CapturedGraph *evaluation; /* of the shape below */
  int evaluation_batch, evaluation_length;
  bool evaluation_packed, train_packed;
  /* training */
  TrainConfig settings;
  CapturedGraph *first, *middle, *last, *update; /* micro-batches (one alone: first), optimizer */
  float *lr_table;                               /* device [steps + 1] */
  int32_t *target_count;                         /* device [1] */
  RowOrder order, position_order;                /* of the batch's tokens and, POSITIONS_LEARNED, positions */
  RowOrder source_order, source_position_order;  /* the same of the encoder's */
  int32_t *sorted;                               /* host staging for one of them */
};

/* One pass: a batch, the buffers it uses, and whether dropout is on. */
typedef struct Pass {
  Model *model;
  const Backend *ops; /* these four are the model's */
  Context *context;
  const ModelConfig *config;
  const Parameters *params;
  const Activations *acts;
  const Stack *stack; /* what it is going through (model.c), and that stack's activations */
  const SublayerActivations *activations;
  int batch, length; /* of the decoder's sequences, and of the encoder's */
  int rows;          /* batch * length */
  bool train;
  bool packed;                /* sequences hold several documents: TokenBatch.positions */
  bool accumulate;            /* gradients are added to those of the micro-batches before */
  bool reduce;                /* gradients are complete, and are summed over all processes */
  const KvCache *caches;      /* NULL, or one a layer: keys and values of the prompt go there, into `slot` */
  const KvCache *memories;    /* with caches and an encoder: one a layer, keys and values of the source */
  int slot, memory_length;    /* of the source in `slot` */
  struct AttentionMaps *maps; /* NULL, or where attention weights go (attention_maps.c) */
} Pass;

/* The context's first error, if any. */
static inline bool model_check_backend(Model *m, Error *error) {
  return m->ops->poll(m->context, NULL, 0, false, error) >= 0;
}

/* The arrays of a SourceBatch on the device, in the order of its members. */
enum { SOURCE_ARRAYS = 6 };
void model_source_arrays(Model *m, int32_t **out[SOURCE_ARRAYS]);

/* Memory for the tokens of `rows` rows; graphs that read from what there was are dropped. */
bool model_reserve_tokens(Model *m, int64_t rows, Error *error);

/* `rows` rows of a batch, from `from` on. */
void model_upload_tokens(Model *m, const TokenBatch *batch, int64_t from, int64_t rows, int length);

/* Which rows each of `kinds` numbers has, for the gradient of an embedding (kernels.h). */
void model_upload_order(Model *m, const int32_t *numbers, int64_t rows, int kinds, RowOrder out);

/* Lays out and allocates everything a pass over `rows` rows needs. */
bool activations_allocate(Model *m, Activations *a, void **memory, int64_t rows, bool train, int head_rows,
                          Error *error);

/* Hands the weights of an attention to pass->maps, which is not NULL. */
void model_take_map(const Pass *pass, AttentionKind kind, int layer, const Attention *shape, View q, View k,
                    const float *lse);

/* Tokens (already on the device) to what the head reads; over caches by the decoder alone. */
void model_forward(const Pass *pass);
/* The encoder alone; keys and values for cross-attention go into memories. */
void model_encode(const Pass *pass);
/* The head and the loss after model_forward(). A pass that trains leaves the gradient of what the head reads, and the
 * head's. `logits` NULL, or host fp32 [N][V]. */
void model_head(const Pass *pass, StepState *state, float smoothing, float *logits);

/* A forward pass without dropout over the buffers that are large enough (model_evaluate_begin). */
Pass model_evaluation_pass(Model *m, int batch, int length);

/* As operations take a norm of the table; its groups are neighbors. */
static inline Norm norm_of(const Model *m, NormParameters norm) {
  const Parameters *p = &m->params;
  const float *weight = p->vectors ? p->vectors + norm.vector : p->master + norm.weight.offset;
  return (Norm){m->config.norm, weight, norm.bias.rows ? weight + (norm.bias.offset - norm.weight.offset) : NULL,
                m->config.norm_eps};
}

/* The norm between the last sublayer and the head, or NULL where there is none. */
static inline const Norm *final_norm(const Model *m, Norm *norm) {
  if (!m->table.decoder.norm.weight.rows) return NULL;
  *norm = norm_of(m, m->table.decoder.norm);
  return norm;
}

static inline Embedding embedding_of(const Stack *stack, const int32_t *positions) {
  return (Embedding){stack->embedding, stack->position_embedding, positions};
}

/* Element `index` of an array in the compute dtype. */
static inline void *element(const Model *m, void *array, int64_t index) {
  return (char *)array + index * (int64_t)m->dt;
}

#endif
