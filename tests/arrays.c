/* Arrays on the device, and other operands: parameters, tokens, dropout. See backends.h. */
#include "kernels/philox.h"
#include "tests/backends.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- conversions ---- */

static float bf16_to_float(uint16_t bits) {
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, 4);
  return value;
}

static uint16_t float_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  if (isnan(value)) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

size_t value_bytes(DType dtype, Kind kind) { return kind == KIND_COMPUTE ? dtype_bytes(dtype) : 4; }

void value_store(DType dtype, Kind kind, void *at, double value) {
  if (kind == KIND_I32) {
    int32_t i = (int32_t)value;
    memcpy(at, &i, 4);
  } else if (kind == KIND_COMPUTE && dtype == DTYPE_BF16) {
    uint16_t bits = float_to_bf16((float)value);
    memcpy(at, &bits, 2);
  } else {
    float single = (float)value;
    memcpy(at, &single, 4);
  }
}

double value_fetch(DType dtype, Kind kind, const void *at) {
  if (kind == KIND_I32) {
    int32_t i;
    memcpy(&i, at, 4);
    return i;
  }
  if (kind == KIND_COMPUTE && dtype == DTYPE_BF16) {
    uint16_t bits;
    memcpy(&bits, at, 2);
    return (double)bf16_to_float(bits);
  }
  float single;
  memcpy(&single, at, 4);
  return (double)single;
}

/* ---- arrays ---- */

Layout layout_flat(size_t count) {
  assert_true(count <= INT32_MAX);
  return layout_rows(1, (int)count, (int64_t)count);
}

Layout layout_rows(int rows, int width, int64_t stride) {
  return (Layout){.batches = 1, .rows = rows, .heads = 1, .width = width, .row = stride};
}

/* The offset of value number `index`. */
static size_t layout_at(const Layout *l, size_t index) {
  size_t width = (size_t)l->width, heads = (size_t)l->heads, rows = (size_t)l->rows;
  size_t d = index % width, h = index / width % heads, t = index / width / heads % rows,
         b = index / width / heads / rows;
  return b * (size_t)l->batch + t * (size_t)l->row + h * (size_t)l->head + d;
}

static size_t layout_count(const Layout *l) {
  return (size_t)l->batches * (size_t)l->rows * (size_t)l->heads * (size_t)l->width;
}

Array array_new(Fixture *f, Kind kind, Layout layout, const double *values) {
  Array a = {.layout = layout, .kind = kind, .count = layout_count(&layout)};
  a.span = (size_t)(layout.batches - 1) * (size_t)layout.batch + (size_t)(layout.rows - 1) * (size_t)layout.row +
           (size_t)(layout.heads - 1) * (size_t)layout.head + (size_t)layout.width;
  a.data = guarded_memory(f, "test", NULL, a.span * value_bytes(f->dtype, kind));
  if (values) array_write(f, &a, values);
  return a;
}

Array array_floats(Fixture *f, const double *values, size_t count) {
  return array_new(f, KIND_F32, layout_flat(count), values);
}

Array array_compute(Fixture *f, const double *values, size_t count) {
  return array_new(f, KIND_COMPUTE, layout_flat(count), values);
}

Array array_ints(Fixture *f, const int32_t *values, size_t count) {
  double *wide = host_values(f, count);
  for (size_t i = 0; i < count; i++) wide[i] = values[i];
  return array_new(f, KIND_I32, layout_flat(count), wide);
}

void array_write(Fixture *f, const Array *array, const double *values) {
  size_t width = value_bytes(f->dtype, array->kind);
  unsigned char *bytes = malloc(array->span * width);
  assert_non_null(bytes);
  memset(bytes, 0xFF, array->span * width);
  for (size_t i = 0; i < array->count; i++)
    value_store(f->dtype, array->kind, bytes + layout_at(&array->layout, i) * width, values[i]);
  f->backend->upload(f->context, array->data, bytes, array->span * width);
  free(bytes);
}

/* Fails if a byte outside of the values is not 0xFF. */
static void check_gaps(const Array *array, const unsigned char *bytes, size_t width) {
  unsigned char *taken = calloc(array->span, 1);
  assert_non_null(taken);
  for (size_t i = 0; i < array->count; i++) taken[layout_at(&array->layout, i)] = 1;
  bool whole = true;
  for (size_t i = 0; i < array->span * width; i++) whole = whole && (taken[i / width] || bytes[i] == 0xFF);
  free(taken);
  if (!whole) fail_msg("a gap between the rows of an array was written to");
}

double *array_read(Fixture *f, const Array *array) {
  size_t width = value_bytes(f->dtype, array->kind);
  double *values = host_values(f, array->count);
  unsigned char *bytes = malloc(array->span * width);
  assert_non_null(bytes);
  f->backend->download(f->context, bytes, array->data, array->span * width);
  for (size_t i = 0; i < array->count; i++)
    values[i] = value_fetch(f->dtype, array->kind, bytes + layout_at(&array->layout, i) * width);
  check_gaps(array, bytes, width);
  free(bytes);
  return values;
}

void *array_at(Fixture *f, const Array *array, int64_t index) {
  return (char *)array->data + index * (int64_t)value_bytes(f->dtype, array->kind);
}

View array_view(Fixture *f, const Array *array, int first_head) {
  const Layout *l = &array->layout;
  return (View){.data = array_at(f, array, first_head * l->head), .batch = l->batch, .row = l->row, .head = l->head};
}

StepState *state_new(Fixture *f, const StepState *host) { return guarded_memory(f, "state", host, sizeof *host); }

StepState state_read(Fixture *f, const StepState *device) {
  StepState host;
  f->backend->download(f->context, &host, device, sizeof host);
  return host;
}

/* ---- parameters and other operands ---- */

static size_t matrix_count(Matrix m) { return (size_t)m.rows * (size_t)m.cols; }

static float *arena_of(const Parameters *p, Arena arena) {
  float *const arenas[] = {p->master, p->grad, p->m, p->v};
  return arenas[arena];
}

Parameters parameters_described(Fixture *f, const ParameterSpec *specs, int count) {
  ParameterGroup *groups = host_memory(f, (size_t)count * sizeof *groups);
  MuonMatrix *muon = host_memory(f, (size_t)count * GROUP_MATRICES * sizeof *muon);
  AdamwRun *runs = host_memory(f, (size_t)count * sizeof *runs);
  Parameters p = {.groups = groups, .group_count = count, .muon = muon, .runs = runs};
  size_t v_offset = 0;
  for (int i = 0; i < count; i++) {
    const ParameterSpec *spec = &specs[i];
    const Matrix matrix = {.offset = p.count, .rows = spec->rows + spec->pad_rows, .cols = spec->cols};
    const size_t room = (matrix_count(matrix) + TENSOR_ALIGNMENT - 1) / TENSOR_ALIGNMENT * TENSOR_ALIGNMENT;
    groups[i] = (ParameterGroup){.matrix = matrix, .decay = spec->decay, .gemm = spec->gemm};
    if (spec->heights[0]) groups[i].rule = UPDATE_MUON;
    else runs[p.run_count++] = (AdamwRun){i, 0, matrix_count(matrix), p.count, v_offset}, v_offset += room;
    size_t offset = p.count;
    for (int j = 0; j < GROUP_MATRICES && spec->heights[j]; j++) {
      muon[p.muon_count++] = (MuonMatrix){offset, spec->heights[j], spec->cols, i, offset};
      offset += (size_t)spec->heights[j] * (size_t)spec->cols;
    }
    p.count += room;
  }
  return p;
}

double *parameters_flat(Fixture *f, const Parameters *p, const ParameterSpec *specs) {
  double *flat = host_values(f, p->count);
  for (int i = 0; i < p->group_count; i++)
    memcpy(flat + p->groups[i].matrix.offset, specs[i].values,
           (size_t)specs[i].rows * (size_t)specs[i].cols * sizeof *flat);
  return flat;
}

Parameters parameters_new(Fixture *f, const ParameterSpec *specs, int count) {
  Parameters p = parameters_described(f, specs, count);
  const double *zeros = host_values(f, p.count);
  p.master = array_floats(f, parameters_flat(f, &p, specs), p.count).data;
  p.grad = array_floats(f, zeros, p.count).data;
  p.m = array_floats(f, zeros, p.count).data;
  p.v = array_floats(f, zeros, p.count).data;
  f->backend->refresh_parameters(f->context, &p);
  return p;
}

/* The address of its first element in an arena. */
static size_t place_of(const Parameters *p, Arena arena, int matrix) {
  const ParameterGroup *group = &p->groups[matrix];
  if (arena != ARENA_OF_V) return group->matrix.offset;
  assert_true(group->rule == UPDATE_ADAMW);
  const AdamwRun *run = p->runs;
  while (run->group != matrix) run++;
  return run->v_offset;
}

void parameters_write(Fixture *f, const Parameters *p, Arena arena, int matrix, const double *values) {
  size_t count = matrix_count(p->groups[matrix].matrix);
  float *singles = host_memory(f, count * sizeof *singles);
  for (size_t i = 0; i < count; i++) singles[i] = (float)values[i];
  f->backend->upload(f->context, arena_of(p, arena) + place_of(p, arena, matrix), singles, count * sizeof *singles);
}

double *parameters_read(Fixture *f, const Parameters *p, Arena arena, int matrix) {
  float *all = host_memory(f, p->count * sizeof *all);
  f->backend->download(f->context, all, arena_of(p, arena), p->count * sizeof *all);
  size_t count = matrix_count(p->groups[matrix].matrix), place = place_of(p, arena, matrix);
  double *values = host_values(f, count);
  for (size_t i = 0; i < count; i++) values[i] = (double)all[place + i];
  for (int i = 0; i < p->group_count; i++)
    if (arena != ARENA_OF_V || p->groups[i].rule == UPDATE_ADAMW)
      memset(all + place_of(p, arena, i), 0, matrix_count(p->groups[i].matrix) * sizeof *all);
  for (size_t i = 0; i < p->count; i++)
    if (all[i] != 0.0f) fail_msg("element %zu of an arena belongs to no matrix and is %g", i, (double)all[i]);
  return values;
}

ParameterSpec norm_spec(int cols, const double *values) {
  return (ParameterSpec){.rows = 1, .cols = cols, .values = values};
}

ParameterSpec bias_spec(int cols, const double *values) {
  return (ParameterSpec){.rows = 1, .cols = cols, .gemm = true, .values = values};
}

ParameterSpec matrix_spec(int rows, int cols, int pad_rows, const double *values) {
  return (ParameterSpec){
      .rows = rows, .cols = cols, .pad_rows = pad_rows, .decay = true, .gemm = true, .values = values};
}

double *concatenate(Fixture *f, const double *a, size_t a_count, const double *b, size_t b_count) {
  double *both = host_values(f, a_count + b_count);
  memcpy(both, a, a_count * sizeof *a);
  memcpy(both + a_count, b, b_count * sizeof *b);
  return both;
}

double *sum_of(Fixture *f, const double *a, const double *b, size_t count) {
  double *sum = host_values(f, count);
  for (size_t i = 0; i < count; i++) sum[i] = a[i] + b[i];
  return sum;
}

void token_order(Fixture *f, const int32_t *tokens, int count, int vocab, Array *offsets, Array *order) {
  int32_t *starts = host_memory(f, (size_t)(vocab + 1) * sizeof *starts),
          *sorted = host_memory(f, (size_t)count * sizeof *sorted);
  int32_t next = 0;
  for (int v = 0; v < vocab; v++) {
    starts[v] = next;
    for (int n = 0; n < count; n++)
      if (tokens[n] == v) sorted[next++] = n;
  }
  starts[vocab] = next;
  *offsets = array_ints(f, starts, (size_t)vocab + 1);
  *order = array_ints(f, sorted, (size_t)count);
}

int32_t *some_tokens(Fixture *f, int count, int vocab) {
  int32_t *tokens = host_memory(f, (size_t)count * sizeof *tokens);
  for (int i = 0; i < count; i++) tokens[i] = (int32_t)(philox(7, (uint32_t)i, 1, 2, 3).word[0] % (uint32_t)vocab);
  return tokens;
}

Dropout dropout_at(Fixture *f, float p, int64_t steps_done, int first_sequence) {
  StepState state = {.step = steps_done, .sequence = first_sequence};
  return (Dropout){.p = p, .site = SITE_DROPOUT + 11, .seed = 0x123456789ABCDEFu, .state = state_new(f, &state)};
}

/* The documented map, evaluated directly. */
static bool kept(const Dropout *d, int64_t step, int sequence, uint32_t element) {
  PhiloxWords r = philox(d->seed, element / 4, d->site, (uint32_t)step, (uint32_t)sequence);
  return (double)r.word[element % 4] >= fmin(round((double)d->p * 0x1p32), 0xFFFFFFFFu);
}

double *dropout_mask(Fixture *f, const Dropout *d, int64_t step, int first, int batch, int length, int dim) {
  size_t n = (size_t)length * (size_t)dim;
  double *mask = host_values(f, (size_t)batch * n);
  for (int b = 0; b < batch; b++)
    for (size_t e = 0; e < n; e++)
      mask[(size_t)b * n + e] = kept(d, step, first + b, (uint32_t)e) ? 1 / (1 - (double)d->p) : 0;
  return mask;
}

bool has_head_size(const Fixture *f, int head_dim) {
  ContextInfo info;
  f->backend->info(f->context, &info);
  return head_dim >= info.head_dim_multiple && head_dim <= info.head_dim_max && head_dim % info.head_dim_multiple == 0;
}

int fitting_stride(const Fixture *f, int width) {
  ContextInfo info;
  f->backend->info(f->context, &info);
  return (width + info.width_multiple - 1) / info.width_multiple * info.width_multiple;
}

int fitting_width(const Fixture *f, int width) {
  ContextInfo info;
  f->backend->info(f->context, &info);
  const int fits = fitting_stride(f, width);
  return fits < info.dim_max ? fits : info.dim_max;
}

double *with_pads(Fixture *f, const double *values, int rows, int width, int stride, double pad) {
  double *wide = host_values(f, (size_t)rows * (size_t)stride);
  for (int i = 0; i < rows * stride; i++) wide[i] = i % stride < width ? values[i / stride * width + i % stride] : pad;
  return wide;
}

double *swapped(Fixture *f, const double *values, int batch, int rows, int cols, int width) {
  double *out = host_values(f, (size_t)(batch * rows * cols * width));
  for (int b = 0; b < batch; b++)
    for (int row = 0; row < rows; row++)
      for (int col = 0; col < cols; col++)
        memcpy(out + ((b * cols + col) * rows + row) * width, values + ((b * rows + row) * cols + col) * width,
               (size_t)width * sizeof *out);
  return out;
}
