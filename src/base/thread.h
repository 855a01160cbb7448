/* A thread of its own (threads.c), for work beside a pool. */
#ifndef INKLING_BASE_THREAD_H
#define INKLING_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>

/* Starts a thread that blocks all signals, so that the thread that calls this receives them. False: there are too many
 * threads, or memory is short. */
bool thread_start(pthread_t *thread, void *(*body)(void *), void *argument);

#endif
