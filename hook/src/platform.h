/*
 * The hook's interface to the system while it runs: time, waiting, sending, one thread. platform_linux.c is the real one;
 * tests link platform_virtual.c or their own, which run on another clock. Nothing here is called on the fast path of a
 * launch. All times are nanoseconds. The hook holds no lock of its own while it waits in one of these.
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

/* Returns the time of CLOCK_MONOTONIC. */
uint64_t gsh_now(void);

/*
 * Waits while *word == seen, at most timeout. The word is in shared memory, possibly read-only, or the process's own.
 * May return early. Returns false only when the timeout passed.
 */
bool gsh_wait_word(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout);

/* Wakes all threads of this process that wait on one of its own words, which the caller has changed. */
void gsh_wake_word(_Atomic uint32_t *word);

/* Blocks the calling thread for the given ns, or less if a signal arrives. */
void gsh_sleep(uint64_t duration);

/* Sends one frame. Never blocks, never raises SIGPIPE. Returns 0 or a negative errno. */
int gsh_send(int fd, const void *frame, size_t length);

/*
 * Starts the helper thread: detached, all signals blocked, small stack. Returns 0 or a negative errno. A virtual
 * clock counts the thread as running before this returns.
 */
int gsh_thread_start(void *(*main)(void *));

#endif
