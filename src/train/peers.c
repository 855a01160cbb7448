/* Processes that train one model together. Rank 0 makes the automatic choices, writes the run directory and prints; it
 * sends the others what they need to run the same steps. */
#include "train/run.h"

#include "cli/startup.h"
#include "text/dataset/tokenization.h"
#include "base/path.h"
#include "base/text.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what all know ---- */

bool run_agree(Collective *peers, Error *error) { return collective_agree(peers, NULL, error); }

bool run_together(Run *r, bool (*work)(Run *r, Error *error), Error *error) {
  work(r, error);
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

bool run_share_settings(Options *options, Collective *peers, Error *error) {
  char *dump = NULL;
  size_t size = 0;
  if (peers->size == 1) return !error->code;
  if (run_leads(peers) && !error->code) {
    FILE *stream = open_memstream(&dump, &size);
    const bool ok = stream && options_dump(options, stream);
    if (!stream || fclose(stream) != 0 || !ok) error_memory(error, "the settings");
  }
  const bool ok = run_agree(peers, error) && collective_broadcast_text(peers, &dump, &size, error);
  if (ok && !run_leads(peers)) options_copy(options, dump, error);
  free(dump);
  return ok && run_agree(peers, error);
}

/* ---- parts of a step ---- */

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
  return auto_memory(&r->model.config, r->settings.teacher ? &r->teacher.config : NULL, train, &r->device.info);
}

MemoryPlan run_memory(const Run *r) {
  const TrainConfig train = run_train_config(r);
  return run_memory_of(r, &train);
}

bool run_check_peers(const TrainSettings *s, const Collective *peers, Error *error) {
  const int sequences = s->batch * s->grad_accum;
  if (sequences >= peers->size) return true;
  return fail(error, EXIT_USAGE, "a step of %s cannot be divided among %d processes; raise --batch, or start fewer",
              text_plural(sequences, "sequence").text, peers->size);
}

/* The processors that a process may run on. Processes with the same ones share them. */
typedef struct Place {
  int node;
  unsigned char cpus[THREADS_MASK_BYTES];
} Place;

int run_threads(const TrainSettings *s, Collective *peers, Error *error) {
  const int wanted = s->machine.threads, all = threads_count(wanted);
  if (wanted || peers->size == 1) return wanted;
  Place mine = {.node = peers->node_first};
  threads_mask(mine.cpus);
  Place *places = malloc((size_t)peers->size * sizeof *places);
  if (!places) error_memory(error, "the processors of ranks");
  if (!run_agree(peers, error) || !places) {
    free(places);
    return all;
  }
  collective_all_gather(peers, &mine, places, sizeof mine);
  int same = 1; /* this one */
  for (int i = 0; i < peers->size; i++) same += i != peers->rank && memcmp(&places[i], &mine, sizeof mine) == 0;
  free(places);
  return all > same ? all / same : 1;
}

bool run_check_device(const RunDevice *device, Collective *peers, int *machines, Error *error) {
  const ContextInfo *mine = &device->info;
  ContextInfo first = *mine;
  if (peers->size == 1) return true;
  collective_broadcast(peers, &first, sizeof first);
  double first_on_machine = peers->node_rank == 0;
  collective_sum(peers, &first_on_machine, 1);
  *machines = (int)first_on_machine;
  if (mine->dtype != first.dtype || mine->accelerator != first.accelerator)
    fail(error, EXIT_USAGE, "computes on %s in %s, and rank 0 on a %s in %s; give --device and --dtype", mine->device,
         dtype_name(mine->dtype), first.accelerator ? "GPU" : "CPU", dtype_name(first.dtype));
  return run_agree(peers, error);
}

/* ---- the slowest rank ---- */

void run_restart_comparison(Straggler *straggler, const Collective *peers) {
  straggler->updated_at = clock_seconds();
  straggler->waited_then = peers->waited;
}

/* Compares the time that ranks worked without waiting. GPUs that communicate directly wait on the device, unseen
 * here. */
void run_name_slowest(Straggler *straggler, Collective *peers, Console *console) {
  enum { LEAST_SECONDS = 2 };
  if (peers->size == 1) return;
  const double seconds = clock_seconds() - straggler->updated_at;
  straggler->seconds += seconds;
  straggler->busy_seconds += seconds - (peers->waited - straggler->waited_then);
  if (run_broadcast_flag(peers, straggler->seconds < (double)LEAST_SECONDS)) return;
  double largest, others;
  char host[sizeof peers->host];
  const int slowest = collective_largest(peers, straggler->busy_seconds, &largest, &others);
  const bool behind = largest >= 1.1 * others, said = straggler->slowest == slowest + 1;
  memcpy(host, peers->host, sizeof host);
  collective_broadcast_from(peers, host, sizeof host, slowest);
  if (behind && !said)
    console_note(console, "rank %d on %s takes %.0f %% longer than the others, which wait for it", slowest, host,
                 100 * (largest / others - 1));
  straggler->slowest = behind ? slowest + 1 : 0;
  straggler->seconds = straggler->busy_seconds = 0;
}

/* ---- text ---- */

static bool share_tokenizer(Collective *peers, Tokenizer **tokenizer, Error *error) {
  char *text = NULL, *path = NULL;
  size_t size = 0;
  int32_t end = 0, vocab = 0; /* not all of it is in the file */
  EndTokens others = {0};
  if (run_leads(peers)) {
    end = tokenizer_end(*tokenizer);
    vocab = tokenizer_vocab(*tokenizer);
    others = *tokenizer_other_ends(*tokenizer);
    tokenizer_text(*tokenizer, &text, &size, error);
  }
  collective_broadcast(peers, &end, sizeof end);
  collective_broadcast(peers, &vocab, sizeof vocab);
  collective_broadcast(peers, &others, sizeof others);
  bool ok = run_agree(peers, error) && collective_broadcast_text(peers, &text, &size, error);
  if (ok && !run_leads(peers)) {
    ok = file_temporary(&path, error) && file_write(path, text, size, error) &&
         tokenizer_load_alone(tokenizer, path, end, error) &&
         (tokenizer_set_vocab(*tokenizer, vocab) || fail(error, EXIT_INTERNAL, "a vocabulary of %d tokens", vocab));
    if (path) unlink(path);
    if (ok) tokenizer_set_other_ends(*tokenizer, &others);
  }
  free(path);
  free(text);
  return run_agree(peers, error) && ok;
}

/* A text that all processes need as tokens. */
typedef struct SharedText {
  bool val;           /* the validation text */
  TokenFile *tokens;  /* opened by rank 0 */
  TokenFileInfo info; /* from rank 0 */
} SharedText;

static bool is_same(const TokenFileInfo *a, const TokenFileInfo *b) {
  return a->sum == b->sum && a->tokens == b->tokens && a->vocab == b->vocab && a->loss_mask == b->loss_mask;
}

/* Opens the token file at `path` if it equals that of rank 0. */
static bool open_tokens(const SharedText *text, const char *path) {
  Error ignored = {0};
  if (!token_file_open(text->tokens, path, &ignored)) return false;
  if (is_same(&text->tokens->info, &text->info)) return true;
  token_file_close(text->tokens);
  *text->tokens = (TokenFile){0};
  return false;
}

/* Encodes the same text to a file at *path, on a machine that does not see the files of rank 0. */
static bool encode_here(Run *r, const SharedText *text, char **path, Error *error) {
  const TrainSettings *s = &r->settings;
  Corpus *corpus = NULL, *val = NULL;
  const TokenFileInfo *info = &text->tokens->info, *leader = &text->info;
  const bool named = text->val && s->val; /* else all of the text, or a part of it */
  const char *const *inputs = named ? &s->val : s->data.items;
  const int count = named ? 1 : s->data.count;
  for (int i = 0; i < count; i++)
    if (path_is_stdin(inputs[i]))
      return fail(
          error, EXIT_INPUT,
          "the text came through standard input, and this machine does not see the files of rank 0; name a file");
  bool ok = file_temporary(path, error) && run_open_corpus(r, inputs, count, &corpus, error) &&
            run_cut_corpus(r, corpus, &val, error) &&
            run_encode(r, text->val, *path, *path, val && text->val ? val : corpus, text->tokens, error);
  corpus_close(corpus);
  corpus_close(val);
  if (!ok || is_same(info, leader)) return ok;
  return fail(
      error, EXIT_INPUT,
      "the text differs from that of rank 0: it has %lld tokens with checksum %016llx, not %lld with %016llx; give all "
      "machines the same files",
      (long long)info->tokens, (unsigned long long)info->sum, (long long)leader->tokens,
      (unsigned long long)leader->sum);
}

/* Whether a process has the tokens. */
typedef struct SeenTokens {
  bool seen;
  int node;
  char host[64], offered[4097]; /* offered: its file, for those without the tokens; "": none */
} SeenTokens;

/* Returns the first rank on this machine that lacks the tokens, else any rank that does; -1: none. */
static int next_encoder(const Collective *c, const SeenTokens *all) {
  int found = -1;
  for (int i = c->size - 1; i >= 0; i--)
    if (!all[i].seen && (found < 0 || all[i].node == c->node_first)) found = i;
  return found;
}

/* Rank 0 offers its file to all. While a machine lacks the tokens, its first rank without them encodes the text and
 * offers the result to that machine; machines without a shared file system encode at the same time. */
static bool share_tokens(Run *r, bool val, TokenFile *tokens, Error *error) {
  Collective *c = r->peers;
  SharedText text = {val, tokens, tokens->info};
  SeenTokens mine = {.seen = run_leads(c), .node = c->node_first};
  SeenTokens *all = malloc((size_t)c->size * sizeof *all);
  char *made = NULL, *real = mine.seen ? realpath(tokens->path, NULL) : NULL;
  bool complete = false;
  memcpy(mine.host, c->host, sizeof mine.host);
  if (mine.seen) snprintf(mine.offered, sizeof mine.offered, "%s", real ? real : tokens->path);
  free(real);
  if (!all) error_memory(error, "the files of processes");
  if (run_agree(c, error)) collective_broadcast(c, &text.info, sizeof text.info);
  while (run_agree(c, error) && all && !complete) {
    collective_all_gather(c, &mine, all, sizeof mine);
    for (int i = 0; i < c->size && !mine.seen; i++)
      if (*all[i].offered && (i == 0 || all[i].node == mine.node)) mine.seen = open_tokens(&text, all[i].offered);
    for (int i = 1; i < c->size; i++)
      if (*all[i].offered)
        console_note(&r->console, "%s does not see the files of rank 0, and has encoded the text for rank %d itself",
                     all[i].host, i);
    collective_all_gather(c, &mine, all, sizeof mine); /* waits until all have opened what they can */
    const int encoder = next_encoder(c, all);
    complete = encoder < 0;
    if (made) unlink(made);
    free(made);
    made = NULL;
    mine.seen = mine.seen || (encoder == c->rank && encode_here(r, &text, &made, error));
    snprintf(mine.offered, sizeof mine.offered, "%s", mine.seen && made ? made : "");
  }
  if (made) unlink(made);
  free(made);
  free(all);
  return complete;
}

bool run_share_data(Run *r, Error *error) {
  RunText *text = &r->text;
  if (r->peers->size == 1) return !error->code;
  if (!run_share_settings(&r->options, r->peers, error)) return false;
  const bool has_val_file = run_broadcast_flag(r->peers, text->val_file.path);
  text->cut_by_tokens = run_broadcast_flag(r->peers, text->cut_by_tokens);
  const bool own_sources = run_broadcast_flag(r->peers, text->source_tokenizer);
  collective_broadcast(r->peers, &text->facts, sizeof text->facts);
  collective_broadcast(r->peers, &text->train, sizeof text->train);
  collective_broadcast(r->peers, &text->val, sizeof text->val);
  text->train.file = &text->tokens_file;
  text->val.file = has_val_file ? &text->val_file : &text->tokens_file;
  return share_tokenizer(r->peers, &text->tokenizer, error) &&
         (!own_sources || share_tokenizer(r->peers, &text->source_tokenizer, error)) &&
         share_tokens(r, false, &text->tokens_file, error) &&
         (!has_val_file || share_tokens(r, true, &text->val_file, error));
}
