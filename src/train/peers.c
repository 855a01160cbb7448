/* Processes that train one model together. Rank 0 makes the automatic choices, writes the run directory and prints; it
 * sends the others what they need to run the same steps. */
#include "train/run.h"

#include "cli/startup.h"
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

/* Opens the token file of rank 0 in the other processes. */
static bool share_tokens(Collective *peers, TokenFile *tokens, Error *error) {
  enum { PATH_BYTES = 4097 };
  char path[PATH_BYTES] = "";
  TokenFileInfo info = tokens->info;
  if (run_leads(peers)) {
    char *real = realpath(tokens->path, NULL);
    snprintf(path, sizeof path, "%s", real ? real : tokens->path);
    free(real);
  }
  collective_broadcast(peers, path, sizeof path);
  collective_broadcast(peers, &info, sizeof info);
  Error unseen = {0};
  const bool seen = run_leads(peers) || token_file_open(tokens, path, &unseen);
  const bool same = seen && tokens->info.sum == info.sum && tokens->info.tokens == info.tokens;
  if (!same)
    fail(error, unseen.code == EXIT_MEMORY ? EXIT_MEMORY : EXIT_INPUT,
         "does not see the tokens of rank 0; give --out a folder that all machines share (a run without one: TMPDIR): "
         "%s",
         seen ? "its file has other tokens" : unseen.text);
  return run_agree(peers, error);
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
         share_tokens(r->peers, &text->tokens_file, error) &&
         (!has_val_file || share_tokens(r->peers, &text->val_file, error));
}
