#include "cli/startup.h"

#include "cli/device.h"
#include "cli/processes.h"
#include "kernels.h"
#include "base/hash.h"
#include "base/system.h"
#include "base/file.h"
#include "base/text.h"
#include "base/progress.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic int stop_signal;
_Atomic int64_t startup_unsaved_steps;

/* Signals that arrive together count as one: `timeout` and closing terminals send several. */
static const double TOGETHER_SECONDS = 0.5;

bool startup_go_on(const char *doing, Error *error) { return stop_go_on(&stop_signal, doing, error); }

static bool report(void *context, int64_t done, Error *error) {
  StartupWork *w = context;
  w->began = true;
  const double total = w->later_total ? (double)*w->later_total : w->total;
  console_work(w->console, &(ConsoleWork){w->name, (double)done, total, w->bytes});
  return w->may_stop ? !stop_signal : startup_go_on(w->name, error);
}

Progress startup_progress(StartupWork *work) { return (Progress){report, work}; }

bool startup_take_interrupt(void) {
  int interrupt = SIGINT;
  return atomic_compare_exchange_strong(&stop_signal, &interrupt, 0);
}

/* Runs in the thread that waits for signals. */
static void leave_at_once(int number) {
  char text[160];
  const long long lost = startup_unsaved_steps;
  const int size = lost > 0 ? snprintf(text, sizeof text, "\nstopped at once; not saved: the last %s\n",
                                       text_plural((double)lost, "step").text)
                            : snprintf(text, sizeof text, "\nstopped at once\n");
  const ssize_t ignored = write(STDERR_FILENO, text, (size_t)size);
  (void)ignored;
  _exit(EXIT_SIGNALS + number);
}

/* Waits for signals in a thread of its own: a handler would run on the stack of the interrupted code, and generated
 * kernels of libraries do not always leave room for it. */
static void *wait_for_signals(void *argument) {
  const sigset_t *wanted = argument;
  double first = 0;
  for (int number; sigwait(wanted, &number) == 0;) {
    if (number == SIGCHLD) {
      collective_check_children();
      continue;
    }
    if (stop_signal && clock_seconds() - first >= TOGETHER_SECONDS) leave_at_once(number);
    if (stop_signal) continue;
    first = clock_seconds();
    stop_signal = number;
  }
  return NULL;
}

static void ignore(int number) { (void)number; }

/* All threads started from now on leave SIGINT, SIGTERM, SIGUSR1, SIGCHLD and SIGHUP (unless it is ignored, as under
 * nohup) to that thread. */
static void take_signals(void) {
  static sigset_t wanted;
  pthread_t thread;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGINT);
  sigaddset(&wanted, SIGTERM);
  sigaddset(&wanted, SIGUSR1);
  sigaddset(&wanted, SIGCHLD);
  signal(SIGCHLD, ignore); /* without a handler, systems may drop it */
  struct sigaction hangup;
  if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&wanted, SIGHUP);
  if (pthread_sigmask(SIG_BLOCK, &wanted, NULL) != 0) return;
  /* Without the thread, a signal ends the program as usual. */
  if (pthread_create(&thread, NULL, wait_for_signals, &wanted) == 0) pthread_detach(thread);
  else pthread_sigmask(SIG_UNBLOCK, &wanted, NULL);
}

/* If a standard stream is closed, the next opened file would take its place, and messages would end up in that file.
 * The null device takes its place instead; for stdout in a mode in which writing fails. */
static void open_standard_streams(void) {
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY) < 0) return;
}

/* Handles SIGBUS: a mapped file has lost pages that are being read. */
static void file_was_cut(int number) {
  static const char text[] = "a file was cut short while it was read; start again\n";
  (void)number;
  _exit(write(STDERR_FILENO, text, sizeof text - 1) < 0 ? EXIT_OUTPUT : EXIT_INPUT);
}

static void prepare_process(void) {
  take_signals();
  signal(SIGBUS, file_was_cut);
  signal(SIGPIPE, SIG_IGN); /* a closed pipe and */
  signal(SIGXFSZ, SIG_IGN); /* a file-size limit are failed writes like any other */
  if (!processes_have_parent()) return;
  system_end_with_parent(SIGTERM);
  if (!processes_have_parent()) raise(SIGTERM); /* it has died before */
}

static bool print_information(const Options *options, const char *version, Error *error) {
  if (options->help) {
    options_help(options, stdout);
  } else {
    printf("%s %s\nInkling, backends:", options->program, version);
    const IsaList isas = device_isas();
    if (backend_find("cuda", NULL, ~0u)) printf(" cuda");
    for (int i = 0; i < isas.count; i++) printf(" cpu-%s", isas.name[i]);
    printf("\n");
  }
  return file_flush(stdout, "stdout", error);
}

/* ---- processes that work together ---- */

/* Formats what must be equal in all processes, each with a zero after it: version and checksum of the program,
 * arguments. */
static bool describe_start(int argc, char **argv, const char *version, char **text, size_t *size, Error *error) {
  MappedFile program;
  if (!file_map(&program, system_program().text, EXIT_INTERNAL, error)) return false;
  const uint64_t sum = checksum_xxh64(program.bytes, program.size, 0);
  file_unmap(&program);
  FILE *stream = open_memstream(text, size);
  if (!stream) return error_memory(error, "the command line");
  fprintf(stream, "%s%c%016" PRIx64 "%c", version, 0, sum, 0);
  for (int i = 1; i < argc; i++) fprintf(stream, "%s%c", argv[i], 0);
  return fclose(stream) == 0 || error_memory(error, "the command line");
}

/* Moves `at` past the word; after the last one words are empty. */
static const char *next_word(const char **at, const char *end) {
  const char *word = *at < end ? *at : "";
  if (*at < end) *at += strlen(word) + 1;
  return word;
}

static bool compare_starts(const char *mine, size_t size, const char *first, size_t first_size, Error *error) {
  enum { BEFORE_ARGUMENTS = 2 }; /* version and checksum */
  const char *const version = mine, *const first_version = first, *const end = mine + size;
  for (int i = 0; mine < end || first < first_version + first_size; i++) {
    const char *word = next_word(&mine, end), *first_word = next_word(&first, first_version + first_size);
    if (strcmp(word, first_word) == 0) continue;
    if (i < BEFORE_ARGUMENTS)
      return fail(error, EXIT_USAGE,
                  "this build (%s) differs from that of rank 0 (%s); start the same build on all machines", version,
                  first_version);
    return fail(error, EXIT_USAGE, "started with '%.200s' where rank 0 has '%.200s'; all need the same flags", word,
                first_word);
  }
  return true;
}

/* Returns the GPUs that --gpus asks for; 0: it is not given. Other errors of the command line are reported later, when
 * all processes have started and one of them prints for all. */
static bool count_gpus(int argc, char **argv, int *count, Error *error) {
  static const char name[] = "--gpus";
  const size_t length = sizeof name - 1;
  const char *text = NULL;
  for (int i = 1; i < argc; i++) {
    if (strncmp(argv[i], name, length) != 0) continue;
    if (argv[i][length] == '=') text = argv[i] + length + 1;
    else if (!argv[i][length] && i + 1 < argc) text = argv[i + 1];
  }
  *count = 0;
  if (!text) return true;
  const int there = backend_gpus();
  char *end = NULL;
  const bool all = strcmp(text, "all") == 0;
  const long wanted = all ? there : strtol(text, &end, 10);
  if (!all && (end == text || *end || wanted < 1))
    return fail(error, EXIT_USAGE, "--gpus: got \"%.100s\", need a number of GPUs, or all", text);
  if (!there)
    return fail(error, EXIT_USAGE, "--gpus %.100s: no GPU was found, or this build has no CUDA backend", text);
  if (wanted > there) return fail(error, EXIT_USAGE, "--gpus %ld: this machine has %d", wanted, there);
  *count = (int)wanted;
  return true;
}

static bool meet_peers(int argc, char **argv, const Startup *startup, Error *error) {
  if (!collective_open(startup->peers, error)) return false;
  Collective *peers = *startup->peers;
  char *mine = NULL, *first = NULL;
  size_t size = 0, first_size = 0;
  if (peers->size == 1) return true;
  bool ok = describe_start(argc, argv, startup->version, &mine, &size, error);
  if (peers->rank == 0) first = mine, first_size = size;
  ok = collective_agree(peers, NULL, error) && collective_broadcast_text(peers, &first, &first_size, error);
  if (ok) compare_starts(mine, size, first, first_size, error);
  if (first != mine) free(first);
  free(mine);
  return ok && collective_agree(peers, NULL, error);
}

int startup_run(int argc, char **argv, const Startup *startup) {
  Error error = {0};
  Options *options = startup->options;
  int gpus = 0;
  program_name_set(argc > 0 ? argv[0] : NULL);
  open_standard_streams();
  bool ok = !startup->peers || count_gpus(argc, argv, &gpus, &error);
  if (ok && gpus > 1) ok = collective_start(gpus, &error); /* while there is only one thread */
  prepare_process();
  if (ok && startup->peers) ok = meet_peers(argc, argv, startup, &error);
  if (ok) ok = options_parse(options, argc, argv, &error);
  Collective *peers = startup->peers ? *startup->peers : NULL;
  if (peers && !peers->agreed) ok = collective_agree(peers, NULL, &error);
  Console *console = startup->console;
  *console = console_open(options->program, options->quiet);
  if (peers && peers->rank > 0) console_silence(console);
  if (ok && (options->help || options->version))
    ok = (peers && peers->rank > 0) || print_information(options, startup->version, &error);
  else ok = ok && startup->run(startup->context, &error);
  console_end_line(console);
  if (!ok && !(peers && peers->rank > 0 && peers->agreed)) console_error(console, &error);
  return ok ? EXIT_DONE : (int)error.code;
}
