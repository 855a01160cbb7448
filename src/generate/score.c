/* Loss of the model (--score): on a text, or with --per-line on each line of a file, as the lines arrive. With
 * --per-token and --per-word, the loss on each token or word of these; with --heat, the text in colors. */
#include "cli/startup.h"
#include "text/dataset/packing.h"
#include "text/dataset/pairs.h"
#include "generate/completion.h"
#include "generate/line_input.h"
#include "generate/records.h"
#include "generate/heat.h"
#include "inference/answers.h"
#include "inference/evaluation.h"
#include "text/tokenizer/bpe_encode.h"
#include "base/json.h"
#include "base/path.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a text ---- */

typedef struct TextScoring {
  const LoadedModel *model;
  BpeIds ids;       /* the token that starts a text, then those of the text */
  int32_t *targets; /* [ctx] */
  float *losses;    /* [ctx] */
  bool needs_logits;
  float *logits;         /* [ctx][vocab]; NULL: not needed */
  TokenAlternative *top; /* [vocab] */
  TextScore *score;
} TextScoring;

/* Adds a token, its log-probability, and what is wanted of the logits that predict it, to the scored text. */
static bool add_scored(TextScoring *s, int32_t id, float loss, const float *logits, Error *error) {
  Text *text = s->score->text;
  const int vocab = s->model->config.vocab;
  size_t size;
  const uint8_t *bytes = tokenizer_decode_next(s->model->tokenizer, id, &text->at_start, &size);
  const int alternatives = text->alternatives;
  const float logprob = alternatives < 0 ? -loss : logprobs_of(logits, vocab, id, s->top, alternatives);
  if (s->score->measures) s->score->measures[text->ids.count] = prediction_measure(logits, vocab, id);
  return generation_add_token(text, id, logprob, s->top, error) && byte_buffer_add(&text->bytes, bytes, size, error);
}

/* Adds the loss of the targets from `scored` on in a window that begins at `first`; the tokens before are context. */
static bool score_window(TextScoring *s, int64_t first, int length, int64_t scored, Error *error) {
  const TokenBatch batch = {.tokens = s->ids.ids + first, .targets = s->targets};
  const size_t vocab = (size_t)s->model->config.vocab;
  for (int i = 0; i < length; i++) s->targets[i] = first + i < scored ? IGNORE_INDEX : s->ids.ids[first + i + 1];
  if (!model_losses(s->model->model, &batch, 1, length, s->losses, &s->score->nats, NULL, s->logits, error))
    return false;
  for (int64_t i = scored - first; s->score->text && i < length; i++)
    if (!add_scored(s, s->targets[i], s->losses[i], s->logits ? s->logits + (size_t)i * vocab : NULL, error))
      return false;
  return true;
}

/* Scores windows of at most ctx tokens; the first half of each but the first window is context. */
static bool score_ids(TextScoring *s, Console *console, Error *error) {
  const int ctx = s->model->config.ctx, step = ctx > 1 ? ctx / 2 : 1;
  const int64_t count = (int64_t)s->ids.count - 1; /* of targets */
  int64_t scored = 0;
  for (int64_t first = 0; scored < count; first += step) {
    const int length = count - first < ctx ? (int)(count - first) : ctx;
    console_work(console, &(ConsoleWork){"scoring", (double)scored, (double)count, false});
    if (!startup_go_on("scoring", error) || !score_window(s, first, length, scored, error)) return false;
    scored = first + length;
  }
  return isfinite(s->score->nats) ||
         fail(error, EXIT_NONFINITE, "the loss is not finite: the model's weights are damaged or it diverged");
}

/* Allocates what a window needs, and what is wanted of each token. */
static bool allocate(TextScoring *s, Error *error) {
  const size_t ctx = (size_t)s->model->config.ctx, vocab = (size_t)s->model->config.vocab;
  TextScore *score = s->score;
  s->targets = malloc(ctx * sizeof *s->targets);
  s->losses = malloc(ctx * sizeof *s->losses);
  s->top = malloc(vocab * sizeof *s->top);
  const bool ok = s->targets && s->losses && s->top;
  if (score->entropy) score->measures = malloc(s->ids.count * sizeof *score->measures);
  if (s->needs_logits) s->logits = malloc(ctx * vocab * sizeof *s->logits);
  return (ok && (s->logits || !s->needs_logits) && (score->measures || !score->entropy)) ||
         error_memory(error, "the logits of a window");
}

bool score_text(Program *p, const void *text, size_t size, TextScore *score, Error *error) {
  const LoadedModel *m = &p->model;
  const int32_t begin = tokenizer_begin(m->tokenizer), start = m->special.start >= 0 ? m->special.start : 0;
  TextScoring s = {
      .model = m, .score = score, .needs_logits = score->entropy || (score->text && score->text->alternatives >= 0)};
  if (score->text) score->text->at_start = true;
  const bool ok = bpe_ids_sink(&s.ids, begin >= 0 ? &begin : &start, 1, error) &&
                  tokenizer_encode(m->tokenizer, text, size, &s.ids, error) && allocate(&s, error) &&
                  model_evaluate_begin(m->model, 1, m->config.ctx, error) && score_ids(&s, &p->console, error);
  console_work_end(&p->console);
  score->tokens = (int64_t)s.ids.count - 1;
  score->bytes = (int64_t)size;
  free(s.ids.ids);
  free(s.targets);
  free(s.losses);
  free(s.logits);
  free(s.top);
  return ok;
}

/* ---- a text in colors (--heat, --heat-html, --alts) ---- */

static bool show_heat(Program *p, const Text *text, Error *error) {
  if (p->settings.heat) {
    heat_print(text, 0, text->bytes.size);
    if (text->bytes.size && text->bytes.bytes[text->bytes.size - 1] != '\n') putchar('\n');
  }
  return heat_finish(p, NULL, text, error) && program_check(p, error);
}

static bool score_heat(Program *p, Error *error) {
  enum { FILE_LIMIT = 4 << 20 };
  const GenerateSettings *s = &p->settings;
  ByteBuffer file = {0};
  if (p->model.config.encoder_layers)
    return fail(error, EXIT_USAGE,
                "--heat, --heat-html and --alts of a file are for models without an encoder; give a source with -p");
  Text text = {.alternatives = heat_alternatives(s, p->model.config.vocab)};
  const bool ok = prompt_read_file(&p->check, s->score, FILE_LIMIT, &file, error) &&
                  (file.size || fail(error, EXIT_INPUT, "%s is empty", path_shown(s->score))) &&
                  score_text(p, file.bytes, file.size, &(TextScore){.text = &text}, error) &&
                  show_heat(p, &text, error);
  free(file.bytes);
  generation_free_text(&text);
  return ok;
}

/* ---- each line ---- */

/* A line of the file: the text to score, and before it, in TSV, its id. */
typedef struct ScoredLine {
  int64_t number; /* from 1 */
  const uint8_t *text, *id;
  size_t size, id_size;
} ScoredLine;

static bool split_line(const GenerateSettings *s, const LineInput *input, ScoredLine *line, Error *error) {
  if (!records_have_ids(s)) return true;
  const uint8_t *tab = memchr(line->text, '\t', line->size);
  if (!tab)
    return fail(error, EXIT_INPUT, "%s:%" PRId64 ": with --per-line, a line of TSV is an id, a tab and the text",
                input->name, line->number);
  line->id = line->text;
  line->id_size = (size_t)(tab - line->id);
  line->text = tab + 1;
  line->size -= line->id_size + 1;
  return true;
}

/* Prints the records of a line. */
static bool print_line_records(Records *records, const ScoredLine *line, Error *error) {
  Text text = {.alternatives = -1, .keep_tokens = true};
  TextScore score = {.text = &text, .entropy = records->p->settings.entropy};
  const Document document = {.text = line->text, .size = line->size};
  records_begin_text(records, line->number, &document, line->id, line->id_size);
  bool ok = score_text(records->p, line->text, line->size, &score, error);
  for (size_t i = 0; ok && i < text.ids.count; i++)
    ok = records_add(records, text.ids.ids[i], -(double)text.tokens[i].logprob,
                     score.measures ? &score.measures[i] : NULL, error);
  free(score.measures);
  generation_free_text(&text);
  return ok && records_end_word(records, error);
}

/* Prints the score of a line, unless it is not above --above. */
static bool print_line_score(Program *p, const ScoredLine *line, Error *error) {
  const double above = p->settings.above;
  TextScore score = {0};
  if (!score_text(p, line->text, line->size, &score, error)) return false;
  const double nats_per_token = score.nats / (double)score.tokens; /* NaN: an empty line */
  if (!isnan(above) && !(nats_per_token > above)) return true;
  printf("{\"line\": %" PRId64, line->number);
  if (line->id) fputs(", \"id\": ", stdout);
  if (line->id && !completion_write(stdout, line->id, line->id_size, error)) return false;
  printf(", \"nats\": %.6f, \"tokens\": %" PRId64 ", \"bytes\": %" PRId64, score.nats, score.tokens, score.bytes);
  if (!isnan(above)) {
    printf(", \"nats_per_token\": %.6f, \"text\": ", nats_per_token);
    if (!completion_write(stdout, line->text, line->size, error)) return false;
  }
  puts("}");
  return true;
}

/* A line with a piece that the vocabulary lacks is skipped. `records` NULL: none are printed. */
static bool score_line(Program *p, Records *records, LineInput *input, const ScoredLine *line, Error *error) {
  Error why = {0};
  if (records ? print_line_records(records, line, &why) : print_line_score(p, line, &why))
    return program_check(p, error);
  if (why.code != EXIT_INPUT) return fail(error, why.code, "%s (line %" PRId64 ")", why.text, line->number);
  line_input_refuse(input, &p->console, why.text);
  return true;
}

static bool score_lines(Program *p, Records *records, Error *error) {
  LineInput input = {.fd = -1};
  if (p->model.config.encoder_layers)
    return fail(error, EXIT_USAGE, "--per-line is for models without an encoder; --score FILE scores pairs");
  bool ok = line_input_open(&input, p->settings.score, &p->check, error);
  while (ok && !p->write_error) {
    ScoredLine line = {0};
    ok = line_input_next(&input, true, &line.text, &line.size, error);
    if (!ok || !line.text) break;
    line.number = input.taken;
    if (!line.size && records_have_ids(&p->settings)) continue;
    ok = startup_go_on("scoring", error) && split_line(&p->settings, &input, &line, error) &&
         score_line(p, records, &input, &line, error);
  }
  if (ok && !p->write_error) ok = line_input_check(&input, "have no score", error);
  line_input_close(&input);
  return ok;
}

/* ---- a file, in windows as in training ---- */

typedef struct Scoring {
  Program *p;
  EvaluationPlan plan;
  Packing packing;
  Pairs pairs;         /* of a model with an encoder, and for --exact */
  Records *records;    /* NULL: none are printed */
  Corpus *text;        /* for these */
  bool in_prompt;      /* the last token of `records` was one of a prompt */
  int64_t next;        /* the token of the file after the last one that has a record */
  Evaluation result;   /* over windows `plan.stride` apart */
  Evaluation disjoint; /* over windows that do not overlap, as in the validation of training */
  ExactCount exact;
} Scoring;

static bool check_result(const Scoring *s, Error *error) {
  const char *file = path_shown(s->p->settings.score);
  if (!s->records && s->result.bytes == 0)
    return fail(error, EXIT_INPUT, "%s is too short: a score needs two tokens with text", file);
  return isfinite(s->result.nats) ||
         fail(error, EXIT_NONFINITE, "the loss on %s is not finite: the model's weights are damaged or it diverged",
              file);
}

static bool print_score(const Scoring *scoring, Error *error) {
  const GenerateSettings *s = &scoring->p->settings;
  const EvaluationPlan *plan = &scoring->plan;
  const Evaluation *result = &scoring->result;
  const ExactCount *exact = &scoring->exact;
  if (!check_result(scoring, error)) return false;
  printf("{\"file_tokens\": %" PRId64 ", \"scored_tokens\": %" PRId64 ", \"bytes\": %" PRId64
         ", \"nats_per_token\": %.6f, \"bits_per_byte\": %.6f, \"perplexity\": %.6g, \"ctx\": %d, \"stride\": %d, "
         "\"val_loss\": %.6f, \"val_bits_per_byte\": %.6f",
         plan->windows.range.end, result->tokens, result->bytes, evaluation_loss(result),
         evaluation_bits_per_byte(result), exp(evaluation_loss(result)), plan->windows.ctx, plan->stride,
         evaluation_loss(&scoring->disjoint), evaluation_bits_per_byte(&scoring->disjoint));
  if (s->exact)
    printf(", \"pairs\": %" PRId64 ", \"exact\": %.6f", exact->pairs,
           exact->pairs ? (double)exact->exact / (double)exact->pairs : 0);
  if (scoring->pairs.range.file) printf(", \"pairs_left_out\": %" PRId64, scoring->pairs.left_out);
  puts("}");
  return program_check(scoring->p, error);
}

/* Makes windows as in training: of pairs, of packed documents, or of the stream. A packed document is scored from its
 * beginning, without the documents before it. Documents were packed if the tokenizer has a token that begins them. */
static bool make_windows(Scoring *s, Error *error) {
  const LoadedModel *m = &s->p->model;
  Windows *windows = &s->plan.windows;
  const bool encoder = m->config.encoder_layers > 0, chats = windows->range.file->info.conversations,
             packed = !encoder && (chats || tokenizer_begin(m->tokenizer) >= 0);
  if (chats && (s->records || s->p->settings.exact || encoder))
    return fail(error, EXIT_USAGE, "conversations are scored as a whole; leave out %s",
                s->records ? "the options for lines, words and tokens" : "--exact");
  const PairTokens tokens_of = pair_tokens(m->tokenizer, m->source_tokenizer);
  if ((encoder || s->p->settings.exact) &&
      !pairs_make(&s->pairs, &windows->range, windows->ctx, tokens_of, (Progress){0}, error))
    return false;
  if (packed && !(s->records ? packing_make_in_order : packing_make)(&s->packing, &windows->range, windows->ctx,
                                                                     pack_tokens(m->tokenizer), (Progress){0}, error))
    return false;
  windows->packing = packed ? &s->packing : NULL;
  windows->pairs = encoder ? &s->pairs : NULL;
  return true;
}

static bool count_exact(Scoring *s, Error *error) {
  LoadedModel *m = &s->p->model;
  StartupWork answering = {.console = &s->p->console, .name = "answering"};
  const Windows pairs = {.range = s->plan.windows.range, .ctx = s->plan.windows.ctx, .pairs = &s->pairs};
  const int rows = generation_rows(m->model, PROGRAM_ROWS);
  bool ok =
      decoder_open(&m->decoder, m->model, rows, error) &&
      answers_count_exact(m->decoder, rows, m->tokenizer, &pairs, 0, startup_progress(&answering), &s->exact, error);
  console_work_end(&s->p->console);
  return ok;
}

static bool evaluate(const Scoring *s, int stride, const char *name, Evaluation *out, Error *error) {
  EvaluationPlan plan = s->plan;
  plan.stride = stride;
  StartupWork work = {.console = &s->p->console, .name = name, .total = (double)evaluation_windows(&plan)};
  const bool ok = evaluation_run(s->p->model.model, &plan, out, startup_progress(&work), error);
  console_work_end(&s->p->console);
  return ok;
}

/* ---- records of a file ---- */

/* Only a vocabulary of whole pieces needs the text itself. */
static bool begin_document(Scoring *s, Error *error) {
  Document text = {0};
  if (tokenizer_bpe(s->p->model.tokenizer)->level && !corpus_next(s->text, &text, error)) return false;
  records_begin_text(s->records, s->records->text + 1, &text, NULL, 0);
  return true;
}

/* Adds the next token of the file; NaN: it was no target. */
static bool add_token(Scoring *s, double nats, const PredictionMeasures *measures, Error *error) {
  const TokenFile *file = s->plan.windows.range.file;
  const bool responds = s->in_prompt && !isnan(nats);
  int32_t id;
  s->in_prompt = file->info.loss_mask && isnan(nats);
  if ((responds && !records_end_word(s->records, error)) || !token_file_read(file, s->next++, 1, &id, error) ||
      !records_add(s->records, id, nats, measures, error))
    return false;
  if (id != tokenizer_end(s->p->model.tokenizer)) return true;
  return records_end_word(s->records, error) && begin_document(s, error);
}

/* Adds the tokens before `end`, which were no targets. */
static bool add_others(Scoring *s, int64_t end, Error *error) {
  while (s->next < end)
    if (!add_token(s, NAN, NULL, error)) return false;
  return true;
}

/* Targets are all tokens in the loss, but for the first of a stream. */
static bool take_targets(void *context, const int32_t *targets, const float *losses, const float *logits, int count,
                         Error *error) {
  Scoring *s = context;
  const TokenRange *all = &s->plan.windows.range;
  const int vocab = s->p->model.config.vocab;
  for (int i = 0; i < count; i++) {
    PredictionMeasures measures = {0};
    if (targets[i] == IGNORE_INDEX) continue;
    if (logits) measures = prediction_measure(logits + (int64_t)i * vocab, vocab, targets[i]);
    if (!add_others(s, token_file_find(all->file, s->next, all->end, true), error) ||
        !add_token(s, (double)losses[i], &measures, error))
      return false;
  }
  return program_check(s->p, error) && !s->p->write_error;
}

static bool print_records(Scoring *s, Error *error) {
  const TargetReader reader = {.take = take_targets, .context = s, .logits = s->p->settings.entropy};
  s->plan.reader = &reader;
  if (s->plan.windows.range.file->info.loss_mask)
    console_note(&s->p->console,
                 "prompts have no surprisal; with --per-line, the first column of TSV is an id, not a prompt");
  bool ok = begin_document(s, error) && (s->plan.windows.packing || add_others(s, 1, error)) &&
            evaluate(s, s->plan.stride, "evaluating", &s->result, error);
  s->plan.reader = NULL;
  ok = ok &&
       (s->p->write_error || (add_others(s, s->plan.windows.range.end, error) && records_end_word(s->records, error)));
  return ok && check_result(s, error);
}

/* ---- the score ---- */

/* Windows of packed documents and of pairs do not overlap with any stride. */
static bool measure(Scoring *s, Error *error) {
  const int ctx = s->plan.windows.ctx;
  const bool overlap = !s->plan.windows.packing && !s->plan.windows.pairs && s->plan.stride < ctx;
  if (!evaluate(s, ctx, "evaluating", &s->disjoint, error)) return false;
  s->result = s->disjoint;
  return !overlap || evaluate(s, s->plan.stride, "evaluating overlapping windows", &s->result, error);
}

static bool score_tokens(Program *p, const TokenFile *tokens, Corpus *text, int stride, Records *records,
                         Error *error) {
  const LoadedModel *m = &p->model;
  const Windows all = {.range = {tokens, 0, tokens->info.tokens}, .ctx = m->config.ctx};
  const int batch = p->settings.entropy ? 1 : 8; /* logits are large */
  Scoring s = {.p = p,
               .plan = {.windows = all, .stride = stride, .batch = batch, .tokenizer = m->tokenizer},
               .records = records,
               .text = text};
  bool ok = make_windows(&s, error) && model_evaluate_begin(m->model, batch, m->config.ctx, error);
  if (records) ok = ok && print_records(&s, error);
  else ok = ok && measure(&s, error) && (!p->settings.exact || count_exact(&s, error)) && print_score(&s, error);
  packing_free(&s.packing);
  pairs_free(&s.pairs);
  return ok;
}

/* `records` NULL: none are printed. */
static bool score_file(Program *p, Records *records, Error *error) {
  const GenerateSettings *s = &p->settings;
  const int ctx = p->model.config.ctx, stride = s->stride ? s->stride : ctx > 1 ? ctx / 2 : 1;
  if (stride > ctx) return fail(error, EXIT_USAGE, "--stride %d is larger than the context of %d", stride, ctx);
  TokenFile tokens;
  Corpus *text;
  if (!program_encode_file(p, s->score, &tokens, &text, error)) return false;
  const bool enough = tokens.info.tokens >= (records ? 1 : 2);
  const bool ok = enough ? score_tokens(p, &tokens, text, stride, records, error)
                         : fail(error, EXIT_INPUT, "%s has %s; %s", path_shown(s->score),
                                text_plural((double)tokens.info.tokens, "token").text,
                                records ? "there is nothing to print" : "a score needs at least two");
  token_file_close(&tokens);
  corpus_close(text);
  return ok;
}

bool program_score(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  bool (*score)(Program * p, Records * records, Error * error) = s->per_line ? score_lines : score_file;
  Records records = {0};
  if (heat_is_shown(s)) return score_heat(p, error);
  if (!records_wanted(s)) return score(p, NULL, error);
  const bool ok = records_open(&records, p, error) && score(p, &records, error) && records_finish(&records, error);
  records_free(&records);
  return ok;
}
