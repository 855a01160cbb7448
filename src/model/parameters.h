/* The table of parameters, one row per tensor in checkpoint order, and their initial values. */
#ifndef INKLING_MODEL_PARAMETERS_H
#define INKLING_MODEL_PARAMETERS_H

#include "model.h"

/* The kind of a tensor, which determines its initial values. */
typedef enum TensorRole {
  ROLE_EMBEDDING,
  ROLE_POSITIONS, /* learned position embedding */
  ROLE_SINUSOIDS, /* positions that are never trained */
  ROLE_WEIGHT,
  ROLE_RESIDUAL, /* the weight of a product that is added to the residual stream */
  ROLE_BIAS,
  ROLE_KERNEL, /* of a convolution, [channels][1][taps] in files */
  ROLE_NORM_WEIGHT,
  ROLE_NORM_BIAS
} TensorRole;

typedef struct ParameterTensor {
  char name[64];  /* in the checkpoint, e.g. "model.layers.0.self_attn.q_proj.weight" */
  int rows, cols; /* logical shape; rank 1 (norms, biases): rows = 1 and the checkpoint's shape is [cols] */
  int rank;       /* of the tensor in files */
  size_t offset;  /* in the arenas */
  TensorRole role;
  int64_t v_offset; /* in the arena of second moments; -1: it has none */
  int inputs;       /* of the product that it belongs to; of a table: the length of a row */
  int layer;        /* of all stacks, numbered as in Stack.first_layer; -1: of no layer */
  int branches;     /* number of branches added to the same residual stream; 0 outside of layers */
} ParameterTensor;

/* Numbers that no GEMM reads, such as the weights of a norm. */
typedef struct VectorGroup {
  Matrix matrix; /* rows 0: none */
  size_t vector; /* offset of the first in Parameters.vectors */
} VectorGroup;

typedef struct NormParameters {
  VectorGroup weight, bias; /* bias.matrix.rows 0: none; else the next group */
} NormParameters;

/* A sublayer adds a branch to the residual stream. A layer has a SUBLAYER_SELF or a SUBLAYER_CONVOLUTION, with an
 * encoder a SUBLAYER_CROSS, and a SUBLAYER_MLP. */
typedef enum SublayerKind {
  SUBLAYER_SELF,
  SUBLAYER_CONVOLUTION,
  SUBLAYER_CROSS,
  SUBLAYER_MLP,
  SUBLAYER_KINDS
} SublayerKind;

typedef struct Sublayer {
  SublayerKind kind;
  int layer; /* of its stack */
  bool rope; /* SELF: queries and keys are rotated */
  NormParameters norm;
  Linear in;     /* SELF: queries, keys, values packed [H*D + 2*G*D][C]; CONVOLUTION: b, c, x packed [3C][C]; CROSS:
                    queries [H*D][C]; MLP: [F][C], gated: gate and up packed [2F][C] */
  Linear memory; /* CROSS: keys and values of the source packed [2*G*D][C] */
  Linear out;    /* SELF, CROSS [C][H*D]; CONVOLUTION [C][C]; MLP [C][F] */
  VectorGroup head_norm; /* SELF with qk_norm: of queries and of keys [2][D] */
  VectorGroup kernel;    /* CONVOLUTION [C][CONVOLUTION_TAPS] */
} Sublayer;

/* The embedding, the sublayers in order, and the final norm. */
typedef struct Stack {
  Sublayer *sublayers;
  int count; /* 0: there is no such stack */
  int vocab;
  Matrix embedding, position_embedding; /* [padded vocab][C], [ctx][C]; rows 0: no positions are added */
  NormParameters norm;                  /* NORM_BEFORE: after the last sublayer */
  int first_layer; /* dropout numbers the layers of all stacks: the decoder's, then the encoder's */
} Stack;

typedef struct SpanList {
  Span *items;
  int count;
  size_t capacity;
} SpanList;

typedef struct ParameterTable {
  ParameterTensor *tensors;
  int count;
  ParameterGroup *groups;
  int group_count;
  MuonMatrix *matrices; /* all weight matrices of the layers, ascending offsets */
  int matrix_count;
  int muon_count;      /* matrices that Muon updates: none or all */
  Sublayer *sublayers; /* of both stacks */
  Stack encoder, decoder;
  Linear head;    /* its weight is the embedding when tied */
  size_t arena;   /* elements, alignment and pads included */
  size_t v_arena; /* likewise of second moments */
  size_t vectors; /* likewise of the groups that no GEMM reads */
  /* parameter_table_partition() */
  SpanList spans, v_spans; /* several processes: the owners of all spans of arena, by bucket, and of v_arena */
  int *bucket_ends;        /* the end of each bucket in `spans`: a bucket for each layer, the last for all else */
  int bucket_count;
  AdamwRun *runs; /* updated by this process, as `own` */
  int run_count;
  size_t run_capacity;
  MuonMatrix *own;
  int own_count;
  size_t m_kept, v_kept; /* moments that this process keeps */
  /* parameter_table_make() */
  size_t tensor_capacity, group_capacity, matrix_capacity;
  bool incomplete; /* out of memory */
} ParameterTable;

/* Makes the table for AdamW; parameter_table_set_optimizer() changes that. EXIT_MEMORY. */
bool parameter_table_make(ParameterTable *out, const ModelConfig *config, Error *error);
/* The same for a count: model_counts_ok() has the error. */
bool parameter_table_count(ParameterTable *out, const ModelConfig *config);
/* Sets which rule updates each group, and where second moments are. */
void parameter_table_set_optimizer(ParameterTable *table, OptimizerKind optimizer);
/* Divides the updates among processes; after parameter_table_set_optimizer(). EXIT_MEMORY. */
bool parameter_table_partition(ParameterTable *table, const Sharding *sharding, Error *error);
/* Fills in what operations read of the table: sizes, groups, spans and updates. The table must outlive `out`. Call it
 * again after parameter_table_partition(). */
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
 * neither layout nor device. Norm weights are 1, norm biases 0. With sinusoidal positions, whose values reach 1, the
 * embedding is normal(0, 1). */
void parameter_table_init(const ParameterTable *table, Initialization how, float *arena, uint64_t seed);

/* Writes the values of a tensor of ROLE_SINUSOIDS, [rows][cols]. */
void parameter_sinusoids(const ParameterTensor *tensor, float *out);

#endif
