#include "text/dataset/corpus.h"

#include "text/dataset/conversation.h"
#include "text/dataset/line.h"
#include "text/dataset/record.h"
#include "text/tokenizer/tokenizer.h"
#include "base/hash.h"
#include "base/file.h"
#include "base/path.h"
#include "base/text.h"
#include "base/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  COPY_BYTES = 1 << 20,  /* read at once from standard input */
  COPY_WAIT = 200,       /* milliseconds to wait for standard input before progress is reported */
  CHECK_BYTES = 1 << 20, /* bytes between two checks that the file is unchanged */
  STEP_BYTES = 64 << 20  /* bytes between two releases of the pages that were read */
};

struct Corpus {
  FileList list;
  char *prompt_field, *text_field; /* the first may be NULL */
  bool field_named;                /* the user named the text field */
  char *speaker;                   /* NULL: none */
  bool has_prompts;                /* documents are prompts and responses */
  bool has_conversations;
  uint64_t fingerprint;
  int standard_input; /* index into the list; -1: none */
  char *temporary;    /* the spool file, when it is to be deleted */
  Progress progress;
  /* the position of the reader */
  int current;    /* the current file, an index into the list */
  bool mapped;    /* whether it is mapped */
  int64_t before; /* corpus_position() - at */
  MappedFile file;
  size_t start;        /* where its text begins, after a byte-order mark */
  size_t end;          /* where its part in this corpus ends */
  size_t at;           /* where the next document begins */
  size_t checked;      /* `at` at the last check that it is unchanged */
  int64_t line;        /* lines of it that were consumed, for other formats than text */
  int64_t record_line; /* where the newest record begins, from 1 */
  Record record;
};

/* ---- standard input ---- */

/* Returns the number of bytes read; 0 at the end; -1 with errno: EAGAIN when nothing came in time, so that the caller
 * can check for Ctrl-C. */
static ssize_t read_chunk(int from, uint8_t *chunk) {
  struct pollfd wanted = {.fd = from, .events = POLLIN};
  int ready = poll(&wanted, 1, COPY_WAIT);
  if (ready < 0) return -1;
  if (ready == 0) {
    errno = EAGAIN;
    return -1;
  }
  return read(from, chunk, COPY_BYTES);
}

static bool copy_chunks(int from, FileWriter *to, uint8_t *chunk, Progress progress, Error *error) {
  for (int64_t bytes = 0;;) {
    ssize_t count = read_chunk(from, chunk);
    if (count < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return fail(error, EXIT_INPUT, "cannot read standard input: %s", strerror(errno));
    if (count > 0 && !file_writer_add(to, chunk, (size_t)count, error)) return false;
    if (count > 0) bytes += count;
    if (!progress_report(progress, bytes, error)) return false;
    if (count == 0) return true;
  }
}

bool corpus_copy_stdin(int from, const char *path, Progress progress, Error *error) {
  FileWriter file;
  uint8_t *chunk = malloc(COPY_BYTES);
  if (!chunk) return error_memory(error, "standard input");
  bool ok = file_writer_begin(&file, path, error);
  if (ok) {
    ok = copy_chunks(from, &file, chunk, progress, error) && file_writer_commit(&file, error);
    file_writer_abort(&file);
  }
  free(chunk);
  return ok;
}

/* ---- opening ---- */

static bool take_fields(Corpus *corpus, const CorpusOptions *options, Error *error) {
  const char *prompt = options->prompt_field, *response = options->response_field, *field = options->field;
  if ((!prompt) != (!response))
    return fail(error, EXIT_USAGE, "--prompt-field and --response-field go together: %s is missing",
                !prompt ? "--prompt-field" : "--response-field");
  if (prompt && field)
    return fail(
        error, EXIT_USAGE,
        "--jsonl-field cannot be combined with --prompt-field and --response-field; leave out --jsonl-field, or "
        "both of the others");
  const char *text = response ? response : field ? field : "text";
  corpus->prompt_field = prompt ? strdup(prompt) : NULL;
  corpus->text_field = strdup(text);
  corpus->field_named = field;
  corpus->speaker = options->speaker ? strdup(options->speaker) : NULL;
  return (corpus->text_field && !prompt == !corpus->prompt_field && !options->speaker == !corpus->speaker) ||
         error_memory(error, "the name of a field");
}

static bool add_input(Corpus *corpus, const char *input, const CorpusOptions *options, TextFormat format,
                      Error *error) {
  if (!path_is_stdin(input)) return file_list_add(&corpus->list, input, error);
  if (!options->spool) return fail(error, EXIT_INTERNAL, "standard input has no file to be copied to");
  if (corpus->standard_input >= 0)
    return fail(error, EXIT_USAGE, "standard input (-) is given twice, but can be read once");
  corpus->standard_input = file_list_reserve(&corpus->list, options->spool, format, error);
  return corpus->standard_input >= 0;
}

/* Standard input is only added to the list: a missing file is reported before gigabytes are copied. */
static bool list_inputs(Corpus *corpus, const char *const *inputs, int count, const CorpusOptions *options,
                        Error *error) {
  if (count <= 0)
    return fail(error, EXIT_INPUT, "no text was given: name a file or a directory, or - for standard input");
  const bool jsonl = options->field || options->prompt_field;
  const TextFormat format = options->speaker ? FORMAT_CHAT
                            : options->tsv   ? FORMAT_TSV
                            : options->fasta ? FORMAT_FASTA
                            : jsonl          ? FORMAT_JSONL
                                             : FORMAT_TEXT;
  for (int i = 0, group = 1 + options->groups - count; i < count; i++, group++) {
    const int first = corpus->list.count;
    if (!add_input(corpus, inputs[i], options, format, error)) return false;
    for (int k = first; k < corpus->list.count; k++) corpus->list.files[k].group = group > 0 ? group : 0;
  }
  return true;
}

static bool find_files(Corpus *corpus, const char *const *inputs, int count, const CorpusOptions *options,
                       Error *error) {
  FileList *list = &corpus->list;
  if (!list_inputs(corpus, inputs, count, options, error)) return false;
  if (corpus->standard_input >= 0) {
    if (!options->spooled && !corpus_copy_stdin(STDIN_FILENO, options->spool, options->copying, error)) return false;
    if (!file_list_measure(list, corpus->standard_input, error)) return false;
  }
  if (list->bytes > 0) return true;
  if (list->count > 1 || !list->files)
    return fail(error, EXIT_INPUT, "all %d files are empty: there is no text", list->count);
  return fail(error, EXIT_INPUT, "%s is empty: there is no text",
              corpus->standard_input >= 0 ? "standard input" : text_one_line(list->files[0].path, 250).text);
}

static RecordFields fields_of(const Corpus *corpus) {
  return (RecordFields){corpus->prompt_field, corpus->text_field, !corpus->prompt_field, corpus->field_named};
}

/* With a speaker, text files are conversations, unless files that are named so are beside them; without one,
 * conversations in text cannot be read. */
static bool set_speaker(Corpus *corpus, Error *error) {
  if (corpus->speaker && !*corpus->speaker) return fail(error, EXIT_USAGE, "--speaker needs the name of a speaker");
  bool named = false;
  for (int i = 0; i < corpus->list.count; i++) named = named || corpus->list.files[i].format == FORMAT_CHAT;
  for (int i = 0; i < corpus->list.count; i++) {
    TextFile *file = &corpus->list.files[i];
    if (corpus->speaker && !named && file->format == FORMAT_TEXT) file->format = FORMAT_CHAT;
    if (!corpus->speaker && file->format == FORMAT_CHAT)
      return fail(error, EXIT_INPUT, "%s holds conversations; give --speaker NAME, whose lines the model learns",
                  text_one_line(file->path, 250).text);
  }
  return true;
}

/* Returns whether the first record of a file is a conversation. An error is reported when the record is read. */
static bool begins_with_conversation(const TextFile *file, RecordFields fields) {
  MappedFile text = {0};
  Error ignored = {0};
  Record record = {0};
  const uint8_t *line = NULL;
  size_t at, size = 0;
  bool is = false;
  if (!fields.conversations || !file_map(&text, file->path, EXIT_INPUT, &ignored)) return false;
  at = utf8_mark(text.bytes, text.size);
  while (file->format == FORMAT_JSONL && at < text.size && line_is_blank(line, size))
    line = line_take(text.bytes, text.size, &at, &size);
  if (file->format == FORMAT_JSON) line = record_json_element(text.bytes, text.size, &at, &size);
  if (size > 0) {
    const bool ok = record_parse_jsonl(&record, &fields, line, size, "", 1, &ignored);
    is = ok ? record.turn_count > 0 : record.root && conversation_is(record.root);
  }
  record_free(&record);
  file_unmap(&text);
  return is;
}

static bool find_conversations(const Corpus *corpus) {
  for (int i = 0; i < corpus->list.count; i++) {
    const TextFile *file = &corpus->list.files[i];
    const bool json = file->format == FORMAT_JSONL || file->format == FORMAT_JSON;
    if (file->format == FORMAT_CHAT || (json && begins_with_conversation(file, fields_of(corpus)))) return true;
  }
  return false;
}

static int files_of(const Corpus *corpus, TextFormat format) {
  int count = 0;
  for (int i = 0; i < corpus->list.count; i++) count += corpus->list.files[i].format == format;
  return count;
}

static uint64_t sum_of_name(const char *name, uint64_t seed) {
  return name ? checksum_xxh64(name, strlen(name) + 1, seed) : checksum_xxh64(NULL, 0, seed);
}

static uint64_t fingerprint_of(const Corpus *corpus) {
  const uint64_t version = 1; /* increase it when corpora are read differently */
  uint64_t sum = sum_of_name(corpus->text_field, sum_of_name(corpus->prompt_field, version));
  if (corpus->has_conversations) sum = sum_of_name(corpus->field_named ? "" : NULL, sum_of_name(corpus->speaker, sum));
  return file_list_sum(&corpus->list, sum);
}

bool corpus_open(Corpus **out, const char *const *inputs, int count, const CorpusOptions *options, Error *error) {
  const CorpusOptions none = {0};
  if (!options) options = &none;
  *out = NULL;
  Corpus *corpus = calloc(1, sizeof *corpus);
  if (!corpus) return error_memory(error, "a corpus");
  corpus->list.is_model = options->is_model;
  corpus->standard_input = -1;
  corpus->temporary = options->temporary ? strdup(options->spool) : NULL;
  if ((options->temporary && !corpus->temporary && !error_memory(error, "a path")) ||
      !take_fields(corpus, options, error) || !find_files(corpus, inputs, count, options, error) ||
      !set_speaker(corpus, error)) {
    corpus_close(corpus);
    return false;
  }
  corpus->has_conversations = find_conversations(corpus);
  corpus->has_prompts = corpus->has_conversations || corpus->prompt_field || files_of(corpus, FORMAT_TSV) > 0;
  corpus->fingerprint = fingerprint_of(corpus);
  *out = corpus;
  return true;
}

void corpus_close(Corpus *corpus) {
  if (!corpus) return;
  file_unmap(&corpus->file);
  record_free(&corpus->record);
  file_list_free(&corpus->list);
  if (corpus->temporary) unlink(corpus->temporary);
  free(corpus->temporary);
  free(corpus->prompt_field);
  free(corpus->text_field);
  free(corpus->speaker);
  free(corpus);
}

int corpus_files(const Corpus *corpus) { return corpus->list.count; }

const TextFile *corpus_file(const Corpus *corpus, int index) { return &corpus->list.files[index]; }

bool corpus_is_stdin(const Corpus *corpus, int index) { return index == corpus->standard_input; }

const char *corpus_shown_file(const Corpus *corpus) {
  return corpus_is_stdin(corpus, corpus->current) ? "standard input" : corpus->list.files[corpus->current].path;
}

int corpus_jsonl_files(const Corpus *corpus) { return files_of(corpus, FORMAT_JSONL) + files_of(corpus, FORMAT_JSON); }

OneLine corpus_skipped_names(const Corpus *corpus, bool texts) { return file_list_skipped(&corpus->list, 0, texts); }

int64_t corpus_bytes(const Corpus *corpus) { return corpus->list.bytes; }

int64_t corpus_position(const Corpus *corpus) { return corpus->before + (int64_t)corpus->at; }

int64_t corpus_stdin_bytes(const Corpus *corpus) {
  return corpus->standard_input < 0 ? 0 : corpus->list.files[corpus->standard_input].size;
}

bool corpus_has_prompts(const Corpus *corpus) { return corpus->has_prompts; }

bool corpus_has_conversations(const Corpus *corpus) { return corpus->has_conversations; }

uint64_t corpus_fingerprint(const Corpus *corpus) { return corpus->fingerprint; }

/* ---- memory ---- */

void corpus_drop_pages(const Corpus *corpus, const uint8_t *text) {
  const uintptr_t begin = (uintptr_t)corpus->file.bytes, at = (uintptr_t)text;
  if (corpus->mapped && at >= begin && at - begin <= corpus->file.size) file_forget(corpus->file.bytes, at - begin);
}

/* ---- documents of a text file ---- */

/* Returns the size of the separator line at `at`, including its line end (\n, \r\n or the end of the file); 0: none. */
static size_t separator_at(const Corpus *corpus, size_t at) {
  const size_t mark = sizeof END_OF_TEXT - 1;
  const uint8_t *bytes = corpus->file.bytes + at;
  const size_t left = corpus->end - at;
  if (at > corpus->start && bytes[-1] != '\n') return 0;
  if (left < mark || memcmp(bytes, END_OF_TEXT, mark) != 0) return 0;
  if (left == mark) return mark;
  if (bytes[mark] == '\n') return mark + 1;
  return left > mark + 1 && bytes[mark] == '\r' && bytes[mark + 1] == '\n' ? mark + 2 : 0;
}

/* Moves *end from the beginning of a document to its end; *separator: size of the separator that follows. It is as fast
 * as memchr, because '<' is rare in text. */
static bool find_end(const Corpus *corpus, size_t *end, size_t *separator, Error *error) {
  const MappedFile *file = &corpus->file;
  size_t at = *end;
  *separator = 0;
  for (size_t kept = at; at < corpus->end && *separator == 0;) {
    const size_t left = corpus->end - at, step = left < STEP_BYTES ? left : STEP_BYTES;
    if (at - kept >= STEP_BYTES) {
      file_forget(file->bytes, kept = at);
      if (!progress_report(corpus->progress, corpus_position(corpus), error)) return false;
    }
    const uint8_t *mark = memchr(file->bytes + at, END_OF_TEXT[0], step);
    if (!mark) {
      at += step;
      continue;
    }
    at = (size_t)(mark - file->bytes);
    *separator = separator_at(corpus, at);
    if (*separator == 0) at++;
  }
  *end = at;
  return true;
}

static bool next_text(Corpus *corpus, Document *out, Error *error) {
  size_t begin = corpus->at, end = begin, separator;
  if (!find_end(corpus, &end, &separator, error)) return false;
  corpus->at = end + separator;
  if (end > begin) *out = (Document){.text = corpus->file.bytes + begin, .size = end - begin, .offset = (int64_t)begin};
  return true;
}

/* ---- documents of one line, or of one object ---- */

static int64_t lines_before(const uint8_t *bytes, const uint8_t *end) {
  int64_t lines = 0;
  for (; (bytes = memchr(bytes, '\n', (size_t)(end - bytes))); bytes++) lines++;
  return lines;
}

/* Parses the next element of an array. */
static bool read_element(Corpus *corpus, const RecordFields *fields, Error *error) {
  const uint8_t *bytes = corpus->file.bytes, *before = bytes + corpus->at;
  size_t size;
  const uint8_t *element = record_json_element(bytes, corpus->end, &corpus->at, &size);
  if (!element) return record_parse_jsonl(&corpus->record, fields, bytes, 0, "", 0, error);
  corpus->record_line = corpus->line + lines_before(before, element) + 1;
  corpus->line += lines_before(before, element + size);
  return record_parse_jsonl(&corpus->record, fields, element, size, corpus_shown_file(corpus), corpus->record_line,
                            error);
}

/* Parses the next line of the file into the record. */
static bool read_line(Corpus *corpus, Error *error) {
  const TextFile *file = &corpus->list.files[corpus->current];
  const RecordFields fields = fields_of(corpus);
  const char *name = corpus_shown_file(corpus);
  size_t size;
  if (file->format == FORMAT_JSON) return read_element(corpus, &fields, error);
  const uint8_t *line = line_take(corpus->file.bytes, corpus->end, &corpus->at, &size);
  corpus->record_line = ++corpus->line;
  if (file->format == FORMAT_TSV) return record_parse_tsv(&corpus->record, line, size, name, corpus->line, error);
  return record_parse_jsonl(&corpus->record, &fields, line, size, name, corpus->line, error);
}

/* Returns false with EXIT_INPUT for a conversation where none was announced. */
static bool check_conversation(const Corpus *corpus, Error *error) {
  return !corpus->record.turn_count || corpus->has_conversations ||
         fail(error, EXIT_INPUT,
              "%s, is a conversation, but the first record of the file is none; put conversations into a file of their "
              "own, or name the field with the text: --jsonl-field text",
              line_name(corpus_shown_file(corpus), corpus->record_line).text);
}

/* Reads the rest of a file after a line with an error, and adds the number and positions of all such lines to the
 * error, so that the user can fix all of them at once. Returns false. */
static bool add_bad_lines(Corpus *corpus, Error *error) {
  enum { NAMED = 5 };
  char lines[NAMED * 24];
  int64_t bad = 1;
  size_t dropped = corpus->at;
  snprintf(lines, sizeof lines, "%lld", (long long)corpus->record_line);
  corpus->end = corpus->file.size; /* another part, too */
  while (corpus->at < corpus->end) {
    Error other = {0};
    if (corpus->at - dropped >= STEP_BYTES) {
      file_forget(corpus->file.bytes, dropped = corpus->at);
      if (!progress_report(corpus->progress, corpus_position(corpus), &other)) return false;
    }
    if (read_line(corpus, &other)) continue;
    if (other.code != EXIT_INPUT) return false;
    if (bad++ < NAMED) text_append(lines, sizeof lines, ", %lld", (long long)corpus->record_line);
  }
  if (bad == 1) return false;
  return error_append(error, "; %lld of %lld lines cannot be read: %s%s", (long long)bad, (long long)corpus->line,
                      lines, bad > NAMED ? ", ..." : "");
}

/* Makes the record a document, unless it is empty. */
static void give_record(const Corpus *corpus, int64_t line, size_t begin, Document *out) {
  const Record *record = &corpus->record;
  if (record->size == 0) return;
  *out = (Document){.text = record->text,
                    .size = record->size,
                    .prompt = record->prompt,
                    .line = line,
                    .offset = (int64_t)begin,
                    .turns = record->turns,
                    .turn_count = record->turn_count};
}

static bool next_line(Corpus *corpus, Document *out, Error *error) {
  const size_t begin = corpus->at;
  if (!read_line(corpus, error)) return error->code == EXIT_INPUT && add_bad_lines(corpus, error);
  give_record(corpus, corpus->record_line, begin, out);
  return !out->size || check_conversation(corpus, error);
}

/* Fails unless the first line of a FASTA file that is not blank is a header, and not the whole file, which it is where
 * lines end in a carriage return alone. */
static bool check_header(const Corpus *corpus, Error *error) {
  const char *name = corpus_shown_file(corpus);
  const ShellWord path = text_shell_word(name, 250);
  const uint8_t *line = NULL;
  size_t at = corpus->start, size = 0;
  while (at < corpus->file.size && line_is_blank(line, size))
    line = line_take(corpus->file.bytes, corpus->file.size, &at, &size);
  if (line_is_blank(line, size)) return true;
  const bool header = *line == '>' || *line == ';';
  if (header && !memchr(line, '\r', size)) return true;
  const char *why = header ? "its lines end in a carriage return alone; convert it"
                           : "it is not FASTA: its first line is no header, which begins with >; add one";
  fail(error, EXIT_INPUT, "%s: %s: %s", text_one_line(name, 250).text, why,
       header ? "tr '\\r' '\\n'" : "(echo '>1'; cat)");
  return corpus_is_stdin(corpus, corpus->current) ? false
                                                  : error_append(error, " <%s >tmp && mv tmp %s", path.text, path.text);
}

/* Reads a sequence of a FASTA file with the header lines before it, or a conversation of lines with names. */
static bool next_lines(Corpus *corpus, Document *out, Error *error) {
  const size_t begin = corpus->at, left = corpus->end - begin;
  const uint8_t *text = corpus->file.bytes + begin;
  const int64_t line = corpus->line + 1;
  const bool fasta = corpus->list.files[corpus->current].format == FORMAT_FASTA;
  size_t bytes;
  int64_t lines;
  if (fasta && begin == corpus->start && !corpus->list.files[corpus->current].begin && !check_header(corpus, error))
    return false;
  if (!(fasta ? record_parse_fasta(&corpus->record, text, left, &bytes, &lines, error)
              : conversation_parse(&corpus->record, corpus->speaker, text, left, &bytes, &lines,
                                   corpus_shown_file(corpus), line, error)))
    return false;
  corpus->at += bytes;
  corpus->line += lines;
  give_record(corpus, line, begin, out);
  return true;
}

int64_t corpus_line(const Corpus *corpus, const Document *document, size_t at) {
  const uint8_t *bytes = corpus->file.bytes;
  if (corpus->list.files[corpus->current].format == FORMAT_FASTA)
    return document->line +
           record_fasta_lines_before(bytes + document->offset, corpus->end - (size_t)document->offset, at);
  return document->line ? document->line : 1 + lines_before(bytes, bytes + document->offset + at);
}

/* ---- files in order ---- */

static void close_file(Corpus *corpus) {
  file_unmap(&corpus->file);
  corpus->mapped = false;
  corpus->start = corpus->end = corpus->at = corpus->checked = 0;
  corpus->line = 0;
}

static bool open_file(Corpus *corpus, Error *error) {
  const TextFile *file = &corpus->list.files[corpus->current];
  Error cause = {0};
  if (!file_map(&corpus->file, file->path, EXIT_INPUT, &cause))
    return fail(error, cause.code, "%s", text_one_line(cause.text, ONE_LINE_BYTES).text);
  corpus->mapped = true;
  if (!file_list_unchanged(file, error)) return false;
  if ((int64_t)corpus->file.size != file->size)
    return fail(error, EXIT_INPUT, "%s was changed while it was read; start again",
                text_one_line(file->path, 250).text);
  if (corpus->file.size > 0)
    posix_madvise((void *)(uintptr_t)corpus->file.bytes, corpus->file.size, POSIX_MADV_SEQUENTIAL);
  const size_t begin = (size_t)file->begin;
  const uint8_t *bytes = corpus->file.bytes;
  corpus->end = (size_t)file->end;
  corpus->start = corpus->at = corpus->checked = begin + utf8_mark(bytes + begin, corpus->end - begin);
  corpus->before -= file->begin;
  if (begin > 0 && file->format != FORMAT_TEXT) corpus->line = lines_before(bytes, bytes + begin);
  return true;
}

static bool still_unchanged(Corpus *corpus, Error *error) {
  if (corpus->at / STEP_BYTES != corpus->checked / STEP_BYTES) file_forget(corpus->file.bytes, corpus->at);
  corpus->checked = corpus->at;
  return file_list_unchanged(&corpus->list.files[corpus->current], error);
}

/* Reads the next document of the current file, if there is one before the next separator, line or end of the file. */
static bool advance(Corpus *corpus, Document *out, Error *error) {
  const TextFile *file = &corpus->list.files[corpus->current];
  if (!corpus->mapped && !open_file(corpus, error)) return false;
  if (corpus->at == corpus->end) {
    if (!still_unchanged(corpus, error)) return false;
    corpus->before += file->end;
    corpus->current++;
    close_file(corpus);
    return true;
  }
  if (corpus->at - corpus->checked >= CHECK_BYTES && !still_unchanged(corpus, error)) return false;
  switch (file->format) {
  case FORMAT_TEXT: return next_text(corpus, out, error);
  case FORMAT_FASTA:
  case FORMAT_CHAT: return next_lines(corpus, out, error);
  default: return next_line(corpus, out, error);
  }
}

bool corpus_next(Corpus *corpus, Document *out, Error *error) {
  *out = (Document){0};
  while (!out->text && corpus->current < corpus->list.count) {
    const TextFile *file = &corpus->list.files[corpus->current];
    if (!advance(corpus, out, error)) return false;
    if (!out->text) continue;
    out->file = file->path;
    out->group = file->group;
  }
  return true;
}

void corpus_rewind(Corpus *corpus, Progress progress) {
  close_file(corpus);
  corpus->progress = progress;
  corpus->current = 0;
  corpus->before = 0;
}

/* ---- cutting ---- */

static bool follows_blank_line(const Corpus *corpus, size_t at) {
  const uint8_t *bytes = corpus->file.bytes;
  size_t begin = at > 0 ? at - 1 : 0;
  while (begin > corpus->start && bytes[begin - 1] != '\n') begin--;
  return at > 0 && line_is_blank(bytes + begin, at - 1 - begin);
}

/* Returns where the first element of an array begins in [wanted, last]; 0: nowhere. */
static size_t find_element(const Corpus *corpus, size_t wanted, size_t last) {
  size_t size, at = corpus->start;
  const uint8_t *element;
  while ((element = record_json_element(corpus->file.bytes, corpus->end, &at, &size)))
    if (at - size >= wanted) return at - size <= last ? at - size : 0;
  return 0;
}

/* Returns whether a document begins at this beginning of a line, or at the end of the file. */
static bool begins_document(const Corpus *corpus, size_t at) {
  const size_t line = sizeof END_OF_TEXT; /* the size of a separator that ends in \n */
  if (at == corpus->end) return true;
  switch (corpus->list.files[corpus->current].format) {
  case FORMAT_TEXT:
    return (at >= corpus->start + line && separator_at(corpus, at - line) == line) ||
           (at > corpus->start + line && separator_at(corpus, at - line - 1) == line + 1);
  case FORMAT_FASTA: return record_is_fasta_header(corpus->file.bytes[at]);
  case FORMAT_CHAT: return follows_blank_line(corpus, at);
  default: return true;
  }
}

/* Returns where a line is cut that contains `at` and reaches far beyond it. */
static size_t cut_in_line(const Corpus *corpus, size_t at) {
  enum { LONGEST = 4 }; /* bytes of a character */
  const uint8_t *bytes = corpus->file.bytes;
  const TextFormat format = corpus->list.files[corpus->current].format;
  size_t begin = at;
  while (format != FORMAT_TEXT && begin > corpus->start && bytes[begin - 1] != '\n') begin--;
  if (format != FORMAT_TEXT && (format != FORMAT_FASTA || record_is_fasta_header(bytes[begin]))) return begin;
  for (size_t back = 1; format == FORMAT_TEXT && back < sizeof END_OF_TEXT + 1 && back <= at - corpus->start; back++) {
    const size_t separator = separator_at(corpus, at - back);
    if (separator > back) return at - back + separator;
  }
  for (int i = 1; i < LONGEST && at < corpus->end && utf8_continues(bytes[at]); i++) at++;
  return at;
}

/* Returns the place of the cut in the current file: the first document, else the first line, in [wanted, last]. */
static size_t find_cut(const Corpus *corpus, size_t wanted, size_t last) {
  const uint8_t *bytes = corpus->file.bytes;
  const TextFormat format = corpus->list.files[corpus->current].format;
  size_t first_line = 0;
  if (wanted <= corpus->start) return 0;
  if (format == FORMAT_JSON) return find_element(corpus, wanted, last);
  for (size_t at = wanted; at <= last;) {
    if (bytes[at - 1] == '\n' || at == corpus->end) {
      if (begins_document(corpus, at)) return at;
      if (!first_line) first_line = at;
    }
    const uint8_t *newline = memchr(bytes + at, '\n', corpus->end - at);
    at = newline ? (size_t)(newline - bytes) + 1 : corpus->end;
  }
  if (format == FORMAT_CHAT) return 0;
  return first_line ? first_line : cut_in_line(corpus, wanted);
}

/* Returns where the bytes [begin, end) are cut; end: nothing can be cut off; -1 with the error. */
static int64_t place_of_cut(Corpus *corpus, int64_t begin, int64_t end, double fraction, int64_t most, Error *error) {
  const int64_t bytes = end - begin;
  int64_t wanted = begin + (fraction > 0 && fraction < 1 ? (int64_t)((double)bytes * (1 - fraction)) : bytes);
  if (wanted < end - most) wanted = end - most;
  if (wanted >= end) return end;
  corpus_rewind(corpus, (Progress){0});
  while (corpus->before + corpus->list.files[corpus->current].size <= wanted)
    corpus->before += corpus->list.files[corpus->current++].size;
  if (!open_file(corpus, error)) return -1;
  const int64_t before = corpus->before, last = wanted + (end - wanted) / 2;
  const int64_t cut = before + (int64_t)find_cut(corpus, (size_t)(wanted - before), (size_t)(last - before));
  return cut > begin && (cut >= wanted || cut >= begin + bytes / 2) ? cut : end;
}

/* Adds the bytes [begin, end) of the whole corpus. */
static bool add_part(Corpus *part, const Corpus *whole, int64_t begin, int64_t end, Error *error) {
  if (!file_list_part(&part->list, &whole->list, begin, end, error)) return false;
  const char *spool = whole->standard_input < 0 ? NULL : whole->list.files[whole->standard_input].path;
  for (int i = 0; i < part->list.count; i++)
    if (spool && strcmp(part->list.files[i].path, spool) == 0) part->standard_input = i;
  part->fingerprint = fingerprint_of(part);
  return true;
}

/* Returns an empty part of the corpus. */
static Corpus *part_of(const Corpus *whole, Error *error) {
  const CorpusOptions options = {.field = whole->prompt_field ? NULL : whole->text_field,
                                 .prompt_field = whole->prompt_field,
                                 .response_field = whole->prompt_field ? whole->text_field : NULL,
                                 .speaker = whole->speaker};
  Corpus *part = calloc(1, sizeof *part);
  if (!part) {
    error_memory(error, "a corpus");
    return NULL;
  }
  part->standard_input = -1;
  part->has_prompts = whole->has_prompts;
  part->has_conversations = whole->has_conversations;
  if (take_fields(part, &options, error)) {
    part->field_named = whole->field_named;
    return part;
  }
  corpus_close(part);
  return NULL;
}

static bool has_document(Corpus *corpus, Error *error) {
  Document document = {0};
  const bool found = corpus_next(corpus, &document, error) && document.text;
  corpus_rewind(corpus, (Progress){0});
  return found;
}

static int64_t group_bytes(const FileList *list, int group) {
  int64_t bytes = 0;
  for (int i = 0; i < list->count; i++) bytes += list->files[i].group == group ? list->files[i].size : 0;
  return bytes;
}

bool corpus_cut(Corpus *corpus, double fraction, int64_t most, Corpus **rest, Error *error) {
  Corpus *first = part_of(corpus, error), *second = first ? part_of(corpus, error) : NULL;
  bool ok = second;
  *rest = NULL;
  int64_t end = 0;
  for (int group = 0; ok && end < corpus->list.bytes; group++) {
    const int64_t begin = end;
    end += group_bytes(&corpus->list, group);
    const int64_t cut = place_of_cut(corpus, begin, end, fraction, most, error);
    ok = cut >= 0 && add_part(first, corpus, begin, cut, error) && add_part(second, corpus, cut, end, error);
  }
  corpus_rewind(corpus, (Progress){0});
  /* The search for a document may have to read all of a large part, which has one for sure. */
  if (ok && second->list.count && (first->list.bytes >= CHECK_BYTES || has_document(first, error)) &&
      has_document(second, error)) {
    const Corpus whole = *corpus;
    *corpus = *first;
    *first = whole;
    corpus->list.skipped = first->list.skipped;
    corpus->list.skipped_count = first->list.skipped_count;
    first->list.skipped = NULL;
    first->list.skipped_count = 0;
    *rest = second;
    second = NULL;
  }
  corpus_close(first);
  corpus_close(second);
  return !error->code;
}
