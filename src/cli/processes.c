#include "cli/processes.h"

#include "cli/startup.h"
#include "base/text.h"
#include "base/system.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

bool processes_have_parent(void) {
  const char *parent = getenv(PROCESSES_PARENT);
  return parent && strtol(parent, NULL, 10) == (long)getppid();
}

/* Returns the arguments with the name of the program before them, for free(). */
static char **command_of(const Process *p) {
  enum { BEFORE = 2 };
  size_t count = 0, used = 0;
  while (p->arguments[count]) count++;
  const char **out = malloc((count + BEFORE + 1) * sizeof *out);
  if (!out) return NULL;
  out[used++] = program_name_called();
  if (program_name_is_command()) out[used++] = "train";
  memcpy(out + used, p->arguments, (count + 1) * sizeof *out);
  return (char **)out;
}

static int spawn(const Process *p, char **command, const char *program, pid_t *id) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  int failed = posix_spawn_file_actions_init(&files);
  if (failed) return failed;
  failed = posix_spawnattr_init(&attributes);
  if (!failed) {
    const int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, p->in ? p->in : "/dev/null", O_RDONLY, 0);
    if (p->out) posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, p->out, flags, 0666);
    if (p->messages) posix_spawn_file_actions_addopen(&files, STDERR_FILENO, p->messages, flags, 0666);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    failed = posix_spawn(id, program, &files, &attributes, command, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

static bool start(const Process *p, pid_t *id, Error *error) {
  const PathText program = system_program();
  char **command = command_of(p);
  if (!command) return error_memory(error, "a process");
  const int failed = spawn(p, command, program.text, id);
  free(command);
  return !failed ||
         fail(error, EXIT_INTERNAL, "cannot start another process of %s: %s", program.text, strerror(failed));
}

/* The processes that run now. */
typedef struct Running {
  pid_t *ids; /* [at_once]; 0: free */
  int *of;    /* [at_once] index in the list */
  int count, at_once;
} Running;

/* Returns whether one has ended. */
static bool collect(Running *running, Process *processes, int *which) {
  for (int i = 0; i < running->at_once; i++) {
    int status = 0;
    if (!running->ids[i] || waitpid(running->ids[i], &status, WNOHANG) != running->ids[i]) continue;
    *which = running->of[i];
    processes[*which].status = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNALS + WTERMSIG(status);
    running->ids[i] = 0;
    running->count--;
    return true;
  }
  return false;
}

static void send_on(const Running *running, int number) {
  for (int i = 0; i < running->at_once; i++)
    if (running->ids[i]) kill(running->ids[i], number);
}

static bool run_all(Running *running, Process *processes, int count, ProcessEnded *ended, void *context, Error *error) {
  const struct timespec pause = {.tv_nsec = 10000000};
  int next = 0, which = 0, sent = 0;
  bool more = true;
  while (running->count > 0 || (next < count && more && !stop_signal && !error->code)) {
    for (int i = 0; i < running->at_once && next < count && more && !stop_signal && !error->code; i++) {
      if (running->ids[i] || !start(&processes[next], &running->ids[i], error)) continue;
      running->of[i] = next++;
      running->count++;
    }
    if (stop_signal && !sent) send_on(running, sent = stop_signal);
    if (!collect(running, processes, &which)) nanosleep(&pause, NULL);
    else if (ended && !stop_signal && !ended(context, which)) more = false;
  }
  return !error->code && (!stop_signal || fail(error, (ExitCode)(EXIT_SIGNALS + stop_signal), "stopped"));
}

bool processes_run(Process *processes, int count, int at_once, ProcessEnded *ended, void *context, Error *error) {
  Running running = {calloc((size_t)at_once, sizeof *running.ids), calloc((size_t)at_once, sizeof *running.of), 0,
                     at_once};
  char parent[24], *own = getenv(PROCESSES_PARENT) ? strdup(getenv(PROCESSES_PARENT)) : NULL;
  snprintf(parent, sizeof parent, "%ld", (long)getpid());
  const bool ok =
      (running.ids && running.of && setenv(PROCESSES_PARENT, parent, 1) == 0) || error_memory(error, "processes");
  if (ok) run_all(&running, processes, count, ended, context, error);
  setenv(PROCESSES_PARENT, own ? own : "", 1);
  free(own);
  free(running.ids);
  free(running.of);
  return ok && !error->code;
}
