#include "collective/collective.h"

#include "collective/messenger.h"
#include "util/clock.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Groups of messages: those of a reduction go on while others are sent. */
enum { MESSAGES, REDUCTION };

typedef struct Reduction {
  float *numbers;
  const Span *spans;
  int count;
  bool pending;
} Reduction;

/* What a rank says when all are asked. */
typedef struct Opinion {
  int32_t signal, code;
} Opinion;

struct CollectiveState {
  const Messenger *messenger; /* NULL: alone */
  Opinion *opinions;          /* [ranks] */
  double *sums;               /* [ranks][COLLECTIVE_SUMS] */
  Error error;                /* that all have agreed on */
  Reduction reduction;
  float *others; /* [ranks - 1][numbers] what they have in our spans */
  size_t room;   /* numbers */
};

/* ---- waiting ---- */

static const double SPIN_SECONDS = 2e-3; /* without a message done, until a rank that waits begins to sleep */
static const struct timespec nap = {.tv_nsec = 50000};

static void wait_for(Collective *c, int group) {
  const Messenger *messenger = c->state->messenger;
  const double began = clock_seconds();
  double since = began;
  for (int left = messenger->waiting(group), before = left; left; left = messenger->waiting(group)) {
    const double now = clock_seconds();
    if (left != before) since = now;
    before = left;
    if (now - since > SPIN_SECONDS) nanosleep(&nap, NULL);
    else sched_yield();
  }
  c->waited += clock_seconds() - began;
}

typedef void Post(const Messenger *messenger, int group, void *bytes, size_t size, int rank);

/* In messages that are not too large. */
static void post(const Collective *c, Post *what, int group, void *bytes, size_t size, int rank) {
  for (size_t done = 0; done < size;) {
    const size_t some = size - done < MESSENGER_BYTES ? size - done : MESSENGER_BYTES;
    what(c->state->messenger, group, (char *)bytes + done, some, rank);
    done += some;
  }
}

static void post_send(const Messenger *messenger, int group, void *bytes, size_t size, int to) {
  messenger->send(group, bytes, size, to);
}

static void post_receive(const Messenger *messenger, int group, void *bytes, size_t size, int from) {
  messenger->receive(group, bytes, size, from);
}

static void post_broadcast(const Messenger *messenger, int group, void *bytes, size_t size, int from) {
  messenger->broadcast(group, bytes, size, from);
}

/* ---- who takes part ---- */

/* What launchers leave in the environment: the number of processes, and whose they are. */
static const struct {
  const char *size, *rank;
  const char *libraries[2]; /* that understand it, the likelier first */
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", {"openmpi", NULL}},
                 {"PMI_SIZE", "PMI_RANK", {"mpich", "openmpi"}},
                 {"SLURM_STEP_NUM_TASKS", "PMIX_RANK", {"openmpi", "mpich"}}};

static int number_in(const char *variable) {
  const char *text = getenv(variable);
  return text ? atoi(text) : -1;
}

/* The row above, or a negative number: started alone. */
static int find_launcher(void) {
  const int rows = (int)(sizeof launchers / sizeof *launchers);
  for (int i = 0; i < rows; i++)
    if (getenv(launchers[i].rank) && number_in(launchers[i].size) > 0) return i;
  return -1;
}

/* Where the libraries are, from the directory of the program: beside it, or installed. */
static const char *const library_places[] = {"", "../lib/inkling/"};

/* False where there is none for this kind of MPI. */
static bool find_library(const char *kind, char *path, size_t size) {
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return false;
  program[length] = '\0';
  char *slash = strrchr(program, '/');
  if (!slash) return false;
  slash[1] = '\0';
  for (size_t i = 0; i < sizeof library_places / sizeof *library_places; i++) {
    const int used = snprintf(path, size, "%s%sinkling-%s.so", program, library_places[i], kind);
    if (used > 0 && (size_t)used < size && access(path, F_OK) == 0) return true;
  }
  return false;
}

/* NULL, with the reason where there is one. It stays loaded: MPI leaves threads and exit handlers behind. */
static const Messenger *load(const char *kind, char reason[256]) {
  char path[4200];
  if (!find_library(kind, path, sizeof path)) return NULL;
  void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* what MPI loads itself looks for its names */
  if (!library) snprintf(reason, 256, "%.255s", dlerror());
  return library ? dlsym(library, MESSENGER_SYMBOL) : NULL;
}

static void meet_by(Collective *c, const Messenger *messenger) {
  c->state->messenger = messenger;
  c->engine = messenger->name;
  messenger->start(&c->rank, &c->size);
}

static bool meet(Collective *c, int launcher, Error *error) {
  const int expected = number_in(launchers[launcher].size);
  const char *const *libraries = launchers[launcher].libraries;
  const Messenger *mpi = NULL;
  char reason[256] = "";
  for (int i = 0; i < 2 && !mpi && libraries[i]; i++) mpi = load(libraries[i], reason);
  if (!mpi && *reason)
    return fail(error, EXIT_USAGE, "%d processes were started together, and their MPI cannot be loaded: %s", expected,
                reason);
  if (!mpi)
    return fail(error, EXIT_USAGE,
                "%d processes were started together, and this build does not have their MPI (%s); install it with its "
                "mpicc and type make again",
                expected, libraries[0]);
  meet_by(c, mpi);
  if (c->size != expected)
    return fail(error, EXIT_USAGE,
                "%d processes were started together, but not by %s, which this build has: use its mpirun, or make "
                "MPICC=... with that of the other",
                expected, mpi->name);
  return true;
}

/* Slurm starts processes that do not know of each other unless it is told which interface their MPI has. */
static bool check_slurm(Error *error) {
  if (number_in("SLURM_STEP_NUM_TASKS") < 2 || !getenv("SLURM_PROCID")) return true;
  return fail(error, EXIT_USAGE,
              "srun has started %d processes that cannot find each other; use srun --mpi=pmix or --mpi=pmi2 (srun "
              "--mpi=list says what there is), or mpirun",
              number_in("SLURM_STEP_NUM_TASKS"));
}

/* After the processes have met. */
static bool take_places(Collective *c, const Messenger *messenger, Error *error) {
  messenger->node(&c->node_first, &c->node_rank, &c->node_size);
  c->state->opinions = calloc((size_t)c->size, sizeof *c->state->opinions);
  c->state->sums = calloc((size_t)c->size * COLLECTIVE_SUMS, sizeof *c->state->sums);
  return (c->state->opinions && c->state->sums) || error_memory(error, "the group of processes");
}

bool collective_start(int processes, Error *error) {
  if (find_launcher() >= 0 || number_in("SLURM_STEP_NUM_TASKS") > 1)
    return fail(error, EXIT_USAGE, "--gpus %d starts processes, and a launcher has started this one; leave it out",
                processes);
  return messenger_fork(processes, error);
}

bool collective_open(Collective **out, Error *error) {
  Collective *c = *out = calloc(1, sizeof *c);
  if (!c) return error_memory(error, "the group of processes");
  c->size = c->node_size = 1;
  if (gethostname(c->host, sizeof c->host - 1) != 0) strcpy(c->host, "this machine");
  c->state = calloc(1, sizeof *c->state);
  if (!c->state) return error_memory(error, "the group of processes");
  if (messenger_of_forks()) {
    meet_by(c, messenger_of_forks());
    return take_places(c, messenger_of_forks(), error);
  }
  const int launcher = find_launcher();
  if (launcher < 0) return check_slurm(error);
  if (meet(c, launcher, error)) return take_places(c, c->state->messenger, error);
  c->agreed = c->size == 1; /* all say the same: one of them speaks */
  if (c->agreed) c->rank = number_in(launchers[launcher].rank);
  return false;
}

void collective_close(Collective *c, ExitCode outcome) {
  if (!c) return;
  if (c->state && c->state->messenger) {
    if (outcome != EXIT_DONE && !c->agreed) c->state->messenger->abort((int)outcome);
    c->state->messenger->finish();
  }
  if (c->state) {
    free(c->state->opinions);
    free(c->state->sums);
    free(c->state->others);
  }
  free(c->state);
  free(c);
}

/* ---- what is said ---- */

void collective_broadcast_from(Collective *c, void *bytes, size_t size, int rank) {
  if (c->size == 1) return;
  post(c, post_broadcast, MESSAGES, bytes, size, rank);
  wait_for(c, MESSAGES);
}

void collective_broadcast(Collective *c, void *bytes, size_t size) { collective_broadcast_from(c, bytes, size, 0); }

void collective_all_gather(Collective *c, const void *mine, void *all, size_t size) {
  if (c->size == 1) {
    memcpy(all, mine, size);
    return;
  }
  c->state->messenger->all_gather(MESSAGES, mine, all, size);
  wait_for(c, MESSAGES);
}

/* Everybody gets the text of rank `from`. */
static void take_error(Collective *c, int from, bool common, Error *error) {
  Error theirs = *error;
  struct {
    char host[sizeof c->host], text[sizeof theirs.text];
  } words;
  memcpy(words.host, c->host, sizeof words.host);
  memcpy(words.text, theirs.text, sizeof words.text);
  theirs.code = error->code;
  int32_t code = (int32_t)theirs.code;
  post(c, post_broadcast, MESSAGES, &words, sizeof words, from);
  post(c, post_broadcast, MESSAGES, &code, sizeof code, from);
  wait_for(c, MESSAGES);
  *error = (Error){0};
  if (common || from == 0) fail(error, (ExitCode)code, "%s", words.text);
  else fail(error, (ExitCode)code, "rank %d on %s: %s", from, words.host, words.text);
}

bool collective_agree(Collective *c, int *signal, Error *error) {
  Opinion mine = {signal ? *signal : 0, (int32_t)error->code};
  if (c->size == 1) return !error->code;
  if (c->agreed) return fail(error, c->state->error.code, "%s", c->state->error.text); /* all are on their way out */
  Opinion *const all = c->state->opinions;
  collective_all_gather(c, &mine, all, sizeof mine);
  int first = -1, count = 0;
  for (int i = c->size - 1; i >= 0; i--) {
    if (signal && all[i].signal > *signal) *signal = all[i].signal;
    if (!all[i].code) continue;
    first = i;
    count += 1;
  }
  if (first < 0) return true;
  take_error(c, first, count == c->size, error);
  c->agreed = true;
  c->state->error = *error;
  return false;
}

bool collective_share(Collective *c, char **text, size_t *size, Error *error) {
  if (c->size == 1) return true;
  uint64_t bytes = (uint64_t)*size;
  collective_broadcast(c, &bytes, sizeof bytes);
  if (c->rank > 0) {
    *size = (size_t)bytes;
    *text = malloc(*size + 1);
    if (!*text) error_memory(error, "what rank 0 says");
    else (*text)[*size] = '\0';
  }
  if (!collective_agree(c, NULL, error)) return false;
  collective_broadcast(c, *text, *size);
  return true;
}

void collective_sum(Collective *c, double *values, int count) {
  if (c->size == 1) return;
  const size_t bytes = (size_t)count * sizeof *values;
  double *const all = c->state->sums;
  collective_all_gather(c, values, all, bytes);
  memset(values, 0, bytes);
  for (int rank = 0; rank < c->size; rank++)
    for (int i = 0; i < count; i++) values[i] += all[rank * count + i];
}

int collective_largest(Collective *c, double value, double *largest, double *others) {
  double *const all = c->state->sums, sum = 0;
  int rank = 0;
  if (c->size == 1) return *largest = *others = value, 0;
  collective_all_gather(c, &value, all, sizeof value);
  for (int i = 0; i < c->size; i++) {
    sum += all[i];
    rank = all[i] > all[rank] ? i : rank;
  }
  *largest = all[rank];
  *others = (sum - all[rank]) / (c->size - 1);
  return rank;
}

/* ---- spans ---- */

static size_t owned(const Collective *c, const Span *spans, int count) {
  size_t numbers = 0;
  for (int i = 0; i < count; i++) numbers += spans[i].owner == c->rank ? spans[i].count : 0;
  return numbers;
}

static bool make_room(Collective *c, size_t numbers, Error *error) {
  struct CollectiveState *s = c->state;
  if (numbers <= s->room) return true;
  free(s->others);
  s->others = malloc(numbers * sizeof(float));
  s->room = s->others ? numbers : 0;
  return s->others || error_memory(error, "the gradients of other processes");
}

bool collective_reduce(Collective *c, float *numbers, const Span *spans, int count, Error *error) {
  if (c->size == 1) return true;
  collective_reduce_end(c);
  if (!make_room(c, owned(c, spans, count) * (size_t)(c->size - 1), error)) return false;
  float *to = c->state->others;
  for (int i = 0; i < count; i++) {
    const Span *s = &spans[i];
    const size_t bytes = s->count * sizeof(float);
    if (s->owner != c->rank) {
      post(c, post_send, REDUCTION, numbers + s->offset, bytes, s->owner);
      continue;
    }
    for (int rank = 0; rank < c->size; rank++) {
      if (rank == c->rank) continue;
      post(c, post_receive, REDUCTION, to, bytes, rank);
      to += s->count;
    }
  }
  c->state->reduction = (Reduction){numbers, spans, count, true};
  return true;
}

static void add(float *restrict sum, const float *restrict more, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; i++) sum[i] += more[i];
}

/* others [ranks - 1][count]; in blocks that stay in the cache. */
static void add_in_order(const Collective *c, float *own, const float *others, size_t count) {
  enum { BLOCK = 2048 };
  float sum[BLOCK];
  for (size_t first = 0; first < count; first += BLOCK) {
    const size_t some = count - first < BLOCK ? count - first : BLOCK;
    const float *from = others + first;
    for (int rank = 0; rank < c->size; rank++) {
      const float *more = rank == c->rank ? own + first : from;
      if (rank != c->rank) from += count;
      if (rank == 0) memcpy(sum, more, some * sizeof *sum);
      else add(sum, more, some);
    }
    memcpy(own + first, sum, some * sizeof *sum);
  }
}

void collective_reduce_end(Collective *c) {
  if (c->size == 1 || !c->state->reduction.pending) return;
  const Reduction *r = &c->state->reduction;
  const float *others = c->state->others;
  wait_for(c, REDUCTION);
  for (int i = 0; i < r->count; i++) {
    const Span *s = &r->spans[i];
    if (s->owner != c->rank) continue;
    add_in_order(c, r->numbers + s->offset, others, s->count);
    others += s->count * (size_t)(c->size - 1);
  }
  c->state->reduction.pending = false;
}

void collective_gather(Collective *c, float *numbers, const Span *spans, int count) {
  if (c->size == 1) return;
  for (int i = 0; i < count; i++)
    post(c, post_broadcast, MESSAGES, numbers + spans[i].offset, spans[i].count * sizeof(float), spans[i].owner);
  wait_for(c, MESSAGES);
}

void collective_collect(Collective *c, float *all, const float *own, const Span *spans, int count) {
  for (const Span *s = spans; s < spans + count; s++) {
    const size_t bytes = s->count * sizeof(float);
    if (c->rank == 0 && s->owner == 0) memcpy(all + s->offset, own + s->own, bytes);
    else if (c->rank == 0) post(c, post_receive, MESSAGES, all + s->offset, bytes, s->owner);
    else if (c->rank == s->owner) post(c, post_send, MESSAGES, (float *)own + s->own, bytes, 0);
  }
  if (c->size > 1) wait_for(c, MESSAGES);
}

void collective_deal(Collective *c, float *own, const float *all, const Span *spans, int count) {
  for (const Span *s = spans; s < spans + count; s++) {
    const size_t bytes = s->count * sizeof(float);
    if (c->rank == 0 && s->owner == 0) memcpy(own + s->own, all + s->offset, bytes);
    else if (c->rank == 0) post(c, post_send, MESSAGES, (float *)all + s->offset, bytes, s->owner);
    else if (c->rank == s->owner) post(c, post_receive, MESSAGES, own + s->own, bytes, 0);
  }
  if (c->size > 1) wait_for(c, MESSAGES);
}
