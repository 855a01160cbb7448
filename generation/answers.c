#include "generation/answers.h"

#include "cli/startup.h"
#include "tokenizer/bpe_encode.h"

#include <stdlib.h>
#include <string.h>

bool answers_open(Answers *a, Program *p, Error *error) {
  const char *answer = p->settings.answer ? p->settings.answer : "";
  if (p->settings.answer && !p->config.encoder_layers)
    return fail(error, EXIT_USAGE, "--answer is for a model with an encoder");
  a->p = p;
  a->rows = p->config.encoder_layers ? ANSWER_ROWS : 1;
  a->sampling = program_request(p).sampling;
  return program_encode_text(p, (const uint8_t *)answer, strlen(answer), &p->prompt, error) &&
         decoder_open(&p->decoder, p->model, a->rows, error);
}

void answers_close(Answers *a) {
  for (int r = 0; r < ANSWER_ROWS; r++) {
    free(a->prompts[r].ids);
    free(a->answers[r].ids);
  }
  *a = (Answers){0};
}

/* Rows without a prompt answer an empty one. */
static bool begin_rows(Answers *a, uint32_t first_stream, Error *error) {
  Program *p = a->p;
  const BpeIds *prompt = p->config.encoder_layers ? &p->prompt : &a->prompts[0];
  const int32_t end = tokenizer_end(p->tokenizer);
  for (int r = 0; p->config.encoder_layers && r < a->rows; r++) {
    const bool given = r < a->count && !a->skipped[r];
    if (!decoder_source(p->decoder, r, given ? a->prompts[r].ids : &end, given ? (int)a->prompts[r].count : 1, error))
      return false;
  }
  return decoder_prompt(p->decoder, prompt->ids, (int)prompt->count, first_stream, error);
}

/* Draws a token for every row; *busy: whether any answer goes on. */
static bool draw(Answers *a, bool *busy, Error *error) {
  int32_t next[ANSWER_ROWS];
  if (!startup_go_on("generating", error) || !decoder_next(a->p->decoder, &a->sampling, next, error)) return false;
  *busy = false;
  for (int r = 0; r < a->count; r++) {
    if (a->ended[r]) continue;
    const bool end = next[r] == tokenizer_end(a->p->tokenizer);
    a->ended[r] = end && !a->p->settings.ignore_end;
    a->tokens++;
    if (!end && !bpe_ids_sink(&a->answers[r], &next[r], 1, error)) return false;
    *busy = *busy || !a->ended[r];
  }
  return true;
}

bool answers_write(Answers *a, uint32_t first_stream, int64_t limit, Error *error) {
  bool busy = false;
  for (int r = 0; r < a->count; r++) {
    a->answers[r].count = 0;
    a->ended[r] = a->skipped[r];
    busy = busy || !a->ended[r];
  }
  if (!busy) return true;
  if (!begin_rows(a, first_stream, error)) return false;
  for (int64_t n = 0; busy && (limit < 0 || n < limit) && decoder_room(a->p->decoder) > 0; n++)
    if (!draw(a, &busy, error)) return false;
  return true;
}
