/* Files: mapped for reading, written to a temporary neighbor and renamed, so that a reader sees the old file or the
 * new one and never half of either. */
#ifndef INKLING_UTIL_FILE_H
#define INKLING_UTIL_FILE_H

#include "util/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct MappedFile {
  const uint8_t *bytes; /* read-only; NULL when the file is empty */
  size_t size;
} MappedFile;

/* Maps a regular file. A missing, unreadable or special file or a directory is an error with exit code `code`; an empty
 * file is not. */
bool file_map(MappedFile *out, const char *path, ExitCode code, Error *error);
void file_unmap(MappedFile *file);
/* A part of it will not be read again soon: it need not stay in memory. */
void file_forget(const void *begin, size_t size);

/* A file being written: `stream` is a temporary file in the directory of `path`, named ".NAME.inkling-XXXXXX". */
typedef struct FileWriter {
  FILE *stream;
  char *path, *temporary;
} FileWriter;

/* All three: EXIT_OUTPUT with path, cause and what to do; after a failure the temporary is deleted and `path` is as it
 * was (one exception: when the last fsync, of the directory, fails, the new file is in place but may not survive a
 * power cut). A process that may meet a file-size limit has to ignore SIGXFSZ. */
bool file_writer_begin(FileWriter *file, const char *path, Error *error);
bool file_writer_add(FileWriter *file, const void *bytes, size_t size, Error *error);
/* Flushes, fsyncs, closes, renames, fsyncs the directory. */
bool file_writer_commit(FileWriter *file, Error *error);
void file_writer_abort(FileWriter *file); /* deletes the temporary; harmless after commit or any failure */

/* A name that file_sweep deletes, for a file that is to be renamed later. */
#define FILE_SWEPT_NAME(name) "." name ".inkling-copied"

/* Deletes the temporaries that killed processes left in `dir`. Call it only while nobody else can write there. */
void file_sweep(const char *dir);

/* The same for bytes that are all there. */
bool file_write(const char *path, const void *bytes, size_t size, Error *error);
bool file_write_in(const char *dir, const char *name, const void *bytes, size_t size, Error *error); /* DIR/NAME */
void file_remove_in(const char *dir, const char *name); /* fine when there is none */

/* For files that are written in other ways: EXIT_OUTPUT with path, the cause in errno and what to do. False. */
bool file_fail_write(const char *path, Error *error);

/* Flushes what was printed to a stream. 0, or the errno of what failed, now or earlier; EPIPE: the reader has left. */
int file_flush_cause(FILE *stream);
/* The same, `name` for people. EXIT_OUTPUT with the cause; a reader that has left has what it wanted: no error. */
bool file_flush(FILE *stream, const char *name, Error *error);

/* Cuts a file of lines that others add to: what is behind `size` bytes goes, and with it a line that does not end
 * there. A file that is not there is fine. EXIT_OUTPUT. */
bool file_cut(const char *path, int64_t size, Error *error);
/* The size of a file in bytes; 0 where there is none. */
int64_t file_size(const char *path);

/* Makes an empty file in TMPDIR or, as it may become large, in /var/tmp; the caller unlinks *path and frees it. On
 * failure *path is NULL. EXIT_OUTPUT, EXIT_MEMORY. */
bool file_temporary(char **path, Error *error);
/* The same with a directory. */
bool file_temporary_directory(char **path, Error *error);

/* Makes renames, links and new names in `dir` survive a power cut. EXIT_OUTPUT. */
bool file_sync_directory(const char *dir, Error *error);

#endif
