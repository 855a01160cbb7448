/* In place of base/collective/local.c, which forks processes for several GPUs. */
#include "base/collective/messenger.h"

#include <stddef.h>

const Messenger *messenger_of_forks(void) { return NULL; }

bool messenger_fork(int processes, Error *error) {
  return fail(error, EXIT_USAGE, "--gpus %d: there is no training on several GPUs on Windows", processes);
}

void messenger_check_children(void) {}
void messenger_expect_end(void) {}
