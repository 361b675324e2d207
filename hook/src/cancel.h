/*
 * Cancellation of threads (pthread_cancel). It must not end a thread inside the hook's code, or inside a driver call that
 * the hook makes, while the thread holds a lock or a reference to an event. So it is disabled for that time.
 */
#ifndef GSHARE_CANCEL_H
#define GSHARE_CANCEL_H

#include <pthread.h>

/* Disables the calling thread's cancellation. Returns the previous state, for gsh_cancel_restore. */
static inline int gsh_cancel_disable(void) {
	int state = PTHREAD_CANCEL_ENABLE;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	return state;
}

/* Restores the state that gsh_cancel_disable returned. A pending cancellation takes effect at the next cancellation point. */
static inline void gsh_cancel_restore(int state) { pthread_setcancelstate(state, NULL); }

#endif
