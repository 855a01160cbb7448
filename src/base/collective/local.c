/* Messages between processes that messenger_fork() has started: any two share a pair of sockets for each group. Rank 0
 * is the parent of the others and ends all of them when one dies; they end when it dies. */
#include "base/collective/messenger.h"

#include "base/array.h"
#include "base/system.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Post {
  char *bytes;
  size_t left;
  int peer;
  bool sends;
} Post;

typedef struct Posts {
  Post *items;
  size_t count, capacity;
} Posts;

static int my_rank, processes;
static pid_t *children;                  /* [processes]; used by rank 0 */
static int (*sockets)[MESSENGER_GROUPS]; /* [processes] to each other process */
static Posts posts[MESSENGER_GROUPS];
static pthread_mutex_t watching = PTHREAD_MUTEX_INITIALIZER; /* whoever holds it may learn how a process has ended */
static atomic_bool end_is_expected;

/* ---- ending all processes ---- */

static void end_children(void) {
  for (int rank = 1; my_rank == 0 && rank < processes; rank++) kill(children[rank], SIGKILL);
}

/* For the thread that holds `watching`: no other one may take the end of these processes for the cause. */
static void end_all(int status) {
  end_children();
  _exit(status);
}

static void abort_all(int status) {
  pthread_mutex_lock(&watching);
  end_all(status);
}

/* Returns whether the process of a rank has ended. A normal end that was returned before is returned as status 0. */
static bool has_ended(int rank, int *status, int options) {
  pid_t ended;
  *status = 0;
  do ended = waitpid(children[rank], status, options);
  while (ended < 0 && errno == EINTR);
  return ended != 0;
}

/* `status` of waitpid(). */
static void end_because_of(int rank, int status) {
  if (WIFEXITED(status)) end_all(WEXITSTATUS(status) ? WEXITSTATUS(status) : EXIT_INTERNAL); /* it has said why */
  fprintf(stderr, "train: rank %d was ended by signal %d (%s), and the others with it\n", rank, WTERMSIG(status),
          strsignal(WTERMSIG(status)));
  end_all(EXIT_SIGNALS + WTERMSIG(status));
}

/* A process has closed its sockets. Only rank 0, its parent, can learn why; rank 0 then ends the others. */
static void lost(int rank) {
  int status;
  while (my_rank > 0) pause();
  pthread_mutex_lock(&watching);
  has_ended(rank, &status, 0);
  end_because_of(rank, status);
}

/* A process that waits for a GPU, which waits for the GPU of a process that has died, does not read its sockets. */
void messenger_check_children(void) {
  int status;
  pthread_mutex_lock(&watching);
  for (int rank = 1; my_rank == 0 && rank < processes; rank++)
    if (has_ended(rank, &status, WNOHANG) && status && !end_is_expected) end_because_of(rank, status);
  pthread_mutex_unlock(&watching);
}

void messenger_expect_end(void) { end_is_expected = true; }

/* ---- messages ---- */

static void add_post(int group, void *bytes, size_t size, int peer, bool sends) {
  Posts *p = &posts[group];
  if (!array_reserve(&p->items, &p->capacity, p->count + 1, sizeof *p->items)) {
    fprintf(stderr, "train: out of memory for messages\n");
    abort_all(EXIT_MEMORY);
  }
  p->items[p->count++] = (Post){bytes, size, peer, sends};
}

static void post(MessageKind kind, int group, void *bytes, size_t size, int rank) {
  if (kind != BROADCAST || rank != my_rank) return add_post(group, bytes, size, rank, kind == SEND);
  for (int peer = 0; peer < processes; peer++)
    if (peer != my_rank) add_post(group, bytes, size, peer, true);
}

static void all_gather(int group, const void *mine, void *all, size_t size) {
  memcpy((char *)all + (size_t)my_rank * size, mine, size);
  for (int rank = 0; rank < processes; rank++) {
    if (rank == my_rank) continue;
    add_post(group, (void *)mine, size, rank, true);
    add_post(group, (char *)all + (size_t)rank * size, size, rank, false);
  }
}

/* Sends or receives as many bytes as the socket takes now. */
static void move(Post *p, int group) {
  while (p->left) {
    const int fd = sockets[p->peer][group];
    const ssize_t done =
        p->sends ? send(fd, p->bytes, p->left, MSG_DONTWAIT) : recv(fd, p->bytes, p->left, MSG_DONTWAIT);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (done <= 0) lost(p->peer);
    p->bytes += done;
    p->left -= (size_t)done;
  }
}

/* Whether no earlier message between these two ranks in the same direction is incomplete: bytes arrive in order. */
static bool is_next(const Posts *p, size_t i) {
  for (size_t before = 0; before < i; before++)
    if (p->items[before].left && p->items[before].peer == p->items[i].peer &&
        p->items[before].sends == p->items[i].sends)
      return false;
  return true;
}

static int waiting(int group) {
  Posts *p = &posts[group];
  size_t left = 0;
  for (size_t i = 0; i < p->count; i++)
    if (is_next(p, i)) move(&p->items[i], group);
  for (size_t i = 0; i < p->count; i++)
    if (p->items[i].left) p->items[left++] = p->items[i];
  p->count = left;
  return (int)left;
}

/* ---- start and finish ---- */

static void start(Collective *c) {
  c->rank = c->node_rank = my_rank;
  c->size = c->node_size = processes;
  c->node_first = 0;
}

static void finish(void) {
  int status;
  for (int rank = 1; my_rank == 0 && rank < processes; rank++) has_ended(rank, &status, 0);
  pthread_mutex_lock(&watching);
  processes = 0;
  pthread_mutex_unlock(&watching);
  for (int i = 0; i < MESSENGER_GROUPS; i++) free(posts[i].items);
  free(sockets);
  free(children);
}

static const Messenger local = {.name = "sockets",
                                .start = start,
                                .post = post,
                                .all_gather = all_gather,
                                .waiting = waiting,
                                .abort = abort_all,
                                .finish = finish};

const Messenger *messenger_of_forks(void) { return processes > 1 ? &local : NULL; }

/* Fills pairs [processes][processes][groups]: the socket of the process of the row to the process of the column. */
static bool make_sockets(int count, int *pairs, Error *error) {
  for (int a = 0; a < count; a++)
    for (int b = a + 1; b < count; b++)
      for (int group = 0; group < MESSENGER_GROUPS; group++) {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0)
          return fail(error, EXIT_INTERNAL, "cannot connect %d processes: %s", count, strerror(errno));
        pairs[(a * count + b) * MESSENGER_GROUPS + group] = ends[0];
        pairs[(b * count + a) * MESSENGER_GROUPS + group] = ends[1];
      }
  return true;
}

/* Keeps the sockets of this process and closes those of others. */
static void take_row(const int *pairs) {
  for (int a = 0; a < processes; a++)
    for (int b = 0; b < processes; b++)
      for (int group = 0; a != b && group < MESSENGER_GROUPS; group++) {
        const int fd = pairs[(a * processes + b) * MESSENGER_GROUPS + group];
        if (a == my_rank) sockets[b][group] = fd;
        else close(fd);
      }
}

bool messenger_fork(int count, Error *error) {
  int *pairs = calloc((size_t)count * (size_t)count * MESSENGER_GROUPS, sizeof *pairs);
  children = calloc((size_t)count, sizeof *children);
  sockets = calloc((size_t)count, sizeof *sockets);
  bool ok = (pairs && children && sockets) || error_memory(error, "processes");
  ok = ok && make_sockets(count, pairs, error);
  if (ok) processes = count;
  for (int rank = 1; ok && my_rank == 0 && rank < count; rank++) {
    const pid_t parent = getpid(), child = fork();
    children[rank] = child;
    if (child < 0) {
      ok = fail(error, EXIT_INTERNAL, "cannot start %d processes: %s", count, strerror(errno));
      processes = rank;
      end_children();
      processes = 0;
    } else if (child == 0) {
      my_rank = rank;
      system_end_with_parent(SIGKILL);
      if (getppid() != parent) _exit(EXIT_INTERNAL);
    }
  }
  if (ok) take_row(pairs);
  free(pairs);
  return ok;
}
