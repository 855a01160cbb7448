#define _DEFAULT_SOURCE /* flock */
#include "files/checkpoint/directory.h"

#include "files/checkpoint/state.h"

#include "text/dataset/token_file.h"
#include "files/formats/model_files.h"
#include "text/tokenizer/tokenizer.h"
#include "base/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- files ---- */

/* Files of an older run that a new run does not replace when it begins; first those that make it resumable. */
#define LEFT_BY_OLD_RUN                                                                                                \
  CHECKPOINT_LAST_STATE, CHECKPOINT_PREV_STATE, CHECKPOINT_TUNING, CHECKPOINT_SAMPLES, CHECKPOINT_RESULT,              \
      CHECKPOINT_STDIN_TEXT, CHECKPOINT_STDIN_JSONL, CHECKPOINT_STDIN_TSV, CHECKPOINT_STDIN_FASTA
static const char *const old_run_files[] = {LEFT_BY_OLD_RUN};

#define OF_SOURCE_TOKENIZER                                                                                            \
  MODEL_FILE_SOURCE_TOKENIZER "/" TOKENIZER_JSON, MODEL_FILE_SOURCE_TOKENIZER "/" TOKENIZER_CONFIG_JSON

/* Everything that a run writes. */
static const char *const run_files[] = {
    LEFT_BY_OLD_RUN,     CHECKPOINT_VAL_TOKENS, CHECKPOINT_TOKENS,     CHECKPOINT_METRICS, CHECKPOINT_REPORT,
    CHECKPOINT_SETTINGS, TOKENIZER_JSON,        TOKENIZER_CONFIG_JSON, MODEL_FILE_WEIGHTS, MODEL_FILE_GENERATION_CONFIG,
    MODEL_FILE_CONFIG,   MODEL_FILE_CODE,       CHAT_TEMPLATE_JINJA,   OF_SOURCE_TOKENIZER};
static const char *const new_run_files[] = {CHECKPOINT_STDIN_COPY, CHECKPOINT_NEW_TOKENS, CHECKPOINT_NEW_VAL_TOKENS};
enum {
  NEW_RUN_FILES = sizeof new_run_files / sizeof new_run_files[0],
  RUN_FILES = sizeof run_files / sizeof run_files[0],
  OLD_RUN_FILES = sizeof old_run_files / sizeof old_run_files[0]
};

static void remove_files(const char *dir, const char *const *names, int count) {
  for (int i = 0; i < count; i++) file_remove_in(dir, names[i]);
}

void checkpoint_remove_old(const char *dir) {
  const PathText series = path_in(dir, CHECKPOINT_SERIES), teacher = path_in(dir, CHECKPOINT_TEACHER);
  const bool taught = checkpoint_has_teacher(dir);
  remove_files(dir, old_run_files, OLD_RUN_FILES);
  if (access(path_in(series.text, CHECKPOINT_MANIFEST).text, F_OK) == 0) file_remove_tree(series.text);
  if (taught) file_remove_tree(teacher.text);
}

bool checkpoint_has_teacher(const char *dir) { return checkpoint_find_number(dir, "teacher_steps") > 0; }

bool checkpoint_is_run(const char *dir) { return access(path_in(dir, CHECKPOINT_SETTINGS).text, F_OK) == 0; }

/* ---- protection of the user's files ---- */

static bool is_at(const struct stat *file, const char *path) {
  struct stat found;
  return stat(path, &found) == 0 && found.st_dev == file->st_dev && found.st_ino == file->st_ino;
}

bool checkpoint_check_input(const char *dir, const char *input, Error *error) {
  struct stat file;
  if (stat(input, &file) != 0) return true; /* not a file, or reported when it is opened */
  if (is_at(&file, dir)) return fail(error, EXIT_USAGE, "%s is the text to train on", dir);
  for (int i = 0; i < RUN_FILES; i++)
    if (is_at(&file, path_in(dir, run_files[i]).text))
      return fail(error, EXIT_USAGE, "%s in %s is the text to train on and would be replaced", run_files[i], dir);
  return true;
}

static bool is_token_file(const char *path) {
  TokenFile file;
  Error ignored = {0};
  if (!token_file_open(&file, path, &ignored)) return false;
  token_file_close(&file);
  return true;
}

/* A run can be resumed without its model, which may have been deleted for space. */
static bool holds_run(const char *dir) {
  return model_files_exist(dir) || access(path_in(dir, CHECKPOINT_LAST_STATE).text, F_OK) == 0 ||
         access(path_in(dir, CHECKPOINT_PREV_STATE).text, F_OK) == 0;
}

/* Checks that all files that a run would replace belong to a run. A run that was killed before its first step leaves an
 * incomplete model, but also a token file. */
static bool check_files(const char *dir, bool had_run, Error *error) {
  const bool of_run = had_run || is_token_file(path_in(dir, CHECKPOINT_TOKENS).text);
  for (int i = 0; i < RUN_FILES; i++) {
    struct stat found;
    const PathText path = path_in(dir, run_files[i]);
    if (stat(path.text, &found) != 0) continue;
    if (!S_ISREG(found.st_mode)) return fail(error, EXIT_USAGE, "%s in %s is not a regular file", run_files[i], dir);
    if (!of_run && !is_token_file(path.text))
      return fail(error, EXIT_USAGE, "%s in %s does not belong to a run and would be replaced", run_files[i], dir);
  }
  return true;
}

/* ---- lock ---- */

static bool busy(const char *dir, int fd, Error *error) {
  char who[32] = {0};
  ssize_t size = pread(fd, who, sizeof who - 1, 0);
  long process = size > 0 ? strtol(who, NULL, 10) : 0;
  if (process <= 0) return fail(error, EXIT_BUSY, "%s is in use by another process", dir);
  return fail(error, EXIT_BUSY, "%s is in use by another process (%ld)", dir, process);
}

enum { LOCK_ATTEMPTS = 10 };

/* Tries several times, because checkpoint_is_locked() of another process locks the file for a moment. */
static bool try_lock(int fd) {
  const struct timespec moment = {.tv_nsec = 20 * 1000 * 1000};
  for (int attempt = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; attempt++) {
    if (errno != EWOULDBLOCK || attempt == LOCK_ATTEMPTS) return false;
    nanosleep(&moment, NULL);
    errno = EWOULDBLOCK;
  }
  return true;
}

/* Returns whether the locked file still exists: another process may have deleted it between open() and flock(). */
static bool still_there(int fd, const char *path) {
  struct stat ours;
  return fstat(fd, &ours) == 0 && is_at(&ours, path);
}

static bool lock_file(const char *dir, const char *path, int *fd, Error *error) {
  for (int attempt = 0; attempt < LOCK_ATTEMPTS; attempt++) {
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (*fd < 0) return fail(error, EXIT_OUTPUT, "cannot make the lock %s: %s", path, strerror(errno));
    const bool locked = try_lock(*fd);
    if (locked && still_there(*fd, path)) return true;
    if (!locked && errno == EWOULDBLOCK) busy(dir, *fd, error);
    else if (!locked) fail(error, EXIT_OUTPUT, "cannot lock %s: %s", path, strerror(errno));
    close(*fd);
    *fd = -1;
    if (!locked) return false;
  }
  return fail(error, EXIT_BUSY, "%s keeps being deleted; is another process clearing %s?", path, dir);
}

/* Writes the process id, which only appears in messages; so a failure, for example a full disk, is ignored. */
static void sign_lock(int fd) {
  char text[32];
  int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
  if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)length, 0) != length) return;
}

/* Removes the `count` directories above `dir` that are empty. */
static void remove_parents(const char *dir, int count) {
  char *path = strdup(dir), *slash;
  while (path && count-- > 0 && (slash = strrchr(path, '/'))) {
    while (slash > path && slash[-1] == '/') slash--;
    *slash = '\0';
    rmdir(path);
  }
  free(path);
}

/* Creates the missing directories above `dir` and counts them. On failure errno has the cause. */
static bool make_parents(const char *dir, int *made) {
  char *path = strdup(dir), *slash = path;
  bool ok = path;
  *made = 0;
  while (ok && *slash && (slash = strchr(slash + 1, '/'))) {
    *slash = '\0';
    if (mkdir(path, 0777) == 0) ++*made;
    else ok = errno == EEXIST;
    *slash = '/';
    slash += strspn(slash, "/") - 1;
  }
  const int cause = errno;
  if (!ok) remove_parents(path ? path : "", *made);
  free(path);
  errno = cause;
  return ok;
}

bool checkpoint_lock_directory(const char *dir, int *fd, Error *error) {
  if (!lock_file(dir, path_in(dir, CHECKPOINT_LOCK).text, fd, error)) return false;
  sign_lock(*fd);
  return true;
}

bool checkpoint_lock(CheckpointLock *lock, const char *dir, Error *error) {
  *lock = (CheckpointLock){.fd = -1, .had_run = holds_run(dir)};
  if (!check_files(dir, lock->had_run, error)) return false;
  lock->created = make_parents(dir, &lock->parents) && mkdir(dir, 0777) == 0;
  if (!lock->created && errno != EEXIST)
    return fail(error, EXIT_OUTPUT, "cannot make the run directory %s: %s", dir, strerror(errno));
  if (!checkpoint_lock_directory(dir, &lock->fd, error)) return false;
  file_sweep(dir);
  file_sweep(path_in(dir, MODEL_FILE_SOURCE_TOKENIZER).text);
  file_sweep(path_in(dir, CHECKPOINT_LAST).text);
  file_sweep(path_in(dir, CHECKPOINT_PREV).text);
  return true;
}

void checkpoint_unlock(CheckpointLock *lock, const char *dir, bool keep) {
  if (lock->fd < 0) return;
  if (!keep) remove_files(dir, new_run_files, NEW_RUN_FILES);
  const bool remove = !keep && !lock->had_run;
  if (remove) {
    remove_files(dir, run_files, RUN_FILES);
    model_files_remove_source_tokenizer(dir);
    file_remove_in(dir, CHECKPOINT_LOCK);
  }
  close(lock->fd); /* before rmdir(): some file systems keep the name of an open file */
  lock->fd = -1;
  if (remove && lock->created) rmdir(dir);
  if (remove) remove_parents(dir, lock->parents);
}

bool checkpoint_is_locked(const char *dir) {
  const int fd = open(path_in(dir, CHECKPOINT_LOCK).text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}
