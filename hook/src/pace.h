/*
 * Pacing without a token server: a process keeps to the guaranteed part of its container by itself.
 *
 * In each window, one process of the container gets the ns of the guaranteed part, and launches in that part of the window until it has used
 * them up. What counts is the work, not the time of the launch: a kernel that lasts longer than what is left is owed, and nothing is launched
 * before later windows have paid for it. While a process owes, all windows of the container are its own. What a process could not use because
 * a neighbour's kernel had the SMs, it may use later, at any time of a window.
 */
#ifndef GSHARE_PACE_H
#define GSHARE_PACE_H

#include "account.h"

/* Reports whether a process without a server may launch now. */
bool gsh_pace_permits(const struct gsh_vgpu *v);

/* Returns how long a thread that may not launch should wait before it asks again, ns. */
uint64_t gsh_pace_pause(const struct gsh_vgpu *v);

/* Forgets what the process owes and may use: it begins to pace itself. Called by the thread that notices, before others pace themselves. */
void gsh_pace_begin(void);

/*
 * Counts windows and work, and gives up the turns on vGPUs on which the process no longer launches. Called regularly, by the helper thread.
 */
void gsh_pace_round(void);

/* Forgets everything in a forked child. */
void gsh_pace_after_fork(void);

#endif
