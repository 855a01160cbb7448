/* Exchange of arrays among processes that train together; device memory is host memory. */
#include "kernels/cpu/weights.h"

void CPU(peers_reduce)(Context *c, const Parameters *params, int first, int count) {
  if (!c->error.code) collective_reduce(c->peers, params->grad, params->spans + first, count, &c->error);
}

/* Updates the compute copy of elements [begin, end) of the arena. */
static void follow(const Parameters *p, size_t begin, size_t end) {
  for (int g = 0; g < p->group_count; g++) {
    const Matrix *m = &p->groups[g].matrix;
    const size_t last = m->offset + (size_t)m->rows * (size_t)m->cols;
    const size_t from = begin > m->offset ? begin : m->offset, to = end < last ? end : last;
    if (from < to) CPU(follow_masters)(p, g, from - m->offset, to - from);
  }
}

void CPU(peers_gather)(Context *c, const Parameters *params, bool gradients) {
  if (c->error.code || !params->span_count) return;
  collective_all_gather_spans(c->peers, gradients ? params->grad : params->master, params->spans, params->span_count);
  if (gradients || params->compute == params->master) return;
  for (const Span *s = params->spans; s < params->spans + params->span_count; s++)
    if (s->owner != c->peers->rank) follow(params, s->offset, s->offset + s->count);
}

void CPU(peers_broadcast)(Context *c, void *device, size_t bytes) {
  if (!c->error.code && c->peers) collective_broadcast(c->peers, device, bytes);
}

void CPU(peers_collect)(Context *c, float *host, const float *device, const Span *spans, int count) {
  if (!c->error.code && c->peers) collective_gather_spans(c->peers, host, device, spans, count);
}

void CPU(peers_deal)(Context *c, float *device, const float *host, const Span *spans, int count) {
  if (!c->error.code && c->peers) collective_scatter_spans(c->peers, device, host, spans, count);
}
