/* The run directory: its lock, and finding the newest one. */
#define _DEFAULT_SOURCE /* flock */
#include "checkpoint/internal.h"

#include "util/file.h"
#include "util/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

bool checkpoint_system_failed(const char *what, const char *path, Error *error) {
  return fail(error, EXIT_OUTPUT, "cannot %s %s: %s; check the directory, or choose another with --out", what, path,
              strerror(errno));
}

/* ---- lock ---- */

static bool busy(const char *dir, int fd, Error *error) {
  char who[32] = {0};
  ssize_t size = pread(fd, who, sizeof who - 1, 0);
  long process = size > 0 ? strtol(who, NULL, 10) : 0;
  if (process <= 0)
    return fail(error, EXIT_BUSY, "%s is in use by another train; wait for it or choose another --out", dir);
  return fail(error, EXIT_BUSY, "%s is in use by another train (process %ld); wait for it or choose another --out", dir,
              process);
}

/* Someone may have deleted the file between open() and flock(): then the lock is on nothing. */
static bool still_there(int fd, const char *path) {
  struct stat ours, theirs;
  return fstat(fd, &ours) == 0 && stat(path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
         ours.st_dev == theirs.st_dev;
}

static bool lock_file(const char *dir, const char *path, int *fd, Error *error) {
  for (int attempt = 0; attempt < 10; attempt++) {
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    if (*fd < 0) return checkpoint_system_failed("make the lock", path, error);
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
      bool taken = errno == EWOULDBLOCK;
      if (taken) busy(dir, *fd, error);
      else checkpoint_system_failed("lock", path, error);
      close(*fd);
      *fd = -1;
      return false;
    }
    if (still_there(*fd, path)) return true;
    close(*fd);
    *fd = -1;
  }
  return fail(error, EXIT_BUSY, "%s keeps being deleted; is another train clearing %s?", path, dir);
}

/* The process number is for the message of others only: that it may not be written (a full disk) is no failure. */
static void sign_lock(int fd) {
  char text[32];
  int length = snprintf(text, sizeof text, "%ld\n", (long)getpid());
  if (ftruncate(fd, 0) == 0 && pwrite(fd, text, (size_t)length, 0) != length) return;
}

static void sweep(const char *dir, const char *name) {
  char *path = path_join(dir, name);
  if (path) file_sweep(path);
  free(path);
}

bool checkpoint_lock(const char *dir, int *fd, Error *error) {
  *fd = -1;
  char *path = path_join(dir, ".lock");
  if (!path) return checkpoint_no_memory(dir, error);
  bool ok = lock_file(dir, path, fd, error);
  free(path);
  if (!ok) return false;
  sign_lock(*fd);
  file_sweep(dir);
  sweep(dir, "last");
  sweep(dir, "prev");
  return true;
}

/* ---- finding runs ---- */

static bool is_run(const char *name) {
  size_t length = strlen(name);
  return length > 4 && strcmp(name + length - 4, ".run") == 0;
}

/* When the model in a directory was written; false where there is none. */
static bool run_time(const char *name, struct timespec *time) {
  char *path = path_join(name, "config.json"), *weights = path_join(name, "model.safetensors");
  struct stat config, model;
  bool ok = path && weights && stat(path, &config) == 0 && stat(weights, &model) == 0;
  if (ok) *time = model.st_mtim;
  free(path);
  free(weights);
  return ok;
}

bool checkpoint_is_model(const char *dir) {
  struct timespec ignored;
  return run_time(dir, &ignored);
}

bool checkpoint_newest(char **out, Error *error) {
  *out = NULL;
  DIR *here = opendir(".");
  struct timespec best = {0}, time;
  for (struct dirent *entry; here && (entry = readdir(here));) {
    if (!is_run(entry->d_name) || !run_time(entry->d_name, &time)) continue;
    bool later = time.tv_sec > best.tv_sec || (time.tv_sec == best.tv_sec && time.tv_nsec > best.tv_nsec);
    if (*out && !later) continue;
    best = time;
    free(*out);
    *out = strdup(entry->d_name);
  }
  if (here) closedir(here);
  if (*out) return true;
  return fail(error, EXIT_USAGE, "there is no *.run in this directory; name one, or make one with ./train FILE");
}
