/* Inside bench_kernels: contexts, timing and printing (measure.c), and the operations that are timed (a file for each
 * group). A row: a function that calls the operation once, what it needs, and the bytes and FLOPs that the formula of
 * the operation (kernels.h) implies.
 *
 * N rows, C width, T positions, dt the bytes of the compute dtype, u = N*C*dt. Which arrays are cold: all activations
 * (bench_sets), because in training too they come from far more than the cache; weights of GEMMs are warm; decoding
 * uses the layers of the model in turn, as generation does, so that small models do live in the cache. */
#ifndef INKLING_BENCH_BENCH_H
#define INKLING_BENCH_BENCH_H

#include "kernels.h"
#include "model.h"
#include "util/quantiles.h"
#include "model/parameters.h"

#include <stdio.h>

enum { MAX_SETS = 16, MAX_ARRAYS = 8, MAX_BATCHES = 11 };

typedef struct Bench {
  const Backend *ops;
  Context *c;
  DType dtype, weights; /* ContextOptions */
  size_t dt;            /* bytes of dtype */
  bool quick, accelerator, autotune;
  int threads;         /* of a CPU; 0: all */
  int batches;         /* timings of a row */
  int train_ms;        /* about how long training steps are timed; 0: long enough to quote */
  int head_rows;       /* TrainConfig.head_rows */
  int failures;        /* rows that ended with an error */
  int opened;          /* contexts opened so far: device memory of an earlier one is gone */
  size_t opened_bytes; /* that an opened context holds before a row takes any */
  FILE *json;
  double copy_rate, gemm_rate; /* bytes/s and FLOP/s that the device reaches; 0: not measured */
  void *random_compute;        /* device, RANDOM_BYTES: numbers of mean 0 and variance 1 in the compute dtype, and */
  void *random_floats;         /* in fp32 */
  size_t random_bytes;
  StepState *state; /* a step in progress: lr, clip, inv_targets are set */
} Bench;

typedef struct BenchModel {
  const char *name;
  ModelConfig config;
  int batch;
  int position; /* of a decoded token; 0: the middle of the context */
  bool usual;   /* timed when --model names none */
  bool trains;  /* gradients and moments are needed, too */
  /* on the device, made for context number `opened` */
  ParameterTable table;
  Parameters params;
  float *rope;
  int opened;
} BenchModel;

/* What an operation works on. Sets of arrays are used in turn, so that what does not fit the cache of the card in
 * training does not here. */
typedef struct Operands {
  int sets;
  bool warm; /* one set, which may stay in the caches */
  void *array[MAX_SETS][MAX_ARRAYS];
  BenchModel *model;
  Linear layer;            /* or the table of an embedding, as its weight */
  int batch, length, rows; /* rows = batch * length where the operation has both */
  int width;               /* of a row; what it means, the case knows */
  bool flag;
  Dropout dropout;
  Attention attention;
  Sequences sequences;
  KvCache *caches; /* [layers] */
} Operands;

typedef struct Case {
  const char *group, *model, *operation;
  char shape[64];
  double bytes, flops; /* of one call, by the operation's formula; 0 = says nothing */
  bool against_gemm;   /* the share is that of the GEMM rate, not of the copy rate */
  bool direct;         /* cannot be recorded: timed call by call */
  const char *note;
  void (*run)(Bench *b, const Operands *o, int set);
  Operands *operands;
} Case;

typedef enum Fill { FILL_COMPUTE, FILL_FLOATS, FILL_ZEROS } Fill;
typedef struct Need {
  Fill fill;
  int64_t count; /* elements: of the compute dtype, of 4 bytes, of 1 byte */
} Need;

/* ---- measure.c ---- */

/* Opens b->c, with random numbers in it. */
bool bench_open(Bench *b, Error *error);
const char *bench_dtype(const Bench *b);  /* "f32", "bf16" */
_Noreturn void bench_out_of_memory(void); /* says so and ends the program */

/* Times one case and prints and writes its row; every error becomes a row. Returns milliseconds of a call, or zeros. */
Quantiles bench_case(Bench *b, const Case *k);
/* A row that was not timed, and why. */
void bench_skip(Bench *b, const Case *k, const char *why);
/* One JSON line to --json FILE. */
void bench_json(Bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A new context, for a row that says how much memory it takes. */
void bench_reopen(Bench *b);
size_t bench_peak_bytes(const Bench *b); /* the most that rows of this context have held */
/* Where the context holds an error it is printed (unless `what` is NULL) and a new context is opened. False when there
 * was one. */
bool bench_alive(Bench *b, const char *what);

/* Device memory until bench_free(); NULL when it does not fit, which is no error. */
void *bench_array(Bench *b, Fill fill, int64_t count);
void bench_free(Bench *b);
/* Makes as many sets of `needs` as it takes to be larger than the caches, 16 at most. */
bool bench_sets(Bench *b, Operands *o, const Need *needs, int count);
int32_t *bench_ints(Bench *b, const int32_t *host, int64_t count);

/* ---- model.c ---- */

/* Changes the model as a text says: `layers=4,dim=128`. What is left out stays, but one kv-head a head, heads of
 * dim / heads and the usual ffn follow. False: the text is wrong, or there is no such model. */
bool bench_shape(BenchModel *m, const char *text);
float bench_small_number(size_t i);                     /* an initial weight */
int32_t *bench_random_tokens(int64_t count, int vocab); /* malloc */

/* Random weights, and cos and sin of all positions; made again after an error has cost the context. */
bool bench_model_ready(Bench *b, BenchModel *m);
void bench_model_free(Bench *b, BenchModel *m);
const Sublayer *bench_sublayer(const BenchModel *m, int layer, SublayerKind kind);
Norm bench_norm(const BenchModel *m, NormParameters norm);
int bench_position(const BenchModel *m); /* of a decoded token */

static inline MlpShape bench_mlp(const ModelConfig *c) { return (MlpShape){c->activation, c->gated, c->ffn}; }
static inline int bench_query_width(const ModelConfig *c) { return c->heads * c->head_dim; }
static inline int bench_key_width(const ModelConfig *c) { return c->kv_heads * c->head_dim; }
static inline int bench_qkv_width(const ModelConfig *c) { return bench_query_width(c) + 2 * bench_key_width(c); }

Case bench_case_of(const char *group, const char *model, const char *operation,
                   void (*run)(Bench *, const Operands *, int));
/* What most rows share: makes the sets, times, frees. */
Quantiles bench_row(Bench *b, Case k, Operands *o, const Need *needs, int count);

/* ---- the groups, a file each ---- */

void bench_rates(Bench *b);
void bench_copy_rates(Bench *b); /* parts of it */
void bench_gemm_rate(Bench *b);
/* What nothing on this device can pass, quickly: the rate of products and, on a CPU, of reading as many bytes as each
 * model reads for a token. */
void bench_ceilings(Bench *b, BenchModel *const *models, int count);
void bench_elementwise(Bench *b, BenchModel *m);
void bench_gemm(Bench *b, BenchModel *m);
void bench_attention(Bench *b, BenchModel *m);
void bench_attention_sweep(Bench *b);
/* Every operation of a decoded token, and all of them together; or those together alone. */
void bench_decode(Bench *b, BenchModel *m, int rows, bool token_alone);
double bench_token_bytes(const Bench *b, const BenchModel *m, int rows); /* read and written for a token each */
void bench_train(Bench *b, BenchModel *m, bool dropout_too);

#endif
