/* What a run learns from: the text it is given, its tokenizer, the tokens on disk, and windows of them. */
#include "cli/one_line.h"
#include "cli/startup.h"
#include "store/file.h"
#include "text/corpus.h"
#include "text/encoding.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- where files lie ---- */

/* What would be in the run directory is in one of its own when the run has none. */
static char *data_path(const Run *r, const char *name) {
  return r->scratch ? path_join(r->scratch, name) : in_run(r, name);
}

/* Files stay readable while they are mapped. */
static void remove_scratch(Run *r) {
  static const char *const names[] = {STDIN_COPY, "tokens.bin", "val.tokens.bin"};
  if (!r->scratch) return;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    char *path = data_path(r, names[i]);
    if (path) unlink(path);
    free(path);
  }
  rmdir(r->scratch);
  free(r->scratch);
  r->scratch = NULL;
}

/* ---- progress of what may take long ---- */

typedef struct Work {
  Run *r;
  const char *doing, *merging; /* names of the line */
  double bytes, merges;        /* in all; 0: not known */
} Work;

static bool interrupted(const char *doing, Error *error) {
  return fail(error, (ExitCode)(128 + stop_signal), "stopped while %s", doing);
}

static bool show_bytes(void *context, int64_t bytes, Error *error) {
  const Work *work = context;
  progress_work(&work->r->console, &(ProgressWork){work->doing, (double)bytes, work->bytes, true});
  return !stop_signal || interrupted(work->doing, error);
}

static bool show_encoding(void *context, int64_t bytes, int64_t merges, Error *error) {
  const Work *work = context;
  if (!merges) return show_bytes(context, bytes, error);
  progress_work(&work->r->console, &(ProgressWork){work->merging, (double)merges, work->merges, false});
  return !stop_signal || interrupted(work->merging, error);
}

static bool show_packing(void *context, int64_t tokens, Error *error) {
  const Work *work = context;
  progress_work(&work->r->console, &(ProgressWork){work->doing, (double)tokens, work->merges, false});
  return !stop_signal || interrupted(work->doing, error);
}

/* ---- sources ---- */

static bool is_standard_input(const char *source) { return strcmp(source, "-") == 0; }

static bool stdin_is_jsonl(const TrainSettings *s) { return s->jsonl_field || s->prompt_field; }

const char *stdin_file(const Run *r) { return stdin_is_jsonl(&r->settings) ? "stdin.jsonl" : "stdin.txt"; }

/* A resumed run finds in its directory what it read from standard input. */
static bool open_corpus(Run *r, const char *const *sources, int count, Corpus **out, Error *error) {
  const TrainSettings *s = &r->settings;
  Work work = {.r = r, .doing = "reading standard input"};
  char *copy = data_path(r, STDIN_COPY), *kept = s->resume ? in_run(r, stdin_file(r)) : NULL;
  const char **opened = malloc((size_t)count * sizeof *opened);
  bool ok = copy && opened && (kept || !s->resume);
  if (!ok) fail(error, EXIT_MEMORY, "out of memory for a list of texts");
  for (int i = 0; ok && i < count; i++) opened[i] = kept && is_standard_input(sources[i]) ? kept : sources[i];
  CorpusOptions options = {.field = s->jsonl_field,
                           .prompt_field = s->prompt_field,
                           .response_field = s->response_field,
                           .spool = copy,
                           .stdin_is_jsonl = stdin_is_jsonl(s),
                           .progress = show_bytes,
                           .progress_context = &work};
  ok = ok && corpus_open(out, opened, count, &options, error);
  progress_work_end(&r->console);
  free(opened);
  free(copy);
  free(kept);
  return ok;
}

static bool open_texts(Run *r, Corpus **train, Corpus **val, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->data.count == 0)
    return fail(error, EXIT_USAGE, "no text given; try: ./train book.txt   (./train --help lists everything)");
  if (s->val && is_standard_input(s->val))
    return fail(error, EXIT_USAGE, "--val - : standard input can only be the text to learn from; name a file");
  if (s->val && !open_corpus(r, &s->val, 1, val, error)) return false;
  if (!open_corpus(r, s->data.items, s->data.count, train, error)) return false;
  if (stdin_is_jsonl(s) && !corpus_jsonl_files(*train))
    return fail(error, EXIT_USAGE, "--%s is for JSON lines, and no file has a name that ends in .jsonl",
                s->jsonl_field ? "jsonl-field" : "prompt-field");
  r->text = (TextFacts){corpus_files(*train), corpus_bytes(*train), corpus_skipped(*train)};
  return true;
}

/* ---- tokenizer ---- */

static bool load_tokenizer(Run *r, const char *given, Error *error) {
  struct stat info;
  if (stat(given, &info) != 0)
    return fail(error, EXIT_CHECKPOINT, "--tokenizer %s: %s; give auto, byte, bpe, or a tokenizer.json",
                one_line(given, 250).text, strerror(errno));
  char *inside = S_ISDIR(info.st_mode) ? path_join(given, "tokenizer.json") : strdup(given);
  if (!inside) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = tokenizer_load(&r->tokenizer, inside, error);
  free(inside);
  return ok;
}

static bool learn_tokenizer(Run *r, Corpus *corpus, Error *error) {
  const int wanted = r->settings.vocab_size;
  Work work = {r, "counting words", "merging pairs", (double)corpus_bytes(corpus), (double)wanted - 257};
  EncodingOptions options = {r->threads, show_encoding, &work};
  bool ok = train_tokenizer(&r->tokenizer, corpus, wanted, &options, error);
  progress_work_end(&r->console);
  if (ok && tokenizer_vocab(r->tokenizer) < wanted)
    message_note(&r->console, "the text has pairs for a vocabulary of %d, not of %d", tokenizer_vocab(r->tokenizer),
                 wanted);
  return ok;
}

/* A resumed run keeps its tokenizer. */
static bool make_tokenizer(Run *r, Corpus *corpus, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->resume) return load_tokenizer(r, r->dir, error);
  ContextInfo info;
  r->backend->info(r->context, &info);
  choose_tokenizer(s, r->text.bytes, info.accelerator, &r->choices);
  if (strcmp(s->tokenizer, "bpe") == 0) return learn_tokenizer(r, corpus, error);
  if (s->vocab_size)
    return fail(error, EXIT_USAGE, "--vocab-size %d is for a BPE that is learnt from the text, not for --tokenizer %s",
                s->vocab_size, s->tokenizer);
  if (strcmp(s->tokenizer, "byte") != 0) return load_tokenizer(r, s->tokenizer, error);
  r->tokenizer = tokenizer_byte();
  return r->tokenizer || fail(error, EXIT_MEMORY, "out of memory for the tokenizer");
}

/* ---- tokens ---- */

/* Whether the file holds just what the corpus would be encoded to. */
static bool open_fresh(TokenFile *out, const char *path, uint64_t fingerprint) {
  Error ignored = {0};
  if (!token_file_open(out, path, &ignored)) return false;
  if (out->info.fingerprint == fingerprint) return true;
  token_file_close(out);
  return false;
}

static bool encode(Run *r, const char *path, Corpus *corpus, Error *error) {
  Work work = {.r = r, .doing = "encoding", .bytes = (double)corpus_bytes(corpus)};
  EncodingOptions options = {r->threads, show_encoding, &work};
  double start = now();
  bool ok = encode_corpus(path, corpus, r->tokenizer, &options, error);
  double seconds = now() - start;
  progress_work_end(&r->console);
  if (ok && seconds > 2)
    message_line(&r->console, "encoded  %s in %s, %s/s", human_bytes(work.bytes).text, human_duration(seconds).text,
                 human_bytes(work.bytes / seconds).text);
  return ok;
}

static bool open_tokens(Run *r, const char *name, Corpus *corpus, TokenFile *out, Error *error) {
  char *path = data_path(r, name);
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = open_fresh(out, path, encoding_fingerprint(corpus, r->tokenizer)) ||
            (encode(r, path, corpus, error) && token_file_open(out, path, error));
  free(path);
  return ok;
}

static bool open_splits(Run *r, Corpus *train, Corpus *val, Error *error) {
  const TrainSettings *s = &r->settings;
  if (!open_tokens(r, "tokens.bin", train, &r->tokens_file, error)) return false;
  if (r->tokens_file.info.tokens == 0)
    return fail(error, EXIT_INPUT, "%s holds no text: there is nothing to learn from", text_name(r));
  file_split(&r->tokens_file, val ? 0 : s->val_frac, 1000000, &r->train, &r->tail);
  if (!val) return true;
  Split none;
  if (!open_tokens(r, "val.tokens.bin", val, &r->val_file, error)) return false;
  file_split(&r->val_file, 0, 0, &r->tail, &none);
  return true;
}

bool open_data(Run *r, Error *error) {
  Corpus *train = NULL, *val = NULL;
  r->threads = r->settings.machine.threads > 0 ? r->settings.machine.threads : omp_get_num_procs();
  bool ok = (has_directory(&r->settings) || temporary_directory(&r->scratch, error)) &&
            open_texts(r, &train, &val, error) && make_tokenizer(r, train, error) && open_splits(r, train, val, error);
  corpus_close(train);
  corpus_close(val);
  remove_scratch(r);
  return ok;
}

void close_data(Run *r) {
  packing_free(&r->train_packing);
  packing_free(&r->tail_packing);
  token_file_close(&r->tokens_file);
  token_file_close(&r->val_file);
  tokenizer_free(r->tokenizer);
}

const char *text_name(const Run *r) {
  const char *first = r->settings.data.items[0];
  return is_standard_input(first) ? "standard input" : first;
}

/* ---- windows ---- */

static bool pack(Run *r, const Split *split, Packing *out, Error *error) {
  Work work = {.r = r, .doing = "packing documents", .merges = (double)split_tokens(split)};
  bool ok = packing_make(out, split, r->config.ctx, tokenizer_end(r->tokenizer), show_packing, &work, error);
  progress_work_end(&r->console);
  return ok;
}

/* A window of the stream is ctx tokens and the one after them. */
static bool check_text_length(const Run *r, Error *error) {
  const int64_t train = split_tokens(&r->train);
  if (train >= r->config.ctx + 1) return true;
  return fail(error, EXIT_INPUT,
              "%s: %" PRId64 " tokens to train on (and %" PRId64
              " to validate), but a window needs ctx + 1 = %d; give more text%s",
              one_line(text_name(r), 250).text, train, split_tokens(&r->tail), r->config.ctx + 1,
              train < 9 ? "" : ", or a smaller --ctx");
}

bool open_windows(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->pack < 0) s->pack = s->prompt_field ? PACK_DOCS : PACK_STREAM;
  r->windows = (Windows){r->train, r->config.ctx, NULL};
  r->tail_windows = (Windows){r->tail, r->config.ctx, NULL};
  if (s->pack == PACK_STREAM) return check_text_length(r, error);
  if (!pack(r, &r->train, &r->train_packing, error) || !pack(r, &r->tail, &r->tail_packing, error)) return false;
  tokenizer_set_begins_with_end(r->tokenizer); /* as all documents do that the model sees */
  r->windows.packing = &r->train_packing;
  r->tail_windows.packing = &r->tail_packing;
  return true;
}

bool fill_batch(Run *r, int64_t step, Error *error) {
  const int ctx = r->config.ctx, sequences = r->settings.batch * r->settings.grad_accum;
  for (int i = 0; i < sequences; i++) {
    const size_t at = (size_t)i * (size_t)ctx;
    const Sequence out = {r->tokens + at, r->targets + at, r->positions + at};
    if (!windows_draw(&r->windows, r->settings.seed, (uint32_t)step, (uint32_t)i, &out, error)) return false;
  }
  return true;
}

TokenBatch batch(const Run *r) {
  return (TokenBatch){r->tokens, r->targets, r->settings.pack == PACK_DOCS ? r->positions : NULL};
}
