/* The texts of a run and their tokenizers: names of files -> corpora for training and validation -> tokenizers. */
#include "cli/startup.h"
#include "text/dataset/tokenization.h"
#include "files/formats/model_files.h"
#include "train/architecture.h"
#include "train/run.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { VALIDATION_BYTES = AUTO_VAL_MB * 1000000 /* at most, of those held out */ };

/* ---- inputs and corpus ---- */

static bool names_fields(const TrainSettings *s) { return s->jsonl_field || s->prompt_field; }

const char *run_stdin_file(const TrainSettings *s) {
  return s->tsv            ? CHECKPOINT_STDIN_TSV
         : s->fasta        ? CHECKPOINT_STDIN_FASTA
         : names_fields(s) ? CHECKPOINT_STDIN_JSONL
                           : CHECKPOINT_STDIN_TEXT;
}

OneLine run_text_name(const TrainSettings *s) {
  return text_one_line(path_shown(settings_text(s->data.items[0]).path.text), 250);
}

/* A resumed run reads the copy of its standard input from its directory. */
static bool open_corpus(Run *r, const char *const *inputs, int count, int groups, Corpus **out, Error *error) {
  const TrainSettings *s = &r->settings;
  StartupWork reading = {.console = &r->console, .name = "reading standard input", .bytes = true};
  const PathText copy =
      s->resume ? path_in(r->files.dir, run_stdin_file(&r->settings)) : run_data_path(r, CHECKPOINT_STDIN_COPY);
  const CorpusOptions options = {.field = s->jsonl_field,
                                 .prompt_field = s->prompt_field,
                                 .response_field = s->response_field,
                                 .tsv = s->tsv,
                                 .fasta = s->fasta,
                                 .speaker = s->speaker,
                                 .spool = copy.text,
                                 .spooled = s->resume,
                                 .copying = startup_progress(&reading),
                                 .is_model = model_files_exist,
                                 .groups = groups};
  bool ok = corpus_open(out, inputs, count, &options, error);
  console_work_end(&r->console);
  return ok;
}

/* Refuses a file with a share that is also read otherwise, for example in a folder. */
static bool check_once(const Corpus *corpus, Error *error) {
  for (int i = 0; i < corpus_files(corpus); i++) {
    const TextFile *file = corpus_file(corpus, i), *other = corpus_file(corpus, 0);
    while (other != file &&
           (other->group == file->group || other->inode != file->inode || other->device != file->device))
      other++;
    if (other != file)
      return fail(error, EXIT_USAGE, "%s is given twice, at least once with a share; name it once",
                  text_one_line(file->path, 250).text);
  }
  return true;
}

/* Opens the training texts, those with shares last. */
static bool open_train(Run *r, Corpus **out, Error *error) {
  const TrainSettings *s = &r->settings;
  const char **paths = calloc((size_t)s->data.count, sizeof *paths);
  int count = 0;
  for (int i = 0; paths && i < 2 * s->data.count; i++) {
    const NamedText text = settings_text(s->data.items[i % s->data.count]);
    if (!text.share == (i < s->data.count)) paths[count++] = strdup(text.path.text);
  }
  bool ok = paths != NULL;
  for (int i = 0; i < count; i++) ok = ok && paths[i];
  ok = ok ? open_corpus(r, paths, count, r->text.mixture.count, out, error) : error_memory(error, "a list of files");
  for (int i = 0; i < count; i++) free((void *)(uintptr_t)paths[i]);
  free(paths);
  return ok && (!r->text.mixture.count || check_once(*out, error));
}

static bool reads_stdin(const TrainSettings *s) {
  for (int i = 0; i < s->data.count; i++)
    if (path_is_stdin(settings_text(s->data.items[i]).path.text)) return true;
  return false;
}

/* Returns whether a file is also training text, and then warns that the `measure` says little. */
static bool warn_of_trained(Console *console, const Corpus *train, const char *path, const char *measure) {
  for (int t = 0; t < corpus_files(train); t++) {
    if (!file_is_same(path, corpus_file(train, t)->path)) continue;
    console_warning(console, "%s is also training text: the %s says nothing about other text",
                    text_one_line(path, 250).text, measure);
    return true;
  }
  return false;
}

static void check_measures(Console *console, const TrainSettings *s, const Corpus *train, const Corpus *val) {
  bool warned = false;
  for (int v = 0; val && v < corpus_files(val) && !warned; v++)
    warned = warn_of_trained(console, train, corpus_file(val, v)->path, "validation loss");
  if (s->choose) warn_of_trained(console, train, s->choose, "accuracy of --choose");
}

static bool open_corpora(Run *r, Corpus **train, Corpus **val, Error *error) {
  const TrainSettings *s = &r->settings;
  if (s->val && path_is_stdin(s->val))
    return fail(error, EXIT_USAGE, "--val - : standard input can only be the training text; name a file");
  if ((s->tsv || s->fasta) && !reads_stdin(s))
    return fail(
        error, EXIT_USAGE,
        "--%s applies to standard input (-), which was not given; give a file of this format a name that ends in %s",
        s->tsv ? "tsv" : "fasta", text_ending(s->tsv ? FORMAT_TSV : FORMAT_FASTA));
  if (s->val && !open_corpus(r, &s->val, 1, 0, val, error)) return false;
  if (!open_train(r, train, error)) return false;
  check_measures(&r->console, s, *train, *val);
  r->text.facts = (TextFacts){corpus_files(*train), corpus_bytes(*train), (size_t)corpus_stdin_bytes(*train),
                              corpus_skipped_names(*train, false)};
  const OneLine texts = corpus_skipped_names(*train, true);
  if (*texts.text && !s->resume)
    console_warning(&r->console,
                    "these files may be texts but were not read: %s; in a directory, only " TEXT_FILE_NAMES
                    "s are read; name the others on the command line to read them",
                    texts.text);
  if (!s->resume && !s->binary &&
      (!run_examine_text(r, *train, true, error) || (*val && !run_examine_text(r, *val, false, error))))
    return false;
  return !names_fields(s) || corpus_jsonl_files(*train) || (*val && corpus_jsonl_files(*val)) ||
         fail(error, EXIT_USAGE, "--%s is for JSON lines, and no file has a name that ends in .jsonl",
              s->jsonl_field ? "jsonl-field" : "prompt-field");
}

/* Returns whether a run was begun by version 1.1 or older, when the tokens of the text were cut instead of its
 * bytes. */
static bool lacks_cut(const Run *r) { return isnan(checkpoint_find_number(r->files.dir, "val_bytes")); }

/* Such runs keep their cut. */
static bool was_cut_by_tokens(const Run *r) {
  const TrainSettings *s = &r->settings;
  return s->resume && !s->val && !options_typed(&r->options, "val-frac") && lacks_cut(r);
}

/* Cuts off the held-out part, *val, which stays NULL if there is none or --val names the validation text. */
static bool cut_corpus(const Run *r, Corpus *corpus, Corpus **val, Error *error) {
  return r->settings.val || r->text.cut_by_tokens ||
         corpus_cut(corpus, r->settings.val_frac, VALIDATION_BYTES, val, error);
}

/* If the text of a resumed run is gone, the run continues with its tokens, without a corpus. --val names a new one. */
static bool find_corpora(Run *r, Corpus **train, Corpus **val, Error *error) {
  Error cause = {0};
  if (open_corpora(r, train, val, &cause)) return cut_corpus(r, *train, val, error);
  if (!r->settings.resume || options_typed(&r->options, "val") || cause.code != EXIT_INPUT)
    return fail(error, cause.code, "%s", cause.text);
  corpus_close(*train);
  corpus_close(*val);
  *train = *val = NULL;
  r->text.cut_by_tokens = !r->settings.val && lacks_cut(r);
  console_warning(&r->console, "%s; the run continues with the tokens already encoded", cause.text);
  return true;
}

/* ---- tokenizers ---- */

/* A tokenizer as the options ask for it. */
typedef struct Asked {
  Console *console;
  int threads;
  const char *prefix; /* of the names of its options: "source-" */
  const char *name;   /* as TrainSettings.tokenizer */
  int vocab_size;
  bool vocab_given;    /* by the user, who wants to know if the text yields fewer tokens */
  bool unknown;        /* --unk */
  TrainingTexts texts; /* the texts that a tokenizer is trained on */
  const char *what;    /* their name in messages */
} Asked;

static bool load_tokenizer(const Asked *asked, Tokenizer **out, Error *error) {
  struct stat info;
  if (stat(asked->name, &info) != 0)
    return fail(error, EXIT_CHECKPOINT,
                "--%stokenizer %s: %s; give auto, byte, bpe, chars, words, lines, ids, or a tokenizer.json",
                asked->prefix, text_one_line(asked->name, 250).text, strerror(errno));
  const PathText inside = path_in(asked->name, TOKENIZER_JSON);
  return tokenizer_load(out, S_ISDIR(info.st_mode) ? inside.text : asked->name, error);
}

/* Fails if the vocabulary size does not suit the tokenizer. */
static bool check_vocab_size(const Asked *asked, WordLevel level, bool trained, Error *error) {
  const int least = !trained || !asked->vocab_size || level == WORD_LEVEL_IDS ? 0 : level ? 3 : 257;
  const OneLine name = text_one_line(asked->name, 250);
  if (asked->vocab_size && !trained)
    return fail(error, EXIT_USAGE,
                "--%svocab-size %d is for a vocabulary that is made from the text, not for --%stokenizer %s",
                asked->prefix, asked->vocab_size, asked->prefix, name.text);
  if (asked->vocab_size < least)
    return fail(error, EXIT_USAGE, "--%svocab-size %d is too small for --%stokenizer %s: expected at least %d",
                asked->prefix, asked->vocab_size, asked->prefix, name.text, least);
  return !asked->unknown || (level && level != WORD_LEVEL_IDS) ||
         fail(error, EXIT_USAGE, "--unk is for --tokenizer chars, words and lines, not for --%stokenizer %s",
              asked->prefix, name.text);
}

static bool train_tokenizer(const Asked *asked, WordLevel level, Corpus *corpus, Tokenizer **out, Error *error) {
  StartupWork counting = {
      .console = asked->console, .name = "counting words", .total = (double)corpus_bytes(corpus), .bytes = true};
  StartupWork merging = {.console = asked->console, .name = "merging pairs", .total = (double)asked->vocab_size - 257};
  const TokenizerTraining options = {.level = level,
                                     .vocab_size = asked->vocab_size,
                                     .unknown = asked->unknown,
                                     .threads = asked->threads,
                                     .counting = startup_progress(&counting),
                                     .merging = startup_progress(&merging),
                                     .texts = asked->texts};
  bool ok = tokenization_train(out, corpus, &options, error);
  console_work_end(asked->console);
  if (ok && asked->vocab_given && tokenizer_vocab(*out) < asked->vocab_size)
    console_note(asked->console, "%s a vocabulary of only %d tokens instead of %d", asked->what, tokenizer_vocab(*out),
                 asked->vocab_size);
  return ok;
}

static bool make_tokenizer(const Asked *asked, Corpus *corpus, Tokenizer **out, Error *error) {
  if (!asked->name) return fail(error, EXIT_INTERNAL, "no tokenizer was chosen");
  const WordLevel level = word_level_named(asked->name);
  const bool trained = level || strcmp(asked->name, "bpe") == 0;
  if (!check_vocab_size(asked, level, trained, error)) return false;
  if (trained) return train_tokenizer(asked, level, corpus, out, error);
  if (settings_tokenizer_is_path(asked->name)) return load_tokenizer(asked, out, error);
  *out = tokenizer_byte();
  return *out || error_memory(error, "the tokenizer");
}

static bool count_characters(Console *console, Corpus *corpus, Characters *out, Error *error) {
  StartupWork work = {.console = console,
                      .name = "counting characters",
                      .total = fmin((double)corpus_bytes(corpus), CHARACTERS_SAMPLE),
                      .bytes = true};
  const bool ok = characters_count(out, corpus, startup_progress(&work), error);
  console_work_end(console);
  return ok;
}

/* Gives a tokenizer the form of new models, unless it has a template that is supported. */
static bool add_chat(Tokenizer **tokenizer, Error *error) {
  Chat *chat = NULL;
  Error ignored = {0};
  const bool has = chat_open(&chat, *tokenizer, &ignored);
  chat_close(chat);
  return has || chat_extend_tokenizer(tokenizer, error);
}

static bool open_tokenizers(Run *r, Corpus *corpus, Error *error) {
  TrainSettings *s = &r->settings;
  const bool conversations = corpus && corpus_has_conversations(corpus);
  if (run_base(r))
    return run_open_base_tokenizers(r, conversations, error) &&
           (s->resume || s->special || run_check_special_tokens(&r->console, r->text.tokenizer, corpus, error));
  if (!architecture_check_sources(s, corpus_has_prompts(corpus), error)) return false;
  Characters characters = {0};
  const bool asked = s->tokenizer && strcmp(s->tokenizer, "bpe") != 0 && !settings_separate_vocabs(s);
  if (!asked && !s->vocab_size && !count_characters(&r->console, corpus, &characters, error)) return false;
  const bool vocab_given = s->vocab_size, source_vocab_given = s->source_vocab_size;
  const int64_t counted = characters.bytes, files = corpus_bytes(corpus);
  const bool small_part = counted && counted < CHARACTERS_SAMPLE && counted < files / 2; /* of JSON Lines */
  auto_tokenizer(s, small_part ? counted : files, &characters, r->device.info.accelerator, &r->reasons);
  const bool separate = settings_separate_vocabs(s);
  if (separate && !corpus_has_prompts(corpus))
    return fail(error, EXIT_INPUT,
                "the text has no prompts, which --source-tokenizer is for; pairs are a .tsv file, or JSON lines with "
                "--prompt-field and --response-field");
  const Asked text = {.console = &r->console,
                      .threads = r->text.threads,
                      .prefix = "",
                      .name = s->tokenizer,
                      .vocab_size = s->vocab_size,
                      .vocab_given = vocab_given,
                      .unknown = s->unknown,
                      .texts = separate ? TRAINING_RESPONSES : TRAINING_ALL,
                      .what = separate ? "the responses yield" : "the text yields"};
  const Asked prompts = {.console = &r->console,
                         .threads = r->text.threads,
                         .prefix = "source-",
                         .name = s->source_tokenizer,
                         .vocab_size = s->source_vocab_size,
                         .vocab_given = source_vocab_given,
                         .unknown = s->unknown,
                         .texts = TRAINING_PROMPTS,
                         .what = "the prompts yield"};
  if (!make_tokenizer(&text, corpus, &r->text.tokenizer, error) ||
      (conversations && !add_chat(&r->text.tokenizer, error)))
    return false;
  /* a teacher may have more rows of embeddings than tokens */
  if (s->teacher && tokenizer_fingerprint(r->text.tokenizer) == r->teacher.tokens)
    tokenizer_set_vocab(r->text.tokenizer, r->teacher.config.vocab);
  return (!separate || make_tokenizer(&prompts, corpus, &r->text.source_tokenizer, error)) &&
         (!(settings_tokenizer_is_path(s->tokenizer) || conversations) || s->special ||
          run_check_special_tokens(&r->console, r->text.tokenizer, corpus, error));
}

/* ---- all of it ---- */

/* Makes prompts begin and end as the model sees texts begin and end in training. */
static void set_ends(RunText *text, int packing, bool encoder) {
  const bool docs = packing == PACK_DOCS && !encoder;
  if (!docs || tokenizer_begin(text->tokenizer) < 0) tokenizer_set_begins_with_end(text->tokenizer, docs);
  tokenizer_set_ends_with_end(text->tokenizer, encoder);
  if (text->source_tokenizer) tokenizer_set_ends_with_end(text->source_tokenizer, true);
}

static bool choose_packing(Run *r, Error *error) {
  TrainSettings *s = &r->settings;
  const bool pairs = run_has_pairs(&r->text), encoder = architecture_has_encoder(s, pairs);
  if (s->pack == PACK_STREAM && encoder)
    return fail(error, EXIT_USAGE, "--pack stream cuts pairs, but an encoder reads whole pairs; leave it out");
  const bool conversations = r->text.train.file.info.conversations;
  if (conversations && (encoder || s->pack == PACK_STREAM))
    return fail(error, EXIT_USAGE, "%s conversations; leave out %s",
                encoder ? "a model with an encoder cannot learn" : "--pack stream cuts",
                encoder ? "the encoder (--arch original, --encoder-layers)" : "--pack");
  if (conversations && s->special)
    return fail(error, EXIT_USAGE,
                "--special is for documents, and the text has conversations, whose contents never "
                "become special tokens; leave it out");
  auto_packing(s, pairs || encoder, r->text.tokenizer, &r->reasons);
  if (!s->resume && !conversations && (s->pack == PACK_DOCS || !s->init)) set_ends(&r->text, s->pack, encoder);
  return true;
}

bool run_open_data(Run *r, Error *error) {
  Corpus *train = NULL, *val = NULL;
  r->text.cut_by_tokens = was_cut_by_tokens(r);
  bool ok = (settings_have_directory(&r->settings) || file_temporary_directory(&r->text.scratch, error)) &&
            find_corpora(r, &train, &val, error) && open_tokenizers(r, train, error) &&
            run_open_tokens(r, train, val, error) && choose_packing(r, error);
  corpus_close(train);
  corpus_close(val);
  return ok;
}
