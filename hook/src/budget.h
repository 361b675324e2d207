/*
 * Budgets of launched work. Launches since a stream's last event are known to their own thread only. So before it
 * launches, the thread takes a budget for the stream: the estimated ns of work that may be launched until the next event.
 * The budgets of a process add up to at most a quarter of the bound of its unfinished work. Slow path only; atomics, no
 * lock.
 */
#ifndef GSHARE_BUDGET_H
#define GSHARE_BUDGET_H

#include "stream.h"

/* Returns how many ns of the process's work on the vGPU may be unfinished, as the server's page says. */
uint64_t gsh_run_ahead_bound(const struct gsh_vgpu *v);

/* Returns the ns that a stream may take: an equal part for each stream into which the process launches at present. */
uint64_t gsh_budget_share(const struct gsh_stream_state *st);

/* Reports whether the budgets and the unfinished work of the process together are within the bound. */
bool gsh_budgets_fit(const struct gsh_vgpu *v);

/*
 * Replaces the stream's budget with one of `wanted` ns, or less if other streams hold too much of the process's budget. It
 * is 0 if unfinished work already fills the part of the bound that is kept for budgets.
 */
void gsh_budget_take(struct gsh_stream_state *st, uint64_t wanted);

/* Releases the stream's budget, when the stream waits or its state is dropped. */
void gsh_budget_release(struct gsh_stream_state *st);

#endif
