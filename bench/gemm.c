/* Benchmarks of the matrix products of training. */
#include "bench/bench.h"

#include <inttypes.h>

/* arrays: y [N][M], x [N][K] */
static void call_linear_input(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_input(b->c, o->array[set][1], o->array[set][0], &o->model->params, o->layer, o->rows, false);
}

static void call_linear_weight(Bench *b, const Operands *o, int set) {
  b->ops->linear_backward_weight(b->c, &o->model->params, o->layer, o->array[set][0], o->array[set][1], o->rows,
                                 o->flag);
}

void bench_gemm(Bench *b, BenchModel *m) {
  static const char *const names[] = {"qkv", "output", "gate_up", "down", "head"};
  static const struct {
    const char *name;
    BenchCall *run;
  } products[] = {{"forward", bench_call_linear}, {"dgrad", call_linear_input}, {"wgrad", call_linear_weight}};
  for (int i = 0; i < 5; i++) {
    if (!bench_model_ready(b, m))
      return bench_skip(b, &(Case){.operation = names[i], .group = &(Group){"gemm", m->name, ""}},
                        "the model does not fit");
    const Sublayer *self = bench_sublayer(m, 0, SUBLAYER_SELF), *mlp = bench_sublayer(m, 0, SUBLAYER_MLP);
    const Linear layers[] = {self->in, self->out, mlp->in, mlp->out, m->table.head};
    const Matrix w = layers[i].weight;
    int64_t rows = (int64_t)m->batch * m->config.ctx;
    if (i == 4 && rows > 8192) rows = 8192; /* the head computes the logits of so many rows at a time */
    Operands o = {.model = m, .layer = layers[i], .rows = (int)rows};
    const Group group = bench_group("gemm", m->name, "%" PRId64 " x %d x %d", rows, w.rows, w.cols);
    const double weights = (double)w.rows * w.cols, in_out = (double)rows * (w.rows + w.cols) * (double)b->dt;
    for (int j = 0; j < 3; j++) {
      char operation[40];
      snprintf(operation, sizeof operation, "linear %s %s", names[i], products[j].name);
      bench_row(b, &group, &o,
                (Case){operation, products[j].run,
                       .bytes = in_out + weights * (products[j].run == call_linear_weight ? 4.0 : (double)b->dt),
                       .flops = 2.0 * (double)rows * weights,
                       .needs = {{FILL_COMPUTE, rows * w.rows}, {FILL_COMPUTE, rows * w.cols}}, .against_gemm = true,
                       .note = b->autotune ? "autotuned" : NULL});
    }
  }
}
