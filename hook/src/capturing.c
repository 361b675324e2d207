#define _GNU_SOURCE
#include "capturing.h"

#include "cancel.h"
#include "device.h"
#include "platform.h"

#define PAUSE (20 * GSH_MICROSECOND)
#define PAUSES 50000 /* a second */

static _Atomic uint32_t holders; /* threads that hold captures */
static _Atomic bool locked;      /* a thread is ending a capture */

/* How often this thread holds a capture: more than once in a signal handler. Whether it is ending one. What it has to restore. */
static _Thread_local uint32_t held;
static _Thread_local bool ending;
static _Thread_local int cancel;

/* Waits until a condition holds, up to a second. Reports whether it does. */
#define WAIT_FOR(condition)                                                                                             \
	({                                                                                                              \
		bool met = (condition);                                                                                 \
		for (int i = 0; i < PAUSES && !met; i++) gsh_sleep(PAUSE), met = (condition);                           \
		met;                                                                                                    \
	})

/* Holds captures unless one is being ended. Without a lock, since a signal handler may do the same at any moment. */
static bool hold(void) {
	atomic_fetch_add(&holders, 1);
	if (!atomic_load(&locked)) return true;
	atomic_fetch_sub(&holders, 1);
	return false;
}

/* A thread that cannot hold captures is told that the stream does not capture: then it reserves and counts, which is safe. */
bool gsh_capture_hold(CUstream s) {
	if (!gsh_stream_is_capturing(s) || ending) return false;
	int state = gsh_cancel_disable();
	if (!held++) cancel = state;
	bool holds = WAIT_FOR(hold());
	if (holds && gsh_stream_is_capturing(s)) return true;
	if (holds) atomic_fetch_sub(&holders, 1);
	if (!--held) gsh_cancel_restore(cancel);
	return false;
}

void gsh_capture_release(void) {
	atomic_fetch_sub(&holders, 1);
	if (!--held) gsh_cancel_restore(cancel);
}

bool gsh_captures_lock(void) {
	if (held || ending) return false;
	cancel = gsh_cancel_disable();
	ending = true;
	if (WAIT_FOR(!atomic_exchange(&locked, true))) {
		if (WAIT_FOR(!atomic_load(&holders))) return true;
		atomic_store(&locked, false);
	}
	ending = false;
	gsh_cancel_restore(cancel);
	return false;
}

void gsh_captures_unlock(void) {
	atomic_store(&locked, false);
	ending = false;
	gsh_cancel_restore(cancel);
}

void gsh_capturing_after_fork(void) {
	atomic_store(&holders, 0);
	atomic_store(&locked, false);
	held = 0;
	ending = false;
}
