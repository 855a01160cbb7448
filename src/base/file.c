#define _DEFAULT_SOURCE /* madvise(): posix_madvise() frees nothing */
#include "base/file.h"

#include "base/hash.h"
#include "base/path.h"
#include "base/system.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- reading ---- */

static const char *kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  return "a special file";
}

static int open_retry(const char *path, int flags, mode_t mode) {
  int fd;
  do {
    fd = open(path, flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

static bool reading_failed(Error *error, ExitCode code, const char *what, const char *path) {
  return fail(error, errno == ENOMEM ? EXIT_MEMORY : code, "cannot %s %s: %s", what, path, strerror(errno));
}

static bool map_descriptor(MappedFile *out, int fd, const char *path, ExitCode code, Error *error) {
  struct stat st;
  if (fstat(fd, &st) != 0) return reading_failed(error, code, "examine", path);
  if (!S_ISREG(st.st_mode)) return fail(error, code, "%s is %s; expected a regular file", path, kind_of(st.st_mode));
  if (st.st_size == 0) return true;
  if ((uintmax_t)st.st_size > SIZE_MAX)
    return fail(error, code, "%s has %jd bytes, more than this machine can address", path, (intmax_t)st.st_size);
  size_t size = (size_t)st.st_size;
  void *bytes = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (bytes == MAP_FAILED) return reading_failed(error, code, "read", path);
  out->bytes = bytes;
  out->size = size;
  return true;
}

bool file_map(MappedFile *out, const char *path, ExitCode code, Error *error) {
  *out = (MappedFile){0};
  int fd = open_retry(path, O_RDONLY | O_NONBLOCK, 0); /* O_NONBLOCK: a pipe must not hang before it is refused */
  if (fd < 0) return reading_failed(error, code, "open", path);
  bool ok = map_descriptor(out, fd, path, code, error);
  close(fd);
  return ok;
}

char *file_read_text(const char *path, size_t limit) {
  Error ignored = {0};
  MappedFile file;
  if (!file_map(&file, path, EXIT_INPUT, &ignored)) return NULL;
  char *text = file.size <= limit ? calloc(file.size + 1, 1) : NULL;
  if (text && file.size) memcpy(text, file.bytes, file.size);
  file_unmap(&file);
  return text;
}

void file_forget(const void *begin, size_t size) {
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t first = ((uintptr_t)begin + page - 1) / page * page, end = ((uintptr_t)begin + size) / page * page;
  if (first < end) madvise((void *)first, end - first, MADV_DONTNEED);
}

void file_unmap(MappedFile *file) {
  if (file->bytes) munmap((void *)(uintptr_t)file->bytes, file->size);
  *file = (MappedFile){0};
}

/* ---- messages ---- */

static const char *advice(int cause) {
  switch (cause) {
  case ENOSPC:
  case EDQUOT: return "free some space there or choose another output directory";
  case EFBIG: return "raise the limit on file sizes (ulimit -f) or choose another file system";
  case EACCES:
  case EPERM:
  case EROFS: return "choose an output directory that you may write to";
  case ENOENT:
  case ENOTDIR: return "create the directory first or check the path";
  case ENAMETOOLONG: return "choose a shorter path";
  case EMFILE:
  case ENFILE: return "too many files are open: raise the limit (ulimit -n)";
  default: return "check the disk, or choose another output directory";
  }
}

static bool output_failed(Error *error, const char *what, const char *path, int cause) {
  if (cause == ENOMEM) return error_memory(error, path);
  return fail(error, EXIT_OUTPUT, "cannot %s %s: %s; %s", what, path, strerror(cause), advice(cause));
}

bool file_fail_write(const char *path, Error *error) {
  return output_failed(error, "write", path, errno ? errno : EIO);
}

/* Whether the pipe's reader has closed it: a stream does not keep the cause of an earlier failure. */
static bool reader_has_closed(FILE *stream) {
  struct pollfd descriptor = {.fd = fileno(stream), .events = POLLOUT};
  return poll(&descriptor, 1, 0) == 1 && descriptor.revents & POLLERR;
}

int file_flush_cause(FILE *stream) {
  errno = 0;
  if (fflush(stream) == 0 && !ferror(stream)) return 0;
  if (errno) return errno;
  return reader_has_closed(stream) ? EPIPE : EIO;
}

bool file_flush(FILE *stream, const char *name, Error *error) {
  const int cause = file_flush_cause(stream);
  if (!cause || cause == EPIPE) return true;
  return fail(error, EXIT_OUTPUT, "cannot write to %s: %s", name, strerror(cause));
}

/* ---- the temporaries of files being written ---- */

enum { SUFFIX = 6, NAME_KEPT = 200 };   /* NAME_KEPT: keeps the temporary's name below the usual limit of 255 bytes */
static const char MARK[] = ".inkling-"; /* file_sweep() deletes only names with it */

/* Makes six letters from process, clock and attempt. O_EXCL guarantees a new name; these letters only make the first
 * attempt likely to succeed. */
static void random_suffix(char out[SUFFIX + 1], unsigned attempt) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  struct timespec now = {0};
  clock_gettime(CLOCK_REALTIME, &now);
  uint64_t x = hash_mix((uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec, (uint64_t)getpid() << 32 | attempt);
  for (int i = 0; i < SUFFIX; i++, x /= 36) out[i] = letters[x % 36];
  out[SUFFIX] = '\0';
}

static bool is_temporary(const char *name) {
  size_t length = strlen(name), ending = sizeof MARK - 1 + SUFFIX;
  return name[0] == '.' && length > ending + 1 && memcmp(name + length - ending, MARK, sizeof MARK - 1) == 0;
}

void file_sweep(const char *dir) {
  DIR *entries = opendir(dir);
  if (!entries) return;
  for (struct dirent *entry; (entry = readdir(entries));)
    if (is_temporary(entry->d_name)) file_remove_in(dir, entry->d_name);
  closedir(entries);
}

bool file_directory_is_empty(const char *dir, const char *except) {
  DIR *entries = opendir(dir);
  bool empty = entries != NULL;
  for (const struct dirent *entry; empty && (entry = readdir(entries));)
    empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            (except && strcmp(entry->d_name, except) == 0);
  if (entries) closedir(entries);
  return empty;
}

/* Creates the temporary of `path`. Returns the descriptor, or -1 with errno. mkstemp() would ignore the umask. */
static int open_temporary(char **temporary, const char *path) {
  const char *name = path_base(path);
  PathText out;
  int fd = -1;
  for (unsigned attempt = 0; fd < 0 && attempt < 100; attempt++) {
    char suffix[SUFFIX + 1];
    random_suffix(suffix, attempt);
    snprintf(out.text, sizeof out.text, "%.*s.%.*s%s%s", (int)(name - path), path, NAME_KEPT, name, MARK, suffix);
    fd = open_retry(out.text, O_WRONLY | O_CREAT | O_EXCL, 0666);
    if (fd < 0 && errno != EEXIST) return -1;
  }
  if (fd < 0 || (*temporary = strdup(out.text))) return fd;
  close(fd);
  unlink(out.text);
  errno = ENOMEM;
  return -1;
}

/* ---- writing ---- */

static int sync_retry(int fd) {
  int result;
  do {
    result = system_sync(fd);
  } while (result != 0 && errno == EINTR);
  return result != 0 && errno == EINVAL ? 0 : result; /* EINVAL: the file system does not support it */
}

bool file_sync_directory(const char *dir, Error *error) {
  int fd = open_retry(dir, O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) return output_failed(error, "open the directory", dir, errno);
  int cause = sync_retry(fd) == 0 ? 0 : errno;
  close(fd);
  return cause == 0 || output_failed(error, "sync the directory", dir, cause);
}

void file_writer_abort(FileWriter *file) {
  if (file->stream) fclose(file->stream);
  if (file->temporary) unlink(file->temporary);
  free(file->temporary);
  free(file->path);
  *file = (FileWriter){0};
}

static bool abort_with(FileWriter *file, const char *what, int cause, Error *error) {
  output_failed(error, what, file->path, cause);
  file_writer_abort(file);
  return false;
}

bool file_writer_begin(FileWriter *file, const char *path, Error *error) {
  *file = (FileWriter){0};
  struct stat st;
  if (*path_base(path) == '\0') return fail(error, EXIT_OUTPUT, "cannot write '%s': it is not a file name", path);
  if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
    return fail(error, EXIT_OUTPUT, "cannot write %s: it is %s; choose another name", path, kind_of(st.st_mode));
  /* Replaces what a link leads to, not the link: /dev/stdout is one. */
  if (lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
    file->path = realpath(path, NULL);
    if (!file->path)
      return errno == ENOMEM ? error_memory(error, path)
                             : fail(error, EXIT_OUTPUT, "cannot write %s: it is a link that cannot be followed: %s",
                                    path, strerror(errno));
    path = file->path;
  } else {
    file->path = strdup(path);
    if (!file->path) return error_memory(error, path);
  }
  int fd = open_temporary(&file->temporary, path);
  if (fd < 0) return abort_with(file, "write", errno, error);
  file->stream = fdopen(fd, "wb");
  if (!file->stream) {
    int cause = errno;
    close(fd);
    return abort_with(file, "write", cause, error);
  }
  return true;
}

bool file_writer_add(FileWriter *file, const void *bytes, size_t size, Error *error) {
  if (!file->stream) return fail(error, EXIT_INTERNAL, "file_writer_add on a file that is not open");
  if (size == 0) return true;
  errno = 0;
  if (fwrite(bytes, 1, size, file->stream) == size) return true;
  return abort_with(file, "write", errno != 0 ? errno : EIO, error);
}

bool file_writer_seek(FileWriter *file, int64_t offset, Error *error) {
  if (!file->stream) return fail(error, EXIT_INTERNAL, "file_writer_seek on a file that is not open");
  errno = 0;
  if (fseeko(file->stream, (off_t)offset, SEEK_SET) == 0) return true;
  return abort_with(file, "write", errno != 0 ? errno : EIO, error);
}

/* Returns the cause of a stream's failure, which the stream does not keep: writing another byte fails in the same
 * way. */
static int cause_of(FileWriter *file) { return write(fileno(file->stream), "", 1) < 0 ? errno : EIO; }

bool file_writer_commit(FileWriter *file, Error *error) {
  if (!file->stream) return fail(error, EXIT_INTERNAL, "file_writer_commit on a file that is not open");
  if (ferror(file->stream)) return abort_with(file, "write", cause_of(file), error);
  if (fflush(file->stream) != 0) return abort_with(file, "write", errno, error);
  /* After a failed fsync the kernel may have dropped the pages, so a second fsync could succeed for a damaged file. */
  if (sync_retry(fileno(file->stream)) != 0) return abort_with(file, "sync", errno, error);
  FILE *stream = file->stream;
  file->stream = NULL;
  if (fclose(stream) != 0) return abort_with(file, "close", errno, error);
  if (rename(file->temporary, file->path) != 0) return abort_with(file, "replace", errno, error);
  free(file->temporary);
  file->temporary = NULL;
  const bool ok = file_sync_directory(path_directory(file->path).text, error);
  file_writer_abort(file);
  return ok;
}

bool file_write(const char *path, const void *bytes, size_t size, Error *error) {
  FileWriter file;
  return file_writer_begin(&file, path, error) && file_writer_add(&file, bytes, size, error) &&
         file_writer_commit(&file, error);
}

bool file_write_in(const char *dir, const char *name, const void *bytes, size_t size, Error *error) {
  return file_write(path_in(dir, name).text, bytes, size, error);
}

void file_remove_in(const char *dir, const char *name) { unlink(path_in(dir, name).text); }

/* ---- files that grow by lines ---- */

/* Returns the end of the last line that ends within the first `size` bytes, or 0; negative: reading failed. */
static int64_t last_line_end(int fd, int64_t size) {
  char block[4096];
  while (size > 0) {
    const int64_t start = size > (int64_t)sizeof block ? size - (int64_t)sizeof block : 0;
    const ssize_t got = pread(fd, block, (size_t)(size - start), start);
    if (got < 0 && errno == EINTR) continue;
    if (got != size - start) return -1;
    for (int64_t i = got; i > 0; i--)
      if (block[i - 1] == '\n') return start + i;
    size = start;
  }
  return 0;
}

bool file_cut(const char *path, int64_t size, Error *error) {
  const int fd = open_retry(path, O_RDWR, 0);
  struct stat info;
  if (fd < 0) return errno == ENOENT || output_failed(error, "open", path, errno);
  bool ok = fstat(fd, &info) == 0;
  const int64_t end = ok ? last_line_end(fd, info.st_size < size ? info.st_size : size) : -1;
  ok = end >= 0 && (end == info.st_size || ftruncate(fd, end) == 0);
  const int cause = errno;
  close(fd);
  return ok || output_failed(error, "cut", path, cause);
}

int64_t file_size(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 ? info.st_size : 0;
}

/* ---- temporary files and directories ---- */

static bool make_temporary(char **path, bool directory, Error *error) {
  const char *given = getenv("TMPDIR");
  const char *usual = access("/var/tmp", F_OK) == 0 ? "/var/tmp" : "/tmp";
  *path = strdup(path_in(given && *given ? given : usual, "inkling-XXXXXX").text);
  if (!*path) return error_memory(error, "a path");
  const int fd = directory ? -1 : mkstemp(*path);
  if (directory ? mkdtemp(*path) != NULL : fd >= 0 && close(fd) == 0) return true;
  if (errno == ENOMEM) error_memory(error, *path);
  else
    fail(error, EXIT_OUTPUT, "cannot make a temporary %s %s: %s; set TMPDIR to another directory",
         directory ? "directory" : "file", *path, strerror(errno));
  free(*path);
  *path = NULL;
  return false;
}

bool file_temporary(char **path, Error *error) { return make_temporary(path, false, error); }

bool file_temporary_directory(char **path, Error *error) { return make_temporary(path, true, error); }

void file_remove_tree(const char *path) {
  struct stat info;
  DIR *entries = lstat(path, &info) == 0 && S_ISDIR(info.st_mode) ? opendir(path) : NULL;
  for (const struct dirent *entry; entries && (entry = readdir(entries));)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      file_remove_tree(path_in(path, entry->d_name).text);
  if (entries) closedir(entries);
  remove(path);
}

bool file_make_directory(const char *path, Error *error) {
  return mkdir(path, 0777) == 0 || errno == EEXIST || output_failed(error, "make the directory", path, errno);
}

/* ---- questions about paths ---- */

bool file_is_writable(const char *path) { return access(path_directory(path).text, W_OK | X_OK) == 0; }

char *file_last_name(const char *path) {
  char *real = realpath(path, NULL);
  char *out = real || errno != ENOMEM ? strdup(path_base(real && path_base(real)[0] ? real : path)) : NULL;
  free(real);
  return out;
}

static bool same_file(const char *a, const char *b) {
  struct stat one, other;
  return stat(a, &one) == 0 && stat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

bool file_is_same(const char *a, const char *b) {
  if (strcmp(a, b) == 0 || same_file(a, b)) return true;
  return strcmp(path_base(a), path_base(b)) == 0 && same_file(path_directory(a).text, path_directory(b).text);
}
