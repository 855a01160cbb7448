/* What the programs use of POSIX, on Windows 10 and later. It is included before every file (-include src/windows/posix.h), and
 * include/ is searched before the system's headers: tools/make/windows.mk. Paths, arguments and environment are UTF-8;
 * streams are binary. A name of POSIX that the C library also has, with another meaning, is a macro here. */
#ifndef HAVE_CONFIG_H /* not for the libraries */

#define tell windows_tell /* the name of an old function of the C library, and of some of ours */
#include <direct.h>
#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <math.h>
#include <process.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#undef tell

/* Those of mingw-w64 are calls of functions, and convert to float. */
#undef isnan
#undef isfinite
#undef isinf
#define isnan(x) __builtin_isnan(x)
#define isfinite(x) __builtin_isfinite(x)
#define isinf(x) __builtin_isinf(x)

/* ---- files: files.c ---- */

struct win_stat {
  int64_t st_size;
  uint64_t st_ino;
  uint32_t st_dev;
  mode_t st_mode;
  struct timespec st_mtim;
};
#undef stat
#undef lstat
#undef fstat
#undef dev_t
#undef ino_t
#define stat win_stat
#define lstat win_lstat
#define fstat win_fstat
#define dev_t uint32_t
#define ino_t uint64_t
#define S_IFLNK 0120000
#define S_ISLNK(mode) (((mode)&0170000) == S_IFLNK)
#define S_ISSOCK(mode) 0
int win_stat(const char *path, struct win_stat *out);
int win_lstat(const char *path, struct win_stat *out);
int win_fstat(int fd, struct win_stat *out);

#define O_CLOEXEC O_NOINHERIT
#define O_NONBLOCK 0
#define O_DIRECTORY 0
#define F_GETFD 1
#undef X_OK
#define X_OK 0
int win_open(const char *path, int flags, ...);
int fcntl(int fd, int what); /* F_GETFD alone */
int win_access(const char *path, int mode);
int win_rename(const char *from, const char *to);
int win_unlink(const char *path);
int win_remove(const char *path);
int win_rmdir(const char *path);
int win_mkdir(const char *path, int mode);
int win_ftruncate(int fd, int64_t size);
int link(const char *from, const char *to);
char *realpath(const char *path, char *out); /* with slashes */
ssize_t pread(int fd, void *bytes, size_t size, int64_t offset);
ssize_t pwrite(int fd, const void *bytes, size_t size, int64_t offset);
#define open win_open
#define access win_access
#define faccessat(at, path, mode, flags) win_access(path, mode)
#define rename win_rename
#define unlink win_unlink
#define remove win_remove
#define rmdir win_rmdir
#define mkdir win_mkdir
#undef ftruncate
#define ftruncate win_ftruncate

/* ---- streams and the console: streams.c, console.c ---- */

FILE *win_fopen(const char *path, const char *mode);
FILE *win_fdopen(int fd, const char *mode);
FILE *open_memstream(char **text, size_t *size);
int win_fclose(FILE *stream);
int win_fflush(FILE *stream);
size_t win_fwrite(const void *bytes, size_t size, size_t count, FILE *stream);
int64_t win_read(int fd, void *bytes, size_t size);
int64_t win_write(int fd, const void *bytes, size_t size);
int win_isatty(int fd);
#define fopen win_fopen
#define fdopen win_fdopen
#define fclose win_fclose
#define fflush win_fflush
#define fwrite win_fwrite
#define read win_read
#define write win_write
#define isatty win_isatty

/* ---- temporary files: directories.c ---- */

int win_mkstemp(char *pattern);
char *mkdtemp(char *pattern);
#define mkstemp win_mkstemp

/* ---- the process and its environment: environment.c ---- */

char *win_getenv(const char *name);
int setenv(const char *name, const char *value, int replace);
int getentropy(void *bytes, size_t size);
int win_gethostname(char *out, size_t size);
const char *win_strerror(int cause);
char *strndup(const char *text, size_t size);
char *strsep(char **rest, const char *separators);
void *memmem(const void *bytes, size_t size, const void *wanted, size_t length);
pid_t getppid(void);
long sysconf(int what);
#define _SC_PAGESIZE 1
#define _SC_NPROCESSORS_ONLN 2
#define getenv win_getenv
#define gethostname win_gethostname
#define strerror win_strerror

/* ---- signals: Ctrl-C, Ctrl-Break, closing the window, and the end of the parent: processes.c ---- */

#define SIGHUP 1
#define SIGBUS 7
#define SIGKILL 9
#define SIGUSR1 10
#define SIGPIPE 13
#define SIGCHLD 17
#define SIGXFSZ 25
#undef sigset_t
#undef sigemptyset
#undef sigfillset
#undef sigaddset
#undef SIG_BLOCK
#undef SIG_UNBLOCK
#undef SIG_SETMASK
#undef pthread_sigmask
#define sigset_t uint32_t
static inline void sigemptyset(sigset_t *set) { *set = 0; }
static inline void sigfillset(sigset_t *set) { *set = ~0u; }
static inline void sigaddset(sigset_t *set, int number) { *set |= 1u << number; }
#define SIG_BLOCK 0
#define SIG_UNBLOCK 1
#define SIG_SETMASK 2
struct sigaction {
  void (*sa_handler)(int);
};
int sigaction(int number, const struct sigaction *new_one, struct sigaction *old_one);
int sigwait(const sigset_t *set, int *number);
int win_sigmask(int how, const sigset_t *set, sigset_t *old);
void (*win_signal(int number, void (*handler)(int)))(int);
#define pthread_sigmask win_sigmask
#define signal win_signal

#define NAME_MAX 255
#ifndef EDQUOT
#define EDQUOT 10069
#endif

#endif
