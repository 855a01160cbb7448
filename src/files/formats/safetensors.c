#include "files/formats/safetensors.h"

#include "base/json.h"
#include "base/text.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are mapped as they are: a big-endian machine would need conversions, which are missing"
#endif

enum { PREFIX_BYTES = 8, MAX_HEADER = 100000000 /* of the specification */ };
static const char METADATA_KEY[] = "__metadata__";

/* ---- types ---- */

static const struct {
  const char *name;
  size_t bytes;
} types[] = {
    [TENSOR_F64] = {"F64", 8}, [TENSOR_F32] = {"F32", 4}, [TENSOR_F16] = {"F16", 2}, [TENSOR_BF16] = {"BF16", 2},
    [TENSOR_I64] = {"I64", 8}, [TENSOR_I32] = {"I32", 4}, [TENSOR_U8] = {"U8", 1},   [TENSOR_BOOL] = {"BOOL", 1},
};
enum { TYPES = sizeof types / sizeof types[0] };

const char *safetensors_type_name(TensorType type) { return types[type].name; }

/* Computes product(shape) * size of the type; false when it overflows. */
static bool tensor_bytes(const SafeTensor *tensor, size_t *bytes) {
  size_t product = 1;
  for (int i = 0; i < tensor->rank; i++) {
    if (tensor->shape[i] < 0 || (uint64_t)tensor->shape[i] > SIZE_MAX) return false;
    if (__builtin_mul_overflow(product, (size_t)tensor->shape[i], &product)) return false;
  }
  return !__builtin_mul_overflow(product, types[tensor->type].bytes, bytes);
}

/* ---- reading ---- */

typedef struct Reader {
  const char *path, *header;
  const uint8_t *data; /* after the header */
  size_t header_size, data_size;
  Error *error;
} Reader;

__attribute__((format(printf, 2, 3))) static bool invalid(const Reader *r, const char *format, ...) {
  char detail[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  return fail(r->error, EXIT_CHECKPOINT, "%s is not a valid safetensors file: %s; copy or download it again", r->path,
              detail);
}

/* Finds the header and the data in the file. */
static bool split_file(Reader *r, const MappedFile *file) {
  if (file->size < PREFIX_BYTES) return invalid(r, "it has %zu bytes, too short for a header", file->size);
  uint64_t size;
  memcpy(&size, file->bytes, PREFIX_BYTES);
  if (size > MAX_HEADER)
    return invalid(r, "its header claims %ju bytes, more than the limit of %d", (uintmax_t)size, MAX_HEADER);
  if (size > file->size - PREFIX_BYTES)
    return invalid(r, "its header claims %ju bytes but only %zu follow", (uintmax_t)size, file->size - PREFIX_BYTES);
  if (size == 0 || file->bytes[PREFIX_BYTES] != '{') return invalid(r, "its header does not start with '{'");
  r->header = (const char *)file->bytes + PREFIX_BYTES;
  r->header_size = (size_t)size;
  r->data = file->bytes + PREFIX_BYTES + size;
  r->data_size = file->size - PREFIX_BYTES - (size_t)size;
  return true;
}

static json_t *parse_header(const Reader *r) {
  json_error_t problem;
  json_t *root = json_parse(r->header, r->header_size, JSON_REJECT_DUPLICATES, &problem, r->path, r->error);
  if (root) return root; /* an object: it starts with '{' */
  invalid(r, "its header is not valid JSON (byte %d: %s)", problem.position, text_one_line(problem.text, 80).text);
  return NULL;
}

static bool read_shape(const Reader *r, SafeTensor *tensor, const char *name, const json_t *shape) {
  if (!json_is_array(shape)) return invalid(r, "tensor '%s' has no shape", name);
  size_t rank = json_array_size(shape);
  if (rank > TENSOR_MAX_RANK)
    return invalid(r, "tensor '%s' has %zu dimensions, at most %d are supported", name, rank, TENSOR_MAX_RANK);
  tensor->rank = (int)rank;
  for (size_t i = 0; i < rank; i++) {
    const json_t *extent = json_array_get(shape, i);
    if (!json_is_integer(extent) || json_integer_value(extent) < 0)
      return invalid(r, "dimension %zu of tensor '%s' is not a count", i, name);
    tensor->shape[i] = json_integer_value(extent);
  }
  return true;
}

static bool read_type(const Reader *r, SafeTensor *tensor, const char *name, const json_t *dtype) {
  if (!json_is_string(dtype)) return invalid(r, "tensor '%s' has no dtype", name);
  for (int i = 0; i < TYPES; i++)
    if (strcmp(types[i].name, json_string_value(dtype)) == 0) {
      tensor->type = (TensorType)i;
      return true;
    }
  return fail(r->error, EXIT_CHECKPOINT,
              "%s: dtype '%s' of tensor '%s' is not supported (F64 F32 F16 BF16 I64 I32 U8 BOOL are)", r->path,
              text_one_line(json_string_value(dtype), 80).text, text_one_line(name, 80).text);
}

static bool read_offsets(const Reader *r, SafeTensor *tensor, const char *name, const json_t *offsets) {
  const json_t *first = json_array_get(offsets, 0), *last = json_array_get(offsets, 1);
  if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last))
    return invalid(r, "tensor '%s' has no pair of data_offsets", name);
  json_int_t begin = json_integer_value(first), end = json_integer_value(last);
  if (begin < 0 || end < begin || (uint64_t)end > r->data_size)
    return invalid(r, "tensor '%s' claims the bytes %jd to %jd of %zu", name, (intmax_t)begin, (intmax_t)end,
                   r->data_size);
  tensor->data = r->data + begin;
  tensor->bytes = (size_t)(end - begin);
  return true;
}

static bool read_tensor(const Reader *r, SafeTensor *tensor, const char *key, const json_t *entry) {
  const OneLine shown = text_one_line(key, 80);
  const char *name = shown.text;
  tensor->name = key;
  if (!json_is_object(entry)) return invalid(r, "the entry of tensor '%s' is not an object", name);
  if (!read_type(r, tensor, name, json_object_get(entry, "dtype"))) return false;
  if (!read_shape(r, tensor, name, json_object_get(entry, "shape"))) return false;
  if (!read_offsets(r, tensor, name, json_object_get(entry, "data_offsets"))) return false;
  size_t bytes;
  if (!tensor_bytes(tensor, &bytes)) return invalid(r, "the size of tensor '%s' overflows", name);
  if (bytes != tensor->bytes)
    return invalid(r, "tensor '%s' needs %zu bytes by its shape but has %zu", name, bytes, tensor->bytes);
  return true;
}

static bool read_metadata(const Reader *r, SafeTensors *out, json_t *metadata) {
  if (json_is_null(metadata)) return true;
  if (!json_is_object(metadata)) return invalid(r, "its __metadata__ is not an object");
  out->metadata = calloc(json_object_size(metadata) + 1, sizeof *out->metadata);
  if (!out->metadata) return error_memory(r->error, r->path);
  const char *key;
  json_t *value;
  json_object_foreach(metadata, key, value) {
    if (!json_is_string(value)) return invalid(r, "the metadata '%s' is not a string", text_one_line(key, 80).text);
    out->metadata[out->metadata_count++] = (MetadataEntry){key, json_string_value(value)};
  }
  return true;
}

static int compare_offset(const void *a, const void *b) {
  const SafeTensor *x = a, *y = b;
  const uint8_t *p = x->data, *q = y->data;
  if (p != q) return p < q ? -1 : 1;
  return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

int safetensors_compare_name(const void *a, const void *b) {
  return strcmp(((const SafeTensor *)a)->name, ((const SafeTensor *)b)->name);
}

/* Checks that the tensors, sorted by offset, cover the data without holes or overlap, to the last byte of the file. */
static bool check_cover(const Reader *r, const SafeTensors *file) {
  const uint8_t *expected = r->data;
  for (int i = 0; i < file->count; i++) {
    const SafeTensor *tensor = &file->tensors[i];
    const uint8_t *begin = tensor->data;
    if (begin != expected)
      return invalid(r, "tensor '%s' begins at byte %td of the data, expected %td (%s)",
                     text_one_line(tensor->name, 80).text, begin - r->data, expected - r->data,
                     begin < expected ? "tensors overlap" : "there is a hole");
    expected += tensor->bytes;
  }
  size_t used = (size_t)(expected - r->data);
  return used == r->data_size || invalid(r, "its tensors have %zu bytes but %zu follow the header", used, r->data_size);
}

static bool read_all(Reader *r, SafeTensors *out) {
  if (!split_file(r, &out->file)) return false;
  json_t *root = out->header = parse_header(r);
  if (!root) return false;
  out->tensors = calloc(json_object_size(root) + 1, sizeof *out->tensors);
  if (!out->tensors) return error_memory(r->error, r->path);
  const char *key;
  json_t *entry;
  json_object_foreach(root, key, entry) {
    bool is_metadata = strcmp(key, METADATA_KEY) == 0;
    if (is_metadata ? !read_metadata(r, out, entry) : !read_tensor(r, &out->tensors[out->count++], key, entry))
      return false;
  }
  qsort(out->tensors, (size_t)out->count, sizeof *out->tensors, compare_offset);
  if (!check_cover(r, out)) return false;
  qsort(out->tensors, (size_t)out->count, sizeof *out->tensors, safetensors_compare_name);
  return true;
}

bool safetensors_open(SafeTensors *out, const char *path, Error *error) {
  *out = (SafeTensors){0};
  if (!file_map(&out->file, path, EXIT_CHECKPOINT, error)) return false;
  Reader reader = {.path = path, .error = error};
  if (read_all(&reader, out)) return true;
  safetensors_close(out);
  return false;
}

void safetensors_close(SafeTensors *file) {
  free(file->tensors);
  free(file->metadata);
  json_decref(file->header);
  file_unmap(&file->file);
  *file = (SafeTensors){0};
}

const SafeTensor *safetensors_find(const SafeTensors *file, const char *name) {
  SafeTensor key = {.name = name};
  if (file->count == 0) return NULL;
  return bsearch(&key, file->tensors, (size_t)file->count, sizeof key, safetensors_compare_name);
}

const char *safetensors_metadata(const SafeTensors *file, const char *key) {
  for (int i = 0; i < file->metadata_count; i++)
    if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
  return NULL;
}

/* ---- writing ---- */

/* Takes ownership of `value`; NULL: memory is out, or it was a text that is not UTF-8. */
static bool add_member(json_t *object, const char *name, json_t *value, Error *error) {
  const bool repeats = json_object_get(object, name);
  if (json_object_set_new(object, name, value) == 0 && !repeats) return true;
  return json_memory_ok(error, "a header") &&
         fail(error, EXIT_INTERNAL, "the name \"%s\" repeats, or it or its value is not UTF-8", name);
}

static bool add_metadata(json_t *header, const MetadataEntry *metadata, int count, Error *error) {
  json_t *object = json_pack("{s:s}", "format", "pt");
  if (!add_member(header, METADATA_KEY, object, error)) return false;
  for (int i = 0; i < count; i++)
    if (!add_member(object, metadata[i].key, json_string(metadata[i].value), error)) return false;
  return true;
}

/* Adds the entry of a tensor that begins at *offset; advances *offset to its end. */
static bool add_tensor(json_t *header, const SafeTensor *tensor, size_t *offset, Error *error) {
  size_t bytes, end;
  if (tensor->rank < 0 || tensor->rank > TENSOR_MAX_RANK || !tensor_bytes(tensor, &bytes) ||
      __builtin_add_overflow(*offset, bytes, &end) || end > INT64_MAX)
    return fail(error, EXIT_INTERNAL, "the size of \"%s\" overflows", tensor->name);
  json_t *shape = json_array();
  for (int i = 0; i < tensor->rank; i++) json_array_append_new(shape, json_integer(tensor->shape[i]));
  json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", safetensors_type_name(tensor->type), "shape", shape,
                            "data_offsets", (json_int_t)*offset, (json_int_t)end);
  *offset = end;
  return add_member(header, tensor->name, entry, error);
}

/* Returns the header without padding, to be freed. NULL with EXIT_MEMORY, or EXIT_INTERNAL for invalid names or
 * sizes. */
static char *header_text(const SafeTensor *tensors, int count, const MetadataEntry *metadata, int metadata_count,
                         Error *error) {
  json_t *root = json_object();
  bool ok = add_metadata(root, metadata, metadata_count, error);
  size_t offset = 0;
  for (int i = 0; ok && i < count; i++) ok = add_tensor(root, &tensors[i], &offset, error);
  char *text = ok ? json_text(root, JSON_COMPACT, "a header", error) : NULL;
  json_decref(root);
  if (!text || strlen(text) <= MAX_HEADER - 8) return text;
  free(text);
  fail(error, EXIT_INTERNAL, "the header is too long");
  return NULL;
}

/* Writes the header with its padding. Returns its size in the file, or 0 after an error. */
static int64_t write_header(FileWriter *file, const char *text, Error *error) {
  static const char padding[] = "       ";
  size_t length = strlen(text), pad = (8 - length % 8) % 8;
  uint64_t size = length + pad;
  const bool ok = file_writer_add(file, &size, sizeof size, error) && file_writer_add(file, text, length, error) &&
                  file_writer_add(file, padding, pad, error);
  return ok ? (int64_t)(sizeof size + size) : 0;
}

bool safetensors_begin(FileWriter *file, const char *path, const SafeTensor *tensors, int count,
                       const MetadataEntry *metadata, int metadata_count, int64_t *data, Error *error) {
  char *header = header_text(tensors, count, metadata, metadata_count, error);
  if (!header) return error_append(error, "; cannot write %s", path);
  *data = file_writer_begin(file, path, error) ? write_header(file, header, error) : 0;
  free(header);
  return *data > 0;
}

bool safetensors_write_from(const char *path, const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                            int metadata_count, TensorSource *source, void *state, Error *error) {
  FileWriter file;
  int64_t begin;
  bool ok = safetensors_begin(&file, path, tensors, count, metadata, metadata_count, &begin, error);
  for (int i = 0; ok && i < count; i++) {
    size_t bytes = 0;
    tensor_bytes(&tensors[i], &bytes); /* header_text() has checked it */
    const void *data = source(state, i);
    ok = (data || !bytes) && file_writer_add(&file, data, bytes, error);
    if (!data && bytes) file_writer_abort(&file);
  }
  return ok && file_writer_commit(&file, error);
}

static const void *data_of(void *tensors, int index) { return ((const SafeTensor *)tensors)[index].data; }

bool safetensors_write(const char *path, const SafeTensor *tensors, int count, const MetadataEntry *metadata,
                       int metadata_count, Error *error) {
  return safetensors_write_from(path, tensors, count, metadata, metadata_count, data_of, (void *)tensors, error);
}

/* ---- tensors that are expected ---- */

void safetensors_set_shape(SafeTensor *t, int64_t rows, int64_t cols) {
  memset(t->shape, 0, sizeof t->shape);
  t->shape[0] = rows;
  if (t->rank == 3) t->shape[1] = 1;
  if (t->rank > 1) t->shape[t->rank - 1] = cols;
}

SafeTensor safetensors_of_parameter(const ParameterTensor *p, const char *name, const float *arena) {
  SafeTensor tensor = {.name = name, .type = TENSOR_F32, .rank = p->rank, .data = arena ? arena + p->offset : NULL};
  safetensors_set_shape(&tensor, p->rank == 1 ? p->cols : p->rows, p->cols);
  tensor.bytes = (size_t)p->rows * (size_t)p->cols * sizeof *arena;
  return tensor;
}

bool safetensors_same_shape(const SafeTensor *a, const SafeTensor *b) {
  return a->rank == b->rank && memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

typedef struct ShapeText {
  char text[24 * TENSOR_MAX_RANK];
} ShapeText;

/* "[128, 64]" */
static ShapeText shape_text(const SafeTensor *tensor) {
  ShapeText out = {"["};
  for (int i = 0; i < tensor->rank; i++)
    text_append(out.text, sizeof out.text, "%s%jd", i > 0 ? ", " : "", (intmax_t)tensor->shape[i]);
  text_append(out.text, sizeof out.text, "]");
  return out;
}

const SafeTensor *safetensors_expect(const char *path, const SafeTensors *file, const SafeTensor *expected,
                                     Error *error) {
  const SafeTensor *tensor = safetensors_find(file, expected->name);
  if (!tensor)
    fail(error, EXIT_CHECKPOINT, "%s has no tensor %s; is config.json of the same model?", path, expected->name);
  else if (!safetensors_same_shape(tensor, expected))
    fail(error, EXIT_CHECKPOINT,
         "%s: tensor %s is %s where the configuration says %s; is config.json of the same model?", path, expected->name,
         shape_text(tensor).text, shape_text(expected).text);
  else return tensor;
  return NULL;
}
