/* The contract between the model and the machines it runs on.
 *
 * model.c is written against one table of operations, `Backend`, and knows nothing else about a device. Each function
 * of the table is one fused operation: its formula, shapes, dtypes, what it reads and what it writes stand beside it.
 *
 * Dimensions   B sequences, T positions, N = B*T rows, C model width, H query heads, G key/value heads, D head size,
 *              F feed-forward width, V vocabulary, P padded vocabulary. All arrays are row-major; strides and offsets
 *              count elements, never bytes.
 * Dtypes       `dt` is the compute dtype of the context (Context is opened for one): activations, their gradients, the
 *              weights that GEMMs and the embedding read. They are passed as `void *`. Norm weights, gradients of
 *              parameters, master weights, moments, log-sum-exp, 1/rms and losses are fp32.
 * Pointers     are device pointers, but for those marked "host". Outputs come first, then inputs; an output never
 *              overlaps an input unless its comment says "in place".
 * Alignment    where ContextInfo.width_multiple is not 1: C, F, D and the strides of views and of logits are multiples
 *              of it, and arrays in dt, matrices, norm weights and the rotary table start at multiples of 16 bytes
 *              (alloc() gives 256). An operation that is given anything else does nothing and is an error,
 *              EXIT_INTERNAL.
 * Errors       operations return nothing. The first error is kept in the context (with the name of the tensor or
 *              operation) and poll() returns it; operations after it do nothing.
 * Steps        a step function handed to submit() has no branch that depends on device data, and what changes from step
 *              to step (learning rate, step number, clip coefficient, random stream) lives on the device in StepState,
 *              so a backend may run it once, capture its launches as a graph the second time and replay that later.
 *              Descriptors (Dropout, Attention, Rope, View ...) are read before a call returns; a captured
 *              graph holds their numbers and pointers. Only the first run may allocate scratch space.
 * Rounding     a value that is stored in dt and used further, in the same operation or a later one, is used as stored.
 * Bits         same seed, machine, instruction set, threads and build: same bits. Reductions have a fixed order; there
 *              are no floating-point atomics. */
#ifndef INKLING_KERNELS_H
#define INKLING_KERNELS_H

#include "collective/collective.h"
#include "util/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum DType { DTYPE_F32, DTYPE_BF16, DTYPE_I8 /* of weights alone */ } DType;
static inline size_t dtype_bytes(DType t) { return t == DTYPE_F32 ? 4 : t == DTYPE_BF16 ? 2 : 1; }
static inline const char *dtype_name(DType t) { return t == DTYPE_F32 ? "f32" : t == DTYPE_BF16 ? "bf16" : "int8"; }

enum { IGNORE_INDEX = -100 };   /* a target that takes no part in the loss */
enum { HEAD_DIM_LIMIT = 256 };  /* no backend has larger attention heads */
enum { TENSOR_ALIGNMENT = 64 }; /* elements: groups of parameters start at multiples of 256 bytes of fp32 */

/* ---- device-resident state ---- */

/* What a training step carries from operation to operation. One copy on the device; evaluation has its own. */
typedef struct StepState {
  int64_t step;       /* optimizer steps done: the step in progress is step + 1 */
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

/* A tensor, or a group of tensors that are multiplied together, in the parameter arenas. */
typedef struct Matrix {
  size_t offset; /* of its first element in every arena; a multiple of TENSOR_ALIGNMENT */
  int rows;      /* outputs, pads included */
  int cols;      /* inputs; 1-D norm weights have rows = 1 */
} Matrix;

/* y = x W^T + b, W [M][K] and b [1][M]; bias.rows 0: there is none. Both are read in dt. */
typedef struct Linear {
  Matrix weight, bias;
} Linear;

typedef enum UpdateRule { UPDATE_ADAMW, UPDATE_MUON } UpdateRule;

/* One run of the arena that shares the same optimizer settings. */
typedef struct ParameterGroup {
  Matrix matrix;
  bool decay; /* decoupled weight decay applies (matrices) or not (norm weights, biases) */
  bool gemm;  /* GEMMs, their epilogues or the embedding read it: the backend keeps a compute copy */
  UpdateRule rule;
  size_t vector; /* not `gemm`: of its first element in Parameters.vectors; a multiple of TENSOR_ALIGNMENT */
} ParameterGroup;

/* Elements first .. first + count of a group of UPDATE_ADAMW, which this process updates. */
typedef struct AdamwRun {
  int group;
  size_t first, count;       /* `first` is a multiple of TENSOR_ALIGNMENT, and `count`, but at the end of a group */
  size_t m_offset, v_offset; /* of the first one among the moments; multiples of TENSOR_ALIGNMENT */
} AdamwRun;

/* A matrix that Muon updates by itself. A group of UPDATE_MUON holds one or several, one below the other. */
typedef struct MuonMatrix {
  size_t offset; /* of its first element in the arenas of weights and gradients */
  int rows, cols;
  int group;       /* its number in Parameters.groups */
  size_t m_offset; /* of its first element among the moments */
} MuonMatrix;

/* All parameters of a model: one flat arena each. Pads are zero in every arena. */
typedef struct Parameters {
  size_t count;   /* elements of weights and gradients, pads included */
  float *master;  /* [count] fp32 weights, in checkpoint order; with `vectors` only those that this process updates,
                     each where its first moment is */
  float *vectors; /* [vector_count] fp32 weights of the groups that no GEMM reads; NULL: `master` has them */
  size_t vector_count; /* pads included */
  float *grad;         /* [count] fp32 gradients; NULL when the model is only read */
  float *m, *v;        /* fp32 first and second moments of what this process updates; likewise. Muon has no v */
  void *backend_data;  /* of the backend: made by refresh_parameters(), freed by release_parameters() */
  void *compute;       /* the copy that GEMMs read, in whatever layout the backend likes; f32: may be `master` */
  const ParameterGroup *groups; /* host, [group_count], ascending offsets, covering all that is not alignment pad */
  int group_count;
  /* host: what this process updates, in ascending order; of a process that trains alone all */
  const AdamwRun *runs;
  int run_count;
  const MuonMatrix *muon;
  int muon_count;
  /* Of processes that train together (ContextOptions.peers): whose gradients are whose, all but pads. */
  const Span *spans;
  int span_count;
} Parameters;

/* ---- descriptors of operations (host) ---- */

/* A [batch][row][head][D] array with any strides; the D numbers of a head are contiguous. Packed QKV, a KV cache and
 * plain [N][H*D] are all views. */
typedef struct View {
  void *data;
  int64_t batch, row, head;
} View;

/* Inverted dropout: an element is kept with probability 1 - p and scaled by 1 / (1 - p); masks are recomputed, never
 * stored. Element e of sequence s (numbered within the whole step, so that the size of micro-batches changes nothing)
 * uses philox(seed, e / 4, site, step, s).word[e % 4] and is kept when word >= round(p * 2^32).
 * Attention probabilities use 16-bit lanes, see attention(). */
typedef struct Dropout {
  float p; /* [0, 1) */
  uint32_t site;
  uint64_t seed;
  const StepState *state; /* step (the one in progress: state->step + 1) and first sequence */
} Dropout;

typedef enum NormKind { NORM_RMS, NORM_LAYER } NormKind;

/* y = weight * (x - mean) * rstd + bias,  rstd = (mean((x - mean)^2) + eps)^(-1/2). NORM_RMS (Zhang & Sennrich 2019):
 * with 0 in place of mean, and no bias. NORM_LAYER (Ba et al. 2016): the variance is that of the row itself. */
typedef struct Norm {
  NormKind kind;
  const float *weight, *bias; /* fp32 [C]; NORM_RMS: bias is NULL */
  float eps;
} Norm;

/* What a backward needs of the forward, fp32 [N]; NORM_RMS: mean is NULL. */
typedef struct NormStats {
  float *mean, *rstd;
} NormStats;

typedef struct NormGradient {
  float *weight, *bias; /* fp32 [C]; NORM_RMS: bias is NULL */
} NormGradient;

/* SiLU: u * sigmoid(u). GELU (Hendrycks & Gimpel 2016): u * Phi(u) with Phi(u) = (1 + erf(u / sqrt 2)) / 2, or with
 * Phi(u) = sigmoid(2k (u + 0.044715 u^3)), k = sqrt(2 / pi) (GELU_TANH). ReLU: its derivative at 0 is 0. */
typedef enum Activation { ACTIVATION_SILU, ACTIVATION_GELU, ACTIVATION_GELU_TANH, ACTIVATION_RELU } Activation;

/* What follows the first product of an MLP, of F hidden numbers: h = act(u), u [N][F]; `gated` (Shazeer 2020):
 * h = act(gate) * up, u [N][2F], gate first, then up. */
typedef struct MlpShape {
  Activation activation;
  bool gated;
  int ffn;
} MlpShape;
static inline int mlp_width(const MlpShape *mlp) { return mlp->gated ? 2 * mlp->ffn : mlp->ffn; } /* of u */

/* out = scale * table[token] + places[position]. */
typedef struct Embedding {
  Matrix table; /* [V][C] */
  float scale;
  Matrix places;            /* [positions][C]; rows 0: there are none */
  const int32_t *positions; /* int32 [B][T]; NULL means 0..T-1 in every sequence */
} Embedding;

/* Rotary positions, rotate-half (Su et al. 2021; the pairs are (i, i + D/2)): angle = position * base^(-2i/D).
 * table: fp32 [positions][D/2][2] = {cos, sin}. positions: int32 [B][T]; NULL means 0..T-1 in every sequence. */
typedef struct Rope {
  const float *table;
  const int32_t *positions;
} Rope;

typedef struct Attention {
  int batch, heads, kv_heads, head_dim; /* heads is a multiple of kv_heads; query head h reads kv head h*G/H */
  int queries, keys;                    /* Tq, Tk */
  float scale;                          /* on Q K^T, positive, usually 1/sqrt(D) */
  bool causal;                          /* query i sees key j only if j <= i */
  const int32_t *key_begin, *key_end;   /* [B][Tq]: key_begin <= j < key_end; NULL = 0 and Tk */
  View bias;                            /* fp32, on the scores, see attention(); data NULL = none */
  const Dropout *dropout;               /* on the probabilities; NULL = none */
} Attention;

typedef struct AdamW {
  float beta1, beta2, eps, weight_decay;
} AdamW;

typedef struct Muon {
  float lr_factor; /* its learning rate is this times StepState.lr */
  float momentum, weight_decay;
} Muon;

/* Newton-Schulz iteration towards the nearest matrix with orthogonal rows or columns (Jordan et al. 2024): singular
 * values of X, at most 1 before, are about 1 after MUON_STEPS times X = a X + (b G + c G^2) X with G = X X^T. */
#define MUON_A 3.4445f
#define MUON_B (-4.7750f)
#define MUON_C 2.0315f
#define MUON_EPS 1e-7f /* a gradient with a smaller norm is divided by this */
enum { MUON_STEPS = 5 };

/* One layer's key/value cache, [slots][capacity][G][D] dt each; keys are stored rotated. */
typedef struct KvCache {
  void *k, *v;
  int capacity;
  int kv_heads, head_dim;
} KvCache;

/* Applied in this order: bias, penalties, top-k, top-p, min-p, temperature, draw. Ties: the lower id wins. Penalties
 * are of the tokens among the last `repeat_last_n`, and in this order. */
typedef struct Sampling {
  float repeat_penalty;    /* 1 = off; positive logits are divided by it, negative ones multiplied */
  int repeat_last_n;       /* tokens looked back at, at most the ring's capacity; <= 0 = none */
  float presence_penalty;  /* 0 = off; taken from the logit once */
  float frequency_penalty; /* 0 = off; taken from it as often as the token is there, one time after the other in fp32 */
  int top_k;               /* <= 0 = off */
  float top_p;             /* >= 1 = off: the smallest set, by falling probability, whose sum reaches top_p */
  float min_p;             /* <= 0 = off: probability at least min_p times the largest */
  float temperature;       /* 0 = the largest logit */
  uint64_t seed;
} Sampling;

/* What is added to the logits of some tokens: counts[r] of them, from [r][0] on. A token may be there once; ids outside
 * of the vocabulary are ignored. -INFINITY masks a token. */
typedef struct LogitBias {
  int32_t *counts; /* [rows]; NULL: none */
  int32_t *tokens; /* [rows][capacity] */
  float *values;   /* [rows][capacity] */
  int capacity;    /* host */
} LogitBias;

/* The sequences being generated. Row r of a decoding operation works on sequence r; a row's result depends on nothing
 * but that sequence: not on how many rows there are, not on r, not on the number of threads. */
typedef struct Sequences {
  int rows;           /* host */
  int capacity;       /* host: tokens kept of each sequence */
  int32_t *tokens;    /* [rows][capacity] ring: token i of row r, prompt first, stands at [r][i % capacity] */
  int32_t *lengths;   /* [rows] tokens read and written so far; the token to be decoded is number lengths[r] - 1 */
  int32_t *positions; /* [rows] cache position of that token */
  int32_t *streams;   /* [rows] number of the sample: keys its random numbers */
  int32_t *status;    /* [rows] SEQUENCE_ */
  int32_t *drawn;     /* [rows] the newest token, written by sample(); -1 where the row is SEQUENCE_NONFINITE */
  Sampling *sampling; /* [rows] */
  LogitBias bias;
} Sequences;
enum { SEQUENCE_OK = 0, SEQUENCE_NONFINITE = 1 };

/* ---- the table ---- */

typedef struct Context Context; /* a device, its memory, its streams; one host thread at a time */

typedef struct ContextOptions {
  DType dtype;
  DType weights;      /* CPU: a narrower dtype of weights that are only read; refresh_parameters() rounds its copy.
                         DTYPE_F32 = as dtype; others need dtype f32 */
  int threads;        /* CPU: 0 = all that the process may use */
  bool autotune;      /* GPU: measure which GEMM algorithm is the fastest, instead of asking the library */
  const char *tuning; /* choices of an earlier context (Backend.tuning) to continue with; NULL = none */
  Collective *peers;  /* that train the same model, each with a part of every step's sequences; NULL = none. All of them
                         do the operations that are marked "all processes", in the same order */
} ContextOptions;

typedef struct ContextInfo {
  char device[128];                    /* for people: "CPU, 2 threads, AVX-512" */
  DType dtype, weights;                /* as ContextOptions */
  bool accelerator;                    /* its memory is not the host's */
  bool direct;                         /* accelerators of several processes reach each other without their hosts */
  bool crowded;                        /* several processes share one of them, which is why they do not */
  bool copies;                         /* with Parameters.vectors none but updates read the master weights */
  int threads, vector_bits;            /* of a CPU; 0 on a GPU */
  size_t bytes;                        /* allocated now */
  size_t peak_bytes;                   /* the most that was allocated */
  size_t free_bytes;                   /* that could still be allocated */
  char limit[96];                      /* of the process, which keeps it from more: "this process may use 1.9 GiB
                                          (ulimit -v)"; "": only the device's memory does */
  int head_dim_multiple, head_dim_max; /* sizes of attention heads that it can work with */
  int width_multiple;                  /* C and F are multiples of this: see Alignment above */
} ContextInfo;

typedef struct CapturedGraph CapturedGraph; /* of a backend; the CPU has none */
enum { REPORT_RING = 64 };

typedef void (*StepFunction)(Context *c, void *argument);

typedef struct Backend {
  const char *name;    /* "cpu", "cuda" */
  const char *isa;     /* of a CPU: the instruction set that it uses, "v3"; NULL on a GPU */
  unsigned dtypes;     /* bit t: computes in DType t */
  DType natural_dtype; /* what the device computes in unless it is told */

  /* -- context -- */
  /* false with EXIT_USAGE (dtype or device not available, and what is) or EXIT_MEMORY. */
  bool (*open)(Context **out, const ContextOptions *options, Error *error);
  void (*close)(Context *c); /* frees everything the context has allocated; NULL is allowed */
  void (*info)(Context *c, ContextInfo *out);
  /* Dense multiply-add rate of the compute dtype in FLOP/s, measured: the "speed of light" of the progress line. */
  double (*peak_flops)(Context *c);
  /* What autotune has chosen so far, as lines of text for ContextOptions.tuning; they hold on the same kind of device
   * with the same library and are ignored elsewhere. NULL when nothing was tuned. The caller frees it. */
  char *(*tuning)(Context *c);

  /* -- memory -- */
  /* Zeroed, 256-byte aligned; NULL and a sticky EXIT_MEMORY error naming `name` and the size when it does not fit. */
  void *(*alloc)(Context *c, const char *name, size_t bytes);
  void (*release)(Context *c, void *memory); /* NULL is allowed */
  /* May return before it is done; `host` is copied first. */
  void (*upload)(Context *c, void *device, const void *host, size_t bytes);
  void (*download)(Context *c, void *host, const void *device, size_t bytes); /* waits for all work before it */
  void (*copy)(Context *c, void *device_to, const void *device_from, size_t bytes);
  /* Makes params->compute and backend_data from the master weights and groups; called whenever they were uploaded.
   * Beside params->vectors all weights are uploaded into params->grad, which becomes zero: vectors and masters are made
   * from them, too. A CPU also takes the memory that their update needs. */
  void (*refresh_parameters)(Context *c, Parameters *params);
  void (*release_parameters)(Context *c, Parameters *params); /* frees what refresh_parameters() made */

  /* -- steps -- */
  /* Runs step(c, argument). Every run with the same slot does the same operations on the same pointers with the same
   * descriptors, so a backend may keep a captured graph there (*slot is NULL before the first run). */
  void (*submit)(Context *c, CapturedGraph **slot, StepFunction step, void *argument);
  /* Drops the captured graph; called before anything in it changes or is released. *slot becomes NULL. */
  void (*drop)(Context *c, CapturedGraph **slot);
  /* Copies the state into the ring of REPORT_RING reports (an operation like any other, last in a step). */
  void (*report)(Context *c, const StepState *state);
  /* Takes up to `capacity` finished reports out of the ring, oldest first. Waits for all submitted work when `wait`,
   * and otherwise only while more than REPORT_RING / 8 reported steps are unfinished, so that the host never runs far
   * ahead. Returns the number taken, or -1 with the context's first error in `error`. A caller that does not poll once
   * in REPORT_RING steps loses the oldest. */
  int (*poll)(Context *c, StepState *out /* host */, int capacity, bool wait, Error *error);

  /* lr = lr_table[step + 1]; inv_targets = 1 / *targets or 0, summed over all processes where it is not NULL; loss_sum,
   * loss_count, sequence = 0.
   * lr_table: [steps + 1] fp32; targets: one int32. Both NULL in evaluation. */
  void (*step_begin)(Context *c, StepState *state, const float *lr_table, const int32_t *targets);
  void (*next_micro_batch)(Context *c, StepState *state, int sequences); /* sequence += sequences */

  /* -- embedding -- */
  /* out[n] = dropout(scale * table[tokens[n]] + places[position of n]).  out [B*T][C] dt, tokens int32 [B*T]; dropout
   * element = t*C + c. */
  void (*embedding)(Context *c, void *out, const Parameters *params, const Embedding *e, const int32_t *tokens,
                    int batch, int length, const Dropout *dropout);
  /* dtable[v] (+)= scale * sum over the rows n with token v, in rising n, of dropout(dx[n]).  dx [B*T][C] dt.
   * The rows of token v are order[offsets[v] .. offsets[v+1]): offsets int32 [V+1], order int32 [B*T] (a counting sort,
   * made where the tokens are uploaded). Without `accumulate` rows of absent tokens and pads become zero. The same with
   * positions in place of tokens gives the gradient of places. */
  void (*embedding_backward)(Context *c, const Parameters *params, Matrix table, float scale, const void *dx,
                             const int32_t *offsets, const int32_t *order, int vocab, int batch, int length,
                             const Dropout *dropout, bool accumulate);

  /* -- residual add + norm -- */
  /* x_out = x_in + dropout(branch);  y = norm(x_out), which leaves its mean and rstd in stats.
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
  /* Gradients: of W, fp32 [M][K] (+)= dy^T x; of b, fp32 [M] (+)= the sum of the rows of dy. */
  void (*linear_backward_weight)(Context *c, const Parameters *params, Linear layer, const void *dy, const void *x,
                                 int rows, bool accumulate);

  /* -- attention -- */
  /* Rotates `heads` heads of x [B][T] in place: queries and keys of packed QKV are neighbors, one call does both. */
  void (*rope)(Context *c, View x, int batch, int length, int heads, int head_dim, const Rope *rope);
  /* S = scale * Q K^T + bias where visible;  lse = log sum exp S;  P = exp(S - lse);  out = dropout(P) V.
   * out, q [B][Tq][H], k, v [B][Tk][G] dt; lse fp32 [B][H][Tq] or NULL. A query that sees no key gives out = 0, lse =
   * -inf.
   * The bias of query i and key j is data[b*batch + h*head + i*row + j], fp32, aligned as floats are; with a stride of
   * 0 all sequences, heads or queries have the same. -infinity hides the key from the query (a boolean mask is 0 and
   * -infinity); +infinity, NaN and other numbers beyond +-1e30 are not supported. Those of keys that are not visible
   * anyway may be anything. There is no gradient of it. ALiBi (Press et al. 2022) is slope[h] * (j - i), or slope[h] *
   * j for all queries: what is the same in a whole row moves lse and nothing else.
   * Dropout of P[b][h][i][j], s the number of sequence b: words = philox(seed, ((h*Tq + i)*ceil(Tk/32) + j/32)*4
   * + (j%8)/2, site, step, s); 16-bit lane 2*((j%32)/8) + j%2 of them (low half of a word first); kept when lane >=
   * round(p * 2^16). */
  void (*attention)(Context *c, const Attention *a, View out, View q, View k, View v, float *lse);
  /* delta_i = sum_d dout*out;  dV = dropout(P)^T dout;  dS = P * (dropout(dout V^T) - delta);  dQ = scale * dS K;
   * dK = scale * dS^T Q; dK, dV sum over the query heads of a group. P is recomputed from lse and the same bias. `rope`
   * not NULL: dQ and dK are rotated back, so that they are gradients of the unrotated projections. dq, dk, dv are
   * written, not accumulated. */
  void (*attention_backward)(Context *c, const Attention *a, View dq, View dk, View dv, View dout, View q, View k,
                             View v, View out, const float *lse, const Rope *rope);
  /* map = P, 0 where not visible: each row sums to 1, or to 0 where the query sees nothing. map fp32 [B][H][Tq][Tk]; q,
   * k and lse (not NULL) as of attention(); a->dropout is not applied. For looking at: not made to be fast. */
  void (*attention_map)(Context *c, const Attention *a, float *map, View q, View k, const float *lse);

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
  /* loss_sum += losses in row order (fp64); loss_count += targets that are not ignored. */
  void (*loss_sum)(Context *c, StepState *state, const float *losses, const int32_t *targets, int rows);

  /* -- optimizer -- */
  /* All processes: finishes what peers_reduce() has begun; adds up loss_sum and loss_count, and the squares of what
   * each process owns. Then  t = step + 1;  grad_norm = L2 norm of all gradients;  clip = max_norm > 0 ? min(1,
   * max_norm / (grad_norm + 1e-6)) : 1; bias1 = 1 - beta1^t, bias2 likewise; loss = loss_sum * inv_targets; halted |=
   * loss or grad_norm not finite. */
  void (*clip)(Context *c, StepState *state, const Parameters *params, float max_norm, const AdamW *adamw);
  /* Unless halted, for every matrix [rows][cols] in params->muon (Jordan et al. 2024), with mu = momentum and
   * rate = lr_factor * lr:  g = clip*grad;  m = mu*m + (1-mu)*g;  u = mu*m + (1-mu)*g (Nesterov);
   * X = u / max(|u|, MUON_EPS), MUON_STEPS times X = MUON_A*X + (MUON_B*G + MUON_C*G^2) X with G = X X^T;
   * w = w*(1 - rate*wd) - rate * sqrt(max(1, rows/cols)) * X; the compute copy follows. Where rows > cols, G = X^T X
   * on the other side gives the same and is smaller. X and G are dt on a GPU, fp32 on a CPU. Before adamw(). */
  void (*muon)(Context *c, const StepState *state, const Parameters *params, const Muon *muon);
  /* Unless halted, in the runs of AdamW: g = clip*grad;  m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;
   * w = w*(1 - lr*wd) - lr * (m/bias1) / (sqrt(v/bias2) + eps), wd only in groups that decay; the compute copy is
   * rewritten in the same pass; then, whatever the groups are, step += 1. */
  void (*adamw)(Context *c, StepState *state, const Parameters *params, const AdamW *adamw);

  /* -- all processes; of one alone none of them does anything -- */
  /* Gradients of params->spans[first .. first + count): the owner of a span gets the sum, in the order of the ranks.
   * May go on beside what is asked for next, until clip(), but the spans' gradients must be complete and stay. */
  void (*peers_reduce)(Context *c, const Parameters *params, int first, int count);
  /* All get what the owners of the spans have: gradients, or weights, and the compute copy follows. Beside
   * params->vectors these and the compute copy are what is handed out, and gradients are lost. */
  void (*peers_gather)(Context *c, const Parameters *params, bool gradients);
  /* What rank 0 has, into the device memory of all. */
  void (*peers_broadcast)(Context *c, void *device, size_t bytes);
  /* Between an array that rank 0 has on its host, in which the spans have their offsets (NULL elsewhere), and device
   * arrays of the owners (Span.own). */
  void (*peers_collect)(Context *c, float *host, const float *device, const Span *spans, int count);
  void (*peers_deal)(Context *c, float *device, const float *host, const Span *spans, int count);

  /* -- one decoded token (Sequences: row r, its last token, its position); no GEMM library, fp32 sums in an order fixed
   * by K -- */
  /* x[r] = scale * table[last token of r] + places[position[r]].  x [rows][C] dt. e->positions is not read; a
   * position outside places adds nothing. */
  void (*decode_embedding)(Context *c, void *x, const Parameters *params, const Embedding *e, const Sequences *s);
  /* y[r] = norm(x[r]).  x, y [rows][dim] dt; y may be x. */
  void (*decode_norm)(Context *c, void *y, const void *x, const Norm *norm, int rows, int dim);
  /* In the operations below n[r] is norm(x[r]), or x[r] where `norm` is NULL; of NORM_LAYER it is rounded to dt. */
  /* q, k, v = W n + b; q and k are rotated to position[r] (rope NULL: they are not); k and v go into the cache at
   * position[r]. q [rows][H*D] dt; layer is the packed [H*D + 2*G*D][C] group. */
  void (*decode_qkv)(Context *c, void *q, const KvCache *cache, const void *x, const Norm *norm,
                     const Parameters *params, Linear layer, const Rope *rope, const Sequences *s);
  /* out[r] = softmax(scale * q K^T) V over cache positions 0..position[r], or over counts[r] of them (counts int32
   * [rows] or NULL).  out, q [rows][H*D] dt. Positions live on the device: a graph is captured for the cache's
   * capacity. */
  void (*decode_attention)(Context *c, void *out, const void *q, const KvCache *cache, int heads, float scale,
                           const int32_t *counts, const Sequences *s);
  /* x[r] += W in[r] + b: attention output and MLP output.  x [rows][M], in [rows][K] dt. */
  void (*decode_residual)(Context *c, void *x, const void *in, const Parameters *params, Linear layer,
                          const Sequences *s);
  /* out[r] = W n + b: a branch that is normalized before it is added; queries of cross-attention.  out [rows][M] dt. */
  void (*decode_linear)(Context *c, void *out, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                        const Sequences *s);
  /* h = act(u), or act(gate) * up, with u = W n + b.  h [rows][F] dt; layer is the [F][C] or packed [2F][C] group. */
  void (*decode_mlp)(Context *c, void *h, const void *x, const Norm *norm, const Parameters *params, Linear layer,
                     const MlpShape *mlp, const Sequences *s);
  /* logits[r][k] = (W n + b)[k] for k < vocab.  logits fp32 [rows][vocab]. */
  void (*decode_logits)(Context *c, float *logits, const void *x, const Norm *norm, const Parameters *params,
                        Linear layer, int vocab, int rows);
  /* Draws the next token of every row from its logits, appends it (lengths, positions += 1). The uniform number of
   * sample i's n-th token is philox(seed, 0, SITE_SAMPLE, n = lengths[r], streams[r]).word[0]. A row whose logits are
   * not all finite appends nothing and gets SEQUENCE_NONFINITE. logits are used as scratch. */
  void (*sample)(Context *c, const Sequences *s, float *logits, int vocab);
  /* Copies `length` rows of rotated keys and values (packed QKV of a prefill) into the cache of `slot` from `position`
   * on. */
  void (*cache_store)(Context *c, const KvCache *cache, int slot, int position, View k, View v, int length);
} Backend;

/* The functions of the table, so that what has to be written once for each of them (declarations, rows) is one line. */
/* clang-format off */
#define BACKEND_FUNCTIONS(X) \
  X(open) X(close) X(info) X(peak_flops) X(tuning) X(alloc) X(release) X(upload) X(download) X(copy) \
  X(refresh_parameters) X(release_parameters) X(submit) X(drop) X(report) X(poll) X(step_begin) X(next_micro_batch) \
  X(embedding) X(embedding_backward) X(residual_norm) X(residual_norm_backward) X(residual_add) X(linear) \
  X(linear_backward_input) X(linear_backward_weight) X(rope) X(attention) X(attention_backward) X(attention_map) \
  X(activation) X(activation_backward) X(cross_entropy) X(loss_sum) X(clip) X(muon) X(adamw) X(peers_reduce) \
  X(peers_gather) X(peers_broadcast) X(peers_collect) X(peers_deal) X(decode_embedding) X(decode_norm) \
  X(decode_qkv) X(decode_attention) X(decode_residual) X(decode_linear) X(decode_mlp) X(decode_logits) X(sample) \
  X(cache_store)
/* clang-format on */

/* The backends of this binary that the machine can run, best first; ends with NULL. The CPU is there once for each
 * instruction set that it has and each dtype that is computed with it: "amx" and "avx512bf16" (bf16), the levels of
 * x86-64 "v4", "v3" (both dtypes) and "v2" (f32), or "generic" on other machines. */
const Backend *const *backend_list(void);
/* The instruction sets of this binary, best first, whatever the machine has; ends with NULL. */
const char *const *backend_isas(void);
/* GPUs of this machine; 0 in a build without CUDA. A process of its own looks, for one that has looked cannot be
 * forked. */
int backend_gpus(void);
/* The best of them on device `name` that computes in one of `dtypes` (bits, as Backend.dtypes); on a CPU with `isa`
 * (NULL: any) or a lower instruction set. NULL when there is none. */
const Backend *backend_find(const char *name, const char *isa, unsigned dtypes);

#ifdef __cplusplus
}
#endif
#endif
