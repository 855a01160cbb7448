/* text/tokenizer/pretokenize and char_class: against the whole pattern matched by PCRE2, and cuts against the uncut
 * text. */
#include "tests/bpe_helpers.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

/* ---- helpers ---- */

static int set_up(void **state) {
  Error error = {0};
  CharClasses *classes;
  assert_true(char_classes_create(&classes, &error));
  *state = classes;
  return 0;
}

static int tear_down(void **state) {
  free(*state);
  return 0;
}

/* Sizes of the pieces; returns their number. */
static size_t split_all(const CharClasses *classes, const uint8_t *text, size_t size, size_t *sizes) {
  size_t count = 0;
  for (size_t at = 0; at < size; at += sizes[count - 1]) {
    sizes[count] = pretokenize_first(classes, text + at, size - at);
    assert_in_range(sizes[count], 1, size - at);
    count++;
  }
  return count;
}

/* Text that has what the pattern asks about, and broken UTF-8 of all kinds. */
static size_t random_text(Random *random, uint8_t *text, size_t capacity) {
  enum { PARTS = 55 };
  static const char parts[] = " | |  |\n|\t|\r\n|a|Z|ll|re|'|'s|'t|'m|'d|'re|'ve|'ll|'S|'r|'v|7|42|!|.|\"|"
                              "\xC2\x85|\xC2\xA0|é|½|Ⅷ|٣|天|。|，|👍🏽|\u200D|\u180E|\u2028|\u3000|\u1680|"
                              "\uFEFF|\u0301|\U00020000|\xFF|\xC0|\x80|\xE3\x80|\xED\xA0\x80|"
                              "\xF4\x90\x80\x80|\xF0\x9F|\xC1\xBF|\xE2|\x1C|\xF5";
  size_t size = 0, wanted = draw(random, 40);
  while (wanted-- > 0) {
    const char *part = parts;
    for (uint32_t skipped = draw(random, PARTS); skipped > 0; skipped--) part = strchr(part, '|') + 1;
    size_t length = strcspn(part, "|");
    if (size + length + 1 > capacity) break;
    memcpy(text + size, part, length);
    size += length;
    if (draw(random, 12) == 0) text[size++] = (uint8_t)draw(random, 256);
  }
  return size;
}

static void expect_pieces(const CharClasses *classes, const char *text, const char *const *pieces) {
  size_t at = 0, size = strlen(text);
  for (size_t i = 0; pieces[i]; i++) {
    assert_true(at < size);
    size_t length = pretokenize_first(classes, (const uint8_t *)text + at, size - at);
    if (length != strlen(pieces[i]) || memcmp(text + at, pieces[i], length) != 0)
      fail_msg("\"%s\": piece %zu is \"%.*s\", not \"%s\"", text, i, (int)length, text + at, pieces[i]);
    at += length;
  }
  assert_int_equal(at, size);
}

#define EXPECT(text, ...) expect_pieces(*state, text, (const char *const[]){__VA_ARGS__, NULL})

static size_t first_cut(const CharClasses *classes, const uint8_t *text, size_t size, size_t from) {
  for (size_t at = from > 0 ? from : 1; at < size; at++)
    if (pretokenize_cuts(classes, text, at)) return at;
  return size;
}

/* ---- the whole pattern, by PCRE2 ---- */

typedef struct Reference {
  pcre2_code *code;
  pcre2_match_data *match;
} Reference;

#define WHITE "\\x09-\\x0D\\x20\\x85\\xA0\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"

static Reference reference_of(const char *pattern) {
  int error;
  PCRE2_SIZE offset;
  Reference out = {.code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, NULL)};
  assert_non_null(out.code);
  out.match = pcre2_match_data_create_from_pattern(out.code, NULL);
  assert_non_null(out.match);
  return out;
}

static Reference reference_create(void) {
  return reference_of("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WHITE "\\p{L}\\p{N}]+"
                      "|[" WHITE "]+(?![^" WHITE "])|[" WHITE "]+");
}

static void reference_free(const Reference *reference) {
  pcre2_match_data_free(reference->match);
  pcre2_code_free(reference->code);
}

/* Well-formed UTF-8 by PCRE2's own check: bytes of the character at text[0], or 0. */
static size_t valid_character(const Reference *reference, const uint8_t *text, size_t size) {
  for (size_t length = 1; length <= 4 && length <= size; length++) {
    int found = pcre2_match(reference->code, text, length, 0, PCRE2_ANCHORED, reference->match, NULL);
    if (found > PCRE2_ERROR_NOMATCH - 1) return length; /* a match or none, but no error of UTF-8 */
  }
  return 0;
}

/* Every byte that is not UTF-8 becomes U+FFFD, which is neither letter, number nor space. */
static size_t reference_split(const Reference *reference, const uint8_t *text, size_t size, size_t *sizes) {
  uint8_t *clean = malloc(3 * size + 1);
  size_t *origin = malloc((3 * size + 1) * sizeof *origin), cleaned = 0, count = 0;
  assert_true(clean && origin);
  for (size_t at = 0; at < size;) {
    size_t length = valid_character(reference, text + at, size - at), step = length > 0 ? length : 1;
    const uint8_t *from = length > 0 ? text + at : (const uint8_t *)"\uFFFD";
    for (size_t i = 0; i < (length > 0 ? length : 3); i++) {
      origin[cleaned] = at;
      clean[cleaned++] = from[i];
    }
    at += step;
  }
  origin[cleaned] = size;
  const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(reference->match);
  for (size_t at = 0; at < cleaned; at = offsets[1]) {
    assert_int_equal(pcre2_match(reference->code, clean, cleaned, at, 0, reference->match, NULL), 1);
    assert_int_equal(offsets[0], at);
    sizes[count++] = origin[offsets[1]] - origin[at];
  }
  free(clean);
  free(origin);
  return count;
}

static void pieces_are_those_of_the_pattern(void **state) {
  Reference reference = reference_create();
  Random random = {0};
  uint8_t text[256];
  size_t ours[256], expected[256];
  for (int round = 0; round < 20000; round++) {
    size_t size = random_text(&random, text, sizeof text), count = split_all(*state, text, size, ours);
    assert_int_equal(count, reference_split(&reference, text, size, expected));
    assert_memory_equal(ours, expected, count * sizeof *ours);
  }
  reference_free(&reference);
}

static void random_bytes_have_pieces_too(void **state) {
  Reference reference = reference_create();
  Random random = {1u << 24};
  uint8_t text[64];
  size_t ours[64], expected[64];
  for (int round = 0; round < 5000; round++) {
    size_t size = draw(&random, sizeof text + 1);
    for (size_t i = 0; i < size; i++) text[i] = (uint8_t)draw(&random, 256);
    size_t count = split_all(*state, text, size, ours);
    assert_int_equal(count, reference_split(&reference, text, size, expected));
    assert_memory_equal(ours, expected, count * sizeof *ours);
  }
  reference_free(&reference);
}

/* Each code point between two letters: letters give one piece, the others tell numbers, spaces and the rest apart. */
/* All but those that only one of the two libraries knows, by a newer Unicode. */
static void all_code_points_have_their_class(void **state) {
  Reference reference = reference_create();
  const Reference unassigned = reference_of("\\p{Cn}");
  size_t ours[8], expected[8], compared = 0;
  for (uint32_t point = 0x80; point < UTF8_POINTS; point += point < 0x3400 || point > 0x1FFFF ? 1 : 7) {
    uint8_t text[8] = {'a', ' '};
    size_t size = 2;
    if (point >= 0x10000) text[size++] = (uint8_t)(0xF0 | point >> 18);
    if (point >= 0x10000) text[size++] = (uint8_t)(0x80 | (point >> 12 & 0x3F));
    if (point >= 0x800 && point < 0x10000) text[size++] = (uint8_t)(0xE0 | point >> 12);
    if (point >= 0x800) text[size++] = (uint8_t)(0x80 | (point >> 6 & 0x3F));
    if (point < 0x800) text[size++] = (uint8_t)(0xC0 | point >> 6);
    text[size++] = (uint8_t)(0x80 | (point & 0x3F));
    const bool unknown = utf8proc_category((utf8proc_int32_t)point) == UTF8PROC_CATEGORY_CN;
    if (unknown != (pcre2_match(unassigned.code, text, size, 2, 0, unassigned.match, NULL) > 0)) continue;
    text[size++] = 'b';
    size_t count = split_all(*state, text, size, ours);
    assert_int_equal(count, reference_split(&reference, text, size, expected));
    assert_memory_equal(ours, expected, count * sizeof *ours);
    if (point > 0x2FFFF) point += 60; /* few are assigned */
    compared++;
  }
  assert_true(compared > 100000);
  reference_free(&reference);
  reference_free(&unassigned);
}

/* ---- by hand ---- */

static void contractions(void **state) {
  EXPECT("it's we've", "it", "'s", " we", "'ve");
  EXPECT("they'll I'd I'm don't you're", "they", "'ll", " I", "'d", " I", "'m", " don", "'t", " you", "'re");
  EXPECT("'sup", "'s", "up");
  EXPECT("IT'S", "IT", "'", "S");
  EXPECT("a 's", "a", " '", "s");
  EXPECT("''s", "''", "s");
  EXPECT("'l 'r'", "'", "l", " '", "r", "'");
}

static void words_numbers_and_signs(void **state) {
  EXPECT("Hello, world", "Hello", ",", " world");
  EXPECT("x1=2.5e-3", "x", "1", "=", "2", ".", "5", "e", "-", "3");
  EXPECT("天地。玄黄", "天地", "。", "玄黄");
  EXPECT("½Ⅷ٣", "½Ⅷ٣");
  EXPECT("e\u0301", "e", "\u0301");
}

static void white_space(void **state) {
  EXPECT("a  b", "a", " ", " b");
  EXPECT("a \n b", "a", " \n", " b");
  EXPECT("a\n\nb", "a", "\n", "\n", "b");
  EXPECT("a   ", "a", "   ");
  EXPECT(" ", " ");
  EXPECT("a\xC2\x85"
         "b",
         "a", "\xC2\x85", "b");
  EXPECT("a\u00A0b", "a", "\u00A0", "b");
  EXPECT("a \u2028b", "a", " ", "\u2028", "b");
  EXPECT("a\u3000\u3000 b", "a", "\u3000\u3000", " b");
  EXPECT("a\u3000\u3000b", "a", "\u3000", "\u3000", "b");
  EXPECT("a\u180Eb", "a", "\u180E", "b"); /* no white space since Unicode 6.3: a sign */
  EXPECT("a \u180Eb", "a", " \u180E", "b");
  EXPECT("a \u200Bb", "a", " \u200B", "b");
  EXPECT("a\x1C b", "a", "\x1C", " b");
}

static void bytes_that_are_not_utf8(void **state) {
  EXPECT("a\xFF\xFE b", "a", "\xFF\xFE", " b");
  EXPECT("a \xE3\x80", "a", " \xE3\x80");
  EXPECT("\xE3\x80\x80\x80", "\xE3\x80\x80", "\x80");
  EXPECT("\xC0\xA0x", "\xC0\xA0", "x");     /* an overlong space */
  EXPECT("\xED\xA0\x80!", "\xED\xA0\x80!"); /* a surrogate */
  EXPECT("  \xFFz", " ", " \xFF", "z");
}

static void a_long_run_is_one_piece(void **state) {
  static const char *const units[] = {" ", "\n", "a", "7", "-", "'", "\xFF", "\x80", "é", "\u3000", "天", "\xE3\x80"};
  size_t size = 3 << 20;
  uint8_t *text = malloc(size);
  assert_non_null(text);
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
    size_t length = strlen(units[i]), whole = size / length * length;
    for (size_t at = 0; at < whole; at += length) memcpy(text + at, units[i], length);
    assert_int_equal(pretokenize_first(*state, text, whole), whole);
  }
  free(text);
}

/* ---- cuts ---- */

static void cuts_keep_the_pieces(void **state) {
  Random random = {1u << 25};
  uint8_t text[256];
  size_t whole[256], parts[256], cuts = 0;
  for (int round = 0; round < 4000; round++) {
    size_t size = random_text(&random, text, sizeof text), count = split_all(*state, text, size, whole);
    for (size_t from = 0; from < size; from++) {
      size_t cut = first_cut(*state, text, size, from);
      assert_in_range(cut, from > 0 ? from : 1, size);
      /* In a buffer of its own, so that a sanitizer sees what looks past the cut. */
      uint8_t *first = malloc(cut);
      memcpy(first, text, cut);
      size_t left = split_all(*state, first, cut, parts);
      free(first);
      assert_int_equal(left + split_all(*state, text + cut, size - cut, parts + left), count);
      assert_memory_equal(parts, whole, count * sizeof *whole);
      cuts += cut < size;
      from = cut - (cut > from); /* the same cut for all between */
    }
  }
  assert_true(cuts > 10000);
}

static void places_to_cut(void **state) {
  static const struct {
    const char *text;
    size_t from, cut;
  } cases[] = {
      {"ab cd", 0, 2}, {"ab cd", 3, 5},     {"it's", 0, 2},      {"a's", 2, 3},     {"a1", 0, 1},
      {"x  y", 2, 4},  {"。\n", 0, 3},      {"\u3000\nx", 0, 5}, {"\xFF\nx", 0, 1}, {"\xE3\x80\x80\x80\n", 0, 4},
      {"aaaa", 0, 4},  {"\xE3\x80\n", 0, 2}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    size_t size = strlen(cases[i].text);
    assert_int_equal(first_cut(*state, (const uint8_t *)cases[i].text, size, cases[i].from), cases[i].cut);
  }
}

static void chunks_are_the_documents(void **state) {
  (void)state;
  size_t size = 20 * PIPELINE_CHUNK_BYTES + 17, made, last = 0, total = 0;
  int rounds = 0;
  uint8_t *text = malloc(size);
  PipelineChunk *chunks = malloc(PIPELINE_ROUND_CHUNKS * sizeof *chunks);
  assert_true(text && chunks);
  for (size_t i = 0; i < size; i++) text[i] = i % 7 == 6 ? ' ' : 'x';
  const PipelineText documents[] = {{text, 3}, {NULL, 0}, {text, size}, {text, PIPELINE_CHUNK_BYTES}};
  Bpe *bytes = vocabulary(NULL, 0);
  const Pipeline pipeline = pipeline_trained(bytes);
  PipelineCursor cursor = {0};
  for (; (made = pipeline_chunks(&pipeline, documents, 4, 1, &cursor, chunks)) > 0; rounds++) {
    for (size_t i = 0; i < made; i++) {
      assert_true(chunks[i].size < PIPELINE_CHUNK_BYTES + 7);
      total += chunks[i].size;
      last += chunks[i].is_last;
    }
  }
  assert_int_equal(rounds, 3);
  assert_int_equal(total, 3 + size + PIPELINE_CHUNK_BYTES);
  assert_int_equal(last, 4);
  bpe_free(bytes);
  free(chunks);
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_are_those_of_the_pattern),
      cmocka_unit_test(random_bytes_have_pieces_too),
      cmocka_unit_test(all_code_points_have_their_class),
      cmocka_unit_test(contractions),
      cmocka_unit_test(words_numbers_and_signs),
      cmocka_unit_test(white_space),
      cmocka_unit_test(bytes_that_are_not_utf8),
      cmocka_unit_test(a_long_run_is_one_piece),
      cmocka_unit_test(cuts_keep_the_pieces),
      cmocka_unit_test(places_to_cut),
      cmocka_unit_test(chunks_are_the_documents),
  };
  return cmocka_run_group_tests_name("pretokenize", tests, set_up, tear_down);
}
