/* A corpus: the sequence of documents in any number of files, directories and standard input.
 * It maps one file at a time. Memory grows with the number of file names and with the largest JSON line, not with the
 * corpus. Resident pages of the map belong to the file cache; the kernel reclaims them when it needs them.
 * Text files: a line that is exactly <|endoftext|> (ended by \n, \r\n or the end of the file) separates documents and
 * belongs to none; so does the end of every file. Documents have all other bytes unchanged: CRLF, NUL, invalid UTF-8.
 * One exception: a UTF-8 byte-order mark (EF BB BF) at the beginning of a file of any format is dropped.
 * JSON lines (file names that end in .jsonl) and TSV (.tsv, a prompt and a response per line): see
 * text/dataset/record.h. JSON arrays of such objects (.json). Conversations (.chat, and text files with a speaker): see
 * text/dataset/conversation.h. FASTA (.fa, .fasta, .fna, .faa): a document per sequence; see there, too.
 * Blank lines and empty documents are skipped.
 * A corpus can be cut in two; each part is then read as if the other did not exist. */
#ifndef INKLING_TEXT_DATASET_CORPUS_H
#define INKLING_TEXT_DATASET_CORPUS_H

#include "base/error.h"
#include "base/progress.h"
#include "text/dataset/file_list.h"
#include "text/tokenizer/chat.h"

#include <stddef.h>
#include <stdint.h>

typedef struct Corpus Corpus;

/* Every field may be NULL or false. The corpus keeps no pointers into it. */
typedef struct CorpusOptions {
  const char *field;                         /* field of JSON lines; NULL: "text" */
  const char *prompt_field, *response_field; /* both or neither; if set, `field` must be NULL */
  bool tsv, fasta;                           /* standard input is TSV, FASTA */
  const char *speaker; /* who speaks as the assistant in .chat files or, if there are none, in text files */
  const char *spool;   /* file to copy standard input to; required for "-" */
  bool spooled;        /* the file exists already, from an earlier run */
  bool temporary;      /* corpus_close() deletes it, even without "-" */
  Progress copying;    /* bytes of standard input */
  bool (*is_model)(const char *dir); /* returns whether a directory holds a model instead of text */
  int groups;                        /* the last so many inputs are groups 1, 2, ...; the others are group 0 */
} CorpusOptions;

typedef struct Document {
  const uint8_t *text;   /* NULL: the end of the corpus */
  size_t size;           /* bytes, at least 1 */
  size_t prompt;         /* bytes at its beginning that the loss ignores; may be all of them */
  const char *file;      /* path; valid as long as the corpus */
  int group;             /* of the file */
  int64_t line;          /* line number in JSON lines and TSV, of the header in FASTA, from 1; 0 in a text file */
  int64_t offset;        /* bytes of the file before the document, or before its line */
  const ChatTurn *turns; /* [turn_count] of a conversation, valid as long as the text, which holds their contents */
  size_t turn_count;     /* 0: it is none */
} Document;

/* Copies descriptor `from` up to its end to `path`, which is created or replaced only when the copy is complete: a
 * corpus is read more than once, and a pipe cannot be. `progress` counts bytes: after each chunk, and five times a
 * second while none arrives. EXIT_INPUT when reading fails, EXIT_OUTPUT when writing fails, EXIT_MEMORY; the error of
 * `progress`. */
bool corpus_copy_stdin(int from, const char *path, Progress progress, Error *error);

/* Finds, sorts and measures all files of the inputs, in the order given. An input is a file (the ending of its name
 * gives the format), a directory (text/dataset/file_list.h describes which files of it), or "-", at most once: standard
 * input, which is TSV or FASTA if options say so, else JSON lines if a field is named, else text. The function copies
 * standard input to options->spool after it has found all other inputs.
 * `options` may be NULL. EXIT_INPUT, with path and cause, for no inputs, missing or unreadable ones, pipes and
 * devices, directories without text, and when all files are empty; EXIT_USAGE for options that contradict each other
 * and for a second "-"; EXIT_OUTPUT when the spool file cannot be written; EXIT_MEMORY. On failure *out is NULL. */
bool corpus_open(Corpus **out, const char *const *inputs, int count, const CorpusOptions *options, Error *error);
void corpus_close(Corpus *corpus); /* NULL is harmless */

/* Cuts the end off each group of a corpus, for validation: `fraction` of the bytes, rounded up, at most `most`. *rest
 * gets it, and the corpus keeps the part before. The cut is moved forward to the first document that begins in the
 * first half of the end; if none does, to the first line; and if none does, it is made in the line, before a character.
 * Lines of JSON and TSV and headers of FASTA are not cut: then it is made before them, unless that would move more than
 * half of the group. A sequence that is cut is read as two. *rest is NULL, and the corpus stays whole, when a part
 * would have no document. Errors of corpus_next(). */
bool corpus_cut(Corpus *corpus, double fraction, int64_t most, Corpus **rest, Error *error);

/* Returns the line of the file, from 1, that contains byte `at` of the newest document. */
int64_t corpus_line(const Corpus *corpus, const Document *document, size_t at);

int corpus_files(const Corpus *corpus);
const TextFile *corpus_file(const Corpus *corpus, int index);
bool corpus_is_stdin(const Corpus *corpus, int index); /* whether that file is the copy of standard input */
const char *corpus_shown_file(const Corpus *corpus);   /* name of the file that is read, for messages */
int corpus_jsonl_files(const Corpus *corpus);          /* number of JSON lines files */
/* Does what file_list_skipped() does for all of them. */
OneLine corpus_skipped_names(const Corpus *corpus, bool texts);
int64_t corpus_bytes(const Corpus *corpus);       /* sum of the files' sizes, or of their parts in this corpus */
int64_t corpus_stdin_bytes(const Corpus *corpus); /* bytes that came from standard input */
int64_t corpus_position(const Corpus *corpus);    /* bytes consumed so far, corpus_bytes at the end */

/* Returns whether documents have prompts and responses: from fields of JSON lines, or from a TSV file. In other files
 * prompts are empty. */
bool corpus_has_prompts(const Corpus *corpus);

/* Returns whether documents may be conversations: there is a file of format FORMAT_CHAT, or the first record of a JSON
 * file is a conversation. In another corpus, conversations are refused. */
bool corpus_has_conversations(const Corpus *corpus);

/* Reads the next document, valid until the next call of corpus_next, corpus_rewind or corpus_close. A corpus that has
 * only separators and blank lines has no document.
 * EXIT_INPUT for a line that a parser of text/dataset/record.h refuses, with the numbers of all such lines of its file,
 * for a FASTA file that does not begin with a header or whose lines end in a carriage return alone, and for a file that
 * is no longer what corpus_open measured (size, time, inode). It checks this when it maps the file, between documents
 * after each MiB, and at the end of the file. Two cases are not covered: a file that is truncated between two checks
 * ends the program when it reads a missing page (SIGBUS, see cli/startup.c), and a file that is overwritten in place
 * with its time restored is not detected. EXIT_MEMORY; the error of the progress passed to corpus_rewind. After an
 * error only corpus_rewind and corpus_close may be called. */
bool corpus_next(Corpus *corpus, Document *out, Error *error);
/* Rewinds to the first document. From then on corpus_next reports corpus_position to `progress` several times a second
 * while it searches for the end of a large document. */
void corpus_rewind(Corpus *corpus, Progress progress);

/* Drops the pages of the current file before `text` from memory, where `text` lies in a document of a text file.
 * Reading them again loads them again. corpus_next drops the pages that it has passed. */
void corpus_drop_pages(const Corpus *corpus, const uint8_t *text);

/* Returns a hash that changes when the documents may have changed: XXH64 of the field names and, in order, every file's
 * format, size, modification time (ns) and inode at corpus_open, and where it is cut. It does not cover paths or the
 * location of the spool file. Data derived from the corpus is valid as long as the hash is equal. */
uint64_t corpus_fingerprint(const Corpus *corpus);

#endif
