/*
 * Budgets of launched work. Launches since a stream's last event are counted only by their own thread (FG-78); so before
 * them the stream takes a budget, in estimated ns, of what it may launch until its next event. All budgets of a process are
 * at most a quarter of the bound of its unfinished work. Slow path only; atomics, no lock.
 */
#ifndef GSHARE_BUDGET_H
#define GSHARE_BUDGET_H

#include "stream.h"

/* Returns how many ns of the process's work may be unfinished on the vGPU, as the server's page says. */
uint64_t gsh_run_ahead_bound(const struct gsh_vgpu *v);

/* Returns the ns that a stream may take: an equal part for each stream that the process launches into at present. */
uint64_t gsh_budget_share(const struct gsh_stream_state *st);

/* Reports whether the budgets and the unfinished work of the process are within the bound together. */
bool gsh_budgets_fit(const struct gsh_vgpu *v);

/*
 * Replaces the stream's budget by a new one of `wanted` ns, or less if other streams hold too much of the process's budget, or its
 * unfinished work fills their part of the bound.
 */
void gsh_budget_take(struct gsh_stream_state *st, uint64_t wanted);

/* Releases the stream's budget, when the stream waits or its state is dropped. */
void gsh_budget_release(struct gsh_stream_state *st);

#endif
