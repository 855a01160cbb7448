/* text/tokenizer/bpe and bpe_encode: by hand and against the definition. */
#include "tests/bpe_helpers.h"
#include "text/tokenizer/tokenizer.h"

static void expect_ids(const Bpe *bpe, const char *text, size_t count, const int32_t *expected) {
  PipelineText one = document(text);
  BpeIds got = encode(bpe, &one, 1, -1, 1);
  assert_int_equal(got.count, count);
  if (count > 0) assert_memory_equal(got.ids, expected, count * sizeof *expected);
  free(got.ids);
}

static void expect_decoded(const Bpe *bpe, const BpeIds *ids, const uint8_t *text, size_t size) {
  size_t at = 0;
  for (size_t i = 0; i < ids->count; i++) {
    size_t length;
    const uint8_t *bytes = bpe_decode(bpe, ids->ids[i], &length);
    assert_in_range(length, 1, size - at);
    assert_memory_equal(bytes, text + at, length);
    at += length;
  }
  assert_int_equal(at, size);
}

/* ---- vocabularies ---- */

static const BpeMerge AB_CD[] = {{'a', 'b', 0}, {'b', 'c', 0}, {256, 'c', 0}, {258, 258, 0}};

static void encoding_by_hand(void **state) {
  (void)state;
  Bpe *bpe = vocabulary(AB_CD, 4); /* ab, bc, abc, abcabc */
  assert_int_equal(bpe->tokens.size, 261);
  expect_ids(bpe, "", 0, NULL);
  expect_ids(bpe, "abc", 1, (const int32_t[]){258});
  expect_ids(bpe, "bbcb", 3, (const int32_t[]){'b', 257, 'b'});
  expect_ids(bpe, "abcabcab", 2, (const int32_t[]){259, 256});
  expect_ids(bpe, "abcab cab", 5, (const int32_t[]){258, 256, ' ', 'c', 256});
  expect_ids(bpe, END_OF_TEXT, 13, (const int32_t[]){'<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|', '>'});
  assert_int_equal(bpe_rank(bpe, 'b', 'c'), 1);
  assert_int_equal(bpe_rank(bpe, 'c', 'b'), -1);
  bpe_free(bpe);
}

static void ids_stand_for_bytes(void **state) {
  (void)state;
  Bpe *bpe = vocabulary(AB_CD, 4);
  size_t size;
  assert_memory_equal(bpe_decode(bpe, 259, &size), "abcabc", 6);
  assert_int_equal(size, 6);
  const int32_t none[] = {260, 261, -1, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 5; i++) {
    bpe_decode(bpe, none[i], &size);
    assert_int_equal(size, 0);
  }
  bpe_free(bpe);
}

/* As in GPT-2's file: the bytes are in another order, and the end token need not come last. */
typedef struct Shuffled {
  BpeTokens tokens;
  BpeMerge merges[4];
  int32_t id_of[261];
} Shuffled;

static Shuffled shuffled(const Bpe *bpe) {
  Shuffled out = {.tokens = {.size = 270, .bytes = malloc(2000), .begins = malloc(271 * sizeof(uint32_t))}};
  assert_true(out.tokens.bytes && out.tokens.begins);
  uint32_t at = 0;
  for (int32_t id = 0; id < 261; id++) out.id_of[id] = (id * 100 + 33) % 261;
  for (int32_t to = 0; to < 270; to++) {
    out.tokens.begins[to] = at;
    for (int32_t id = 0; id < 261; id++) {
      size_t size;
      const uint8_t *bytes = bpe_decode(bpe, id, &size);
      if (out.id_of[id] == to) memcpy(out.tokens.bytes + at, bytes, size);
      if (out.id_of[id] == to) at += (uint32_t)size;
    }
  }
  out.tokens.begins[270] = at;
  for (int i = 0; i < 4; i++) {
    const BpeMerge *from = &bpe->merges[i];
    out.merges[i] = (BpeMerge){out.id_of[from->left], out.id_of[from->right], out.id_of[from->id]};
  }
  return out;
}

static void any_ids_can_be_used(void **state) {
  (void)state;
  Error error = {0};
  Bpe *own = vocabulary(AB_CD, 4), *bpe;
  Shuffled s = shuffled(own);
  assert_true(bpe_create(&bpe, &s.tokens, s.merges, 4, (BpeOptions){0}, &error));
  const PipelineText text = document("abcabcab cab\xFF");
  BpeIds expected = encode(own, &text, 1, 260, 1), got = encode(bpe, &text, 1, s.id_of[260], 1);
  assert_int_equal(got.count, expected.count);
  for (size_t i = 0; i < got.count; i++) assert_int_equal(got.ids[i], s.id_of[expected.ids[i]]);
  free(expected.ids);
  free(got.ids);
  free(s.tokens.bytes);
  free(s.tokens.begins);
  bpe_free(own);
  bpe_free(bpe);
}

static void expect_refused(const BpeTokens *tokens, const BpeMerge *merges, size_t count, const char *reason) {
  Error error = {0};
  Bpe *bpe;
  assert_false(bpe_create(&bpe, tokens, merges, count, (BpeOptions){0}, &error));
  assert_null(bpe);
  assert_int_equal(error.code, EXIT_CHECKPOINT);
  if (!strstr(error.text, reason)) fail_msg("\"%s\" is not in \"%s\"", reason, error.text);
}

static void wrong_vocabularies_are_refused(void **state) {
  (void)state;
  Bpe *bpe = vocabulary(AB_CD, 4);
  const BpeTokens *tokens = &bpe->tokens;
  const BpeMerge *good = bpe->merges;
  expect_refused(tokens, (const BpeMerge[]){good[0], good[0]}, 2, "merges 0 and 1 have the same pair");
  expect_refused(tokens, (const BpeMerge[]){{'a', 'b', 257}}, 1,
                 "token 257 is not the concatenation of the tokens 97 and 98");
  expect_refused(tokens, (const BpeMerge[]){{'a', 'b', 261}}, 1, "token 261");
  expect_refused(tokens, (const BpeMerge[]){{'a', -1, 256}}, 1, "tokens 97 and -1");
  expect_refused(tokens, (const BpeMerge[]){{260, 256, 256}}, 1, "tokens 260 and 256");
  expect_refused(tokens, good, BPE_MERGES_LIMIT + 1, "more than");
  bpe->tokens.bytes['x'] = 'y';
  expect_refused(tokens, good, 4, "ids 120 and 121 are both the byte 0x79");
  BpeTokens fewer = {.size = 100, .bytes = tokens->bytes, .begins = tokens->begins};
  expect_refused(&fewer, NULL, 0, "no id is the byte 0x64");
  bpe_free(bpe);
  Error error = {0};
  assert_false(bpe_from_merges(&bpe, (const BpeMerge[]){{'a', 256, 0}}, 1, &error));
  assert_int_equal(error.code, EXIT_CHECKPOINT);
}

/* ---- encoding against the definition ---- */

/* Applies all merges in the order of their rank. */
static BpeIds naive_encode(const Bpe *bpe, const uint8_t *text, size_t size) {
  BpeIds out = {malloc((size + 1) * sizeof *out.ids), 0, 0};
  assert_non_null(out.ids);
  for (size_t at = 0; at < size;) {
    size_t length = pretokenize_first(bpe->classes, text + at, size - at), count = length;
    int32_t *ids = out.ids + out.count;
    for (size_t i = 0; i < length; i++) ids[i] = text[at + i];
    for (int32_t rank = 0; rank < bpe->merge_count; rank++) naive_merge(ids, &count, &bpe->merges[rank]);
    out.count += count;
    at += length;
  }
  return out;
}

static void expect_naive(const Bpe *bpe, const uint8_t *text, size_t size) {
  BpeIds expected = naive_encode(bpe, text, size), got = encode(bpe, &(PipelineText){text, size}, 1, -1, 1);
  assert_int_equal(got.count, expected.count);
  if (got.count > 0) assert_memory_equal(got.ids, expected.ids, got.count * sizeof *got.ids);
  expect_decoded(bpe, &got, text, size);
  free(expected.ids);
  free(got.ids);
}

static void encoding_is_that_of_the_definition(void **state) {
  (void)state;
  Random random = {1u << 21};
  uint8_t *text = malloc(60000);
  assert_non_null(text);
  fill_text(&random, text, 60000);
  Bpe *bpe = trained_on(text, 30000, 900);
  assert_true(bpe->merge_count > 300);
  expect_naive(bpe, text, 60000);
  for (size_t size = 0; size < 300; size++) expect_naive(bpe, text + 7 * size, size);
  bpe_free(bpe);
  free(text);
}

static void long_pieces_are_merged_like_short_ones(void **state) {
  (void)state;
  Random random = {1u << 22};
  uint8_t text[2000];
  for (int round = 0; round < 30; round++) {
    uint32_t letters = 1 + draw(&random, 3);
    for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)("abc"[draw(&random, letters)]);
    Bpe *bpe = trained_on(text, sizeof text, 330);
    for (int j = 0; j < 10; j++) expect_naive(bpe, text, draw(&random, j < 5 ? 140 : sizeof text));
    bpe_free(bpe);
  }
}

static void any_bytes_come_back(void **state) {
  (void)state;
  Random random = {1u << 23};
  uint8_t text[300];
  for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)draw(&random, i < 150 ? 4 : 256);
  Bpe *bpe = trained_on(text, sizeof text, 300);
  for (int round = 0; round < 3000; round++) {
    size_t size = draw(&random, sizeof text + 1);
    for (size_t i = 0; i < size; i++) text[i] = (uint8_t)draw(&random, round % 2 ? 256 : 4);
    BpeIds ids = encode(bpe, &(PipelineText){text, size}, 1, -1, 1);
    expect_decoded(bpe, &ids, text, size);
    free(ids.ids);
  }
  bpe_free(bpe);
}

static void long_runs(void **state) {
  (void)state;
  static const char *const units[] = {" ", "a", "7", "\xFF", "ab", "天", "\n"};
  size_t size = 1 << 18;
  uint8_t *text = malloc(size);
  assert_non_null(text);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t length = strlen(units[i]);
    for (size_t at = 0; at < size; at++) text[at] = (uint8_t)units[i][at % length];
    Bpe *bpe = trained_on(text, size, 300);
    BpeIds ids = encode(bpe, &(PipelineText){text, size}, 1, -1, 2);
    assert_in_range(ids.count, 1, size / 128);
    expect_decoded(bpe, &ids, text, size);
    free(ids.ids);
    bpe_free(bpe);
  }
  free(text);
}

/* ---- threads and documents ---- */

static void threads_change_no_id(void **state) {
  (void)state;
  Large *large = large_create();
  Bpe *bpe = trained_on(large->text, LARGE, 1200);
  BpeIds one = encode(bpe, large->documents, large->count, 7, 1);
  for (int threads = 2; threads <= 7; threads += 5) {
    BpeIds many = encode(bpe, large->documents, large->count, 7, threads);
    assert_int_equal(many.count, one.count);
    assert_memory_equal(many.ids, one.ids, one.count * sizeof *one.ids);
    free(many.ids);
  }
  free(one.ids);
  bpe_free(bpe);
  large_free(large);
}

static void documents_are_encoded_each_by_itself(void **state) {
  (void)state;
  Error error = {0};
  Large *large = large_create();
  Bpe *bpe = trained_on(large->text, LARGE, 600);
  BpeIds all = encode(bpe, large->documents, large->count, 600, 2), single = {0};
  const Pipeline pipeline = pipeline_trained(bpe);
  BpeEncoder *encoder;
  assert_true(bpe_encoder_create(&encoder, &pipeline, false, 1, NULL, &error));
  for (size_t i = 0; i < large->count; i++) {
    assert_true(bpe_encode(encoder, &large->documents[i], 1, -1, bpe_ids_sink, &single, &error));
    assert_true(bpe_ids_sink(&single, (const int32_t[]){600}, 1, &error));
  }
  assert_int_equal(all.count, single.count);
  assert_memory_equal(all.ids, single.ids, all.count * sizeof *all.ids);
  bpe_encoder_free(encoder);
  free(all.ids);
  free(single.ids);
  bpe_free(bpe);
  large_free(large);
}

static bool refuse_second(void *calls, const int32_t *ids, size_t count, Error *error) {
  assert_true(ids && count > 0);
  return ++*(int *)calls < 2 || (fail)(error, EXIT_OUTPUT, "full");
}

static void a_sink_can_stop_it(void **state) {
  (void)state;
  Error error = {0};
  Bpe *bpe = vocabulary(AB_CD, 4);
  const Pipeline pipeline = pipeline_trained(bpe);
  BpeEncoder *encoder;
  int calls = 0;
  const PipelineText documents[] = {document("a"), document("b"), document("c")};
  assert_true(bpe_encoder_create(&encoder, &pipeline, false, 1, NULL, &error));
  assert_false(bpe_encode(encoder, documents, 3, 260, refuse_second, &calls, &error));
  assert_int_equal(calls, 2);
  assert_int_equal(error.code, EXIT_OUTPUT);
  bpe_encoder_free(encoder);
  bpe_free(bpe);
}

static bool never_called(void *context, const int32_t *ids, size_t count, Error *error) {
  (void)context, (void)ids, (void)count, (void)error;
  fail_msg("a sink was called after a signal");
  return false;
}

static void a_signal_stops_it_inside_a_piece(void **state) {
  (void)state;
  enum { SIZE = 1 << 20 };
  static uint8_t text[SIZE];
  static _Atomic int stop = 2;
  memset(text, 'a', SIZE);
  Error error = {0};
  Bpe *bpe = vocabulary(AB_CD, 4);
  const Pipeline pipeline = pipeline_trained(bpe);
  BpeEncoder *encoder;
  assert_true(bpe_encoder_create(&encoder, &pipeline, false, 1, &stop, &error));
  assert_false(bpe_encode(encoder, &(PipelineText){text, SIZE}, 1, 260, never_called, NULL, &error));
  assert_int_equal(error.code, EXIT_SIGNALS + 2);
  bpe_encoder_free(encoder);
  bpe_free(bpe);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(encoding_by_hand),
      cmocka_unit_test(ids_stand_for_bytes),
      cmocka_unit_test(any_ids_can_be_used),
      cmocka_unit_test(wrong_vocabularies_are_refused),
      cmocka_unit_test(encoding_is_that_of_the_definition),
      cmocka_unit_test(long_pieces_are_merged_like_short_ones),
      cmocka_unit_test(any_bytes_come_back),
      cmocka_unit_test(long_runs),
      cmocka_unit_test(threads_change_no_id),
      cmocka_unit_test(documents_are_encoded_each_by_itself),
      cmocka_unit_test(a_sink_can_stop_it),
      cmocka_unit_test(a_signal_stops_it_inside_a_piece),
  };
  return cmocka_run_group_tests_name("bpe", tests, NULL, NULL);
}
