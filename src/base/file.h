/* Files: reading maps them; writing writes a temporary file in the same directory and renames it, so that a reader sees
 * the old file or the new one, never a part. */
#ifndef INKLING_BASE_FILE_H
#define INKLING_BASE_FILE_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct MappedFile {
  const uint8_t *bytes; /* read-only; NULL when the file is empty */
  size_t size;
} MappedFile;

/* Maps a regular file. Error `code` for a directory and for a missing, unreadable or special file; an empty file is no
 * error. */
bool file_map(MappedFile *out, const char *path, ExitCode code, Error *error);
void file_unmap(MappedFile *file);
/* Returns the bytes of a regular file of at most `limit` bytes, with a zero after them, for free(). NULL: there is no
 * such file, or memory is out. */
char *file_read_text(const char *path, size_t limit);
/* Tells the kernel that a part of a map will not be read soon, so that its pages may leave memory. */
void file_forget(const void *begin, size_t size);

/* A file being written: `stream` is a temporary file in the directory of `path`, named ".NAME.inkling-XXXXXX". */
typedef struct FileWriter {
  FILE *stream;
  char *path, *temporary;
} FileWriter;

/* The next four functions: EXIT_OUTPUT with path, cause and advice. A failure deletes the temporary and leaves `path`
 * unchanged (one exception: when the last fsync, of the directory, fails, the new file is in place but may not survive
 * a power failure). A process that may reach a file-size limit must ignore SIGXFSZ. */
bool file_writer_begin(FileWriter *file, const char *path, Error *error);
bool file_writer_add(FileWriter *file, const void *bytes, size_t size, Error *error);
/* Continues at `offset` bytes from the beginning, for a file whose parts are not made in order. */
bool file_writer_seek(FileWriter *file, int64_t offset, Error *error);
/* Flushes, fsyncs, closes, renames, fsyncs the directory. */
bool file_writer_commit(FileWriter *file, Error *error);
void file_writer_abort(FileWriter *file); /* deletes the temporary; harmless after commit or any failure */

/* A name that file_sweep deletes, for a file that the caller renames later. */
#define FILE_SWEPT_NAME(name) "." name ".inkling-copied"

/* Deletes the temporaries that killed processes left in `dir`. Call it only while no other process can write there. */
void file_sweep(const char *dir);

/* Writes a whole file in one call, with the same guarantees. */
bool file_write(const char *path, const void *bytes, size_t size, Error *error);
bool file_write_in(const char *dir, const char *name, const void *bytes, size_t size, Error *error); /* DIR/NAME */
void file_remove_in(const char *dir, const char *name); /* no error when there is none */

/* Fills `error` for a file that is written in another way: EXIT_OUTPUT with path, the cause in errno and advice.
 * Returns false. */
bool file_fail_write(const char *path, Error *error);

/* Flushes a stream. Returns 0, or the errno of a failure, now or earlier; EPIPE: the reader has closed the pipe. */
int file_flush_cause(FILE *stream);
/* Flushes a stream; messages use `name`. EXIT_OUTPUT with the cause; EPIPE is no error. */
bool file_flush(FILE *stream, const char *name, Error *error);

/* Truncates a file of lines to at most `size` bytes, and to the end of a line. A missing file is no error.
 * EXIT_OUTPUT. */
bool file_cut(const char *path, int64_t size, Error *error);
/* Returns the size of a file in bytes; 0 where there is none. */
int64_t file_size(const char *path);

/* Returns whether both paths name the same file, which need not exist. */
bool file_is_same(const char *a, const char *b);
/* Returns whether permissions allow creating a file there. */
bool file_is_writable(const char *path);
/* Returns the name of the file or directory there, without links, for free(); NULL when memory is out. */
char *file_last_name(const char *path);

/* Creates an empty file in TMPDIR or else, because it may become large, in /var/tmp; the caller unlinks *path and frees
 * it. On failure *path is NULL. EXIT_OUTPUT, EXIT_MEMORY. */
bool file_temporary(char **path, Error *error);
/* Returns whether `dir` is a directory with nothing in it but, at most, a file called `except` (NULL: none). */
bool file_directory_is_empty(const char *dir, const char *except);
/* Creates a temporary directory in the same way. */
bool file_temporary_directory(char **path, Error *error);
/* Makes a directory, which may be there already. EXIT_OUTPUT. */
bool file_make_directory(const char *path, Error *error);
/* Removes a directory that this program has made, with everything in it. */
void file_remove_tree(const char *path);

/* Makes renames, links and new names in `dir` survive a power failure. EXIT_OUTPUT. */
bool file_sync_directory(const char *dir, Error *error);

#endif
