#include "base/collective/collective.h"

#include "base/collective/messenger.h"
#include "base/array.h"
#include "base/system.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Groups of messages: a reduction continues while other messages are sent. */
enum { MESSAGES, REDUCTION };

/* What a rank reports in collective_agree(). */
typedef struct Status {
  int32_t signal, code;
} Status;

struct CollectiveState {
  const Messenger *messenger; /* NULL: alone */
  void *gathered;             /* [ranks][COLLECTIVE_SUMS] doubles, or a Status of each rank */
  Error error;                /* the last error that all ranks agreed on */
  float *numbers;             /* those being reduced, and their spans */
  const Span *spans;
  int span_count; /* 0: no reduction is in progress */
  float *others;  /* [ranks - 1][numbers] of this rank's spans, as the other ranks have them */
  size_t others_capacity;
};

typedef struct Group {
  Collective collective;
  struct CollectiveState state;
} Group;

/* ---- waiting ---- */

static const double SPIN_SECONDS = 2e-3; /* a rank that waits sleeps after this time without a complete message */
static const struct timespec nap = {.tv_nsec = 50000};

static void wait_for(const Collective *c, int group) {
  const Messenger *messenger = c->state->messenger;
  double since = clock_seconds();
  for (int left = messenger->waiting(group), before = left; left; left = messenger->waiting(group)) {
    const double now = clock_seconds();
    if (left != before) since = now;
    before = left;
    if (now - since > SPIN_SECONDS) nanosleep(&nap, NULL);
    else sched_yield();
  }
}

/* Posts messages of at most MESSENGER_BYTES. */
static void post(const Collective *c, MessageKind kind, int group, void *bytes, size_t size, int rank) {
  for (size_t done = 0; done < size;) {
    const size_t some = size - done < MESSENGER_BYTES ? size - done : MESSENGER_BYTES;
    c->state->messenger->post(kind, group, (char *)bytes + done, some, rank);
    done += some;
  }
}

/* ---- starting ---- */

/* The environment variables that launchers set: the number of processes, and the rank. */
static const struct {
  const char *size, *rank;
  const char *libraries[2]; /* that support the launcher, the likelier first */
} launchers[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", {"openmpi", NULL}},
                 {"PMI_SIZE", "PMI_RANK", {"mpich", "openmpi"}},
                 {"SLURM_STEP_NUM_TASKS", "PMIX_RANK", {"openmpi", "mpich"}}};

static int number_in(const char *variable) {
  const char *text = getenv(variable);
  return text ? atoi(text) : -1;
}

/* Returns the row above, or -1 for a process that was started alone. */
static int find_launcher(void) {
  const int rows = (int)(sizeof launchers / sizeof *launchers);
  for (int i = 0; i < rows; i++)
    if (getenv(launchers[i].rank) && number_in(launchers[i].size) > 0) return i;
  return -1;
}

/* The directories of the libraries, relative to the program's: beside it, or installed. */
static const char *const library_dirs[] = {"", "../lib/inkling/"};

/* Returns NULL where there is no library for this kind of MPI, or with the reason if it exists. It stays loaded: MPI
 * leaves threads and exit handlers behind. */
static const Messenger *load(const char *kind, char reason[256]) {
  PathText program;
  if (!realpath(system_program().text, program.text)) return NULL;
  for (size_t i = 0; i < sizeof library_dirs / sizeof *library_dirs; i++) {
    char name[64];
    snprintf(name, sizeof name, "%sinkling-%s.so", library_dirs[i], kind);
    const PathText path = path_in(path_directory(program.text).text, name);
    if (access(path.text, F_OK) != 0) continue;
    void *library = dlopen(path.text, RTLD_NOW | RTLD_GLOBAL); /* modules that MPI loads need its symbols */
    if (!library) snprintf(reason, 256, "%.255s", dlerror());
    return library ? dlsym(library, MESSENGER_SYMBOL) : NULL;
  }
  return NULL;
}

static void start_messenger(Collective *c, const Messenger *messenger) {
  c->state->messenger = messenger;
  c->engine = messenger->name;
  messenger->start(c);
}

static bool connect_by_launcher(Collective *c, int launcher, Error *error) {
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
                "%d processes were started together, but this build does not have their MPI (%s); install it with its "
                "mpicc, and build Inkling from its source (make clean && make)",
                expected, libraries[0]);
  start_messenger(c, mpi);
  if (c->size != expected)
    return fail(error, EXIT_USAGE,
                "%d processes were started together, but not by %s, which this build has: use its mpirun, or make "
                "MPICC=... with that of the other",
                expected, mpi->name);
  return true;
}

/* Without the interface of their MPI, Slurm starts processes that cannot find each other. */
static bool check_slurm(Error *error) {
  if (number_in("SLURM_STEP_NUM_TASKS") < 2 || !getenv("SLURM_PROCID")) return true;
  return fail(error, EXIT_USAGE,
              "srun has started %d processes that cannot find each other; use srun --mpi=pmix or --mpi=pmi2 (srun "
              "--mpi=list says what there is), or mpirun",
              number_in("SLURM_STEP_NUM_TASKS"));
}

/* Call it after the messenger has started. */
static bool open_group(Collective *c, Error *error) {
  c->state->gathered = calloc((size_t)c->size * COLLECTIVE_SUMS, sizeof(double));
  return c->state->gathered || error_memory(error, "the group of processes");
}

bool collective_start(int processes, Error *error) {
  if (find_launcher() >= 0 || number_in("SLURM_STEP_NUM_TASKS") > 1)
    return fail(error, EXIT_USAGE, "--gpus %d starts processes, and a launcher has started this one; leave out --gpus",
                processes);
  return messenger_fork(processes, error);
}

void collective_check_children(void) { messenger_check_children(); }

bool collective_open(Collective **out, Error *error) {
  Group *group = calloc(1, sizeof *group);
  Collective *c = *out = (Collective *)group;
  if (!c) return error_memory(error, "the group of processes");
  c->state = &group->state;
  c->size = c->node_size = 1;
  if (gethostname(c->host, sizeof c->host - 1) != 0) strcpy(c->host, "this machine");
  if (messenger_of_forks()) {
    start_messenger(c, messenger_of_forks());
    return open_group(c, error);
  }
  const int launcher = find_launcher();
  if (launcher < 0) return check_slurm(error);
  if (connect_by_launcher(c, launcher, error)) return open_group(c, error);
  c->agreed = c->size == 1; /* all processes have the same error: one of them prints it */
  if (c->agreed) c->rank = number_in(launchers[launcher].rank);
  return false;
}

void collective_abort(Collective *c, ExitCode outcome) {
  if (c && c->state->messenger && outcome != EXIT_DONE && !c->agreed) c->state->messenger->abort((int)outcome);
}

void collective_close(Collective *c) {
  if (!c) return;
  if (c->state->messenger) c->state->messenger->finish();
  free(c->state->gathered);
  free(c->state->others);
  free(c);
}

/* ---- messages ---- */

/* Copies `size` bytes of `rank` to all ranks. */
static void broadcast_from(Collective *c, void *bytes, size_t size, int rank) {
  if (c->size == 1) return;
  post(c, BROADCAST, MESSAGES, bytes, size, rank);
  wait_for(c, MESSAGES);
}

void collective_broadcast(Collective *c, void *bytes, size_t size) { broadcast_from(c, bytes, size, 0); }

void collective_all_gather(Collective *c, const void *mine, void *all, size_t size) {
  if (c->size == 1) {
    memcpy(all, mine, size);
    return;
  }
  c->state->messenger->all_gather(MESSAGES, mine, all, size);
  wait_for(c, MESSAGES);
}

/* Gives all ranks the error of rank `from`; `common`: every rank has an error. */
static void broadcast_error(Collective *c, int from, bool common, Error *error) {
  struct {
    char host[sizeof c->host];
    Error error;
  } message = {.error = *error};
  memcpy(message.host, c->host, sizeof message.host);
  broadcast_from(c, &message, sizeof message, from);
  *error = (Error){0};
  if (common || from == 0) fail(error, message.error.code, "%s", message.error.text);
  else fail(error, message.error.code, "rank %d on %s: %s", from, message.host, message.error.text);
}

bool collective_agree(Collective *c, int *signal, Error *error) {
  Status mine = {signal ? *signal : 0, (int32_t)error->code};
  if (c->size == 1) return !error->code;
  if (c->agreed) return fail(error, c->state->error.code, "%s", c->state->error.text); /* all ranks are ending */
  Status *const all = c->state->gathered;
  collective_all_gather(c, &mine, all, sizeof mine);
  int first = -1, count = 0;
  for (int i = c->size - 1; i >= 0; i--) {
    if (signal && all[i].signal > *signal) *signal = all[i].signal;
    if (!all[i].code) continue;
    first = i;
    count++;
  }
  if (first < 0) return true;
  messenger_expect_end(); /* a rank may end as soon as it knows the error */
  broadcast_error(c, first, count == c->size, error);
  c->agreed = true;
  c->state->error = *error;
  return false;
}

bool collective_broadcast_text(Collective *c, char **text, size_t *size, Error *error) {
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

int collective_same(Collective *c, uint64_t number) {
  int same = 0;
  if (c->size == 1) return 1;
  uint64_t *const all = c->state->gathered;
  collective_all_gather(c, &number, all, sizeof number);
  for (int rank = 0; rank < c->size; rank++) same += all[rank] == number;
  return same;
}

void collective_sum(Collective *c, double *values, int count) {
  if (c->size == 1) return;
  const size_t bytes = (size_t)count * sizeof *values;
  double *const all = c->state->gathered;
  collective_all_gather(c, values, all, bytes);
  memset(values, 0, bytes);
  for (int rank = 0; rank < c->size; rank++)
    for (int i = 0; i < count; i++) values[i] += all[rank * count + i];
}

/* ---- spans ---- */

static size_t count_owned(const Collective *c, const Span *spans, int count) {
  size_t numbers = 0;
  for (int i = 0; i < count; i++) numbers += spans[i].owner == c->rank ? spans[i].count : 0;
  return numbers;
}

bool collective_reduce(Collective *c, float *numbers, const Span *spans, int count, Error *error) {
  if (c->size == 1) return true;
  collective_reduce_end(c);
  struct CollectiveState *state = c->state;
  const size_t others = count_owned(c, spans, count) * (size_t)(c->size - 1);
  if (!array_reserve(&state->others, &state->others_capacity, others, sizeof *state->others))
    return error_memory(error, "the gradients of other processes");
  float *to = state->others;
  for (const Span *s = spans; s < spans + count; s++) {
    const size_t bytes = s->count * sizeof(float);
    if (s->owner != c->rank) post(c, SEND, REDUCTION, numbers + s->offset, bytes, s->owner);
    for (int rank = 0; rank < c->size && s->owner == c->rank; rank++) {
      if (rank == c->rank) continue;
      post(c, RECEIVE, REDUCTION, to, bytes, rank);
      to += s->count;
    }
  }
  state->numbers = numbers;
  state->spans = spans;
  state->span_count = count;
  return true;
}

static void add(float *restrict sum, const float *restrict more, size_t count) {
#pragma omp simd
  for (size_t i = 0; i < count; i++) sum[i] += more[i];
}

/* Sums `own` and others [ranks - 1][count] in the order of ranks, in blocks that stay in the cache. */
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
  struct CollectiveState *state = c->state;
  if (!state->span_count) return;
  const float *others = state->others;
  wait_for(c, REDUCTION);
  for (const Span *s = state->spans; s < state->spans + state->span_count; s++) {
    if (s->owner != c->rank) continue;
    add_in_order(c, state->numbers + s->offset, others, s->count);
    others += s->count * (size_t)(c->size - 1);
  }
  state->span_count = 0;
}

void collective_all_gather_spans(Collective *c, float *numbers, const Span *spans, int count) {
  if (c->size == 1) return;
  for (const Span *s = spans; s < spans + count; s++)
    post(c, BROADCAST, MESSAGES, numbers + s->offset, s->count * sizeof(float), s->owner);
  wait_for(c, MESSAGES);
}

/* Copies spans between `all` of rank 0 and `own` of their owners; `kind`: what rank 0 does. */
static void move_spans(Collective *c, MessageKind kind, float *all, float *own, const Span *spans, int count) {
  for (const Span *s = spans; s < spans + count; s++) {
    const size_t bytes = s->count * sizeof(float);
    if (c->rank == 0 && s->owner == 0)
      if (kind == RECEIVE) memcpy(all + s->offset, own + s->own, bytes);
      else memcpy(own + s->own, all + s->offset, bytes);
    else if (c->rank == 0) post(c, kind, MESSAGES, all + s->offset, bytes, s->owner);
    else if (c->rank == s->owner) post(c, kind == SEND ? RECEIVE : SEND, MESSAGES, own + s->own, bytes, 0);
  }
  if (c->size > 1) wait_for(c, MESSAGES);
}

void collective_gather_spans(Collective *c, float *all, const float *own, const Span *spans, int count) {
  move_spans(c, RECEIVE, all, (float *)own, spans, count);
}

void collective_scatter_spans(Collective *c, float *own, const float *all, const Span *spans, int count) {
  move_spans(c, SEND, (float *)all, own, spans, count);
}
