/*
 * All that the hook asks of the system while it runs: time, waiting, sending, one thread. platform_linux.c is the real
 * one; a test-only build links one that runs on a virtual clock instead. Nothing here is called on the fast path of a
 * launch. All times are nanoseconds.
 *
 * The hook holds no lock of its own while it is in a call that may wait.
 */
#ifndef GSHARE_PLATFORM_H
#define GSHARE_PLATFORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GSH_MICROSECOND 1000ull
#define GSH_MILLISECOND 1000000ull
#define GSH_SECOND 1000000000ull

/* CLOCK_MONOTONIC. */
uint64_t gsh_now(void);

/*
 * Waits while *word == seen, at most timeout. The word is in shared memory (possibly mapped read-only) or the process's
 * own. Wakes early for no reason are allowed. Returns false only when the time was up.
 */
bool gsh_wait_word(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout);

/* Wakes all threads of this process that wait on its own word; the caller has changed the word. */
void gsh_wake_word(_Atomic uint32_t *word);

void gsh_sleep(uint64_t duration);

/* Sends one frame, never blocks, never raises SIGPIPE. Returns 0 or a negative errno. */
int gsh_send(int fd, const void *frame, size_t length);

/*
 * Starts the helper thread: detached, all signals blocked, small stack. Returns 0 or a negative errno. main is entered
 * with the thread already known to the platform (a virtual clock counts it as running before this returns).
 */
int gsh_thread_start(void *(*main)(void *));

#endif
