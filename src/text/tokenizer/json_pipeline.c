/* Reads the pipeline of tokenizer.json: normalizer, added tokens, pre_tokenizer, decoder. It refuses, by name, features
 * for which it would produce other ids than the library that wrote the file. */
#include "text/tokenizer/internal.h"

#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

enum { NESTED = 3 /* sequences in sequences */ };

typedef bool (*StepReader)(TokenizerReader *r, const json_t *step);

/* Calls `read` for a step, or for each step of a Sequence. */
static bool read_steps(TokenizerReader *r, const json_t *step, const char *list, StepReader read, int depth) {
  if (json_is_absent(step)) return true;
  if (!json_is_type(step, "Sequence")) return read(r, step);
  const json_t *steps = json_object_get(step, list);
  if (!json_is_array(steps) || depth == NESTED) return json_refuse(r, "a Sequence has no list of %s" SUPPORTED, list);
  for (size_t i = 0; i < json_array_size(steps); i++)
    if (!read_steps(r, json_array_get(steps, i), list, read, depth + 1)) return false;
  return true;
}

static bool add_step(TokenizerReader *r, Step step) { return pipeline_add(&r->out->pipeline, step, r->error); }

static bool add_prepend(TokenizerReader *r, const char *text, PrependWhen when) {
  Step step = {.kind = STEP_PREPEND, .to = strdup(text), .when = when};
  return step.to ? add_step(r, step) : error_memory(r->error, "a tokenizer");
}

static bool add_replace(TokenizerReader *r, const char *from, const char *to) {
  Step step = {.kind = STEP_REPLACE, .from = strdup(from), .to = strdup(to)};
  if (step.from && step.to) return add_step(r, step);
  free(step.from);
  free(step.to);
  return error_memory(r->error, "a tokenizer");
}

static bool add_regex(TokenizerReader *r, const char *pattern, bool literal, Step step) {
  step.kind = STEP_REGEX;
  return regex_create(&step.regex, pattern, literal, r->error) && add_step(r, step);
}

/* ---- normalizer ---- */

static bool read_normalizer(TokenizerReader *r, const json_t *step) {
  const char *prepend = json_string_value(json_object_get(step, "prepend")),
             *pattern = json_string_value(json_object_get(json_object_get(step, "pattern"), "String")),
             *content = json_string_value(json_object_get(step, "content"));
  if (json_is_type(step, "NFC")) return add_step(r, (Step){.kind = STEP_NFC});
  if (json_is_type(step, "Prepend") && prepend) return !*prepend || add_prepend(r, prepend, PREPEND_ALWAYS);
  if (json_is_type(step, "Replace") && pattern && *pattern && content) return add_replace(r, pattern, content);
  return json_refuse(r, "its normalizer has a step \"%s\" other than NFC, Prepend and Replace of a text" SUPPORTED,
                     text_one_line(json_type_name(step), 40).text);
}

/* ---- added tokens ---- */

/* Adds an added token to `set` and to the joined pairs, with its text normalized if the search reads normalized
 * text. */
static bool add_token(TokenizerReader *r, PipelineRunner *runner, AddedTokens *set, const AddedToken *entry,
                      ByteBuffer *text) {
  Pipeline *p = &r->out->pipeline;
  const size_t size = strlen(entry->text);
  text->size = 0;
  if (!(entry->normalized ? pipeline_normalize(runner, (const uint8_t *)entry->text, size, text, r->error)
                          : byte_buffer_add(text, entry->text, size, r->error)) ||
      !added_tokens_add(set, text->bytes, text->size, entry, r->error))
    return false;
  return joined_pairs_add(&p->added_joined, text->bytes, text->size, true, r->error) &&
         (!entry->normalized || !p->joined || joined_pairs_add(&p->joined, text->bytes, text->size, false, r->error));
}

static bool add_tokens(TokenizerReader *r, PipelineRunner *runner, AddedTokens *set, bool normalized) {
  ByteBuffer text = {0};
  bool ok = true;
  for (size_t i = 0; ok && i < r->out->added_count; i++)
    if (r->out->added[i].normalized == normalized && *r->out->added[i].text)
      ok = add_token(r, runner, set, &r->out->added[i], &text);
  free(text.bytes);
  return ok;
}

/* Adds the step that searches for added tokens in the normalized text, or in the text before normalization. */
static bool add_added_step(TokenizerReader *r, bool normalized) {
  PipelineRunner *runner = NULL;
  Step step = {.kind = STEP_ADDED, .added = calloc(1, sizeof *step.added)};
  bool ok = (step.added || error_memory(r->error, "the added tokens")) &&
            pipeline_runner_create(&runner, &r->out->pipeline, true, (PipelineSink){0}, NULL, r->error) &&
            add_tokens(r, runner, step.added, normalized);
  pipeline_runner_free(runner);
  if (ok && (step.added->special || step.added->plain)) return add_step(r, step);
  added_tokens_free(step.added);
  return ok;
}

/* ---- pre_tokenizer ---- */

static bool read_byte_level(TokenizerReader *r, const json_t *step) {
  const json_t *prefix = json_object_get(step, "add_prefix_space"), *regex = json_object_get(step, "use_regex");
  if (!json_is_boolean(prefix) || (regex && !json_is_boolean(regex)))
    return json_refuse(r,
                       "ByteLevel of its pre_tokenizer does not say what add_prefix_space or use_regex is" SUPPORTED);
  if (json_is_true(prefix)) r->out->prefix_space = true;
  return (json_is_false(prefix) || add_prepend(r, " ", PREPEND_MISSING)) &&
         (json_is_false(regex) || add_step(r, (Step){.kind = STEP_GPT2}));
}

static bool read_split(TokenizerReader *r, const json_t *step) {
  static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const json_t *pattern = json_object_get(step, "pattern");
  const char *text = json_string_value(json_object_get(pattern, "String")),
             *regex = json_string_value(json_object_get(pattern, "Regex"));
  const json_t *invert = json_object_get(step, "invert");
  int behavior = 0;
  while (behavior < 5 && !json_has_text(step, "behavior", names[behavior])) behavior++;
  if ((!text && !regex) || behavior == 5 || (invert && !json_is_boolean(invert)))
    return json_refuse(r, "Split of its pre_tokenizer has no pattern, or no behavior that is known" SUPPORTED);
  const bool isolated = behavior == SPLIT_ISOLATED && !json_is_true(invert);
  if (isolated && regex && strcmp(regex, PATTERN_GPT2) == 0) return add_step(r, (Step){.kind = STEP_GPT2});
  const bool lines = isolated && regex && (!strcmp(regex, PATTERN_LLAMA3) || !strcmp(regex, PATTERN_QWEN2));
  const Step split = {.behavior = (SplitBehavior)behavior,
                      .inverted = json_is_true(invert),
                      .pattern = lines ? PATTERN_IS_LINES : PATTERN_IS_OTHER};
  return add_regex(r, text ? text : regex, text != NULL, split);
}

static bool read_digits(TokenizerReader *r, const json_t *step) {
  const bool single = json_is_true(json_object_get(step, "individual_digits"));
  return add_regex(r, single ? PATTERN_DIGIT : PATTERN_DIGITS, false,
                   (Step){.behavior = SPLIT_ISOLATED, .pattern = PATTERN_IS_DIGITS});
}

/* Returns 0 for never, 1 for always, 2 for first, -1 for anything else. Older files have add_prefix_space. */
static int prepend_scheme(const json_t *step) {
  const json_t *scheme = json_object_get(step, "prepend_scheme"), *space = json_object_get(step, "add_prefix_space");
  if (json_has_text(step, "prepend_scheme", "never")) return json_is_true(space) ? -1 : 0;
  if (json_is_false(space)) return scheme ? -1 : 0;
  return !scheme || json_has_text(step, "prepend_scheme", "always") ? 1
         : json_has_text(step, "prepend_scheme", "first")           ? 2
                                                                    : -1;
}

static bool is_metaspace(const json_t *step) {
  return json_is_type(step, "Metaspace") && json_has_text(step, "replacement", SPACE_SYMBOL) &&
         prepend_scheme(step) >= 0;
}

static bool read_metaspace(TokenizerReader *r, const json_t *step) {
  if (!is_metaspace(step)) return json_refuse(r, "Metaspace of its pre_tokenizer has unknown values" SUPPORTED);
  const int scheme = prepend_scheme(step);
  const Step split = {.behavior = SPLIT_MERGED_WITH_NEXT, .pattern = PATTERN_IS_SPACE};
  return add_replace(r, " ", SPACE_SYMBOL) &&
         (!scheme || add_prepend(r, SPACE_SYMBOL, scheme == 1 ? PREPEND_MISSING : PREPEND_FIRST)) &&
         (json_is_false(json_object_get(step, "split")) || add_regex(r, SPACE_SYMBOL, true, split));
}

static bool read_pre_tokenizer(TokenizerReader *r, const json_t *step) {
  static const struct {
    const char *type;
    StepReader read;
  } kinds[] = {
      {"ByteLevel", read_byte_level}, {"Split", read_split}, {"Digits", read_digits}, {"Metaspace", read_metaspace}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (json_is_type(step, kinds[i].type)) return kinds[i].read(r, step);
  return json_refuse(r,
                     "its pre_tokenizer has a step \"%s\" other than ByteLevel, Split, Digits and Metaspace" SUPPORTED,
                     text_one_line(json_type_name(step), 40).text);
}

/* ByteLevel must be the last step, because it replaces the characters of the text. */
static bool find_byte_level(TokenizerReader *r, const json_t *step) {
  if (r->bytes) return json_refuse(r, "ByteLevel is not the last step of its pre_tokenizer" SUPPORTED);
  r->bytes = json_is_type(step, "ByteLevel");
  return true;
}

static bool has_json(const TokenizerReader *r, const char *key, const char *expected, bool *same) {
  json_t *value = json_parse(expected, strlen(expected), 0, NULL, key, r->error);
  *same = value && json_equal(value, json_object_get(r->root, key));
  json_decref(value);
  return value;
}

/* Finds the kind of whose pieces the model is a vocabulary. */
static bool find_level(TokenizerReader *r) {
  bool cuts = false, joins = false;
  for (int level = WORD_LEVEL_NONE + 1; level < WORD_LEVELS && !r->level; level++) {
    const WordLevelKind *kind = &word_level_kinds[level];
    if (!has_json(r, "pre_tokenizer", kind->pre_tokenizer, &cuts) || !has_json(r, "decoder", kind->decoder, &joins))
      return false;
    if (cuts && joins) r->level = (WordLevel)level;
  }
  return (r->level && json_is_absent(json_object_get(r->root, "normalizer"))) ||
         json_refuse(r, "its model is WordLevel, with another normalizer, pre_tokenizer or decoder" SUPPORTED);
}

bool json_find_kind(TokenizerReader *r) {
  const json_t *model = json_object_get(r->root, "model");
  if (json_is_type(model, "WordLevel")) return find_level(r);
  if (!read_steps(r, json_object_get(r->root, "pre_tokenizer"), "pretokenizers", find_byte_level, 0)) return false;
  if (r->bytes) return true;
  if (!json_is_true(json_object_get(model, "byte_fallback")))
    return json_refuse(
        r, "neither is ByteLevel the last step of its pre_tokenizer, nor has its model byte_fallback" SUPPORTED);
  return !json_is_true(json_object_get(model, "ignore_merges")) ||
         json_refuse(r, "a vocabulary of characters has ignore_merges" SUPPORTED);
}

/* ---- decoder ---- */

typedef enum DecoderStep { REPLACE = 1, FALLBACK = 2, FUSE = 4, STRIP = 8, METASPACE = 16 } DecoderStep;

/* Returns 0 for an unknown step. */
static unsigned decoder_step(const json_t *step) {
  const json_t *start = json_object_get(step, "start"), *stop = json_object_get(step, "stop");
  const bool space = json_has_text(step, "content", " ");
  if (json_has_text(json_object_get(step, "pattern"), "String", SPACE_SYMBOL) && json_is_type(step, "Replace") && space)
    return REPLACE;
  if (json_is_type(step, "ByteFallback")) return FALLBACK;
  if (json_is_type(step, "Fuse")) return FUSE;
  if (json_is_type(step, "Strip") && space && json_integer_value(start) == 1 && json_integer_value(stop) == 0)
    return STRIP;
  return is_metaspace(step) ? METASPACE : 0;
}

/* Accepts Replace, ByteFallback, Fuse, Strip, in this order; Metaspace may take the place of Replace and Strip. */
static bool read_characters_decoder(TokenizerReader *r, const json_t *decoder) {
  const json_t *steps = json_is_type(decoder, "Sequence") ? json_object_get(decoder, "decoders") : NULL;
  unsigned seen = 0;
  const size_t count = steps ? json_array_size(steps) : 1;
  for (size_t i = 0; i < count; i++) {
    const json_t *step = steps ? json_array_get(steps, i) : decoder;
    const unsigned kind = decoder_step(step);
    if (!kind || kind <= seen || (kind == STRIP && !(seen & FUSE)) || (kind == METASPACE && seen & ~(unsigned)FALLBACK))
      return json_refuse(r, "its decoder has a step \"%s\" that is not expected there" SUPPORTED,
                         text_one_line(json_type_name(step), 40).text);
    seen |= kind;
    if (kind == METASPACE && prepend_scheme(step) > 0) r->out->leading = LEADING_SPACES;
    if (kind == STRIP) r->out->leading = LEADING_SPACE;
  }
  return seen & (REPLACE | METASPACE) ||
         json_refuse(r, "its decoder does not turn \"" SPACE_SYMBOL "\" into spaces" SUPPORTED);
}

static bool read_decoder(TokenizerReader *r) {
  const json_t *decoder = json_object_get(r->root, "decoder");
  if (r->level) {
    r->out->leading = *word_level_kinds[r->level].before ? LEADING_LINES : LEADING_KEPT;
    return true;
  }
  if (!r->bytes) return read_characters_decoder(r, decoder);
  return json_is_type(decoder, "ByteLevel") || json_refuse(r, "its decoder is \"%s\", not ByteLevel" SUPPORTED,
                                                           text_one_line(json_type_name(decoder), 40).text);
}

/* ---- the whole pipeline ---- */

static bool hash_value(TokenizerReader *r, const json_t *value) {
  char *text =
      json_text(value ? value : json_null(), JSON_COMPACT | JSON_SORT_KEYS | JSON_ENCODE_ANY, TOKENIZER_JSON, r->error);
  if (text) r->out->pipeline_hash = checksum_xxh64(text, strlen(text), r->out->pipeline_hash);
  free(text);
  return text != NULL;
}

static bool hash_pipeline(TokenizerReader *r) {
  const json_t *model = json_object_get(r->root, "model");
  if (tokenizer_is_gpt2(r->out)) return true; /* keeps the fingerprints of older runs valid */
  return hash_value(r, json_object_get(r->root, "normalizer")) &&
         hash_value(r, json_object_get(r->root, "pre_tokenizer")) &&
         hash_value(r, json_object_get(r->root, "added_tokens")) &&
         (!r->level || hash_value(r, json_object_get(model, "unk_token"))) &&
         hash_value(r, json_object_get(model, "byte_fallback")) &&
         hash_value(r, json_object_get(model, "ignore_merges"));
}

/* In a vocabulary of characters a whole text is one word; STEP_UNJOINED cuts it where no token can cross. */
static bool begin_joined(TokenizerReader *r) {
  bool ok = true;
  for (int32_t id = 0; ok && !r->bytes && !r->level && id < r->out->bpe->tokens.size; id++) {
    size_t size;
    const uint8_t *bytes = bpe_decode(r->out->bpe, id, &size);
    ok = joined_pairs_add(&r->out->pipeline.joined, bytes, size, false, r->error);
  }
  return ok;
}

bool json_read_pipeline(TokenizerReader *r) {
  r->out->pipeline.bpe = r->out->bpe;
  return begin_joined(r) && add_added_step(r, false) &&
         read_steps(r, json_object_get(r->root, "normalizer"), "normalizers", read_normalizer, 0) &&
         add_added_step(r, true) &&
         (r->level ||
          read_steps(r, json_object_get(r->root, "pre_tokenizer"), "pretokenizers", read_pre_tokenizer, 0)) &&
         (r->bytes || add_step(r, (Step){.kind = r->level ? STEP_WORD_LEVEL : STEP_UNJOINED})) && read_decoder(r) &&
         hash_pipeline(r);
}
