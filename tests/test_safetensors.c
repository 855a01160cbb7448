/* files/formats/safetensors: round trips, and every kind of damaged or hostile file. */
#include "files/formats/safetensors.h"
#include "tests/checkpoint_helpers.h"

/* ---- round trips ---- */

static void test_safetensors_round_trip(void **state) {
  const float f32[6] = {1, 2, 3, 4, 5, 6};
  const double f64 = 0.5;
  const int64_t i64[2] = {-1, INT64_MAX};
  const int32_t i32 = 7;
  const uint16_t f16[2] = {0x3C00, 0xC000};
  const uint8_t u8[3] = {1, 2, 3};
  const SafeTensor tensors[] = {
      {.name = "z", .type = TENSOR_F32, .rank = 2, .shape = {2, 3}, .data = f32},
      {.name = "scalar", .type = TENSOR_F64, .rank = 0, .data = &f64},
      {.name = "a \"quoted\" \\ n\xC3\xA4me", .type = TENSOR_I64, .rank = 1, .shape = {2}, .data = i64},
      {.name = "empty", .type = TENSOR_F32, .rank = 3, .shape = {4, 0, 5}, .data = NULL},
      {.name = "i", .type = TENSOR_I32, .rank = 8, .shape = {1, 1, 1, 1, 1, 1, 1, 1}, .data = &i32},
      {.name = "h", .type = TENSOR_F16, .rank = 1, .shape = {2}, .data = f16},
      {.name = "b", .type = TENSOR_BF16, .rank = 1, .shape = {2}, .data = f16},
      {.name = "", .type = TENSOR_U8, .rank = 1, .shape = {3}, .data = u8},
  };
  enum { COUNT = sizeof tensors / sizeof tensors[0] };
  const MetadataEntry metadata[] = {{"step", "12"}, {"note", "tab\there, quote \""}};
  Error error = {0};
  Path one = at(state, "one"), two = at(state, "two");
  expect_done(safetensors_write(one.text, tensors, COUNT, metadata, 2, &error), &error);
  expect_done(safetensors_write(two.text, tensors, COUNT, metadata, 2, &error), &error);
  size_t size, size2;
  uint8_t *bytes = get(one.text, &size), *bytes2 = get(two.text, &size2);
  assert_int_equal(size, size2);
  assert_memory_equal(bytes, bytes2, size);
  assert_int_equal(bytes[0] % 8, 0); /* the header is padded */
  free(bytes);
  free(bytes2);

  SafeTensors file;
  expect_done(safetensors_open(&file, one.text, &error), &error);
  assert_int_equal(file.count, COUNT);
  const uint8_t *previous_end = NULL;
  for (int i = 0; i < COUNT; i++) {
    const SafeTensor *t = safetensors_find(&file, tensors[i].name);
    assert_non_null(t);
    assert_int_equal(t->type, tensors[i].type);
    assert_int_equal(t->rank, tensors[i].rank);
    assert_memory_equal(t->shape, tensors[i].shape, sizeof t->shape);
    if (t->bytes > 0) assert_memory_equal(t->data, tensors[i].data, t->bytes);
    if (i > 0) assert_ptr_equal(t->data, previous_end); /* in the order given */
    previous_end = (const uint8_t *)t->data + t->bytes;
  }
  assert_null(safetensors_find(&file, "absent"));
  assert_string_equal(safetensors_metadata(&file, "format"), "pt");
  assert_string_equal(safetensors_metadata(&file, "note"), metadata[1].value);
  assert_null(safetensors_metadata(&file, "absent"));
  safetensors_close(&file);
  safetensors_close(&file);
}

static void test_safetensors_nothing(void **state) {
  Error error = {0};
  SafeTensors file;
  Path path = at(state, "none");
  expect_done(safetensors_write(path.text, NULL, 0, NULL, 0, &error), &error);
  expect_done(safetensors_open(&file, path.text, &error), &error);
  assert_int_equal(file.count, 0);
  assert_null(safetensors_find(&file, "a"));
  safetensors_close(&file);
  for (int null = 0; null < 2; null++) {
    if (null) put(path.text, "\25\0\0\0\0\0\0\0{\"__metadata__\":null}", 29);
    else put(path.text, "\2\0\0\0\0\0\0\0{}", 10); /* no __metadata__ either */
    expect_done(safetensors_open(&file, path.text, &error), &error);
    assert_null(safetensors_metadata(&file, "format"));
    safetensors_close(&file);
  }
}

static void test_safetensors_write_refuses(void **state) {
  const float x[2] = {0};
  const SafeTensor twice[] = {{.name = "a", .type = TENSOR_F32, .rank = 1, .shape = {1}, .data = x},
                              {.name = "a", .type = TENSOR_F32, .rank = 1, .shape = {1}, .data = x}};
  const SafeTensor huge = {.name = "a", .type = TENSOR_F32, .rank = 3, .shape = {INT64_MAX, 2, 2}, .data = x};
  const SafeTensor negative = {.name = "a", .type = TENSOR_F32, .rank = 1, .shape = {-1}, .data = x};
  const SafeTensor not_utf8 = {.name = "\xFF", .type = TENSOR_F32, .rank = 1, .shape = {1}, .data = x};
  const SafeTensor reserved = {.name = "__metadata__", .type = TENSOR_F32, .rank = 1, .shape = {1}, .data = x};
  const MetadataEntry format = {"format", "np"};
  Path path = at(state, "x");
  const struct {
    const SafeTensor *tensors;
    int count;
    int metadata_count;
  } cases[] = {{twice, 2, 0}, {&huge, 1, 0}, {&negative, 1, 0}, {&not_utf8, 1, 0}, {&reserved, 1, 0}, {twice, 1, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    Error error = {0};
    bool done =
        safetensors_write(path.text, cases[i].tensors, cases[i].count, &format, cases[i].metadata_count, &error);
    expect_error(done, &error, EXIT_INTERNAL, "cannot write");
  }
  assert_int_equal(entries(*state), 0);
}

/* ---- bad files ---- */

typedef struct BadFile {
  const char *header;
  int64_t claimed; /* length of the header as the file says; -1: the real one */
  size_t data;     /* bytes of data that follow */
  const char *text;
} BadFile;

static const BadFile bad_files[] = {
    {"{}", 0, 0, "does not start with '{'"},
    {"{}", 3, 0, "claims 3 bytes but only 2 follow"},
    {"{}", 100000001, 0, "more than the limit of 100000000"},
    {"{}", INT64_MAX, 0, "more than the limit"},
    {"{}", INT64_MIN, 0, "more than the limit"},
    {" {}", -1, 0, "does not start with '{'"},
    {"[]", -1, 0, "does not start with '{'"},
    {"\xEF\xBB\xBF{}", -1, 0, "does not start with '{'"},
    {"{", -1, 0, "not valid JSON"},
    {"{}{}", -1, 0, "not valid JSON"},
    {"{}x", -1, 0, "not valid JSON"},
    {"{\"a\xFF\":" T("F32", "[1]", 0, 4) "}", -1, 4, "not valid JSON"},
    {"{\"a\\u0000b\":" T("F32", "[1]", 0, 4) "}", -1, 4, "not valid JSON"},
    {"{\"a\":" T("F32", "[1]", 0, 4) ",\"a\":" T("F32", "[1]", 4, 8) "}", -1, 8, "not valid JSON"},
    {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "not valid JSON"},
    {"{\"__metadata__\":{\"a\":\"b\",\"a\":\"c\"}}", -1, 0, "not valid JSON"},
    {"{\"__metadata__\":[]}", -1, 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"step\":1}}", -1, 0, "the metadata 'step' is not a string"},
    {"{\"a\":1}", -1, 0, "the entry of tensor 'a' is not an object"},
    {"{\"a\":{}}", -1, 0, "tensor 'a' has no dtype"},
    {"{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "tensor 'a' has no dtype"},
    {"{\"a\":" T("F33", "[1]", 0, 4) "}", -1, 4, "dtype 'F33' of tensor 'a' is not supported"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", -1, 4, "tensor 'a' has no shape"},
    {"{\"a\":" T("F32", "4", 0, 4) "}", -1, 4, "tensor 'a' has no shape"},
    {"{\"a\":" T("F32", "[-1]", 0, 4) "}", -1, 4, "dimension 0 of tensor 'a' is not a count"},
    {"{\"a\":" T("F32", "[1,1.0]", 0, 4) "}", -1, 4, "dimension 1 of tensor 'a' is not a count"},
    {"{\"a\":" T("F32", "[\"1\"]", 0, 4) "}", -1, 4, "dimension 0 of tensor 'a' is not a count"},
    {"{\"a\":" T("F32", "[99999999999999999999]", 0, 4) "}", -1, 4, "not valid JSON"},
    {"{\"a\":" T("F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", -1, 4, "has 9 dimensions, at most 8"},
    {"{\"a\":" T("F32", "[4611686018427387905]", 0, 4) "}", -1, 4, "the size of tensor 'a' overflows"},
    {"{\"a\":" T("U8", "[4294967296,4294967296]", 0, 0) "}", -1, 0, "the size of tensor 'a' overflows"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", -1, 4, "tensor 'a' has no pair of data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", -1, 8, "no pair of data_offsets"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4.0]}}", -1, 4, "no pair of data_offsets"},
    {"{\"a\":" T("F32", "[1]", -4, 0) "}", -1, 4, "claims the bytes -4 to 0 of 4"},
    {"{\"a\":" T("F32", "[1]", 4, 0) "}", -1, 4, "claims the bytes 4 to 0 of 4"},
    {"{\"a\":" T("F32", "[1]", 0, 5) "}", -1, 4, "claims the bytes 0 to 5 of 4"},
    {"{\"a\":" T("F32", "[1]", 0, 9223372036854775807) "}", -1, 4, "claims the bytes 0 to 9223372036854775807 of 4"},
    {"{\"a\":" T("F32", "[2]", 0, 4) "}", -1, 4, "tensor 'a' needs 8 bytes by its shape but has 4"},
    {"{\"a\":" T("F32", "[]", 0, 0) "}", -1, 0, "tensor 'a' needs 4 bytes by its shape but has 0"},
    {"{\"a\":" T("F32", "[1]", 0, 4) "}", -1, 8, "its tensors have 4 bytes but 8 follow"},
    {"{}", -1, 1, "its tensors have 0 bytes but 1 follow"},
    {"{\"a\":" T("F32", "[1]", 4, 8) "}", -1, 8, "there is a hole"},
    {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 8, 12) "}", -1, 12, "there is a hole"},
    {"{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[1]", 4, 8) "}", -1, 8, "tensors overlap"},
    {"{\"a\":" T("F32", "[1]", 0, 4) ",\"b\":" T("F32", "[1]", 0, 4) "}", -1, 4, "tensors overlap"},
};

static void test_safetensors_bad_files(void **state) {
  Path path = at(state, "bad");
  for (size_t i = 0; i < sizeof bad_files / sizeof bad_files[0]; i++) {
    const BadFile *bad = &bad_files[i];
    put_safetensors(path.text, bad->header, bad->claimed, NULL, bad->data);
    SafeTensors file;
    Error error = {0};
    expect_error(safetensors_open(&file, path.text, &error), &error, EXIT_CHECKPOINT, bad->text);
    assert_non_null(strstr(error.text, path.text));
    assert_null(file.tensors);
    assert_null(file.file.bytes);
  }
  Error error = {0};
  SafeTensors file;
  expect_error(safetensors_open(&file, *state, &error), &error, EXIT_CHECKPOINT, "is a directory");
}

/* What the specification allows and our writer never does. */
static void test_safetensors_unusual_files(void **state) {
  static const char *const headers[] = {
      "{\"a\":" T("F32", "[1]", 4, 8) ",\"b\":" T("F32", "[1]", 0, 4) "}", /* not in order */
      "{\"a\":" T("F32", "[2]", 0, 8) ",\"b\":" T("F32", "[0]", 0, 0) ",\"c\":" T("F32", "[0,3]", 8, 8) "}",
      "{\"a\":" T("U8", "[8]", 0, 8) "}      ",
  };
  for (size_t i = 0; i < 3; i++) {
    Error error = {0};
    SafeTensors file;
    Path path = at(state, "unusual");
    put_safetensors(path.text, headers[i], -1, NULL, 8);
    expect_done(safetensors_open(&file, path.text, &error), &error);
    safetensors_close(&file);
  }
}

static unsigned sum_of(const SafeTensors *file) {
  unsigned sum = 0;
  for (int i = 0; i < file->count; i++)
    for (size_t b = 0; b < file->tensors[i].bytes; b++) sum += ((const uint8_t *)file->tensors[i].data)[b];
  for (int i = 0; i < file->metadata_count; i++) sum += (unsigned)strlen(file->metadata[i].value);
  return sum;
}

/* A small file of our own in fresh memory. */
static uint8_t *small_file(void **state, size_t *size) {
  const float data[5] = {1, 2, 3, 4, 5};
  const SafeTensor tensors[] = {{.name = "one", .type = TENSOR_F32, .rank = 2, .shape = {2, 2}, .data = data},
                                {.name = "two", .type = TENSOR_F32, .rank = 1, .shape = {1}, .data = data + 4}};
  const MetadataEntry metadata = {"step", "12"};
  Error error = {0};
  Path path = at(state, "small");
  expect_done(safetensors_write(path.text, tensors, 2, &metadata, 1, &error), &error);
  return get(path.text, size);
}

static void test_safetensors_truncated(void **state) {
  size_t size;
  uint8_t *bytes = small_file(state, &size);
  Path path = at(state, "cut");
  for (size_t length = 0; length <= size + 1; length++) { /* bytes has one byte more: the NUL of get() */
    Error error = {0};
    SafeTensors file;
    put(path.text, bytes, length);
    bool done = safetensors_open(&file, path.text, &error);
    assert_int_equal(done, length == size);
    assert_int_equal(error.code, length == size ? EXIT_DONE : EXIT_CHECKPOINT);
    safetensors_close(&file);
  }
  free(bytes);
}

static void test_safetensors_flipped(void **state) {
  size_t size;
  uint8_t *bytes = small_file(state, &size);
  Path path = at(state, "flipped");
  int refused = 0;
  for (size_t i = 0; i < size - 20; i++)
    for (int bit = 0; bit < 8; bit++) {
      Error error = {0};
      SafeTensors file;
      bytes[i] ^= (uint8_t)(1 << bit);
      put(path.text, bytes, size);
      bytes[i] ^= (uint8_t)(1 << bit);
      if (safetensors_open(&file, path.text, &error)) assert_true(sum_of(&file) > 0);
      else assert_int_equal(error.code, EXIT_CHECKPOINT), refused++;
      safetensors_close(&file);
    }
  assert_true(refused > 500); /* changes inside names and strings cannot be noticed */
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_safetensors_round_trip), TEST(test_safetensors_nothing),       TEST(test_safetensors_write_refuses),
      TEST(test_safetensors_bad_files),  TEST(test_safetensors_unusual_files), TEST(test_safetensors_truncated),
      TEST(test_safetensors_flipped),
  };
  return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}
