#include "cli/startup.h"

#include "cli/device.h"
#include "kernels.h"
#include "util/clock.h"
#include "util/file.h"
#include "util/stop.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic int stop_signal;
_Atomic int64_t startup_unsaved_steps;

/* Signals that come together are one: `timeout` and terminals that are closed send several. */
static const double TOGETHER_SECONDS = 0.5;

bool startup_go_on(const char *doing, Error *error) { return stop_go_on(&stop_signal, doing, error); }

bool startup_take_interrupt(void) {
  int interrupt = SIGINT;
  return atomic_compare_exchange_strong(&stop_signal, &interrupt, 0);
}

/* In the thread that waits for signals, while the others go on. */
static void leave_at_once(int number) {
  char text[160];
  const long long lost = startup_unsaved_steps;
  const int size = lost > 0 ? snprintf(text, sizeof text, "\nstopped at once; the last %lld step%s are lost\n", lost,
                                       lost == 1 ? "" : "s")
                            : snprintf(text, sizeof text, "\nstopped at once\n");
  const ssize_t ignored = write(STDERR_FILENO, text, (size_t)size);
  (void)ignored;
  _exit(EXIT_SIGNALS + number);
}

/* Waits for signals in a thread of its own: a handler would run on the stack of whatever it interrupts, and kernels
 * that a library has generated do not always leave room for that. */
static void *wait_for_signals(void *argument) {
  const sigset_t *wanted = argument;
  double first = 0;
  for (int number; sigwait(wanted, &number) == 0;) {
    if (stop_signal && clock_seconds() - first >= TOGETHER_SECONDS) leave_at_once(number);
    if (stop_signal) continue;
    first = clock_seconds();
    stop_signal = number;
  }
  return NULL;
}

/* Every thread started from now on leaves SIGINT, SIGTERM and, unless it is ignored as under nohup, SIGHUP to that
 * thread. */
static void take_signals(void) {
  static sigset_t wanted;
  pthread_t thread;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGTERM);
  struct sigaction hangup;
  if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);
  if (pthread_sigmask(SIG_BLOCK, &wanted, NULL) != 0) return;
  /* Without the thread a signal ends the program, as it does by default. */
  if (pthread_create(&thread, NULL, wait_for_signals, &wanted) == 0) pthread_detach(thread);
  else pthread_sigmask(SIG_UNBLOCK, &wanted, NULL);
}

/* A closed standard stream would be the next file that is opened, and text meant for a person would end in it. The null
 * device takes its place, for stdout in a mode in which writing fails. */
static void open_standard_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0) return;
}

/* A mapped file has lost pages that are being read. */
static void file_was_cut(int number) {
  static const char text[] = "a file was cut short while it was read; start again\n";
  (void)number;
  _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? EXIT_OUTPUT : EXIT_INPUT);
}

static void prepare_process(void) {
  open_standard_streams();
  take_signals();
  signal(SIGBUS, file_was_cut);
  signal(SIGPIPE, SIG_IGN); /* a closed pipe and */
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit are failed writes like any other */
}

static bool print_information(const Options *options, const char *version, Error *error) {
  if (options->help) {
    options_help(options, stdout);
  } else {
    printf("%s (Inkling) %s, backends:", options->program, version);
    const IsaList isas = device_isas();
    if (backend_find("cuda", NULL, ~0u)) printf(" cuda");
    for (int i = 0; i < isas.count; i++) printf(" cpu-%s", isas.name[i]);
    printf("\n");
  }
  return file_flush(stdout, "stdout", error);
}

int startup_run(int argc, char **argv, const char *version, Options *options, Console *console,
                bool (*run)(void *context, Error *error), void *context) {
  Error error = {0};
  prepare_process();
  bool ok = options_parse(options, argc, argv, &error);
  *console = console_open(options->program, options->quiet);
  if (ok && (options->help || options->version)) ok = print_information(options, version, &error);
  else ok = ok && run(context, &error);
  console_end_line(console);
  if (!ok) console_error(console, &error);
  return ok ? EXIT_DONE : (int)error.code;
}
