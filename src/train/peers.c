/* Processes that train one model together. Rank 0 makes the automatic choices, writes the run directory and prints; it
 * sends the others its plan, from which they open the same data and run the same steps. */
#include "train/run.h"

#include "cli/startup.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what all know ---- */

bool run_agree(Collective *peers, Error *error) { return collective_agree(peers, NULL, error); }

bool run_together(Run *r, RunWork *work, Error *error) {
  work(r, error);
  return run_agree(r->peers, error);
}

bool run_alone(Run *r, RunWork *work, Error *error) {
  if (run_leads(r->peers)) work(r, error);
  return run_agree(r->peers, error);
}

bool run_agree_on_stop(Run *r, Error *error) {
  int signal = stop_signal;
  const bool ok = collective_agree(r->peers, &signal, error);
  r->session.stopping = signal;
  return ok;
}

bool run_broadcast_flag(Collective *peers, bool value) {
  collective_broadcast(peers, &value, sizeof value);
  return value;
}

double run_broadcast_number(Collective *peers, double value) {
  collective_broadcast(peers, &value, sizeof value);
  return value;
}

/* ---- the plan ---- */

/* A plan that rank 0 writes to `out`, or that another process reads from `at` (out NULL). */
typedef struct PlanText {
  FILE *out;
  const char *at;
} PlanText;

static void pass(PlanText *p, void *bytes, size_t size) {
  if (p->out) {
    fwrite(bytes, 1, size, p->out);
    return;
  }
  memcpy(bytes, p->at, size);
  p->at += size;
}

/* Passes a text in allocated memory, which is replaced when it is read. */
static bool pass_text(PlanText *p, char **text, size_t *size, Error *error) {
  pass(p, size, sizeof *size);
  if (!p->out) {
    free(*text);
    *text = malloc(*size + 1);
    if (!*text) return error_memory(error, "the plan");
  }
  pass(p, *text, *size);
  return true;
}

/* What is not in the text of a tokenizer. */
typedef struct TokenizerFacts {
  int32_t end, vocab;
  EndTokens others;
} TokenizerFacts;

static bool read_tokenizer(const char *text, size_t size, const TokenizerFacts *facts, Tokenizer **out, Error *error) {
  char *path = NULL;
  const bool ok = file_temporary(&path, error) && file_write(path, text, size, error) &&
                  tokenizer_load_alone(out, path, facts->end, error) &&
                  (tokenizer_set_vocab(*out, facts->vocab) ||
                   fail(error, EXIT_INTERNAL, "a vocabulary of %d tokens", facts->vocab));
  if (path) unlink(path);
  free(path);
  if (ok) tokenizer_set_other_ends(*out, &facts->others);
  return ok;
}

/* NULL: there is none yet. */
static bool pass_tokenizer(PlanText *p, Tokenizer **tokenizer, Error *error) {
  TokenizerFacts facts = {0};
  char *text = NULL;
  size_t size = 0;
  if (p->out && *tokenizer) {
    facts = (TokenizerFacts){tokenizer_end(*tokenizer), tokenizer_vocab(*tokenizer), *tokenizer_other_ends(*tokenizer)};
    if (!tokenizer_text(*tokenizer, &text, &size, error)) return false;
  }
  pass(p, &facts, sizeof facts);
  const bool ok =
      pass_text(p, &text, &size, error) && (p->out || !size || read_tokenizer(text, size, &facts, tokenizer, error));
  free(text);
  return ok;
}

/* Opens the tokens of rank 0. */
static bool open_tokens(TokenFile *tokens, const char *path, const TokenFileInfo *info, Error *error) {
  Error unseen = {0};
  const bool seen = token_file_open(tokens, path, &unseen);
  if (seen && tokens->info.sum == info->sum && tokens->info.tokens == info->tokens) return true;
  return fail(error, unseen.code == EXIT_MEMORY ? EXIT_MEMORY : EXIT_INPUT,
              "does not see the tokens of rank 0; give --out a folder that all machines share (a run without one: "
              "TMPDIR): %s",
              seen ? "its file has other tokens" : unseen.text);
}

static bool pass_tokens(PlanText *p, TokenFile *tokens, Error *error) {
  char *path = p->out && tokens->path ? realpath(tokens->path, NULL) : NULL;
  if (p->out && tokens->path && !path) return error_memory(error, "a path");
  size_t size = path ? strlen(path) + 1 : 0;
  TokenFileInfo info = tokens->info;
  pass(p, &info, sizeof info);
  const bool ok = pass_text(p, &path, &size, error) && (p->out || !size || open_tokens(tokens, path, &info, error));
  free(path);
  return ok;
}

static bool pass_data(PlanText *p, Run *r, Error *error) {
  RunText *text = &r->text;
  size_t size = p->out ? strlen(r->files.dir) + 1 : 0;
  pass(p, &text->train.range, sizeof text->train.range);
  pass(p, &text->val.range, sizeof text->val.range);
  if (!pass_text(p, &r->files.dir, &size, error) || !pass_tokenizer(p, &text->tokenizer, error) ||
      !pass_tokenizer(p, &text->source_tokenizer, error) || !pass_tokens(p, &text->train.file, error) ||
      !pass_tokens(p, &text->val.file, error))
    return false;
  text->train.range.file = &text->train.file;
  text->val.range.file = text->val.file.path ? &text->val.file : &text->train.file;
  return true;
}

/* What all processes need. The settings come last, because options_copy() does not return where they end. */
static bool pass_plan(PlanText *p, Run *r, Error *error) {
  const bool opened = r->text.train.windows.ctx; /* all processes have the data */
  pass(p, &r->base.config, sizeof r->base.config);
  pass(p, &r->teacher.config, sizeof r->teacher.config);
  pass(p, &r->model.config, sizeof r->model.config);
  pass(p, &r->series, sizeof r->series);
  pass(p, &r->text.mixture, sizeof r->text.mixture);
  pass(p, &r->settings.minutes, sizeof r->settings.minutes);
  pass(p, &r->settings.plans, sizeof r->settings.plans);
  if (!opened && !pass_data(p, r, error)) return false;
  return p->out ? options_dump(&r->options, p->out) : options_copy(&r->options, p->at, error);
}

static void write_plan(Run *r, char **text, size_t *size, Error *error) {
  PlanText p = {.out = open_memstream(text, size)};
  bool ok = p.out && pass_plan(&p, r, error);
  if (p.out && fclose(p.out) != 0) ok = false;
  if (!ok && !error->code) error_memory(error, "the plan");
}

bool run_decide(Run *r, RunWork *work, Error *error) {
  char *text = NULL;
  size_t size = 0;
  if (!run_alone(r, work, error)) return false;
  if (r->peers->size == 1) return true;
  if (run_leads(r->peers)) write_plan(r, &text, &size, error);
  const bool sent = collective_broadcast_text(r->peers, &text, &size, error);
  if (sent && !run_leads(r->peers)) pass_plan(&(PlanText){.at = text}, r, error);
  free(text);
  return run_agree(r->peers, error);
}

/* ---- shares of a step ---- */

SequenceShare run_sequence_share(const Run *r) {
  const TrainSettings *s = &r->settings;
  const Collective *peers = r->peers;
  const int all = s->batch * s->grad_accum, ranks = peers->size, rank = peers->rank;
  const int first = (int)((int64_t)all * rank / ranks), end = (int)((int64_t)all * (rank + 1) / ranks);
  const int most = (all + ranks - 1) / ranks, passes = (most + s->batch - 1) / s->batch;
  return (SequenceShare){first, end - first, (most + passes - 1) / passes, passes};
}

TrainConfig run_train_config(const Run *r) {
  TrainConfig train = settings_train_config(&r->settings);
  const SequenceShare share = run_sequence_share(r);
  train.batch = share.batch;
  train.micro_batches = share.micro_batches;
  train.first_sequence = share.first;
  train.sharding = (Sharding){r->peers->rank, r->peers->size, !r->settings.no_shard};
  return train;
}

MemoryPlan run_memory_of(const Run *r, const TrainConfig *train) {
  return auto_memory(&r->settings, &r->model.config, run_teacher(r), train, &r->device.info);
}

MemoryPlan run_memory(const Run *r) {
  const TrainConfig train = run_train_config(r);
  return run_memory_of(r, &train);
}
