/* Inside bench_kernels: timing and printing (bench_kernels.c), and the operations that are timed (bench_cases.c). */
#ifndef INKLING_BENCH_BENCH_H
#define INKLING_BENCH_BENCH_H

#include "kernels.h"
#include "model.h"

#include <stdio.h>

enum { MAX_SETS = 16, MAX_ARRAYS = 8 };

typedef struct Bench {
  const Backend *ops;
  Context *c;
  DType dtype;
  size_t dt; /* bytes of it */
  bool quick, accelerator, autotune;
  int head_rows; /* TrainConfig.head_rows */
  int batch;     /* of 124m */
  int failures;  /* rows that ended with an error */
  int opened;    /* contexts opened so far: device memory of an earlier one is gone */
  FILE *json;
  double copy_rate, gemm_rate; /* bytes/s and FLOP/s that the device reaches; 0 = not measured */
  void *random_compute;        /* device, RANDOM_BYTES: numbers of mean 0 and variance 1 in the compute dtype, and */
  void *random_floats;         /* in fp32 */
  size_t random_bytes;
  StepState *state; /* a step in progress: lr, clip, inv_targets are set */
} Bench;

typedef struct BenchModel {
  const char *name;
  ModelConfig config;
  int batch;
  bool trains; /* gradients and moments are needed, too */
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
  void *array[MAX_SETS][MAX_ARRAYS];
  BenchModel *model;
  Matrix w;
  int batch, length, rows; /* rows = batch * length where the operation has both */
  int width;               /* of a row; what it means, the case knows */
  bool flag;
  Dropout dropout;
  Attention attention;
  Sequences sequences;
  KvCache *caches; /* [layers] */
  Sampling sampling;
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

/* Times one case and prints and writes its row; every error becomes a row. Returns milliseconds a call, or 0. */
double bench_case(Bench *b, const Case *k);
/* A row that was not timed, and why. */
void bench_skip(Bench *b, const Case *k, const char *why);
/* One JSON line to --json FILE. */
void bench_json(Bench *b, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Where the context holds an error it is printed (unless `what` is NULL) and a new context is opened. False when there
 * was one. */
bool bench_alive(Bench *b, const char *what);

/* Device memory until bench_free(); NULL when it does not fit, which is no error. */
void *bench_array(Bench *b, Fill fill, int64_t count);
void bench_free(Bench *b);
/* Makes as many sets of `needs` as it takes to be larger than the caches, 16 at most. */
bool bench_sets(Bench *b, Operands *o, const Need *needs, int count);
int32_t *bench_ints(Bench *b, const int32_t *host, int64_t count);

float small_number(size_t i);                     /* an initial weight */
int32_t *random_tokens(int64_t count, int vocab); /* malloc */
void *out_of_memory(void);                        /* says so and ends the program */

/* bench_cases.c, bench_train.c */
void rate_rows(Bench *b);
void elementwise_rows(Bench *b, BenchModel *m);
void gemm_rows(Bench *b, BenchModel *m);
void attention_rows(Bench *b, BenchModel *m);
void attention_sweep(Bench *b);
void decode_rows(Bench *b, BenchModel *m, int rows);
void train_rows(Bench *b, BenchModel *m);
void model_free(Bench *b, BenchModel *m);

#endif
