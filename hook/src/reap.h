/*
 * Reaping: turns completed events into device time, charged to their vGPU. One thread reaps at a time; it may be the helper,
 * a thread in a synchronising call, or a launching thread that waits for the bound of unfinished work.
 */
#ifndef GSHARE_REAP_H
#define GSHARE_REAP_H

#include "event.h"

/*
 * Records an event behind the batch, and reaps if no slot is free. Returns the event's number, or 0 if none could be
 * recorded: then the caller charges the estimate. Called by the launching thread.
 */
uint64_t gsh_event_record(const struct gsh_batch *batch);

/* Charges all events that are complete, unless another thread is at it. Returns how many are still open. */
uint32_t gsh_reap(void);

/* Waits for the oldest open event of a vGPU, then reaps. Returns false if there is none. */
bool gsh_reap_oldest(struct gsh_vgpu *v);

/* Charges all events of a context at once and destroys them. Called before the context ends. */
void gsh_reap_context(CUcontext c);

/* Charges a batch that has no event: its estimated ns, ending now. */
void gsh_charge_estimate(struct gsh_vgpu *v, uint64_t work);

/* Declares the calling thread the helper, which has no context of its own and uses that of each event. */
void gsh_reap_from_helper(void);

/* The lock of the reaping thread. Never held while the application's code runs. */
bool gsh_reaper_try_lock(void);
void gsh_reaper_unlock(void);

/* Forgets all events and releases the lock in a forked child. */
void gsh_reap_after_fork(void);

#endif
