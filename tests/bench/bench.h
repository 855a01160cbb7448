/* Internal to bench_kernels: contexts, timing and printing (measure.c), and the timed operations (a file per group). A
 * row consists of a function that calls the operation once, its operands, and the bytes and FLOPs by the operation's
 * formula (kernels.h).
 *
 * N rows, C width, T positions, dt the bytes of the compute dtype, u = N*C*dt. Cold arrays: all activations
 * (Case.needs), because in training they also exceed the cache. Weights of GEMMs are warm. Decoding uses the layers of
 * the model in turn, as generation does, so small models stay in the cache. */
#ifndef INKLING_TESTS_BENCH_BENCH_H
#define INKLING_TESTS_BENCH_BENCH_H

#include "kernels.h"
#include "model/internal.h"
#include "base/array.h"

#include <stdio.h>

enum { MAX_SETS = 16, MAX_ARRAYS = 8, MAX_BATCHES = 11 };

typedef struct Bench {
  const Backend *ops;
  Context *c;
  DType dtype, weights; /* ContextOptions */
  size_t dt;            /* bytes of dtype */
  bool quick, accelerator, autotune;
  int threads;               /* CPU threads; 0: all */
  int batches;               /* timings per row */
  int train_ms;              /* approximate duration of timing training steps; 0: long enough for reliable numbers */
  int head_rows;             /* TrainConfig.head_rows */
  int failures;              /* rows that failed */
  struct BenchModel *loaded; /* the model whose weights are on the device; NULL: none */
  size_t opened_bytes;       /* bytes that a new context holds before rows allocate any */
  FILE *json;
  double copy_rate, gemm_rate; /* measured peak bytes/s and FLOP/s of the device; 0: not measured */
  void *random_compute;        /* device, RANDOM_BYTES: values of mean 0 and variance 1 in the compute dtype */
  void *random_floats;         /* the same in fp32 */
  size_t random_bytes;
  StepState *state; /* a step in progress: lr, clip, inv_targets are set */
} Bench;

typedef struct BenchModel {
  const char *name;
  ModelConfig config;
  int batch;
  int position; /* position of a decoded token; 0: the middle of the context */
  bool usual;   /* timed by default, without --model */
  bool trains;  /* also needs gradients and moments */
  Model *model; /* NULL: not loaded */
} BenchModel;

/* The operands of an operation. Sets of arrays are used in turn, so that arrays that exceed the cache in training also
 * exceed it here. */
typedef struct Operands {
  int sets;
  bool warm; /* only one set, which may stay in the caches */
  void *array[MAX_SETS][MAX_ARRAYS];
  BenchModel *of;     /* NULL: none */
  const Model *model; /* of->model, set by bench_row() */
  Linear layer;
  int batch, length, rows; /* rows = batch * length if the operation has both */
  int width;               /* width of a row; its meaning depends on the case */
  bool flag;               /* Case.flag */
  Dropout dropout;         /* with the p of Case.dropout */
  Attention attention;
  Sequences sequences;
  KvCache *caches; /* [layers] */
} Operands;

typedef enum Fill {
  FILL_COMPUTE, /* random numbers in the compute dtype */
  FILL_FLOATS,  /* random numbers in fp32 */
  FILL_ZEROS,   /* zero bytes */
  FILL_TOKENS,  /* random token ids; all sets share the array */
  FILL_OFFSETS, /* the counting sort of the same ids, for embedding_backward: offsets, */
  FILL_SORTED   /* and positions */
} Fill;
typedef struct Need {
  Fill fill;
  int64_t count; /* elements; token ids for the last three kinds. 0: the array is NULL */
} Need;

typedef void BenchCall(Bench *b, const Operands *o, int set);

/* What several rows have in common. */
typedef struct Group {
  const char *name, *model; /* model: "-" without one */
  char shape[64];
} Group;

/* A row of the output. */
typedef struct Case {
  const char *operation;
  BenchCall *run;
  double bytes, flops; /* per call, by the operation's formula; 0 = not reported */
  Need needs[MAX_ARRAYS];
  float dropout; /* probability */
  bool flag;
  bool against_gemm;  /* efficiency relative to the GEMM rate, not the copy rate */
  bool direct;        /* cannot be recorded: each call is timed */
  BenchCall *prepare; /* called once for each set, before the timing; NULL: nothing */
  const char *note;
  /* set by bench_row() */
  const Group *group;
  Operands *operands;
} Case;

/* ---- measure.c ---- */

/* Opens b->c and fills its random arrays. */
bool bench_open(Bench *b, Error *error);
_Noreturn void bench_out_of_memory(void); /* prints an error and exits */

Group bench_group(const char *name, const char *model, const char *shape, ...) __attribute__((format(printf, 3, 4)));
/* Makes at most 16 sets of k.needs that together exceed the caches, times the case as a row and frees the sets. */
Quantiles bench_row(Bench *b, const Group *group, Operands *o, Case k);
void bench_rows(Bench *b, const Group *group, Operands *o, const Case *cases, size_t count);
/* Times one case whose operands exist, prints its row and writes it; every error becomes a row. Returns milliseconds
 * per call, or zeros. */
Quantiles bench_case(Bench *b, const Case *k);
/* Reports a row that was not timed, and the reason. */
void bench_skip(Bench *b, const Case *k, const char *why);
/* Writes one JSON line to --json FILE. */
void bench_json(Bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Opens a new context, for a row that reports its memory use. */
void bench_reopen(Bench *b);
size_t bench_peak_bytes(const Bench *b); /* peak memory of the rows in this context */
/* Returns false when the context has an error. Then it prints the error (unless `what` is NULL) and opens a new
 * context. */
bool bench_alive(Bench *b, const char *what);

/* Allocates device memory until bench_free(); NULL when it does not fit, which is no error. */
void *bench_array(Bench *b, Fill fill, int64_t count);
void bench_free(Bench *b);
int32_t *bench_ints(Bench *b, const int32_t *host, int64_t count);

/* ---- model.c ---- */

/* Changes the model by a text such as `layers=4,dim=128`. Other values stay, but there is one kv-head per head, heads
 * have dim / heads channels, and ffn is the default, unless given. Returns false when the text is wrong or the model is
 * invalid. */
bool bench_shape(BenchModel *m, const char *text);
/* Returns a model with the default ffn and one kv-head per head. */
BenchModel bench_model(const char *name, int layers, int heads, int dim, int ctx, int vocab, int batch);
/* Return memory of malloc(): initial weights; random token ids. */
float *bench_weights(const ParameterTable *table);
int32_t *bench_random_tokens(int64_t count, int vocab);

/* Loads the model with initial weights; again after an error has closed the context. */
bool bench_load(Bench *b, BenchModel *m);
void bench_unload(Bench *b, BenchModel *m);
const Sublayer *bench_sublayer(const Model *m, int layer, SublayerKind kind);
int bench_position(const BenchModel *m); /* position of a decoded token */

/* A call for rows: the linear layer o->layer of o->rows rows, from array 1 to array 0. */
void bench_call_linear(Bench *b, const Operands *o, int set);

/* ---- groups: rates.c, operations.c, decode.c, train.c ---- */

void bench_rates(Bench *b);
/* Measures upper limits of this device quickly: the rate of matrix products and, on a CPU, of reading the number of
 * bytes that each model reads per token. */
void bench_ceilings(Bench *b, BenchModel *const *models, int count);
void bench_elementwise(Bench *b, BenchModel *m);
void bench_gemm(Bench *b, BenchModel *m);
void bench_attention(Bench *b, BenchModel *m);
void bench_attention_sweep(Bench *b);
/* Times every operation of a decoded token and the whole token; or only the whole token. */
void bench_decode(Bench *b, BenchModel *m, int rows, bool token_alone);
/* Returns the bytes that are read and written when each of `rows` rows decodes one token. */
double bench_token_bytes(const Bench *b, const BenchModel *m, int rows);
void bench_train(Bench *b, BenchModel *m, bool dropout_too);

#endif
