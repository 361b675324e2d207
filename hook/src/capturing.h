/*
 * What relies on a stream that captures. A call that reserves or counts nothing, because it becomes a node of a graph, holds the capture until
 * the driver has returned; calls that end captures wait for that. Otherwise another thread, or a signal handler, could end the capture after
 * the hook's look at it, and the driver would allocate or launch at once.
 */
#ifndef GSHARE_CAPTURING_H
#define GSHARE_CAPTURING_H

#include <stdbool.h>

#include "symbols.h"

/* Reports whether a stream captures. If so, its capture does not end before the calling thread calls gsh_capture_release. */
bool gsh_capture_hold(CUstream s);
void gsh_capture_release(void);

/*
 * Wait until no thread holds a capture, and keep others from doing so. gsh_captures_lock returns false where that may never be: in a signal
 * handler that has interrupted a thread which holds one, or after a second. The capture must not be ended then.
 */
bool gsh_captures_lock(void);
void gsh_captures_unlock(void);

/* Forgets the threads that a forked child does not have. */
void gsh_capturing_after_fork(void);

#endif
