/* The Transformer: configuration, opening and closing, training, evaluation. Its table of parameters is in
 * model/parameters.h, decoding with a key/value cache in model/decoder.h.
 *
 * A decoder is a stack of sublayers, attention (or a convolution) and MLP in turn, each of which adds a branch to
 * the residual stream. An encoder is another such stack, whose attention sees the whole source; a decoder above it
 * has cross-attention between attention and MLP. The configuration says what sublayers are made of: the kind and
 * place of norms, activations, biases, positions. Knows devices only through kernels.h and does no I/O. */
#ifndef INKLING_MODEL_H
#define INKLING_MODEL_H

#include "base/error.h"
#include "kernels.h"
#include "model/schedule.h"

#include <stdint.h>

/* ---- configuration ---- */

/* Where a norm stands around a branch f of the residual stream x. */
typedef enum NormPlace {
  NORM_BEFORE,    /* x + f(norm(x)), and a norm after the last sublayer */
  NORM_AFTER,     /* norm(x + f(x)) */
  NORM_ON_BRANCH, /* x + norm(f(x)) */
  NORM_PARALLEL /* x + f(norm(x)) + g(norm'(x)) with the mixer f and the MLP g of a layer, and a norm after the last */
} NormPlace;

typedef enum PositionKind {
  POSITIONS_ROPE,
  POSITIONS_LEARNED,    /* a table [ctx][C] added to the embedding */
  POSITIONS_SINUSOIDAL, /* the same, fixed: sin(t * 10000^(-2i/C)) in one half of the channels, cos in the other */
  POSITIONS_NONE
} PositionKind;
enum { NORM_PLACES = NORM_PARALLEL + 1, POSITION_KINDS = POSITIONS_NONE + 1 };

_Static_assert(sizeof(NormKind) == sizeof(int) && sizeof(NormPlace) == sizeof(int) &&
                   sizeof(Activation) == sizeof(int) && sizeof(PositionKind) == sizeof(int),
               "options and files read and write these enums as int");
/* Names of the values of these enums in options and files; each list ends with NULL. */
extern const char *const model_norm_names[], *const model_norm_place_names[], *const model_activation_names[],
                                                                                  *const model_position_names[];

/* How the positions of a layer exchange information: a letter of ModelConfig.mixers. */
typedef enum Mixer {
  MIXER_ATTENTION = 'A',
  MIXER_NOPE = 'N',       /* attention without positions (NoPE), in a model with rotary positions */
  MIXER_CONVOLUTION = 'C' /* gated causal short convolution, in place of attention */
} Mixer;
#define MODEL_MIXERS "ANC"

/* Limits of every model, in files as in flags; small enough that the product of any three fits 64 bits. */
enum {
  MODEL_MAX_LAYERS = 1024,
  MODEL_MAX_HEADS = 1024,
  MODEL_MIN_DIM = 2,
  MODEL_MAX_DIM = 65536,
  MODEL_MAX_FFN = 1 << 20,
  MODEL_MAX_CTX = 1 << 20,
  MODEL_MAX_VOCAB = 1 << 20
};

/* Switches are 0 or 1. A configuration that is still incomplete has -1 in switches and enums, NAN in rope_base and 0 in
 * sizes for what is not decided yet. */
typedef struct ModelConfig {
  int vocab, ctx;
  int layers, heads, kv_heads, dim, head_dim; /* head_dim need not be dim / heads */
  int ffn;                                    /* hidden width of the MLP */
  int tie;                                    /* the head is the embedding */
  float rope_base, norm_eps;
  NormKind norm;
  NormPlace norm_place;
  Activation activation;
  int gated;                     /* act(gate) * up; else act(up) */
  int bias, qkv_bias, head_bias; /* of attention's output and the MLP; of queries, keys and values; of the head */
  int qk_norm;                   /* RMSNorm of each head's queries and keys in self-attention */
  PositionKind positions;
  int rotary_dims;                   /* rotated numbers of each head, even; 0: the whole head */
  char mixers[MODEL_MAX_LAYERS + 1]; /* of the decoder's layers, repeated if shorter; "": attention everywhere */
  int encoder_layers;                /* 0: a decoder alone */
  int source_vocab; /* of an encoder; with `tie` as vocab, whose table is then that of source, target and head */
} ModelConfig;

/* Lists the switches. */
#define MODEL_SWITCHES(X) X(tie) X(gated) X(bias) X(qkv_bias) X(head_bias) X(qk_norm)

/* Returns how many numbers of each head are rotated. */
static inline int model_rotary_dims(const ModelConfig *config) {
  return config->rotary_dims ? config->rotary_dims : config->head_dim;
}
/* Returns the mixer of a layer of the decoder. */
Mixer model_mixer(const ModelConfig *config, int layer);
/* Returns the number of layers of the decoder with that mixer. */
int model_count_mixers(const ModelConfig *config, Mixer mixer);
/* Returns whether two lists of mixers name the same for each of `layers` layers. */
bool model_same_mixers(const char *a, const char *b, int layers);
/* Shortens a list of mixers to the shortest one that names the same when it is repeated; "" becomes "A". */
void model_shorten_mixers(char *mixers);

/* 8/3 dim, rounded up to a multiple of 32: a gated MLP of this width has as many parameters as a plain one of 4 dim. */
int model_default_ffn(int dim);

/* Fails with EXIT_MEMORY if memory was out, since the program began, in a function that counts parameters, bytes or
 * operations of a model: it returned too little. */
bool model_counts_ok(Error *error);

/* The number of parameters without padding. */
int64_t model_parameters(const ModelConfig *config);
/* The same without the token and position embeddings; an untied head counts. */
int64_t model_parameters_without_embeddings(const ModelConfig *config);

/* Checks ranges and divisibility; `code` is EXIT_USAGE for flags and EXIT_CHECKPOINT for files. EXIT_INTERNAL: a switch
 * or an enum is not decided. */
bool model_config_check(const ModelConfig *config, ExitCode code, Error *error);

/* Checks that the device supports the sizes of the model. EXIT_USAGE. */
bool model_check_device(const ModelConfig *config, const ContextInfo *device, Error *error);

/* ---- the model on a device ---- */

typedef struct Model Model;

/* Allocates the weights (zeroed); nothing else. `backend` and `context` must outlive the model. EXIT_MEMORY. */
bool model_open(Model **out, const Backend *backend, Context *context, const ModelConfig *config, Error *error);
/* The weights as an image (kernels.h) of the context's dtype: its size, 0 where the backend has none, and its bytes. */
size_t model_image_bytes(const Model *model);
void model_write_image(const Model *model, void *image);
/* Opens a model that only generates, with the weights of an image, at a multiple of 64 bytes, which must outlive it.
 * EXIT_CHECKPOINT when the image of this configuration has another size; EXIT_MEMORY. */
bool model_open_image(Model **out, const Backend *backend, Context *context, const ModelConfig *config, void *image,
                      size_t bytes, Error *error);
void model_close(Model *model);                               /* NULL is allowed */
const struct ParameterTable *model_table(const Model *model); /* model/parameters.h */
const ModelConfig *model_config(const Model *model);

typedef enum ArenaKind { ARENA_MASTER, ARENA_GRADIENT, ARENA_MOMENT1, ARENA_MOMENT2 } ArenaKind;
size_t model_arena_size(const Model *model, ArenaKind which); /* floats */
/* Copy a whole arena between host and device, [model_arena_size()] floats laid out as in a checkpoint. All processes
 * that train together call these; rank 0 passes the host's arena, the others NULL. Each process has its own
 * gradients. */
void model_upload(Model *model, ArenaKind which, const float *host);
/* The master weights where the device uses the host's memory, else NULL. Writes take effect with
 * model_weights_written(). */
float *model_host_weights(Model *model);
void model_weights_written(Model *model);
bool model_download(Model *model, ArenaKind which, float *host, Error *error); /* false: `host` is undefined */

/* ---- training ---- */

/* The input of a pass, host [sequences][length]. Targets may be IGNORE_INDEX. `positions` NULL: every sequence is one
 * text. Otherwise a sequence holds several documents without attention between them: a token's position counts from the
 * beginning of its document in this sequence, 0 at the first token. */
typedef struct TokenBatch {
  const int32_t *tokens, *targets, *positions;
  /* For a model with an encoder, which also needs positions; else NULL: several prompts per sequence of the source,
   * each with one or more responses in the decoder's sequence. Keys are numbered from the beginning of the sequence. */
  const int32_t *source_tokens, *source_positions;
  const int32_t *source_begin, *source_end; /* the keys that a source token attends to: its own prompt */
  const int32_t *cross_begin, *cross_end;   /* the keys of the source that a decoder token attends to; none: equal */
} TokenBatch;

/* Dropout probabilities. */
typedef struct DropoutRates {
  float embedding; /* the sum of embedding and positions */
  float attention; /* the attention probabilities */
  float branch;    /* the output of a sublayer, before the residual add */
  float hidden;    /* the hidden activations of an MLP */
} DropoutRates;

/* Rank and number of the processes that train together, and whether the optimizer state is sharded: each keeps only the
 * moments (with ContextInfo.copies also the master weights) that it updates (ZeRO stage 1, Rajbhandari et al. 2020). */
typedef struct Sharding {
  int rank, ranks; /* ranks < 2: alone */
  bool shard;
} Sharding;
static inline bool is_sharded(const Sharding *sharding) { return sharding->ranks > 1 && sharding->shard; }

typedef enum OptimizerKind {
  OPTIMIZER_ADAMW, /* Loshchilov & Hutter 2019 */
  OPTIMIZER_MUON   /* Jordan et al. 2024, for the matrices of the layers; AdamW for the rest */
} OptimizerKind;

typedef struct TrainConfig {
  int batch;          /* sequences in a micro-batch, each of ctx tokens */
  int micro_batches;  /* per optimizer step */
  int first_sequence; /* the number of this process's first sequence within the step */
  Sharding sharding;
  DropoutRates dropout;
  float label_smoothing;
  float clip; /* global gradient norm; <= 0 = off */
  OptimizerKind optimizer;
  AdamW adamw;
  Muon muon; /* OPTIMIZER_MUON */
  Schedule schedule;
  uint64_t seed;
  /* Rows of logits computed at a time; 0 = automatic, the most with a teacher. Affects memory use, and the loss by
   * rounding. */
  int head_rows;
  /* NULL, or a trained decoder of the same backend, device context and vocabulary, with at least this context length,
   * which outlives the model. The model learns its probabilities as well as the targets (Hinton et al. 2015): the
   * gradient is that of (1 - weight) * loss + weight * KL(teacher || model); the loss that is reported is the loss
   * alone. model_train_begin() allocates the teacher's activations. */
  struct Model *teacher;
  float teacher_weight; /* 0 to 1 */
} TrainConfig;

/* Allocates gradients, moments and activations. EXIT_MEMORY. */
bool model_train_begin(Model *model, const TrainConfig *config, Error *error);
/* Changes the schedule from the next step on. No step may be in progress. EXIT_MEMORY. */
bool model_set_schedule(Model *model, const Schedule *schedule, Error *error);
/* The bytes that a training run will allocate; `total` is on the device. */
typedef struct MemoryPlan {
  size_t weights, gradients, moments, activations, logits;
  size_t iteration; /* scratch space of Muon's iteration, approximately */
  size_t backend;   /* ContextInfo.own_bytes */
  size_t copies;    /* host copies of weights and moments, for saving, and the mean of weights */
  size_t total;
} MemoryPlan;
/* Without a teacher's. */
MemoryPlan model_memory(const ModelConfig *config, const TrainConfig *train, const ContextInfo *device);
/* The same for a model that only computes forward passes over `rows` rows. */
MemoryPlan model_evaluation_memory(const ModelConfig *config, int64_t rows, const ContextInfo *device);
/* Floating-point operations of one training step on `tokens` tokens (forward and backward, causal attention counted
 * once; Muon's iteration). */
double model_step_flops(const ModelConfig *config, int64_t tokens, OptimizerKind optimizer, bool accelerator);
double model_forward_flops(const ModelConfig *config, int64_t tokens); /* of a forward pass */
double muon_flops(int rows, int cols, bool accelerator);               /* of the iteration on one matrix */

void model_set_step(Model *model, int64_t step); /* the number of steps already done, before the first step */
/* One optimizer step on micro_batches * batch sequences of ctx tokens. Either all steps of a run have positions or none
 * has. Asynchronous: results come through model_reports(). */
void model_train_step(Model *model, const TokenBatch *step);
/* Computes the gradients of one step into ARENA_GRADIENT, as model_train_step() does, and its loss, without an update.
 * For tests. */
bool model_gradients(Model *model, const TokenBatch *step, double *loss, Error *error);
/* Takes up to `capacity` finished steps, oldest first; `wait`: waits for all. Returns how many (Backend.poll). */
int model_reports(Model *model, StepReport *out, int capacity, bool wait, Error *error);

/* ---- evaluation ---- */

/* Allocates activations for forward passes of up to `batch` sequences of `length` tokens, unless training has. */
bool model_evaluate_begin(Model *model, int batch, int length, Error *error);
/* Adds the unsmoothed losses (nats) of `batch` sequences of `length` tokens to *sum and the targets that are not
 * ignored to *count; both may be NULL. `logits` NULL, or host fp32 [batch*length][vocab]. */
bool model_evaluate(Model *model, const TokenBatch *tokens, int batch, int length, double *sum, int64_t *count,
                    float *logits, Error *error);
/* The same, with the loss of each target: host fp32 [batch*length], 0 for ignored ones. */
bool model_losses(Model *model, const TokenBatch *tokens, int batch, int length, float *losses, double *sum,
                  int64_t *count, float *logits, Error *error);

#endif
