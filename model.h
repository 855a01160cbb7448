/* The Transformer: configuration, parameters, forward, backward, optimizer step, cached decoding.
 *
 * A decoder is a stack of parts, attention and MLP in turn, each of which adds a branch to the residual stream. An
 * encoder is another such stack, whose attention sees the whole source; a decoder above it has cross-attention between
 * attention and MLP. What the parts are made of is the configuration: the kind and place of norms, activations, biases,
 * positions. Knows devices only through kernels.h and does no I/O. */
#ifndef INKLING_MODEL_H
#define INKLING_MODEL_H

#include "util/error.h"
#include "kernels.h"

#include <stdint.h>

/* ---- configuration ---- */

/* Where a norm stands around a branch f of the residual stream x. */
typedef enum NormPlace {
  NORM_BEFORE,   /* x + f(norm(x)), and a norm after the last part */
  NORM_AFTER,    /* norm(x + f(x)) */
  NORM_ON_BRANCH /* x + norm(f(x)) */
} NormPlace;

typedef enum PositionKind {
  POSITIONS_ROPE,
  POSITIONS_LEARNED,    /* a table [ctx][C] added to the embedding */
  POSITIONS_SINUSOIDAL, /* the same, fixed: sin(t * 10000^(-2i/C)) in one half of the channels, cos in the other */
  POSITIONS_NONE
} PositionKind;

typedef struct ModelConfig {
  int vocab, ctx;
  int layers, heads, kv_heads, dim, head_dim; /* head_dim need not be dim / heads */
  int ffn;                                    /* hidden width of the MLP */
  bool tie;                                   /* the head is the embedding */
  float rope_base, norm_eps;
  NormKind norm;
  NormPlace norm_place;
  Activation activation;
  bool gated;                     /* act(gate) * up; else act(up) */
  bool bias, qkv_bias, head_bias; /* of attention's output and the MLP; of queries, keys and values; of the head */
  PositionKind positions;
  int encoder_layers; /* 0: a decoder alone */
  int source_vocab;   /* of an encoder; with `tie` as vocab, whose table is then that of source, target and head */
} ModelConfig;

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

/* 8/3 dim rounded up to a multiple of 32: the width whose three matrices cost what two of 4 dim would. */
int model_default_ffn(int dim);

/* The number of parameters, pads not counted: what people call the size of a model. 0 when memory is out. */
int64_t model_parameters(const ModelConfig *config);
/* The same without the embedding tables of tokens and positions; an untied head counts. */
int64_t model_parameters_without_embeddings(const ModelConfig *config);

/* Ranges and divisibility; `code` is EXIT_USAGE for flags and EXIT_CHECKPOINT for files. */
bool model_config_check(const ModelConfig *config, ExitCode code, Error *error);

/* Whether the device can compute it. EXIT_USAGE when its dim, ffn or attention heads have the wrong size. */
bool model_check_device(const ModelConfig *config, const ContextInfo *device, Error *error);

/* ---- the table of parameters: one row a tensor, in checkpoint order ---- */

/* What a tensor is, which says how it begins. */
typedef enum TensorRole {
  ROLE_EMBEDDING,
  ROLE_PLACES,    /* learned positions */
  ROLE_SINUSOIDS, /* positions that are never trained */
  ROLE_WEIGHT,
  ROLE_RESIDUAL, /* the weight of a product that is added to the residual stream */
  ROLE_BIAS,
  ROLE_NORM_WEIGHT,
  ROLE_NORM_BIAS
} TensorRole;

typedef struct ParameterTensor {
  char name[64];  /* in the checkpoint, e.g. "model.layers.0.self_attn.q_proj.weight" */
  int rows, cols; /* logical shape; rank 1 (norms, biases): rows = 1 and the checkpoint's shape is [cols] */
  int rank;
  size_t offset; /* in the arenas */
  TensorRole role;
  int64_t v_offset; /* in the arena of second moments; -1: it has none */
  int inputs;       /* of the product it belongs to; a row of a table: its length */
  int branches;     /* that are added to the same residual stream; 0 outside of layers */
} ParameterTensor;

typedef struct NormParameters {
  Matrix weight, bias; /* bias.rows 0: none; else the next group */
  size_t vector;       /* of its weight in Parameters.vectors */
} NormParameters;

/* What adds a branch to the residual stream. A layer is a PART_SELF, above an encoder a PART_CROSS, and a PART_MLP. */
typedef enum PartKind { PART_SELF, PART_CROSS, PART_MLP, PART_KINDS } PartKind;

typedef struct Part {
  PartKind kind;
  int layer; /* of its stack */
  NormParameters norm;
  Linear in;     /* SELF: queries, keys, values packed [H*D + 2*G*D][C]; CROSS: queries [H*D][C]; MLP: [F][C], gated:
                    gate and up packed [2F][C] */
  Linear memory; /* CROSS: keys and values of the source packed [2*G*D][C] */
  Linear out;    /* SELF, CROSS [C][H*D]; MLP [C][F] */
} Part;

/* Parts one after the other, and what stands before and after them. */
typedef struct Stack {
  Part *parts;
  int count; /* 0: there is no such stack */
  int vocab;
  Matrix embedding, places; /* [padded vocab][C]; places [ctx][C]: of positions that are added; rows 0: none */
  NormParameters norm;      /* NORM_BEFORE: after the last part */
  int first_layer;          /* dropout numbers the layers of all stacks: the decoder's, then the encoder's */
} Stack;

typedef struct SpanList {
  Span *items;
  int count;
  size_t room;
} SpanList;

/* Of the processes that train together: which one this is of how many, and whether each keeps the moments, and the
 * masters where ContextInfo.copies, of what it updates alone (Rajbhandari et al. 2020, stage 1); else all update
 * everything. */
typedef struct Share {
  int rank, ranks; /* ranks < 2: alone */
  bool shard;
} Share;
static inline bool is_sharded(const Share *share) { return share->ranks > 1 && share->shard; }

typedef struct ParameterTable {
  ParameterTensor *tensors;
  int count;
  ParameterGroup *groups;
  int group_count;
  MuonMatrix *matrices; /* of all products in layers, ascending offsets */
  int matrix_count;
  int muon_count; /* matrices that Muon updates: none or all */
  Part *parts;    /* of both stacks */
  Stack encoder, decoder;
  Linear head;    /* its weight is the embedding when tied */
  size_t arena;   /* elements, alignment and pads included */
  size_t v_arena; /* the same of second moments */
  size_t vectors; /* the same of what no GEMM reads */
  /* parameter_table_share() */
  SpanList spans, v_spans; /* of several processes: of the arena, a bucket of gradients after the other; of v_arena */
  int *bucket_ends;        /* spans of a layer end before this one; behind the layers is everything else */
  int bucket_count;
  AdamwRun *runs; /* what this process updates */
  int run_count;
  size_t run_room;
  MuonMatrix *own;
  int own_count;
  size_t m_kept, v_kept; /* moments that it keeps */
} ParameterTable;

typedef enum OptimizerKind {
  OPTIMIZER_ADAMW, /* Loshchilov & Hutter 2019 */
  OPTIMIZER_MUON   /* Jordan et al. 2024, for the matrices of the layers; AdamW for the rest */
} OptimizerKind;

/* Of a model that AdamW trains. */
bool parameter_table_make(ParameterTable *out, const ModelConfig *config, Error *error);
/* Which rule updates which group, and where second moments are. */
void parameter_table_set_optimizer(ParameterTable *table, OptimizerKind optimizer);
/* Who updates what, after parameter_table_set_optimizer(). EXIT_MEMORY. */
bool parameter_table_share(ParameterTable *table, const Share *share, Error *error);
/* What operations know of the table, which must outlive `out`: its size, groups and who updates them. Again after
 * parameter_table_share(). */
void parameter_table_describe(const ParameterTable *table, Parameters *out);
void parameter_table_free(ParameterTable *table);

typedef enum InitKind {
  INIT_GPT2, /* normal(0, std), ROLE_RESIDUAL with std / sqrt(branches) (Radford et al. 2019); biases 0 */
  INIT_TORCH /* torch.nn.Linear: uniform in +-1/sqrt(inputs), biases too; torch.nn.Embedding: normal(0, 1) */
} InitKind;
typedef struct Initialization {
  InitKind kind;
  float std; /* INIT_GPT2 */
} Initialization;
#define INIT_DEFAULT_STD 0.02f

/* Fills a zeroed host arena with initial weights: Philox by (seed, row of the table, element), so they depend on
 * neither layout nor device. Norms begin as 1 and 0. Beside sinusoids, whose numbers are as large as 1, an embedding
 * begins as normal(0, 1). */
void parameter_table_init(const ParameterTable *table, Initialization how, float *arena, uint64_t seed);

/* The numbers of a tensor of ROLE_SINUSOIDS. */
void parameter_sinusoids(const ParameterTensor *tensor, float *out);

/* ---- the model on a device ---- */

typedef struct Model Model;

/* Allocates the weights (zeroed); nothing else. `backend` and `context` must outlive the model. EXIT_MEMORY. */
bool model_open(Model **out, const Backend *backend, Context *context, const ModelConfig *config, Error *error);
void model_close(Model *model); /* NULL is allowed */
const ParameterTable *model_table(const Model *model);
const ModelConfig *model_config(const Model *model);

typedef enum ArenaKind { ARENA_MASTER, ARENA_GRADIENT, ARENA_MOMENT1, ARENA_MOMENT2 } ArenaKind;
size_t model_arena_size(const Model *model, ArenaKind which); /* floats */
/* Whole arenas between host and device, checkpoint layout: [model_arena_size()] floats. Of processes that train
 * together all call these; rank 0 alone has the host's arena, the others give NULL. Gradients are a process's own. */
void model_upload(Model *model, ArenaKind which, const float *host);
/* The master weights, where the device's memory is the host's; else NULL. What is written there takes effect with
 * model_weights_written(). */
float *model_host_weights(Model *model);
void model_weights_written(Model *model);
bool model_download(Model *model, ArenaKind which, float *host, Error *error); /* false: `host` is not to be used */

/* ---- training ---- */

typedef enum ScheduleKind { SCHEDULE_COSINE, SCHEDULE_LINEAR, SCHEDULE_CONSTANT, SCHEDULE_WSD } ScheduleKind;
/* Lengths that a run was to have until its length was changed while it trained: after step `until` it was no longer to
 * have `steps` steps. In rising order of `until`, each less than the length before and after it. */
enum { SCHEDULE_PLANS = 64 };
typedef struct SchedulePlans {
  int count;
  struct {
    int64_t until, steps;
  } items[SCHEDULE_PLANS];
} SchedulePlans;
typedef struct Schedule {
  ScheduleKind kind;
  float lr, min_lr_fraction;
  int64_t warmup, steps; /* lr * t / warmup for t <= warmup; from there to exactly lr * min_lr_fraction at t = steps */
  SchedulePlans plans;   /* then warmup and kind are of the first plan's steps; what is left of it at a change is
                            stretched, or pressed, to what is left of the run */
} Schedule;
/* Learning rate of step t in 1..steps; later steps keep the final value. WSD (warm-up, stable, decay) keeps lr until
 * the last fifth and then falls as 1 - sqrt(progress). A constant schedule has no end to fall to. */
float schedule_lr(const Schedule *schedule, int64_t t);
/* The length that the run was to have when step t had been made. */
int64_t schedule_steps(const SchedulePlans *plans, int64_t steps, int64_t t);

/* What a pass reads, host [sequences][length]. Targets may be IGNORE_INDEX. `positions` NULL: every sequence is one
 * text. Else sequences hold several documents, none of which sees another: a position is a token's place in its
 * document, or in what of it is in this sequence, 0 where one begins. */
typedef struct TokenBatch {
  const int32_t *tokens, *targets, *positions;
  const struct SourceBatch *source; /* of a model with an encoder, which needs positions too; else NULL */
} TokenBatch;

/* What an encoder reads, host [sequences][length]: texts side by side, each of which one or more texts of the
 * decoder's sequence answer. Keys of attention are numbered from the beginning of the sequence. */
typedef struct SourceBatch {
  const int32_t *tokens, *positions;
  const int32_t *begin, *end;             /* what a source token sees: the keys of its own text */
  const int32_t *cross_begin, *cross_end; /* what a token of the decoder's sequence sees of this one; none: equal */
} SourceBatch;

/* Probabilities of dropout, by place. */
typedef struct DropoutRates {
  float embedding; /* the sum of embedding and positions */
  float attention; /* attention's probabilities */
  float branch;    /* what attention or an MLP adds to the residual stream */
  float hidden;    /* the hidden numbers of an MLP */
} DropoutRates;

typedef struct TrainConfig {
  int batch;          /* sequences in a micro-batch, each of ctx tokens */
  int micro_batches;  /* per optimizer step */
  int first_sequence; /* number of the first one in the step, of which other processes have the rest */
  Share share;
  DropoutRates dropout;
  float label_smoothing;
  float clip; /* global gradient norm; <= 0 = off */
  OptimizerKind optimizer;
  AdamW adamw;
  Muon muon; /* OPTIMIZER_MUON */
  Schedule schedule;
  uint64_t seed;
  int head_rows; /* rows of logits held at a time; 0 = chosen. Changes memory, and the loss by rounding at most. */
} TrainConfig;

/* Allocates gradients, moments and activations. EXIT_MEMORY. */
bool model_train_begin(Model *model, const TrainConfig *config, Error *error);
/* From the next step on; no step is under way. The rates of steps that were made stay as they were. EXIT_MEMORY. */
bool model_set_schedule(Model *model, const Schedule *schedule, Error *error);
/* What a training run will allocate, in bytes, computed without allocating: the plan. `total` is on the device. */
typedef struct MemoryPlan {
  size_t weights, gradients, moments, activations, logits;
  size_t iteration; /* scratch space of Muon's iteration, approximately */
  size_t copies;    /* of weights and moments, in host memory, on their way to a file */
  size_t total;
} MemoryPlan;
MemoryPlan model_memory(const ModelConfig *config, const TrainConfig *train, const ContextInfo *device);
/* Floating-point operations of one training step on `tokens` tokens (forward and backward, causal attention counted
 * once; Muon's iteration). */
double model_step_flops(const ModelConfig *config, int64_t tokens, OptimizerKind optimizer, bool accelerator);
double muon_flops(int rows, int cols, bool accelerator); /* of the iteration on one matrix */

void model_set_step(Model *model, int64_t step); /* steps already done: before the first step of a resumed run */
/* One optimizer step on micro_batches * batch sequences of ctx tokens; all steps of a run have positions, or none. Does
 * not wait; results come through model_reports(). */
void model_train_step(Model *model, const TokenBatch *step);
/* Gradients of one step, added up in ARENA_GRADIENT as for model_train_step (with positions in all steps, or in none),
 * and its loss; no update. For tests. */
bool model_gradients(Model *model, const TokenBatch *step, double *loss, Error *error);
/* Finished steps, oldest first (Backend.poll). */
int model_reports(Model *model, StepState *out, int capacity, bool wait, Error *error);

/* ---- evaluation ---- */

/* Allocates activations for forward passes of up to `batch` sequences of `length` tokens, when training has not
 * already. */
bool model_evaluate_begin(Model *model, int batch, int length, Error *error);
/* Adds the unsmoothed losses (nats) of `batch` sequences of `length` tokens to *sum and the targets that are not
 * ignored to *count. `logits` NULL, or host fp32 [batch*length][vocab] for tests. */
bool model_evaluate(Model *model, const TokenBatch *tokens, int batch, int length, double *sum, int64_t *count,
                    float *logits, Error *error);

/* ---- attention weights ---- */

typedef enum AttentionKind { ATTENTION_ENCODER, ATTENTION_SELF, ATTENTION_CROSS } AttentionKind;

/* Gets the weights of one attention, host fp32 [heads][queries][keys]: what a query sees adds up to 1. False, with an
 * error: no more. */
typedef bool AttentionSeen(void *context, AttentionKind kind, int layer, const float *weights, int queries, int keys,
                           Error *error);

/* The weights of every attention in a pass over one text of 1..ctx tokens, in the order in which they are computed.
 * Above an encoder the text answers a source of 1..ctx tokens; else source is NULL. EXIT_MEMORY; the error of
 * `seen`. */
bool model_attention(Model *model, const int32_t *source, int source_count, const int32_t *tokens, int count,
                     AttentionSeen *seen, void *context, Error *error);

/* ---- generation ---- */

enum { DECODER_LOOKBACK = 4096 }; /* tokens a repeat penalty can look back at, even when the context is shorter */

typedef struct Decoder Decoder;

/* Caches for `rows` sequences of up to ctx positions. Shares the model's weights; may be used while training is paused
 * between steps. EXIT_MEMORY. */
bool decoder_open(Decoder **out, Model *model, int rows, Error *error);
void decoder_close(Decoder *decoder);
/* Rows 0 to rows - 1, of those that it was opened for, are those that decoder_next() and decoder_logits() go on with;
 * the others stay what they are. At first all. */
void decoder_use_rows(Decoder *decoder, int rows);
/* Above an encoder: what row `row` answers, 1..ctx tokens. Computed once, and kept until it is called again; a row
 * needs it before decoder_prompt(). EXIT_INPUT; EXIT_INTERNAL for a token outside of the vocabulary of sources. */
bool decoder_source(Decoder *decoder, int row, const int32_t *tokens, int count, Error *error);
/* Starts row `row` with a prompt of 1..ctx tokens. What follows depends on the row's own prompt, source, sampling and
 * biases alone, bit for bit. EXIT_INPUT; EXIT_INTERNAL. */
bool decoder_prompt(Decoder *decoder, int row, const int32_t *tokens, int count, Error *error);
/* How the row draws, and its random stream. Until it is called, nothing is defined. */
void decoder_sampling(Decoder *decoder, int row, const Sampling *sampling, uint32_t stream);
/* What is added to the logits of `count` different tokens, at most a vocabulary of them, until the next call; in a row
 * that never had any it is nothing. -INFINITY: never drawn. EXIT_MEMORY. */
bool decoder_bias(Decoder *decoder, int row, const int32_t *tokens, const float *values, int count, Error *error);
/* Row `to` becomes what row `from` is. */
void decoder_copy(Decoder *decoder, int to, int from);
/* Row `to` begins with the source and the `count` tokens that row `from` began with, which has not slid since. */
void decoder_begin_as(Decoder *decoder, int to, int from, int count);
/* Draws the next token of every row in use into next[rows]. EXIT_NONFINITE when logits are not finite. */
bool decoder_next(Decoder *decoder, int32_t *next, Error *error);
/* Positions left before the row's context is full: decoder_next may be called this often. */
int decoder_room(const Decoder *decoder, int row);
const Model *decoder_model(const Decoder *decoder);
/* Drops all but the row's last `keep` tokens and computes its cache again (positions restart at 0). */
bool decoder_slide(Decoder *decoder, int row, int keep, Error *error);
/* Logits of the next token of the rows in use, before any bias or penalty: host fp32 [rows][vocab]. */
bool decoder_logits(Decoder *decoder, float *logits, Error *error);
/* The same after the embedding, and after each layer of the decoder: the residual stream there, through the final norm,
 * where there is one, and the head (the logit lens, nostalgebraist 2020). Host fp32 [layers + 1][rows][vocab]; the last
 * are those of decoder_logits(), bit for bit. */
bool decoder_lens(Decoder *decoder, float *logits, Error *error);

#endif
