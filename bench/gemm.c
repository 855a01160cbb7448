/* Benchmarks of the matrix products of training. */
#include "bench/bench.h"
#include "model/parameters.h"

#include <inttypes.h>

/* y [N][M], x [N][K] */
static void call_linear(Bench *b, const Operands *o, int set) {
  b->ops->linear(b->c, o->array[set][0], o->array[set][1], &o->model->params, o->layer, o->rows);
}

static void call_linear_input(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_input(b->c, o->array[set][1], o->array[set][0], &o->model->params, o->layer, o->rows, false);
}

static void call_linear_weight(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_weight(b->c, &o->model->params, o->layer, o->array[set][0], o->array[set][1], o->rows,
                                 o->flag);
}

void bench_gemm(Bench *b, BenchModel *m) {
  static const char *const names[] = {"qkv", "output", "gate_up", "down", "head"};
  static char operation[15][40];
  for (int i = 0; i < 5; i++) {
    Case k = bench_case_of("gemm", m->name, names[i], call_linear);
    if (!bench_model_ready(b, m)) return bench_skip(b, &k, "the model does not fit");
    const Sublayer *self = bench_sublayer(m, 0, SUBLAYER_SELF), *mlp = bench_sublayer(m, 0, SUBLAYER_MLP);
    const Linear layers[] = {self->in, self->out, mlp->in, mlp->out, m->table.head};
    const Matrix w = layers[i].weight;
    int64_t rows = (int64_t)m->batch * m->config.ctx;
    if (i == 4 && rows > 8192) rows = 8192; /* a chunk of the head */
    Operands o = {.model = m, .layer = layers[i], .rows = (int)rows};
    Need needs[] = {{FILL_COMPUTE, rows * w.rows}, {FILL_COMPUTE, rows * w.cols}};
    snprintf(k.shape, sizeof k.shape, "%" PRId64 " x %d x %d", rows, w.rows, w.cols);
    double weights = (double)w.rows * w.cols, in_out = (double)rows * (w.rows + w.cols) * (double)b->dt;
    k.flops = 2.0 * (double)rows * weights;
    k.against_gemm = true;
    k.note = b->autotune ? "autotuned" : NULL;
    void (*const runs[])(Bench *, const Operands *, int) = {call_linear, call_linear_input, call_linear_weight};
    static const char *const kinds[] = {"forward", "dgrad", "wgrad"};
    for (int kind = 0; kind < 3; kind++) {
      snprintf(operation[3 * i + kind], sizeof operation[0], "linear %s %s", names[i], kinds[kind]);
      k.operation = operation[3 * i + kind];
      k.run = runs[kind];
      k.bytes = in_out + weights * (kind == 2 ? 4.0 : (double)b->dt);
      bench_row(b, k, &o, needs, 2);
    }
  }
}
