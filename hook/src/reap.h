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

/* Charges all completed events, unless another thread is doing so. Returns how many events are not complete. */
uint32_t gsh_reap(void);

/*
 * Reaps, and returns for how many ns a launch that waits for the bound of unfinished work should sleep before it tries again: a
 * short time when the oldest batch is about to be complete, 0 if no batch is open. A batch that has been open for long is taken out
 * of the bound, so that no launch waits forever for a kernel that itself waits for that launch: the first after 250 ms, a second
 * one beside it after 500 ms, and so on.
 */
uint64_t gsh_reap_pause(struct gsh_vgpu *v);

/* Charges all events of a context at once and destroys them. Called before the context ends. */
void gsh_reap_context(CUcontext c);

/*
 * Forgets the cost of a key whose work has been replaced, or whose handle the driver may use again. Launches of it that are not complete are
 * charged, but nothing is learned from them.
 */
void gsh_reap_forget(const void *key);

/* Charges a batch that has no event: its estimated ns, ending now. */
void gsh_charge_estimate(struct gsh_vgpu *v, uint64_t work);

/* Charges a launch (key) of unknown cost that took so long until now by the host's clock, and makes that its cost. */
void gsh_charge_watched(struct gsh_vgpu *v, const void *key, uint64_t ns);

/* Declares the calling thread the helper, which has no context of its own and uses that of each event. */
void gsh_reap_from_helper(void);

/* Stops the helper from reaping. Waits, but at most 100 ms, until the helper is in no driver call. */
void gsh_reap_end_helper(void);

/* Forgets all events and releases the lock in a forked child. */
void gsh_reap_after_fork(void);

#endif
