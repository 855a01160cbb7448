#define _GNU_SOURCE /* memmem() */
#include "files/formats/gguf_tokenizer.h"

#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of comparing the tokenizer with llama.cpp's. */
typedef struct Check {
  GgufTokenizer *out;
  const char *dir;
  const Pipeline *pipeline;
  const Bpe *bpe;
  Error *error;
} Check;

static bool refuse(const Check *c, const char *what) {
  return fail(c->error, EXIT_CHECKPOINT, "%s: %s, which a GGUF file cannot express", c->dir, what);
}

static void add_note(Check *c, const char *note) { c->out->notes[c->out->note_count++] = note; }

/* ---- added tokens ---- */

static bool has_step(const Pipeline *p, StepKind kind) {
  for (int i = 0; i < p->count; i++)
    if (p->steps[i].kind == kind) return true;
  return false;
}

/* Returns whether the text is changed, other than by NFC, before it is searched for added tokens. */
static bool changes_before_added(const Pipeline *p) {
  int last = p->count;
  while (last > 0 && p->steps[last - 1].kind != STEP_ADDED) last--;
  for (int i = 0; i < last; i++)
    if (p->steps[i].kind == STEP_REPLACE || p->steps[i].kind == STEP_PREPEND) return true;
  return false;
}

static bool refuse_added(const Check *c, const AddedToken *entry, const char *what) {
  return fail(c->error, EXIT_CHECKPOINT, "%s: its added token \"%s\" %s, which a GGUF file cannot express", c->dir,
              text_one_line(entry->text, 60).text, what);
}

/* Checks the added tokens: llama.cpp finds them anywhere in the original text. */
static bool check_added(Check *c) {
  const Tokenizer *t = c->out->tokenizer;
  bool strips = false;
  for (int32_t id = 0; id < c->bpe->tokens.size; id++) {
    const AddedToken *entry = tokenizer_added(t, id);
    if (!entry) continue;
    const bool beside = entry->lstrip || entry->rstrip;
    strips = strips || beside;
    if (entry->special) continue;
    if (entry->single_word) return refuse_added(c, entry, "is only recognized as a whole word");
    if (beside) return refuse_added(c, entry, "includes the white space next to it");
    if (entry->normalized && changes_before_added(c->pipeline))
      return refuse_added(c, entry, "is searched in normalized text");
  }
  if (strips) add_note(c, "llama.cpp keeps the white space next to special tokens");
  return true;
}

/* ---- a BPE of bytes ---- */

enum { CUTS = 2 };

/* The pre-tokenizers of llama.cpp: patterns that split a text, one after the other. (llama.cpp matches the contractions
 * of Llama 3 and Qwen 2 only in ASCII; for PCRE2 the Unicode long s is an s.) */
static const struct {
  const char *name;
  const char *patterns[CUTS];
  bool ignores_merges;
} pre_tokenizers[] = {
    {"gpt-2", {PATTERN_GPT2}, false},      {"smollm", {PATTERN_DIGIT, PATTERN_GPT2}, false},
    {"llama-bpe", {PATTERN_LLAMA3}, true}, {"smaug-bpe", {PATTERN_LLAMA3}, false},
    {"qwen2", {PATTERN_QWEN2}, false},
};
enum { PRE_TOKENIZERS = sizeof pre_tokenizers / sizeof *pre_tokenizers };

/* Returns the pattern of a step that splits the text at every match; NULL: another step. */
static const char *pattern_of(const Step *step) {
  if (step->kind == STEP_GPT2) return PATTERN_GPT2;
  return step->kind == STEP_REGEX && step->behavior == SPLIT_ISOLATED && !step->inverted ? regex_pattern(step->regex)
                                                                                         : NULL;
}

static bool has_patterns(const Pipeline *p, const char *const patterns[CUTS]) {
  int cut = 0;
  for (int i = 0; i < p->count; i++) {
    const StepKind kind = p->steps[i].kind;
    if (kind == STEP_ADDED || kind == STEP_NFC) continue;
    const char *pattern = pattern_of(&p->steps[i]);
    if (!pattern || cut == CUTS || !patterns[cut] || strcmp(pattern, patterns[cut]) != 0) return false;
    cut++;
  }
  return cut == CUTS || !patterns[cut];
}

/* Finds whether merges produce every token: then ignore_merges makes no difference. */
static bool merges_reach_all(const Check *c, bool *reach) {
  const Bpe *bpe = c->bpe;
  Bpe *plain = NULL;
  PieceScratch scratch = {0};
  uint32_t longest = 0;
  for (int32_t id = 0; id < bpe->tokens.size; id++) {
    const uint32_t size = bpe->tokens.begins[id + 1] - bpe->tokens.begins[id];
    if (size > longest) longest = size;
  }
  int32_t *ids = malloc(((size_t)longest + 1) * sizeof *ids);
  bool ok = ids ? bpe_create(&plain, &bpe->tokens, bpe->merges, (size_t)bpe->merge_count, (BpeOptions){0}, c->error)
                : error_memory(c->error, "a vocabulary");
  *reach = ok;
  for (int32_t id = 0; ok && *reach && id < bpe->tokens.size; id++) {
    size_t size;
    const uint8_t *bytes = bpe_decode(bpe, id, &size);
    if (size < 2) continue;
    const size_t count = bpe_encode_piece(plain, bytes, size, ids, &scratch);
    if (count == 0) ok = error_memory(c->error, "a vocabulary");
    *reach = count == 1;
  }
  piece_scratch_free(&scratch);
  bpe_free(plain);
  free(ids);
  return ok;
}

static bool find_cuts(Check *c) {
  const bool ignores = c->bpe->ignore_merges;
  const char *other = NULL;
  for (int i = 0; i < PRE_TOKENIZERS; i++) {
    if (!has_patterns(c->pipeline, pre_tokenizers[i].patterns)) continue;
    if (pre_tokenizers[i].ignores_merges == ignores) c->out->cuts = pre_tokenizers[i].name;
    else other = pre_tokenizers[i].name;
  }
  if (c->out->cuts) return true;
  bool reach = false;
  if (!other)
    return refuse(c, "its tokenizer splits texts unlike GPT-2, SmolLM, Llama 3 and Qwen 2, or has other steps");
  if (!merges_reach_all(c, &reach)) return false;
  c->out->cuts = other;
  return reach || refuse(c, ignores ? "its tokenizer ignores merges where a word is a token (ignore_merges)"
                                    : "its tokenizer does not ignore merges where a word is a token");
}

static bool check_bytes(Check *c) {
  if (has_step(c->pipeline, STEP_NFC))
    add_note(c, "llama.cpp does not normalize texts (NFC): texts that are not normalized get other tokens");
  return find_cuts(c);
}

/* ---- a BPE of characters ---- */

enum { TOKEN_BYTES = 256 /* the longest of SentencePiece have 64 */ };

static bool is_text(const char *text, const char *other) { return text && strcmp(text, other) == 0; }

/* Checks that the tokenizer only does what SentencePiece does: it replaces spaces by a symbol, and may prepend one. */
static bool check_steps(Check *c, bool *splits) {
  bool replaces = false;
  const Step *prepends = NULL;
  for (int i = 0; i < c->pipeline->count; i++) {
    const Step *step = &c->pipeline->steps[i];
    const bool spaces = step->kind == STEP_REPLACE && is_text(step->from, " ") && is_text(step->to, SPACE_SYMBOL),
               prepend = step->kind == STEP_PREPEND && is_text(step->to, SPACE_SYMBOL) && !prepends,
               split = step->kind == STEP_REGEX && step->pattern == PATTERN_IS_SPACE;
    if (prepend) prepends = step;
    replaces = replaces || spaces;
    *splits = *splits || split;
    if (!spaces && !prepend && !split && step->kind != STEP_ADDED && step->kind != STEP_UNJOINED)
      return refuse(c, "its tokenizer has steps that SentencePiece does not have");
  }
  if (!replaces) return refuse(c, "its tokenizer has no symbol for spaces");
  c->out->prefix_space = prepends != NULL;
  if (prepends && prepends->when == PREPEND_MISSING)
    add_note(c, "llama.cpp adds another space to a text that begins with a space");
  if (prepends && prepends->when == PREPEND_FIRST)
    add_note(c, "llama.cpp adds another space to a text that begins with a space or follows a special token");
  return true;
}

static bool refuse_token(const Check *c, const uint8_t *bytes, size_t size, const char *what) {
  char text[TOKEN_BYTES + 1];
  const size_t shown = size < TOKEN_BYTES ? size : TOKEN_BYTES;
  memcpy(text, bytes, shown);
  text[shown] = '\0';
  return fail(c->error, EXIT_CHECKPOINT, "%s: its token \"%s\" %s, which a GGUF file cannot express", c->dir,
              text_one_line(text, 60).text, what);
}

static bool is_character(const uint8_t *bytes, size_t size) {
  uint32_t point;
  return utf8_read(bytes, size, &point) == size;
}

/* Checks that every two tokens that together are this token have a merge: llama.cpp has no list of merges, and merges
 * any two tokens whose concatenation is a token. */
static bool check_splits(const Check *c, const Bpe *words, int32_t id, const uint8_t *bytes, size_t size) {
  for (size_t at = 1; at < size; at++) {
    if (utf8_continues(bytes[at])) continue;
    const int32_t left = bpe_word(words, bytes, at), right = bpe_word(words, bytes + at, size - at);
    const int32_t rank = left >= 0 && right >= 0 ? bpe_rank(c->bpe, left, right) : -1;
    if ((left < 0 && !is_character(bytes, at)) || (right < 0 && !is_character(bytes + at, size - at))) continue;
    if (rank < 0 || c->bpe->merges[rank].id != id)
      return refuse_token(c, bytes, size, "has no merge for some two tokens that it consists of");
  }
  return true;
}

static bool is_byte_token(const Bpe *bpe, int32_t id) {
  size_t size;
  const uint8_t *bytes = bpe_decode(bpe, id, &size);
  return bpe->characters && size == 1 && bpe->byte_ids[bytes[0]] == id;
}

static bool check_tokens(const Check *c, const Bpe *words, bool splits) {
  for (int32_t id = 0; id < c->bpe->tokens.size; id++) {
    size_t size;
    const uint8_t *bytes = bpe_decode(c->bpe, id, &size);
    if (!size || is_byte_token(c->bpe, id)) continue;
    if (size > TOKEN_BYTES) return refuse_token(c, bytes, size, "is longer than the tokens of SentencePiece");
    if (splits && memmem(bytes + 1, size - 1, SPACE_SYMBOL, sizeof SPACE_SYMBOL - 1))
      return refuse_token(c, bytes, size, "contains a space, and texts are split there");
    if (!check_splits(c, words, id, bytes, size)) return false;
  }
  return true;
}

/* Fills the scores. Merges that produce the same token share its score, so they must be neighbors in the list. */
static bool fill_scores(Check *c) {
  const Bpe *bpe = c->bpe;
  float *scores = c->out->scores = calloc((size_t)bpe->tokens.size + 1, sizeof *scores);
  if (!scores) return error_memory(c->error, "the scores of tokens");
  float next = -1;
  for (int32_t i = 0; i < bpe->merge_count; i++) {
    const int32_t id = bpe->merges[i].id;
    if (i > 0 && bpe->merges[i - 1].id == id) continue;
    size_t size;
    const uint8_t *bytes = bpe_decode(bpe, id, &size);
    if (scores[id] < 0) return refuse_token(c, bytes, size, "has merges of different priority");
    scores[id] = next--;
  }
  return true;
}

static bool check_characters(Check *c) {
  bool splits = false;
  Bpe *words = NULL;
  if (!check_steps(c, &splits)) return false;
  const bool ok = bpe_create(&words, &c->bpe->tokens, c->bpe->merges, (size_t)c->bpe->merge_count,
                             (BpeOptions){.byte_tokens = c->bpe->byte_ids, .ignore_merges = true}, c->error) &&
                  check_tokens(c, words, splits) && fill_scores(c);
  bpe_free(words);
  return ok;
}

bool gguf_tokenizer_make(GgufTokenizer *out, const char *dir, const Tokenizer *tokenizer, Error *error) {
  *out = (GgufTokenizer){.tokenizer = tokenizer};
  Check check = {out, dir, tokenizer_pipeline(tokenizer), tokenizer_bpe(tokenizer), error};
  if (check.bpe->level) return refuse(&check, "its tokens are whole characters, words, lines or ids (WordLevel)");
  return check_added(&check) && (check.bpe->characters ? check_characters(&check) : check_bytes(&check));
}

void gguf_tokenizer_free(GgufTokenizer *tokenizer) {
  free(tokenizer->scores);
  *tokenizer = (GgufTokenizer){0};
}

/* ---- keys ---- */

enum { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER_DEFINED = 4, TOKEN_UNUSED = 5, TOKEN_BYTE = 6 };

/* Returns the type of a token. Ids without a token are rows of a model with a larger vocabulary. */
static int token_type(const Tokenizer *t, int32_t id) {
  size_t size;
  const AddedToken *entry = tokenizer_added(t, id);
  if (is_byte_token(tokenizer_bpe(t), id)) return TOKEN_BYTE;
  if (entry && *entry->text) return entry->special ? TOKEN_CONTROL : TOKEN_USER_DEFINED;
  bpe_decode(tokenizer_bpe(t), id, &size);
  return size > 0 ? TOKEN_NORMAL : TOKEN_UNUSED;
}

/* Returns the characters of a token, or the characters that represent its bytes. */
static char *word_text(const Bpe *bpe, int32_t id) {
  size_t size;
  const uint8_t *bytes = bpe_decode(bpe, id, &size);
  return bpe->characters ? strndup((const char *)bytes, size) : alphabet_token(bpe, id);
}

/* Adds the text of a token. All texts must differ: "[PAD 7]" has a space, which no other text has. */
static void add_token(GgufHeader *h, const Tokenizer *t, int32_t id) {
  char made[32];
  size_t size;
  const int type = token_type(t, id);
  const uint8_t *bytes = bpe_decode(tokenizer_bpe(t), id, &size);
  if (type == TOKEN_NORMAL) {
    char *text = word_text(tokenizer_bpe(t), id);
    h->no_memory = h->no_memory || !text;
    gguf_text(h, text ? text : "");
    free(text);
    return;
  }
  if (type == TOKEN_BYTE) snprintf(made, sizeof made, "<0x%02X>", bytes[0]);
  else snprintf(made, sizeof made, "[PAD %d]", (int)id);
  gguf_text(h, type == TOKEN_BYTE || type == TOKEN_UNUSED ? made : tokenizer_added(t, id)->text);
}

static void add_merge(GgufHeader *h, const Bpe *bpe, const BpeMerge *merge) {
  char *left = alphabet_token(bpe, merge->left), *right = alphabet_token(bpe, merge->right);
  const size_t size = left && right ? strlen(left) + strlen(right) + 2 : 0;
  char *both = size ? malloc(size) : NULL;
  if (both) snprintf(both, size, "%s %s", left, right);
  else h->no_memory = true;
  gguf_text(h, both ? both : "");
  free(left);
  free(right);
  free(both);
}

/* Adds the merges, even if there are none: llama.cpp requires the key for a byte-level BPE. */
static void add_merges(GgufHeader *h, const Bpe *bpe) {
  gguf_key_array(h, "tokenizer.ggml.merges", GGUF_VALUE_TEXT, bpe->merge_count);
  for (int32_t i = 0; i < bpe->merge_count; i++) add_merge(h, bpe, &bpe->merges[i]);
}

static void add_scores(GgufHeader *h, const GgufTokenizer *g, int vocab) {
  gguf_key_array(h, "tokenizer.ggml.scores", GGUF_VALUE_F32, vocab);
  for (int32_t id = 0; id < vocab; id++) gguf_f32(h, id < tokenizer_bpe(g->tokenizer)->tokens.size ? g->scores[id] : 0);
}

void gguf_tokenizer_add(GgufHeader *h, const GgufTokenizer *g, int vocab) {
  const Tokenizer *t = g->tokenizer;
  const Bpe *bpe = tokenizer_bpe(t);
  gguf_key_text(h, "tokenizer.ggml.model", bpe->characters ? "llama" : "gpt2");
  gguf_key_text(h, "tokenizer.ggml.pre", g->cuts ? g->cuts : "default");
  gguf_key_array(h, "tokenizer.ggml.tokens", GGUF_VALUE_TEXT, vocab);
  for (int32_t id = 0; id < vocab; id++) add_token(h, t, id);
  gguf_key_array(h, "tokenizer.ggml.token_type", GGUF_VALUE_I32, vocab);
  for (int32_t id = 0; id < vocab; id++) gguf_i32(h, token_type(t, id));
  if (bpe->characters) {
    add_scores(h, g, vocab);
    gguf_key_bool(h, "tokenizer.ggml.add_space_prefix", g->prefix_space);
  } else {
    add_merges(h, bpe);
  }
}
