/* What a run learns from: the text it is given, its tokenizer, the tokens on disk, and windows of them. */
#include "util/text.h"
#include "util/threads.h"
#include "cli/startup.h"
#include "util/file.h"
#include "util/path.h"
#include "dataset/corpus.h"
#include "dataset/encoding.h"
#include "training/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VALIDATION_TOKENS = CHOICES_VAL_MTOKENS * 1000000 }; /* at most */

/* ---- where files lie ---- */

/* What would be in the run directory is in one of its own when the run has none. */
static char *data_path(const Run *r, const char *name) {
  return r->scratch ? path_join(r->scratch, name) : run_path(r, name);
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

/* What is being done, and how much of it there is: bytes, or tokens, or merges. */
typedef struct Work {
  Run *r;
  const char *name;
  double all; /* 0: not known */
  bool bytes;
} Work;

static bool go_on(const Work *work, int64_t done, Error *error) {
  console_work(&work->r->console, &(ConsoleWork){work->name, (double)done, work->all, work->bytes});
  return !stop_signal || fail(error, (ExitCode)(128 + stop_signal), "stopped while %s", work->name);
}

static bool show(void *work, int64_t done, Error *error) { return go_on(work, done, error); }

static bool show_encoding(void *work, int64_t bytes, int64_t merges, Error *error) {
  const Work *of = work;
  const Work merging = {of->r, "merging pairs", (double)of->r->settings.vocab_size - 257, false};
  return merges ? go_on(&merging, merges, error) : go_on(of, bytes, error);
}

static bool not_stopped(Error *error) {
  return !stop_signal || fail(error, (ExitCode)(128 + stop_signal), "stopped while looking for documents");
}

/* ---- sources ---- */

static bool is_standard_input(const char *source) { return strcmp(source, "-") == 0; }

static bool stdin_is_jsonl(const TrainSettings *s) { return s->jsonl_field || s->prompt_field; }

const char *run_stdin_file(const Run *r) { return stdin_is_jsonl(&r->settings) ? "stdin.jsonl" : "stdin.txt"; }

const char *run_text_name(const Run *r) {
  const char *first = r->settings.data.items[0];
  return is_standard_input(first) ? "standard input" : first;
}

/* What is compressed, or JSON lines that nobody called so, would be learned as the bytes that it is. */
static void look_at(Run *r, const char *path, const char *source) {
  static const struct {
    const char *begins, *opener;
  } packed[] = {{"\x1f\x8b", "zcat"},
                {"\x28\xb5\x2f\xfd", "zstdcat"},
                {"\xfd\x37zXZ", "xzcat"},
                {"BZh", "bzcat"},
                {"PK\3\4", "unzip -p"}};
  char first[8] = "";
  FILE *file = fopen(path, "rb");
  size_t size = file ? fread(first, 1, sizeof first - 1, file) : 0;
  if (file) fclose(file);
  const bool piped = is_standard_input(source);
  const char *dot = strrchr(source, '.');
  for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++)
    if (size >= strlen(packed[i].begins) && memcmp(first, packed[i].begins, strlen(packed[i].begins)) == 0)
      console_warning(&r->console, "%s is compressed, and is learned as it is; for its text: %s %s | ./train -",
                      piped ? "standard input" : text_one_line(source, 250).text, packed[i].opener,
                      piped ? "FILE" : text_one_line(source, 250).text);
  if (strncmp(first, "{\"", 2) != 0) return;
  if (!piped && !(dot && strcasecmp(dot, ".jsonl") == 0))
    console_note(&r->console, "%s looks like JSON, and is learned as it is; JSON lines have names that end in .jsonl",
                 text_one_line(source, 250).text);
  if (piped && !stdin_is_jsonl(&r->settings))
    console_note(&r->console,
                 "standard input looks like JSON lines, and is learned as it is; --jsonl-field text reads them");
}

static void look_at_all(Run *r) {
  const TextList *data = &r->settings.data;
  char *copy = data_path(r, STDIN_COPY);
  for (int i = 0; copy && i < data->count; i++)
    look_at(r, is_standard_input(data->items[i]) ? copy : data->items[i], data->items[i]);
  free(copy);
}

/* A resumed run finds in its directory what it read from standard input. */
static bool open_corpus(Run *r, const char *const *sources, int count, Corpus **out, Error *error) {
  const TrainSettings *s = &r->settings;
  Work reading = {r, "reading standard input", 0, true};
  char *copy = s->resume ? run_path(r, run_stdin_file(r)) : data_path(r, STDIN_COPY);
  const char **opened = malloc((size_t)count * sizeof *opened);
  bool ok = copy && opened;
  if (!ok) fail(error, EXIT_MEMORY, "out of memory for a list of texts");
  for (int i = 0; ok && i < count; i++) opened[i] = s->resume && is_standard_input(sources[i]) ? copy : sources[i];
  CorpusOptions options = {.field = s->jsonl_field,
                           .prompt_field = s->prompt_field,
                           .response_field = s->response_field,
                           .spool = copy,
                           .stdin_is_jsonl = stdin_is_jsonl(s),
                           .progress = show,
                           .progress_context = &reading,
                           .is_model = checkpoint_is_model,
                           .tick = not_stopped};
  ok = ok && corpus_open(out, opened, count, &options, error);
  console_work_end(&r->console);
  free(opened);
  free(copy);
  return ok;
}

static size_t stdin_bytes(const Run *r) {
  struct stat info;
  char *copy = data_path(r, STDIN_COPY);
  size_t bytes = copy && stat(copy, &info) == 0 ? (size_t)info.st_size : 0;
  free(copy);
  return bytes;
}

static bool open_texts(Run *r, Corpus **train, Corpus **val, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->val && is_standard_input(s->val))
    return fail(error, EXIT_USAGE, "--val - : standard input can only be the text to learn from; name a file");
  if (s->val && !open_corpus(r, &s->val, 1, val, error)) return false;
  if (!open_corpus(r, s->data.items, s->data.count, train, error)) return false;
  if (stdin_is_jsonl(s) && !corpus_jsonl_files(*train) && !(*val && corpus_jsonl_files(*val)))
    return fail(error, EXIT_USAGE, "--%s is for JSON lines, and no file has a name that ends in .jsonl",
                s->jsonl_field ? "jsonl-field" : "prompt-field");
  r->text = (TextFacts){corpus_files(*train), corpus_bytes(*train), corpus_skipped(*train), stdin_bytes(r)};
  if (!s->resume) look_at_all(r);
  return true;
}

/* A resumed run whose text is gone goes on with its tokens. */
static bool find_texts(Run *r, Corpus **train, Corpus **val, Error *error) {
  Error cause = {0};
  if (open_texts(r, train, val, &cause)) return true;
  if (!r->settings.resume || cause.code != EXIT_INPUT) return fail(error, cause.code, "%s", cause.text);
  corpus_close(*train);
  corpus_close(*val);
  *train = *val = NULL;
  console_warning(&r->console, "%s; the run goes on with the tokens that it has of it", cause.text);
  return true;
}

/* ---- tokenizer ---- */

static bool load_tokenizer(Run *r, const char *given, Error *error) {
  struct stat info;
  if (stat(given, &info) != 0)
    return fail(error, EXIT_CHECKPOINT, "--tokenizer %s: %s; give auto, byte, bpe, or a tokenizer.json",
                text_one_line(given, 250).text, strerror(errno));
  char *inside = S_ISDIR(info.st_mode) ? path_join(given, "tokenizer.json") : strdup(given);
  if (!inside) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool ok = tokenizer_load(&r->tokenizer, inside, error);
  free(inside);
  return ok;
}

static bool learn_tokenizer(Run *r, Corpus *corpus, Error *error) {
  const int wanted = r->settings.vocab_size;
  Work work = {r, "counting words", (double)corpus_bytes(corpus), true};
  EncodingOptions options = {r->threads, show_encoding, &work};
  bool ok = encoding_train(&r->tokenizer, corpus, wanted, &options, error);
  console_work_end(&r->console);
  if (ok && tokenizer_vocab(r->tokenizer) < wanted)
    console_note(&r->console, "the text has pairs for a vocabulary of %d, not of %d", tokenizer_vocab(r->tokenizer),
                 wanted);
  return ok;
}

/* A resumed run keeps its tokenizer. */
static bool make_tokenizer(Run *r, Corpus *corpus, Error *error) {
  TrainSettings *s = &r->settings;
  if (s->resume) return load_tokenizer(r, r->dir, error);
  ContextInfo info;
  r->backend->info(r->context, &info);
  choices_tokenizer(s, r->text.bytes, info.accelerator, &r->choices);
  if (strcmp(s->tokenizer, "bpe") == 0) return learn_tokenizer(r, corpus, error);
  if (s->vocab_size)
    return fail(error, EXIT_USAGE, "--vocab-size %d is for a BPE that is learned from the text, not for --tokenizer %s",
                s->vocab_size, text_one_line(s->tokenizer, 250).text);
  if (settings_tokenizer_is_path(s)) return load_tokenizer(r, s->tokenizer, error);
  r->tokenizer = tokenizer_byte();
  return r->tokenizer || fail(error, EXIT_MEMORY, "out of memory for the tokenizer");
}

/* ---- tokens ---- */

static bool encode(Run *r, const char *path, Corpus *corpus, Error *error) {
  Work work = {r, "encoding", (double)corpus_bytes(corpus), true};
  EncodingOptions options = {r->threads, show_encoding, &work};
  double start = clock_seconds();
  bool ok = encoding_write(path, corpus, r->tokenizer, &options, error);
  double seconds = clock_seconds() - start;
  console_work_end(&r->console);
  if (ok && seconds > 2)
    console_line(&r->console, "encoded  %s in %s, %s/s", text_bytes(work.all).text, text_duration(seconds).text,
                 text_bytes(work.all / seconds).text);
  return ok;
}

/* Whether the file holds just what the corpus would be encoded to; without a corpus any that fits the tokenizer. */
static bool is_fresh(const Run *r, const TokenFile *file, const Corpus *corpus) {
  return file->info.vocab == tokenizer_vocab(r->tokenizer) &&
         (!corpus || (file->info.fingerprint == encoding_fingerprint(corpus, r->tokenizer) &&
                      file->info.masked == corpus_masked(corpus)));
}

static bool verify(Run *r, const TokenFile *file, Error *error) {
  Work work = {r, "checking tokens", (double)file->info.tokens, false};
  bool ok = token_file_verify(file, show, &work, error);
  console_work_end(&r->console);
  return ok;
}

static bool open_tokens(Run *r, const char *name, Corpus *corpus, TokenFile *out, Error *error) {
  Error cause = {0};
  char *path = data_path(r, name);
  if (!path) return fail(error, EXIT_MEMORY, "out of memory for a path");
  bool opened = token_file_open(out, path, &cause);
  bool ok = opened && (is_fresh(r, out, corpus) || fail(&cause, EXIT_CHECKPOINT, "%s is of another text", path)) &&
            verify(r, out, &cause);
  if (opened && !ok) token_file_close(out);
  if (!ok && corpus && cause.code < EXIT_SIGNALS)
    ok = encode(r, path, corpus, error) && token_file_open(out, path, error);
  else if (!ok) fail(error, cause.code, "%s", cause.text);
  free(path);
  return ok;
}

static bool open_splits(Run *r, Corpus *train, Corpus *val, Error *error) {
  const TrainSettings *s = &r->settings;
  if (!open_tokens(r, "tokens.bin", train, &r->tokens_file, error)) return false;
  if (r->tokens_file.info.tokens == 0)
    return fail(error, EXIT_INPUT, "%s holds no text: there is nothing to learn from",
                text_one_line(run_text_name(r), 250).text);
  if (!train) r->text = (TextFacts){.files = s->data.count, .bytes = r->tokens_file.info.bytes};
  token_range_split(&r->tokens_file, s->val ? 0 : s->val_frac, VALIDATION_TOKENS, &r->train, &r->val);
  if (!s->val) return true;
  TokenRange none;
  if (!open_tokens(r, "val.tokens.bin", val, &r->val_file, error)) return false;
  token_range_split(&r->val_file, 0, 0, &r->val, &none);
  if (r->val.end > VALIDATION_TOKENS) r->val.end = VALIDATION_TOKENS;
  if (run_has_validation(r)) return true;
  return fail(error, EXIT_INPUT, "--val %s: %" PRId64 " tokens are too few to validate on",
              text_one_line(s->val, 250).text, r->val.end);
}

bool run_open_data(Run *r, Error *error) {
  Corpus *train = NULL, *val = NULL;
  TrainSettings *s = &r->settings;
  if (s->pack < 0) s->pack = s->prompt_field ? PACK_DOCS : PACK_STREAM;
  r->threads = s->machine.threads > 0 ? s->machine.threads : threads_available();
  bool ok = (settings_have_directory(s) || file_temporary_directory(&r->scratch, error)) &&
            find_texts(r, &train, &val, error) && make_tokenizer(r, train, error) && open_splits(r, train, val, error);
  corpus_close(train);
  corpus_close(val);
  remove_scratch(r);
  return ok;
}

void run_close_data(Run *r) {
  packing_free(&r->train_packing);
  packing_free(&r->val_packing);
  token_file_close(&r->tokens_file);
  token_file_close(&r->val_file);
  tokenizer_free(r->tokenizer);
}

/* ---- windows ---- */

bool run_measure_documents(Run *r, DocumentLengths *out, Error *error) {
  *out = (DocumentLengths){0};
  if (r->settings.pack == PACK_STREAM || r->settings.ctx) return true;
  Work work = {r, "measuring documents", (double)token_range_size(&r->train), false};
  bool ok = packing_measure(&r->train, tokenizer_end(r->tokenizer), out, show, &work, error);
  console_work_end(&r->console);
  return ok;
}

static bool pack(Run *r, const TokenRange *split, Packing *out, Error *error) {
  Work work = {r, "packing documents", (double)token_range_size(split), false};
  bool ok = packing_make(out, split, r->config.ctx, tokenizer_end(r->tokenizer), show, &work, error);
  console_work_end(&r->console);
  return ok;
}

/* A window of the stream is ctx tokens and the one after them. */
static bool check_text_length(const Run *r, Error *error) {
  const int64_t train = token_range_size(&r->train);
  const bool docs = r->settings.pack == PACK_DOCS;
  const int least = docs ? 1 : r->config.ctx + 1;
  if (train >= least) return true;
  return fail(error, EXIT_INPUT,
              "%s: %" PRId64 " tokens to train on (and %" PRId64 " to validate), but a window needs %s%d; give more "
              "text%s",
              text_one_line(run_text_name(r), 250).text, train, token_range_size(&r->val),
              docs ? "" : "ctx + 1 = ", least, train < 9 ? "" : ", or a smaller --ctx");
}

bool run_open_windows(Run *r, Error *error) {
  const TrainSettings *s = &r->settings;
  const bool docs = s->pack == PACK_DOCS;
  r->windows = (Windows){r->train, r->config.ctx, NULL};
  r->val_windows = (Windows){r->val, r->config.ctx, NULL};
  if (!check_text_length(r, error)) return false;
  if (!s->resume) tokenizer_set_begins_with_end(r->tokenizer, docs); /* as all documents do that the model sees */
  if (docs) {
    if (!pack(r, &r->train, &r->train_packing, error) || !pack(r, &r->val, &r->val_packing, error)) return false;
    if (r->train_packing.windows == 0)
      return fail(error, EXIT_INPUT, "%s: what there is to train on is prompts alone: nothing of it is to be learned",
                  text_one_line(run_text_name(r), 250).text);
    r->windows.packing = &r->train_packing;
    r->val_windows.packing = &r->val_packing;
  }
  token_file_random(&r->tokens_file);
  return true;
}

bool run_fill_batch(Run *r, int64_t step, Error *error) {
  const int ctx = r->config.ctx, sequences = r->settings.batch * r->settings.grad_accum;
  for (int i = 0; i < sequences; i++) {
    const size_t at = (size_t)i * (size_t)ctx;
    const Sequence out = {r->tokens + at, r->targets + at, r->positions + at};
    if (!windows_draw(&r->windows, r->settings.seed, (uint32_t)step, (uint32_t)i, &out, error)) return false;
    windows_expect(&r->windows, r->settings.seed, (uint32_t)step + 1, (uint32_t)i);
  }
  return true;
}

TokenBatch run_batch(const Run *r) {
  return (TokenBatch){r->tokens, r->targets, r->settings.pack == PACK_DOCS ? r->positions : NULL};
}
