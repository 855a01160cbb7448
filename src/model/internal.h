/* Declarations for the files of the model. model.c has the training step; open.c opens and closes a model and allocates
 * what training needs, config.c has ranges and sizes of configurations, parameters.c the table and the initial weights,
 * sharding.c which process updates what, schedule.c learning rates, activations.c the buffers of a pass, the memory
 * plan and operation counts, device.c copies of weights between host and device, evaluation.c losses without gradients,
 * decoder.c decoding with a key/value cache, attention_maps.c attention weights for visualization, hidden_states.c what
 * a pass computes on the way.
 *
 * B sequences, T positions, N = B*T rows, C = dim, H and G query and key/value heads, D head size, F = ffn, V
 * vocabulary, P padded vocabulary; dt the compute dtype. */
#ifndef INKLING_MODEL_INTERNAL_H
#define INKLING_MODEL_INTERNAL_H

#include "model.h"
#include "model/attention_maps.h"
#include "model/hidden_states.h"
#include "model/parameters.h"
#include "base/half.h"

#include <string.h>

enum { VOCAB_PAD = 64 }; /* for whole tiles in the head's GEMM */

static inline int64_t round_up64(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static inline int padded_vocab(int vocab) { return (int)round_up64(vocab, VOCAB_PAD); }

static inline int query_width(const ModelConfig *config) { return config->heads * config->head_dim; }

static inline int key_width(const ModelConfig *config) { return config->kv_heads * config->head_dim; }

static inline int qkv_width(const ModelConfig *config) { return query_width(config) + 2 * key_width(config); }

/* Returns whether norms stand before branches, and one after the last. */
static inline bool norms_inputs(const ModelConfig *config) {
  return config->norm_place == NORM_BEFORE || config->norm_place == NORM_PARALLEL;
}

static inline bool has_encoder(const ModelConfig *config) { return config->encoder_layers > 0; }

static inline MlpShape mlp_of(const ModelConfig *c) { return (MlpShape){c->activation, c->gated, c->ffn}; }

/* The activations that a sublayer keeps for its backward; in evaluation all sublayers of a kind use the same.
 * NORM_BEFORE: n = norm(x). NORM_PARALLEL: the same, and the mixer and the MLP of a layer have the same x. NORM_AFTER:
 * x = n + branch, and norm(x) is the n of the next sublayer. NORM_ON_BRANCH: x is the branch. */
typedef struct SublayerActivations {
  void *x, *n;       /* [N][C] input of the norm, input of the sublayer */
  NormStats stats;   /* [N] */
  void *in, *middle; /* SELF: [N][H*D + 2*G*D], rotated if there is no qk_norm, [N][H*D] attention; CONVOLUTION: [N][3C]
                        b, c, x, [N][C] y; CROSS: [N][H*D] queries, [N][H*D]; MLP: [N][F] or [N][2F], which becomes its
                        gradient in the backward, [N][F] h */
  void *memory;      /* CROSS: [N of the source][2*G*D] keys and values */
  float *lse;        /* SELF, CROSS: [B][H][T] */
  void *heads;       /* SELF with qk_norm: [N][H*D + G*D] queries and keys, normalized and rotated... */
  float *heads_rstd; /* ...and their 1/rms, [N][H + G] */
} SublayerActivations;

typedef struct Activations {
  int64_t rows;                           /* N at most */
  int head_rows;                          /* rows of logits computed at a time */
  SublayerActivations *encoder, *decoder; /* one for each sublayer; one more for x, n and stats after the last */
  SublayerActivations *all;               /* the array that holds both */
  void *branch;                           /* [N][C] output of a sublayer before the residual add */
  void *logits;                           /* [head_rows][P]; becomes dlogits */
  float *losses;                          /* [N] */
  /* training only */
  void *dx, *dn; /* [N][C] gradients of the residual stream and, NORM_BEFORE and NORM_PARALLEL, of a norm's output */
  void *dbranch; /* [N][C] gradient of a branch with dropout, a norm or NORM_PARALLEL; else NULL */
  void *dmiddle, *din;   /* [N][widest middle], [N][widest in but of the MLP]: gradients of middle and in */
  void *dkeys, *dmemory; /* with an encoder: [N][2*G*D] gradient of keys and values in cross-attention, [N][C] of the
                            encoder's output */
} Activations;

/* The numbers of a batch, sorted: the rows of number v are order[offsets[v] .. offsets[v+1]). */
typedef struct RowOrder {
  int32_t *offsets, *order; /* device [numbers + 1], [N], one after the other */
} RowOrder;

/* What a stack reads of a batch, on the device: arrays of [token_capacity]. */
typedef struct StackInput {
  int32_t *tokens, *positions;
  int32_t *key_begin, *key_end; /* of packed documents: the keys that a token attends to; key_end NULL: up to itself */
  RowOrder order, position_order; /* training: of the tokens and, POSITIONS_LEARNED, of the positions */
} StackInput;

enum { DECODER_STACK, ENCODER_STACK, STACKS };

/* The steps that are captured: micro-batches (a single one: the first), evaluation, optimizer. */
enum { GRAPH_FIRST, GRAPH_MIDDLE, GRAPH_LAST, GRAPH_EVALUATION, GRAPH_UPDATE, GRAPHS };

struct Model {
  const Backend *ops;
  Context *context;
  size_t dt; /* bytes of the compute dtype */
  ModelConfig config;
  ParameterTable table;
  Parameters params;
  float *rope_table; /* [ctx][R/2][2] */
  StepState *state, *eval_state;
  StackInput inputs[STACKS];
  int32_t *targets, *cross_begin, *cross_end; /* device [token_capacity] */
  int32_t *target_count;                      /* device [1], before the tokens; of a training step */
  int32_t *host_tokens;                       /* host: what is on the device from target_count on */
  int64_t token_capacity;
  Activations train, eval;
  void *train_memory, *eval_memory;
  CapturedGraph *graphs[GRAPHS]; /* GRAPH_EVALUATION: for the shape below */
  int evaluation_batch, evaluation_length;
  bool evaluation_packed, train_packed;
  /* training */
  TrainConfig settings;
  float *lr_table; /* device [steps + 1] */
  int32_t *sorted; /* host staging for a RowOrder */
};

/* One pass: a batch, the buffers it uses, and whether dropout is on. */
typedef struct Pass {
  Model *model;
  const Backend *ops; /* the model's, as the next three */
  Context *context;
  const ModelConfig *config;
  const Parameters *params;
  const Activations *acts;
  const Stack *stack; /* the current stack (model.c) and its activations */
  const SublayerActivations *activations;
  int batch, length; /* of the sequences of decoder and encoder */
  int rows;          /* batch * length */
  bool train;
  bool packed;           /* sequences hold several documents: TokenBatch.positions */
  bool accumulate;       /* gradients are added to those of earlier micro-batches */
  bool reduce;           /* gradients are complete and are summed over all processes */
  const KvCache *caches; /* NULL, or one for each layer, whose `slot` receives the keys and values of the prompt */
  const ConvolutionState *states; /* NULL, or one for each layer; without memory for attention */
  const KvCache *memories;        /* with caches and an encoder: one for each layer, keys and values of the source */
  int slot, memory_length;        /* memory_length: of the source in `slot` */
  struct AttentionMaps *maps;     /* NULL, or the receiver of attention weights (attention_maps.c) */
  struct HiddenStates *hidden;    /* NULL, or the receiver of hidden states (hidden_states.c) */
} Pass;

/* Returns the context's first error, if any. */
static inline bool model_check_backend(Model *m, Error *error) {
  return m->ops->poll(m->context, NULL, 0, false, error) >= 0;
}

/* The arrays of a TokenBatch on the device, one after the other: those of a decoder alone, and all. The first one
 * begins TOKENS_AT numbers after the count of targets. */
enum { TEXT_ARRAYS = 4, TOKEN_ARRAYS = 10, TOKENS_AT = 64 };

/* Allocates memory for the tokens of `rows` rows and drops the graphs that read the earlier memory. */
bool model_reserve_tokens(Model *m, int64_t rows, Error *error);

/* Uploads `rows` rows of a batch, from `from` on. */
void model_upload_tokens(Model *m, const TokenBatch *batch, int64_t from, int64_t rows, int length);

/* Uploads the rows of each of `kinds` numbers, for the gradient of an embedding (kernels.h). */
void model_upload_order(Model *m, const int32_t *numbers, int64_t rows, int kinds, RowOrder out);

enum { NO_LOGITS = -1 };
/* Allocates the activations of passes over up to `rows` rows. head_rows: the logits of so many rows at a time, 0 for a
 * number that fits, or NO_LOGITS for passes that do not reach the head. */
bool activations_allocate(Model *m, Activations *a, void **memory, int64_t rows, bool train, int head_rows,
                          Error *error);

/* Gives the weights of an attention to pass->maps, which is not NULL. */
void model_take_map(const Pass *pass, AttentionKind kind, int layer, const Attention *shape, View q, View k,
                    const float *lse);

/* Returns the hidden state that is the output of a sublayer other than SUBLAYER_CROSS. */
static inline HiddenKind model_branch_kind(const Sublayer *w) {
  return w->kind == SUBLAYER_MLP ? HIDDEN_MLP : w->kind == SUBLAYER_CONVOLUTION ? HIDDEN_CONVOLUTION : HIDDEN_ATTENTION;
}
/* Gives a hidden state to pass->hidden, which is not NULL: the first numbers of N rows on the device, each of `row`
 * numbers of the compute dtype. */
void model_take_hidden(const Pass *pass, HiddenKind kind, int layer, const void *from, int row);

/* Returns a pass without dropout, packing and caches. */
Pass model_pass(Model *m, const Activations *acts, int batch, int length);
/* Computes the input of the head from the tokens on the device; with caches the decoder alone. */
void model_forward(const Pass *pass);
/* Computes the encoder alone, and stores keys and values for cross-attention in the memories. */
void model_encode(const Pass *pass);
/* Computes logits and losses after model_forward(); in training also the gradients of the head and of its input.
 * `logits` NULL, or host fp32 [N][V]. */
void model_head(const Pass *pass, StepState *state, float smoothing, float *logits);

/* Allocates buffers for passes over up to `length` tokens that do not reach the head, unless there are any.
 * EXIT_MEMORY. */
bool model_prefill_begin(Model *m, int length, Error *error);

/* Returns a forward pass without dropout that uses the buffers of training or evaluation (model_evaluate_begin). */
Pass model_evaluation_pass(Model *m, int batch, int length);

/* Returns the address of the group's numbers, or of their gradients; NULL: there is no such group. */
static inline const float *vectors_of(const Model *m, VectorGroup group) {
  const Parameters *p = &m->params;
  if (!group.matrix.rows) return NULL;
  return p->vectors ? p->vectors + group.vector : p->master + group.matrix.offset;
}
static inline float *gradient_of(const Model *m, VectorGroup group) {
  return group.matrix.rows ? m->params.grad + group.matrix.offset : NULL;
}

/* The weights of a layer after those of its attention's inputs. They follow each other in the arenas. */
static inline Upcoming weights_after_attention(const Model *m, const Sublayer *attention) {
  const size_t begin = attention->out.weight.offset;
  const Matrix last = attention[1].out.weight; /* a mixer is not the last sublayer */
  return (Upcoming){&m->params, begin, last.offset + (size_t)last.rows * (size_t)last.cols - begin};
}

/* Return what operations read of the table. */
static inline Norm norm_of(const Model *m, NormParameters norm) {
  return (Norm){m->config.norm, vectors_of(m, norm.weight), vectors_of(m, norm.bias), m->config.norm_eps};
}
static inline Rope rope_table_of(const Model *m, const int32_t *positions) {
  return (Rope){m->rope_table, positions, m->config.rotary_dims};
}

static inline HeadNorm head_norm_of(const Model *m, const Sublayer *w) {
  const ModelConfig *c = &m->config;
  return (HeadNorm){vectors_of(m, w->head_norm), c->norm_eps, c->heads, c->kv_heads, c->head_dim};
}
static inline Convolution convolution_of(const Model *m, const Sublayer *w, const int32_t *positions) {
  return (Convolution){vectors_of(m, w->kernel), m->config.dim, positions};
}

static inline Embedding embedding_of(const Stack *stack, const int32_t *positions) {
  return (Embedding){stack->embedding, stack->position_embedding, positions};
}

/* Converts numbers of the compute dtype on the host to fp32 in place, last one first. */
static inline void model_widen(const Model *m, float *numbers, int64_t count) {
  if (m->dt == sizeof(float)) return;
  for (int64_t i = count - 1; i >= 0; i--) {
    uint16_t word;
    memcpy(&word, (const char *)numbers + (size_t)i * sizeof word, sizeof word);
    numbers[i] = half_bf16_to_float(word);
  }
}

/* Returns the address of element `index` of an array in the compute dtype. */
static inline void *element(const Model *m, void *array, int64_t index) {
  return (char *)array + index * (int64_t)m->dt;
}

#endif
