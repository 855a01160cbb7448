/* The interface between the model and the devices that it runs on.
 * model.c uses one table of operations, `Backend`, and knows nothing else about a device. Each function of the table is
 * one fused operation; its comment gives its formula, shapes, dtypes, inputs and outputs. The CPU's `linear` is
 * CPU(linear)() in src/kernels/cpu/ (cpu.h explains the macro), the GPU's is cuda_linear() in src/kernels/cuda/ or
 * kernels.cu.
 * Dimensions   B sequences, T positions, N = B*T rows, C model width, H query heads, G key/value heads, D head size,
 *              F feed-forward width, V vocabulary, P padded vocabulary. All arrays are row-major; strides and offsets
 *              count elements, never bytes.
 * Dtypes       `dt` is the compute dtype of the context (Context is opened for one): activations, their gradients, the
 *              weights that GEMMs and the embedding read. They are passed as `void *`. Norm weights, gradients of
 *              parameters, master weights, moments, log-sum-exp, 1/rms and losses are fp32.
 * Pointers     are device pointers unless marked "host". Outputs come first, then inputs; an output never overlaps an
 *              input unless its comment says "in place".
 * Alignment    where ContextInfo.width_multiple is not 1: C, F, D and the strides of views and of logits are multiples
 *              of it, and arrays in dt, matrices, norm weights and the rotary table start at multiples of 16 bytes
 *              (alloc() gives 256). An operation with other arguments does nothing and reports EXIT_INTERNAL.
 * Errors       operations return nothing. The context keeps the first error (with the name of the tensor or operation)
 *              and poll() returns it; later operations do nothing.
 * Steps        a step function passed to submit() has no branch that depends on device data. Values that change from
 *              step to step (learning rate, step number, clip coefficient, random stream) are on the device in
 *              StepState, so a backend may run it once, capture its launches as a graph the second time and replay that
 *              later. Descriptors (Dropout, Attention, Rope, View ...) are read before a call returns; a captured
 *              graph holds their numbers and pointers. Only the first run may allocate scratch space.
 * Rounding     a value that is stored in dt and used further, in the same operation or a later one, is used as stored.
 * Bits         the same seed, machine, instruction set, threads and build give the same bits. Reductions have a fixed
 *              order; there are no floating-point atomics. */
#ifndef INKLING_KERNELS_H
#define INKLING_KERNELS_H

#include "base/collective/collective.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum DType { DTYPE_F32, DTYPE_BF16, DTYPE_I8 /* only for weights */, DTYPES } DType;
static inline size_t dtype_bytes(DType t) { return t == DTYPE_F32 ? 4 : t == DTYPE_BF16 ? 2 : 1; }
static inline const char *dtype_name(DType t) { return t == DTYPE_F32 ? "f32" : t == DTYPE_BF16 ? "bf16" : "int8"; }

enum { IGNORE_INDEX = -100 };   /* a target that the loss ignores */
enum { HEAD_DIM_LIMIT = 256 };  /* no backend supports larger attention heads */
enum { TENSOR_ALIGNMENT = 64 }; /* elements: groups of parameters start at multiples of 256 bytes of fp32 */

/* ---- device-resident state ---- */

/* The state that the operations of a training step share. The device holds one copy; evaluation has its own. */
typedef struct StepState {
  int64_t step;       /* optimizer steps done; the step in progress is step + 1 */
  double loss_sum;    /* sum of the losses of all rows since step_begin, in row order */
  int64_t loss_count; /* rows in loss_sum whose target is not ignored */
  int32_t sequence;   /* number, within the step, of the first sequence of the current micro-batch */
  int32_t halted;     /* sticky: a loss or gradient norm was not finite; every later update is a no-op */
  float lr;           /* of the step in progress */
  float inv_targets;  /* 1 / targets that are not ignored, over all micro-batches; 0 when there are none */
  float loss;         /* loss_sum * inv_targets, set by clip() */
  float grad_norm;    /* global L2 norm before clipping, set by clip() */
  float clip;         /* factor on every gradient, set by clip() */
  float bias1, bias2; /* 1 - beta1^t, 1 - beta2^t, set by clip() */
} StepState;

/* The state at the end of a step, and when it began and ended: nanoseconds on a clock of the device that never stops. */
typedef struct StepReport {
  StepState state;
  int64_t began, ended; /* times of step_begin() and report() */
} StepReport;

/* A tensor, or a group of tensors that one GEMM multiplies, in the parameter arenas. */
typedef struct Matrix {
  size_t offset; /* of its first element in every arena; a multiple of TENSOR_ALIGNMENT */
  int rows;      /* outputs, pads included */
  int cols;      /* inputs; 1-D norm weights have rows = 1 */
} Matrix;

/* y = x W^T + b, W [M][K] and b [1][M]; bias.rows 0: no bias. Operations read both in dt. */
typedef struct Linear {
  Matrix weight, bias;
} Linear;

typedef enum UpdateRule { UPDATE_ADAMW, UPDATE_MUON } UpdateRule;

/* A contiguous part of the arena whose parameters share the same optimizer settings. */
typedef struct ParameterGroup {
  Matrix matrix;
  bool decay; /* decoupled weight decay applies (matrices) or not (norm weights, biases) */
  bool gemm;  /* GEMMs, their epilogues or the embedding read it, so the backend keeps a compute copy */
  UpdateRule rule;
  size_t vector; /* not `gemm`: offset of its first element in Parameters.vectors; a multiple of TENSOR_ALIGNMENT */
} ParameterGroup;

/* Elements first .. first + count of an UPDATE_ADAMW group; this process updates them. */
typedef struct AdamwRun {
  int group;
  size_t first, count;       /* multiples of TENSOR_ALIGNMENT; `count` may be any number at the end of a group */
  size_t m_offset, v_offset; /* of the first element in `m` and `v`; multiples of TENSOR_ALIGNMENT */
} AdamwRun;

/* A matrix that Muon updates separately. An UPDATE_MUON group holds one or more of them, stacked by rows. */
typedef struct MuonMatrix {
  size_t offset; /* of its first element in the arenas of weights and gradients */
  int rows, cols;
  int group;       /* its number in Parameters.groups */
  size_t m_offset; /* of its first element in `m` */
} MuonMatrix;

/* All parameters of a model. Weights, gradients and moments are one flat arena each. Pads are zero in every arena. */
typedef struct Parameters {
  size_t count;   /* elements of weights and gradients, pads included */
  float *master;  /* [count] fp32 weights, in checkpoint order; with `vectors` only those that this process updates, at
                     the offsets of their first moments */
  float *vectors; /* [vector_count] fp32 weights of the groups that no GEMM reads; NULL: they are in `master` */
  size_t vector_count; /* pads included */
  float *grad;         /* [count] fp32 gradients; NULL when the model is only read */
  float *m, *v;        /* fp32 first and second moments of what this process updates, or NULL; Muon has no v */
  void *backend_data;  /* private to the backend: refresh_parameters() makes it, release_parameters() frees it */
  void *compute;       /* the copy that GEMMs read, in the backend's own layout; f32: may be `master` */
  const ParameterGroup *groups; /* host, [group_count], ascending offsets, covering everything but alignment pads */
  int group_count;
  /* host: the parameters that this process updates, ascending; all of them when it trains alone */
  const AdamwRun *runs;
  int run_count;
  const MuonMatrix *muon;
  int muon_count;
  /* With ContextOptions.peers: the owner of every gradient, without pads. */
  const Span *spans;
  int span_count;
} Parameters;

/* ---- descriptors of operations (host) ---- */

/* Elements of the copy that GEMMs read, `count` from `offset` on, which the next operations need. */
typedef struct Upcoming {
  const Parameters *params;
  size_t offset, count;
} Upcoming;

/* A [batch][row][head][D] array with any strides; the D elements of a head are contiguous. Packed QKV, a KV cache and
 * plain [N][H*D] are all views. */
typedef struct View {
  void *data;
  int64_t batch, row, head;
} View;

/* Inverted dropout: it keeps an element with probability 1 - p and scales it by 1 / (1 - p). Operations recompute masks
 * and never store them. Element e of sequence s (numbered within the whole step, so that the micro-batch size does not
 * change the mask) uses philox(seed, e / 4, site, step, s).word[e % 4] and is kept when word >= round(p * 2^32).
 * Attention probabilities use 16-bit lanes, see attention(). */
typedef struct Dropout {
  float p; /* [0, 1) */
  uint32_t site;
  uint64_t seed;
  const StepState *state; /* step (the one in progress: state->step + 1) and first sequence */
} Dropout;
static inline bool dropout_active(const Dropout *dropout) { return dropout && dropout->p > 0.0f; }
/* round(p * 2^bits), limited to `bits` bits: for p near 1 it would be 2^bits. */
static inline uint32_t dropout_threshold(float p, int bits) {
  const double most = (double)(UINT32_MAX >> (32 - bits)), threshold = (double)p * (most + 1) + 0.5;
  return (uint32_t)(threshold < most ? threshold : most);
}

#define PLUS_ONE(...) +1 /* counts the rows of a table */

#define NORMS(X) /* name in options and files; in text */                                                              \
  X(RMS, "rms", "RMSNorm")                                                                                             \
  X(LAYER, "layer", "LayerNorm")
#define NORM_ID(id, ...) NORM_##id,
typedef enum NormKind { NORMS(NORM_ID) } NormKind;
enum { NORM_KINDS = NORMS(PLUS_ONE) };
static inline bool norm_has_mean(NormKind kind) { return kind == NORM_LAYER; }
static inline bool norm_has_bias(NormKind kind) { return kind == NORM_LAYER; }

/* y = weight * (x - mean) * rstd + bias,  rstd = (mean((x - mean)^2) + eps)^(-1/2). NORM_RMS (Zhang & Sennrich 2019):
 * with 0 in place of mean, and no bias. NORM_LAYER (Ba et al. 2016): with the mean of the row and the biased
 * variance. */
typedef struct Norm {
  NormKind kind;
  const float *weight, *bias; /* fp32 [C]; NORM_RMS: bias is NULL */
  float eps;
} Norm;

/* Statistics of the forward pass that the backward pass needs, fp32 [N]; NORM_RMS: mean is NULL. */
typedef struct NormStats {
  float *mean, *rstd;
} NormStats;

typedef struct NormGradient {
  float *weight, *bias; /* fp32 [C]; NORM_RMS: bias is NULL */
} NormGradient;

/* SiLU: u * sigmoid(u). GELU (Hendrycks & Gimpel 2016): u * Phi(u) with Phi(u) = (1 + erf(u / sqrt 2)) / 2, or with
 * Phi(u) = sigmoid(2k (u + 0.044715 u^3)), k = sqrt(2 / pi) (GELU_TANH). ReLU: its derivative at 0 is 0. */
#define ACTIVATIONS(X) /* name in options and files; in text, plain and gated */                                       \
  X(SILU, "silu", "SiLU", "SwiGLU")                                                                                    \
  X(GELU, "gelu", "GELU", "GEGLU")                                                                                     \
  X(GELU_TANH, "gelu-tanh", "GELU (tanh)", "GEGLU (tanh)")                                                             \
  X(RELU, "relu", "ReLU", "ReGLU")
#define ACTIVATION_ID(id, ...) ACTIVATION_##id,
typedef enum Activation { ACTIVATIONS(ACTIVATION_ID) } Activation;
enum { ACTIVATION_KINDS = ACTIVATIONS(PLUS_ONE) };

/* The activation after the first product of an MLP with F hidden activations: h = act(u), u [N][F]; `gated` (Shazeer
 * 2020): h = act(gate) * up, u [N][2F], gate first, then up. */
typedef struct MlpShape {
  Activation activation;
  bool gated;
  int ffn;
} MlpShape;
static inline int mlp_width(const MlpShape *mlp) { return mlp->gated ? 2 * mlp->ffn : mlp->ffn; } /* of u */

/* out = table[token] + position_embedding[position]. */
typedef struct Embedding {
  Matrix table;              /* [V][C] */
  Matrix position_embedding; /* [positions][C]; rows 0: none is added */
  const int32_t *positions;  /* int32 [B][T]; NULL means 0..T-1 in every sequence */
} Embedding;

/* Rotary positions, rotate-half (Su et al. 2021; the pairs are (i, i + D/2)): angle = position * base^(-2i/D).
 * table: fp32 [positions][D/2][2] = {cos, sin}. positions: int32 [B][T]; NULL means 0..T-1 in every sequence. With
 * `dims` only the first R numbers of a head are rotated, as if they were a head of R; R is even. */
typedef struct Rope {
  const float *table;
  const int32_t *positions;
  int dims; /* R; 0: the whole head */
} Rope;

/* Returns the number of rotated numbers of a head. */
static inline int rope_dims(const Rope *rope, int head_dim) { return rope->dims ? rope->dims : head_dim; }

/* RMSNorm of the heads of queries and keys (Henry et al. 2020), before the rotation. */
typedef struct HeadNorm {
  const float *weight; /* fp32 [2][D]: of queries, of keys */
  float eps;
  int heads, kv_heads, head_dim;
} HeadNorm;

/* Gated causal short convolution (LFM2, Liquid AI 2025) of C channels, with gates b and c and input x:  z = b * x;
 * s[t] = kernel[0]*z[t-2] + kernel[1]*z[t-1] + kernel[2]*z[t], without terms before the beginning of the text;
 * y = c * s. */
enum { CONVOLUTION_TAPS = 3 };
typedef struct Convolution {
  const float *kernel;      /* fp32 [C][CONVOLUTION_TAPS] */
  int dim;                  /* C */
  const int32_t *positions; /* int32 [B][T]: the rows before row n of its sequence that belong to its text, so at most
                               n % T; NULL means 0..T-1 in every sequence */
} Convolution;

typedef struct Attention {
  int batch, heads, kv_heads, head_dim; /* heads is a multiple of kv_heads; query head h reads kv head h*G/H */
  int queries, keys;                    /* Tq, Tk */
  float scale;                          /* on Q K^T, positive, usually 1/sqrt(D) */
  bool causal;                          /* query i attends to key j only if j <= i */
  const int32_t *key_begin, *key_end;   /* [B][Tq]: key_begin <= j < key_end; NULL = 0 and Tk */
  const Dropout *dropout;               /* on the probabilities; NULL = none */
} Attention;

typedef struct AdamW {
  float beta1, beta2, eps, weight_decay;
} AdamW;

typedef struct Muon {
  float lr_factor; /* Muon's learning rate is this times StepState.lr */
  float momentum, weight_decay;
} Muon;

/* Newton-Schulz iteration towards the nearest matrix with orthogonal rows or columns (Jordan et al. 2024): X = a X + (b
 * G + c G^2) X with G = X X^T, repeated MUON_STEPS times, moves singular values of X from at most 1 to about 1. */
#define MUON_A 3.4445f
#define MUON_B (-4.7750f)
#define MUON_C 2.0315f
#define MUON_EPS 1e-7f /* a gradient with a smaller norm is divided by this */
enum { MUON_STEPS = 5 };
/* A GPU updates every second shape of matrices beside the others, with as much scratch space again, up to this many
 * bytes. */
enum { MUON_BESIDE = 64 << 20 };

/* The key/value cache of one layer, [slots][G][capacity][D] dt each; it stores rotated keys. */
typedef struct KvCache {
  void *k, *v;
  int capacity;
  int kv_heads, head_dim;
} KvCache;

/* What the convolution of one layer keeps of a sequence: z at the last positions, z[p] at
 * [slot][p % CONVOLUTION_TAPS][C] dt. With room for z of the position itself, a token can be decoded a second time. */
typedef struct ConvolutionState {
  void *z;
  int64_t slot; /* elements from one slot to the next */
} ConvolutionState;

/* Sampling settings. sample() applies bias, penalties, top-k, top-p, min-p and temperature in this order and then
 * draws. Ties: the lower id wins. Penalties apply to the tokens among the last `repeat_last_n`, in the order of the
 * fields. */
typedef struct Sampling {
  float repeat_penalty;    /* 1 = off; positive logits are divided by it, negative ones multiplied */
  int repeat_last_n;       /* length of the window in tokens, at most the ring's capacity; <= 0 = none */
  float presence_penalty;  /* 0 = off; subtracted from the logit once */
  float frequency_penalty; /* 0 = off; subtracted once per occurrence of the token, one by one in fp32 */
  int top_k;               /* <= 0 = off */
  float top_p;             /* >= 1 = off; keeps the smallest set, by descending probability, whose sum reaches top_p */
  float min_p;             /* <= 0 = off; keeps probabilities of at least min_p times the largest */
  float temperature;       /* 0 = the largest logit */
  uint64_t seed;
} Sampling;

/* Biases that are added to the logits of some tokens: row r has counts[r] of them, starting at [r][0]. A token may
 * appear once; ids outside of the vocabulary are ignored. -INFINITY masks a token. */
typedef struct LogitBias {
  int32_t *counts; /* [rows]; NULL: none */
  int32_t *tokens; /* [rows][capacity] */
  float *values;   /* [rows][capacity] */
  int capacity;    /* host */
} LogitBias;

/* The sequences being generated. Row r of a decoding operation works on sequence r. A row's result depends only on that
 * sequence, not on the number of rows, on r or on the number of threads. */
typedef struct Sequences {
  int rows;           /* host */
  int capacity;       /* host: tokens kept of each sequence */
  int32_t *tokens;    /* [rows][capacity] ring: token i of row r, prompt first, is at [r][i % capacity] */
  int32_t *lengths;   /* [rows] tokens read and written so far; the token to decode is number lengths[r] - 1 */
  int32_t *positions; /* [rows] cache position of that token */
  int32_t *streams;   /* [rows] number of the sample, a key of its random numbers */
  int32_t *status;    /* [rows] SEQUENCE_ */
  int32_t *drawn;     /* [rows][2] the last tokens that sample() drew, number i at [r][i % 2]; -1 where the row is
                         SEQUENCE_NONFINITE */
  Sampling *sampling; /* [rows] */
  LogitBias bias;
} Sequences;
enum { SEQUENCE_OK = 0, SEQUENCE_NONFINITE = 1 };

/* ---- the table ---- */

typedef struct Context Context; /* a device, its memory, its streams; one host thread at a time */

typedef struct ContextOptions {
  DType dtype;
  DType weights;     /* CPU: a narrower dtype for read-only weights; refresh_parameters() rounds its copy. DTYPE_F32 =
                         as dtype; others need dtype f32 */
  int threads;       /* CPU: 0 = as many as the process may use */
  Collective *peers; /* processes that train the same model, each with a part of every step's sequences; NULL = none.
                         All of them call the operations that are marked "all processes", in the same order */
} ContextOptions;

typedef struct ContextInfo {
  char device[128];                    /* for people: "CPU, 2 threads, AVX-512" */
  DType dtype, weights;                /* as ContextOptions */
  bool accelerator;                    /* its memory is not the host's */
  bool direct;                         /* GPUs of several processes exchange data without their hosts */
  bool crowded;                        /* several processes share one GPU, so `direct` is false */
  bool copies;                         /* with Parameters.vectors only updates read the master weights */
  int threads, vector_bits;            /* for a CPU; 0 on a GPU */
  size_t bytes;                        /* allocated now */
  size_t peak_bytes;                   /* the most that was allocated */
  size_t free_bytes;                   /* bytes that could still be allocated */
  size_t own_bytes;                    /* that training will still allocate for the backend itself: workspaces, sums */
  size_t total_bytes;                  /* what a program may use of a GPU's memory; 0 for a CPU */
  char limit[96];                      /* the limit of the process that bounds free_bytes: "this process may use 1.9
                                          GiB (ulimit -v)"; "": only the device's memory bounds it */
  int head_dim_multiple, head_dim_max; /* supported sizes of attention heads */
  int width_multiple;                  /* C and F are multiples of this: see Alignment above */
  int dim_max;                         /* C is at most this */
} ContextInfo;

typedef struct CapturedGraph CapturedGraph; /* private to a backend; the CPU has none */
enum { REPORT_RING = 64 };

typedef void (*StepFunction)(Context *c, void *argument);

typedef struct Backend {
  const char *name; /* "cpu", "cuda" */
  const char *isa;  /* for a CPU: the instruction set that it uses, "v3"; NULL on a GPU */
  unsigned dtypes;  /* bit t: it computes in DType t */

  /* -- context -- */
  /* Opens a context. False with EXIT_USAGE (dtype or device not available; the message names the available ones) or
   * EXIT_MEMORY. */
  bool (*open)(Context **out, const ContextOptions *options, Error *error);
  void (*close)(Context *c); /* frees everything the context has allocated; NULL is allowed */
  void (*info)(Context *c, ContextInfo *out);
  /* Measures the dense multiply-add rate of the compute dtype in FLOP/s, the "speed of light" of the progress line.
   * Too low after an error, which poll() returns. */
  double (*peak_flops)(Context *c);
  /* Forgets how GEMMs were computed. Those that `choices` has (tuning() of any context, or NULL) use its algorithms;
   * others use the fastest that is measured at their first use, if `measure`, or the first one of the library. */
  void (*tune)(Context *c, const char *choices, bool measure);
  /* Returns the choices that were used since tune(), as lines of text that the caller frees. They are valid on the same
   * kind of device with the same library, which the first line names, and ignored elsewhere. NULL: this backend has
   * nothing to choose, or memory is out. */
  char *(*tuning)(Context *c);

  /* -- memory -- */
  /* Allocates zeroed, 256-byte aligned memory. NULL and a sticky EXIT_MEMORY error with `name` and the size when it
   * does not fit. */
  void *(*alloc)(Context *c, const char *name, size_t bytes);
  /* Like alloc(), but the host may also read the memory, directly, after wait(). For a few numbers. */
  void *(*alloc_shared)(Context *c, const char *name, size_t bytes);
  void (*release)(Context *c, void *memory); /* of either alloc; NULL is allowed */
  /* Copies to the device. It may return before the copy is done, but has read `host` by then. */
  void (*upload)(Context *c, void *device, const void *host, size_t bytes);
  void (*download)(Context *c, void *host, const void *device, size_t bytes); /* waits for all work before it */
  void (*copy)(Context *c, void *device_to, const void *device_from, size_t bytes);
  /* Makes params->compute and backend_data from the master weights and groups; called after every upload of them. With
   * params->vectors the caller uploads all weights into params->grad; this function also makes vectors and masters from
   * them and sets params->grad to zero. A CPU also allocates the memory that the update needs. */
  void (*refresh_parameters)(Context *c, Parameters *params);
  void (*release_parameters)(Context *c, Parameters *params); /* frees what refresh_parameters() made */

  /* -- steps -- */
  /* Runs step(c, argument). Every run with the same slot performs the same operations on the same pointers with the
   * same descriptors, so a backend may store a captured graph there (*slot is NULL before the first run). */
  void (*submit)(Context *c, CapturedGraph **slot, StepFunction step, void *argument);
  /* Later operations wait for the calls of linear_backward_weight() so far, except the last `running` ones, 0 or 1.
   * With 0 the gradients of all parameters are complete. submit() ends and download() begins with join(c, 0). */
  void (*join)(Context *c, int running);
  void (*mark)(Context *c); /* for wait() */
  void (*wait)(Context *c); /* waits for the work before the last mark, and for none after it */
  /* Drops the captured graph; called before anything in it changes or is released. *slot becomes NULL. */
  void (*drop)(Context *c, CapturedGraph **slot);
  /* Adds the state to the ring of REPORT_RING reports (an operation like any other, last in a step). */
  void (*report)(Context *c, const StepState *state);
  /* Takes up to `capacity` finished reports out of the ring, oldest first. With `wait` it waits for all submitted work,
   * otherwise only while more than REPORT_RING / 8 reported steps are unfinished, so that the host never runs far
   * ahead. Returns the number taken, or -1 with the context's first error in `error`. A caller that does not poll once
   * in REPORT_RING steps loses the oldest. */
  int (*poll)(Context *c, StepReport *out /* host */, int capacity, bool wait, Error *error);

  /* Sets lr = lr_table[step + 1]; inv_targets = 1 / *targets or 0, *targets summed over all processes unless NULL;
   * loss_sum, loss_count, sequence = 0.
   * lr_table: [steps + 1] fp32; targets: one int32. Both NULL in evaluation. */
  void (*step_begin)(Context *c, StepState *state, const float *lr_table, const int32_t *targets);
  void (*next_micro_batch)(Context *c, StepState *state, int sequences); /* sequence += sequences */

  /* -- embedding -- */
  /* out[n] = dropout(table[tokens[n]] + position_embedding[position of n]).  out [B*T][C] dt, tokens int32 [B*T];
   * dropout element = t*C + c. */
  void (*embedding)(Context *c, void *out, const Parameters *params, const Embedding *e, const int32_t *tokens,
                    int batch, int length, const Dropout *dropout);
  /* dtable[v] (+)= sum over the rows n with token v, in rising n, of dropout(dx[n]).  dx [B*T][C] dt. The rows of token
   * v are order[offsets[v] .. offsets[v+1]): offsets int32 [V+1], order int32 [B*T] (a counting sort, made before the
   * tokens are uploaded). Without `accumulate` rows of absent tokens and pads become zero. Called with positions in
   * place of tokens, it computes the gradient of the position embedding. */
  void (*embedding_backward)(Context *c, const Parameters *params, Matrix table, const void *dx, const int32_t *offsets,
                             const int32_t *order, int vocab, int batch, int length, const Dropout *dropout,
                             bool accumulate);

  /* -- residual add + norm -- */
  /* x_out = x_in + dropout(branch);  y = norm(x_out), which stores its mean and rstd in stats.
   * x_out, y, x_in, branch [B*T][C] dt; branch NULL: x_out is not written and x_in is normalized. */
  void (*residual_norm)(Context *c, void *x_out, void *y, NormStats stats, const void *x_in, const void *branch,
                        const Norm *norm, int batch, int length, int dim, const Dropout *dropout);
  /* With xh = (x - mean)*rstd, g = weight*dy:  dx = dres + rstd * (g - mean(g) - xh * mean(g*xh)), NORM_RMS without
   * mean(g);  dbranch = dropout(dx);  dweight (+)= sum over rows of dy*xh;  dbias (+)= sum over rows of dy.
   * x is what was normalized (x_out above). dres NULL: zero; dx may be dres or dy (in place). dbranch NULL: not written
   * (without dropout it would equal dx). */
  void (*residual_norm_backward)(Context *c, void *dx, void *dbranch, NormGradient gradient, const void *dy,
                                 const void *dres, const void *x, NormStats stats, const Norm *norm, int batch,
                                 int length, int dim, const Dropout *dropout, bool accumulate);

  /* x_out = x_in + dropout(y).  [B*T][C] dt; x_out may be x_in or y; x_in NULL: zero. */
  void (*residual_add)(Context *c, void *x_out, const void *x_in, const void *y, int batch, int length, int dim,
                       const Dropout *dropout);

  /* -- GEMM; W, b = the backend's compute copies of `layer`, W [M][K] -- */
  /* y[N][M] = x[N][K] W^T + b.  y, x dt. */
  void (*linear)(Context *c, void *y, const void *x, const Parameters *params, Linear layer, int rows);
  /* dx[N][K] (+)= dy[N][M] W. */
  void (*linear_backward_input)(Context *c, void *dx, const void *dy, const Parameters *params, Linear layer, int rows,
                                bool accumulate);
  /* Gradients: of W, fp32 [M][K] (+)= dy^T x; of b, fp32 [M] (+)= the sum of the rows of dy. It may run beside later
   * operations, until join(): dy and x must not change meanwhile. */
  void (*linear_backward_weight)(Context *c, const Parameters *params, Linear layer, const void *dy, const void *x,
                                 int rows, bool accumulate);

  /* -- attention -- */
  /* Rotates `heads` heads of x [B][T] in place. Queries and keys of packed QKV are adjacent, so one call rotates
   * both. */
  void (*rope)(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope);
  /* out = rope(weight * x * rstd), rstd = (mean(x^2) + eps)^(-1/2), for every head x of queries and keys.
   * qkv [B*T][H + 2G][D], out [B*T][H + G][D] dt; rstd fp32 [B*T][H + G]; rope NULL: not rotated. */
  void (*head_norm)(Context *c, void *out, float *rstd, const void *qkv, const HeadNorm *norm, int batch, int length,
                    const Rope *rope);
  /* In the queries and keys of dqkv, in place: from dy, the gradient of the output before its rotation, with xh =
   * x*rstd, g = weight*dy:  dx = rstd * (g - xh * mean(g*xh));  dweight fp32 [2][D] (+)= sum over rows and heads of
   * dy*xh.  dqkv, qkv [B*T][H + 2G][D] dt; rstd of head_norm(). */
  void (*head_norm_backward)(Context *c, void *dqkv, float *dweight, const void *qkv, const float *rstd,
                             const HeadNorm *norm, int rows, bool accumulate);
  /* S = scale * Q K^T where visible;  lse = log sum exp S;  P = exp(S - lse);  out = dropout(P) V.
   * out, q [B][Tq][H], k, v [B][Tk][G] dt; lse fp32 [B][H][Tq] or NULL. A query without a visible key gives out = 0,
   * lse = -inf.
   * Dropout of P[b][h][i][j], s the number of sequence b: words = philox(seed, ((h*Tq + i)*ceil(Tk/32) + j/32)*4
   * + (j%8)/2, site, step, s); 16-bit lane 2*((j%32)/8) + j%2 of them (low half of a word first); kept when lane >=
   * round(p * 2^16). */
  void (*attention)(Context *c, const Attention *a, View out, View q, View k, View v, float *lse);
  /* delta_i = sum_d dout*out;  dV = dropout(P)^T dout;  dS = P * (dropout(dout V^T) - delta);  dQ = scale * dS K;
   * dK = scale * dS^T Q; dK, dV sum over the query heads of a group. P is recomputed from lse. `rope`
   * not NULL: dQ and dK are rotated back, so that they are gradients of the unrotated projections. dq, dk, dv are
   * written, not accumulated. */
  void (*attention_backward)(Context *c, const Attention *a, View dq, View dk, View dv, View dout, View q, View k,
                             View v, View out, const float *lse, const Rope *rope);
  /* map = P, 0 where not visible: each row sums to 1, or to 0 where the query has no visible key. map fp32
   * [B][H][Tq][Tk]; q, k and lse (not NULL) as in attention(); a->dropout is not applied. For inspection; not optimized
   * for speed. */
  void (*attention_map)(Context *c, const Attention *a, float *map, View q, View k, const float *lse);

  /* -- convolution -- */
  /* y of struct Convolution.  bcx [B*T][3C]: b, c, x; y [B*T][C] dt. */
  void (*convolution)(Context *c, void *y, const void *bcx, const Convolution *v, int batch, int length);
  /* ds = dy*c;  dz[t] = kernel[2]*ds[t] + kernel[1]*ds[t+1] + kernel[0]*ds[t+2], without terms after the end of the
   * text;  db = dz*x, dc = dy*s, dx = dz*b;  dkernel[i] fp32 [C][CONVOLUTION_TAPS] (+)= sum over rows of
   * ds[t] * z[t-2+i].  dbcx, bcx [B*T][3C], dy [B*T][C] dt. */
  void (*convolution_backward)(Context *c, void *dbcx, float *dkernel, const void *dy, const void *bcx,
                               const Convolution *v, int batch, int length, bool accumulate);

  /* -- MLP -- */
  /* h = dropout(act(u)), gated: dropout(act(gate) * up).  u [B*T][F] or [B*T][2F], h [B*T][F] dt; dropout element =
   * t*F + f. */
  void (*activation)(Context *c, void *h, const void *u, const MlpShape *mlp, int batch, int length,
                     const Dropout *dropout);
  /* With d = dropout(dh):  du = d * act'(u), gated: dgate = d * up * act'(gate), dup = d * act(gate).  du may be u (in
   * place). */
  void (*activation_backward)(Context *c, void *du, const void *dh, const void *u, const MlpShape *mlp, int batch,
                              int length, const Dropout *dropout);

  /* -- loss -- */
  /* For each row with target y >= 0:  loss = lse - (1-s)*z_y - (s/V)*sum_{k<V} z_k; other rows: 0.
   * logits [N][stride] dt; with `gradient` they become in place dz_k = inv_targets * (p_k - (1-s)*[k=y] - s/V) for k <
   * V and 0 for V <= k < stride and for ignored rows. losses fp32 [N]. Equals
   * torch.nn.CrossEntropyLoss(label_smoothing, ignore_index). */
  void (*cross_entropy)(Context *c, float *losses, void *logits, int64_t stride, const int32_t *targets, int rows,
                        int vocab, float smoothing, const StepState *state, bool gradient);
  /* Changes dlogits, the dz of cross_entropy() with the same smoothing s, to the gradient of
   * (1-w) * loss + w * KL(t || p) with t = softmax(teacher) and w = weight, 0 to 1 (Hinton et al. 2015):
   * dz_k += w * inv_targets * ((1-s)*[k=y] + s/V - t_k) for k < V; rows without a loss do not change. dlogits, teacher
   * [N][stride] dt; teacher is undefined afterwards. */
  void (*distill)(Context *c, void *dlogits, void *teacher, int64_t stride, const int32_t *targets, int rows, int vocab,
                  float smoothing, float weight, const StepState *state);
  /* loss_sum += losses in row order (fp64); loss_count += targets that are not ignored. */
  void (*loss_sum)(Context *c, StepState *state, const float *losses, const int32_t *targets, int rows);

  /* -- optimizer -- */
  /* All processes: finishes the reductions of peers_reduce(); sums loss_sum, loss_count and the squares of the
   * gradients that each process owns. Then  t = step + 1;  grad_norm = L2 norm of all gradients;  clip = max_norm > 0 ?
   * min(1, max_norm / (grad_norm + 1e-6)) : 1; bias1 = 1 - beta1^t, bias2 likewise; loss = loss_sum * inv_targets;
   * halted |= loss or grad_norm not finite. */
  void (*clip)(Context *c, StepState *state, const Parameters *params, float max_norm, const AdamW *adamw);
  /* Unless halted, for every matrix [rows][cols] in params->muon (Jordan et al. 2024), with mu = momentum and
   * rate = lr_factor * lr:  g = clip*grad;  m = mu*m + (1-mu)*g;  u = mu*m + (1-mu)*g (Nesterov);
   * X = u / max(|u|, MUON_EPS), MUON_STEPS times X = MUON_A*X + (MUON_B*G + MUON_C*G^2) X with G = X X^T;
   * w = w*(1 - rate*wd) - rate * sqrt(max(1, rows/cols)) * X; the compute copy follows. Where rows > cols, X G with G =
   * X^T X gives the same result and G is smaller. X and G are dt on a GPU, fp32 on a CPU. Before adamw(). */
  void (*muon)(Context *c, const StepState *state, const Parameters *params, const Muon *muon);
  /* Unless halted, in the runs of AdamW: g = clip*grad;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
   * w = w*(1 - lr*wd) - lr * (m/bias1) / (sqrt(v/bias2) + eps), wd only in groups that decay; the compute copy is
   * rewritten in the same pass; then step += 1, even without AdamW groups. */
  void (*adamw)(Context *c, StepState *state, const Parameters *params, const AdamW *adamw);

  /* -- all processes; a single process does nothing here -- */
  /* Sums the gradients of params->spans[first .. first + count) over the ranks and gives the owner of each span the
   * result. The order is that of the ranks; through NCCL it is NCCL's own. It may run concurrently with later
   * operations, until clip(); the spans' gradients must be complete and must not change meanwhile. */
  void (*peers_reduce)(Context *c, const Parameters *params, int first, int count);
  /* Gives all processes the owners' spans: gradients, or weights, with an update of the compute copy. With
   * params->vectors it distributes vectors and the compute copy in place of the weights, and overwrites gradients. */
  void (*peers_gather)(Context *c, const Parameters *params, bool gradients);
  /* Copies rank 0's device memory into the device memory of all processes. */
  void (*peers_broadcast)(Context *c, void *device, size_t bytes);
  /* Copy spans between an array on rank 0's host, at Span.offset (`host` is NULL on other ranks), and device arrays of
   * the owners, at Span.own. */
  void (*peers_collect)(Context *c, float *host, const float *device, const Span *spans, int count);
  void (*peers_deal)(Context *c, float *device, const float *host, const Span *spans, int count);

  /* -- one decoded token (Sequences: row r, its last token, its position); no GEMM library, fp32 sums in an order fixed
   * by K -- */
  /* x[r] = table[last token of r] + position_embedding[position[r]].  x [rows][C] dt. It does not read e->positions;
   * a position outside the position embedding adds nothing. */
  void (*decode_embedding)(Context *c, void *x, const Parameters *params, const Embedding *e, const Sequences *s);
  /* y[r] = norm(x[r]).  x, y [rows][dim] dt; y may be x. */
  void (*decode_norm)(Context *c, void *y, const void *x, const Norm *norm, int rows, int dim);
  /* In the operations below n[r] is norm(x[r]), or x[r] where `norm` is NULL; with NORM_LAYER it is rounded to dt. */
  /* q, k, v = W n + b; q and k are normalized unless head_norm is NULL, then rotated to position[r] unless rope is
   * NULL; k and v are stored in the cache at position[r]. q [rows][H*D] dt; layer is the packed [H*D + 2*G*D][C]
   * group. */
  void (*decode_qkv)(Context *c, void *q, const KvCache *cache, const void *x, const Norm *norm,
                     const Parameters *params, Linear layer, const HeadNorm *head_norm, const Rope *rope,
                     const Sequences *s);
  /* out[r] = softmax(scale * q K^T) V over cache positions 0..position[r], or over counts[r] of them (counts int32
   * [rows] or NULL).  out, q [rows][H*D] dt. Positions are on the device, so a graph is captured for the cache's
   * capacity. `next` NULL, or weights that a device may bring into its cache meanwhile. */
  void (*decode_attention)(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                           const int32_t *counts, const Upcoming *next, const Sequences *s);
  /* x[r] += W in[r] + b: the attention output or the MLP output.  x [rows][M], in [rows][K] dt. */
  void (*decode_residual)(Context *c, void *x, const void *in, const Parameters *params, Linear layer,
                          const Sequences *s);
  /* out[r] = W n + b: for a branch that is normalized before it is added, and for queries of cross-attention.  out
   * [rows][M] dt. */
  void (*decode_linear)(Context *c, void *out, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                        const Sequences *s);
  /* b, c, x = W n;  y as in convolution(), with z of the two positions before position[r] from the state, which then
   * receives z at position[r]; all three are rounded to dt.  y [rows][C] dt; layer is the packed [3C][C] group;
   * v->positions is not read. */
  void (*decode_convolution)(Context *c, void *y, const ConvolutionState *state, const void *x, const Norm *norm,
                             const Parameters *params, Linear layer, const Convolution *v, const Sequences *s);
  /* h = act(u), or act(gate) * up, with u = W n + b.  h [rows][F] dt; layer is the [F][C] or packed [2F][C] group. */
  void (*decode_mlp)(Context *c, void *h, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                     const MlpShape *mlp, const Sequences *s);
  /* logits[r][k] = (W n + b)[k] for k < vocab.  logits fp32 [rows][vocab]. */
  void (*decode_logits)(Context *c, float *logits, const void *x, const Norm *norm, const Parameters *params,
                        Linear layer, int vocab, int rows);
  /* Samples the next token of every row from its logits and appends it (lengths, positions += 1). The uniform number of
   * sample i's n-th token is philox(seed, 0, SITE_SAMPLE, n = lengths[r], streams[r]).word[0]. A row whose logits are
   * not all finite appends nothing and gets SEQUENCE_NONFINITE. sample() overwrites logits. */
  void (*sample)(Context *c, const Sequences *s, float *logits, int vocab);
  /* Copies `length` rows of rotated keys and of values of a prefill into the first positions of the cache of `slot`. */
  void (*cache_store)(Context *c, const KvCache *cache, int slot, View k, View v, int length);
  /* Stores z of the last two of `length` positions in the state of `slot`.  bcx [length][3C] dt. */
  void (*convolution_store)(Context *c, const ConvolutionState *state, int slot, const void *bcx, int dim, int length);

  /* -- images of weights; NULL in backends of GPUs -- */
  /* An image: all weights in one block of memory as operations read them, for programs of the same version. In f32 it
   * is `master`, else the weights that no GEMM reads, in fp32, and the compute copy. use_image() takes a block at a
   * multiple of 64 bytes in place of master weights; it must outlive the parameters. */
  size_t (*image_bytes)(Context *c, const Parameters *params);
  void (*write_image)(Context *c, const Parameters *params, void *image);
  void (*use_image)(Context *c, Parameters *params, void *image);
} Backend;

/* Lists the functions of the table in order, for code that repeats once for each of them (declarations, rows). G: those
 * that a decoder needs. */
/* clang-format off */
#define BACKEND_LIST(G, T) \
  G(open) G(close) G(info) T(peak_flops) T(tune) T(tuning) G(alloc) G(alloc_shared) G(release) G(upload) G(download) \
  G(copy) T(refresh_parameters) G(release_parameters) G(submit) T(join) G(mark) G(wait) G(drop) T(report) G(poll) \
  T(step_begin) T(next_micro_batch) G(embedding) T(embedding_backward) G(residual_norm) T(residual_norm_backward) \
  G(residual_add) G(linear) T(linear_backward_input) T(linear_backward_weight) G(rope) G(head_norm) \
  T(head_norm_backward) G(attention) T(attention_backward) T(attention_map) G(convolution) T(convolution_backward) \
  G(activation) T(activation_backward) T(cross_entropy) T(distill) T(loss_sum) T(clip) T(muon) T(adamw) \
  T(peers_reduce) T(peers_gather) T(peers_broadcast) T(peers_collect) T(peers_deal) G(decode_embedding) \
  G(decode_norm) G(decode_qkv) G(decode_attention) G(decode_residual) G(decode_linear) G(decode_convolution) \
  G(decode_mlp) G(decode_logits) G(sample) G(cache_store) G(convolution_store)
#define BACKEND_NOTHING(name)
#define BACKEND_FUNCTIONS(X) BACKEND_LIST(X, X)
#define BACKEND_GENERATION_FUNCTIONS(X) BACKEND_LIST(X, BACKEND_NOTHING)
#define BACKEND_IMAGE_FUNCTIONS(X) X(image_bytes) X(write_image) X(use_image)
/* clang-format on */

/* Returns the backends of this binary that the machine can run, best first; ends with NULL. The list has one CPU
 * backend per instruction set of the machine and compute dtype: on x86-64 "amx", "avx512bf16" (bf16), "v4", "v3" (both
 * dtypes) and "v2" (f32), on aarch64 "bf16" (bf16), "dotprod" and "neon" (both), on other machines "generic" (both). */
const Backend *const *backend_list(void);
/* Returns the instruction sets of this binary, best first, including those that the machine lacks; ends with NULL. */
const char *const *backend_isas(void);
/* Returns the number of GPUs of this machine; 0 in a build without CUDA. It counts them in a child process, because a
 * process that has used CUDA cannot be forked. */
int backend_gpus(void);
/* Returns the best backend for device `name` that computes in one of `dtypes` (bits, as Backend.dtypes); on a CPU with
 * `isa` (NULL: any) or a lower instruction set. NULL when there is none. */
const Backend *backend_find(const char *name, const char *isa, unsigned dtypes);
/* Returns the dtype in which device `name`, on a CPU with `isa` (NULL: any), trains fastest: bf16 on a GPU and with AMD's
 * AVX512-BF16, else f32. */
DType backend_natural_dtype(const char *name, const char *isa);

#ifdef __cplusplus
}
#endif
#endif
