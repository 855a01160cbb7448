/* Signals, and processes that this one starts. */
#include "windows/internal.h"

#include <spawn.h>
#include <sys/wait.h>

#undef signal

/* ---- signals ---- */

static HANDLE arrived;        /* an event; NULL: nobody waits for signals */
static volatile LONG pending; /* a bit for each signal */
static volatile LONG finished;

void windows_deliver(int number) {
  InterlockedOr(&pending, 1 << number);
  SetEvent(arrived);
}

void windows_expect_no_signal(void) { finished = 1; }

/* After Windows has closed the window or logged the user off, it ends the program in 5 seconds, or when this returns:
 * until then the run can be saved. */
static BOOL WINAPI take_event(DWORD event) {
  const bool closes = event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT;
  if (finished) return FALSE;
  windows_deliver(closes ? SIGHUP : SIGINT);
  if (closes) Sleep(INFINITE);
  return TRUE;
}

int sigwait(const sigset_t *set, int *number) {
  for (;;) {
    for (int i = 1; i < 32; i++)
      if (*set >> i & 1 && InterlockedAnd(&pending, ~(1 << i)) & 1 << i) return *number = i, 0;
    WaitForSingleObject(arrived, INFINITE);
  }
}

/* Blocking SIGINT for the first time means that sigwait() will be called. */
int win_sigmask(int how, const sigset_t *set, sigset_t *old) {
  if (old) *old = 0;
  if (how != SIG_BLOCK || !(*set >> SIGINT & 1) || arrived) return 0;
  arrived = CreateEventW(NULL, FALSE, FALSE, NULL);
  /* A process that another one has started may ignore Ctrl-C. To those of a sweep, their parent sends it on. */
  if (!getenv("INKLING_PARENT")) SetConsoleCtrlHandler(NULL, FALSE);
  SetConsoleCtrlHandler(take_event, TRUE);
  return 0;
}

int sigaction(int number, const struct sigaction *new_one, struct sigaction *old_one) {
  (void)number, (void)new_one;
  old_one->sa_handler = SIG_DFL;
  return 0;
}

void (*win_signal(int number, void (*handler)(int)))(int) {
  return number == SIGINT || number == SIGTERM || number == SIGABRT ? signal(number, handler) : SIG_DFL;
}

/* ---- processes ---- */

enum { CHILDREN = 256, LINE_UNITS = 1 << 15 /* the longest command line */ };
static struct {
  pid_t id; /* 0: free */
  HANDLE process;
} children[CHILDREN];

static int find_child(pid_t id) {
  for (int i = 0; i < CHILDREN; i++)
    if (children[i].id == id) return i;
  return -1;
}

/* Adds a word so that CommandLineToArgvW() reads it: a backslash is itself, except before a quote. */
static wchar_t *add_word(wchar_t *at, const wchar_t *word) {
  size_t slashes = 0;
  *at++ = L'"';
  for (;; word++) {
    const bool quote = *word == L'"';
    if (!*word || quote)
      for (size_t i = 0; i < slashes + quote; i++) *at++ = L'\\';
    if (!*word) break;
    slashes = *word == L'\\' ? slashes + 1 : 0;
    *at++ = *word;
  }
  *at++ = L'"';
  *at++ = L' ';
  return at;
}

/* Returns the command line, for free(); NULL with errno. */
static wchar_t *command_line(char *const *words) {
  wchar_t *line = calloc(LINE_UNITS, sizeof *line), *at = line;
  for (; line && *words; words++) {
    const Wide word = windows_word(*words);
    if ((**words && !*word.text) || (size_t)(at - line) + 2 * wcslen(word.text) + 4 >= LINE_UNITS)
      return free(line), errno = E2BIG, NULL;
    at = add_word(at, word.text);
  }
  return line;
}

static BOOL create(const char *program, wchar_t *line, const int fds[3], PROCESS_INFORMATION *made) {
  HANDLE handles[3];
  for (int i = 0; i < 3; i++) {
    handles[i] = windows_handle(fds[i]);
    SetHandleInformation(handles[i], HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT);
  }
  STARTUPINFOW start = {.cb = sizeof start,
                        .dwFlags = STARTF_USESTDHANDLES,
                        .hStdInput = handles[0],
                        .hStdOutput = handles[1],
                        .hStdError = handles[2]};
  /* A group of its own, so that it gets only the signals that this process sends on. */
  return CreateProcessW(windows_path(program).text, line, NULL, NULL, TRUE, CREATE_NEW_PROCESS_GROUP, NULL, NULL,
                        &start, made);
}

int posix_spawn(pid_t *id, const char *program, const posix_spawn_file_actions_t *files,
                const posix_spawnattr_t *attributes, char *const *words, char *const *environment) {
  PROCESS_INFORMATION made;
  const int slot = find_child(0);
  int fds[3] = {0, 1, 2}, failed = slot < 0 ? EAGAIN : 0;
  (void)attributes, (void)environment;
  for (int i = 0; i < 3 && !failed; i++)
    if (files->path[i] && (fds[i] = open(files->path[i], files->flags[i], 0666)) < 0) failed = errno;
  wchar_t *line = failed ? NULL : command_line(words);
  if (!failed && !line) failed = errno;
  if (!failed && !create(program, line, fds, &made)) windows_failed(), failed = errno;
  free(line);
  for (int i = 0; i < 3; i++)
    if (fds[i] > 2) close(fds[i]);
  if (failed) return failed;
  CloseHandle(made.hThread);
  children[slot].id = *id = (pid_t)made.dwProcessId;
  children[slot].process = made.hProcess;
  return 0;
}

pid_t waitpid(pid_t id, int *status, int flags) {
  DWORD code = 0;
  const int i = find_child(id);
  if (i < 0) return errno = ECHILD, -1;
  if (WaitForSingleObject(children[i].process, flags & WNOHANG ? 0 : INFINITE) != WAIT_OBJECT_0) return 0;
  GetExitCodeProcess(children[i].process, &code);
  CloseHandle(children[i].process);
  children[i].id = 0;
  *status = (int)code;
  return id;
}

/* A process without a console cannot be asked to stop. */
int kill(pid_t id, int number) {
  const int i = find_child(id);
  if (number != SIGKILL && GenerateConsoleCtrlEvent(CTRL_BREAK_EVENT, (DWORD)id)) return 0;
  return i < 0 ? (errno = ESRCH, -1) : windows_result(TerminateProcess(children[i].process, 128u + (unsigned)number));
}
