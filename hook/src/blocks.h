/*
 * Block tokens and launch cycles of the class elastic (Dilu, section 3.4.1). The server's page has the number of thread
 * blocks that the container may have taken since its start, the container's page the number that its processes have taken.
 * A thread takes tokens for a few launches at a time and returns those that it did not use. Launches beyond its tokens are
 * taken as well, as a debt of the whole container (D21). A launch cycle, by which the server detects contention, lasts from
 * the first launch after the host last waited until its next wait returns. Slow path only; atomics, no lock.
 */
#ifndef GSHARE_BLOCKS_H
#define GSHARE_BLOCKS_H

#include "account.h"

/* Reports whether launches need block tokens; they do not while the process paces itself. */
bool gsh_blocks_metered(const struct gsh_vgpu *v);

/* Returns how many thread blocks the container may still launch with its tokens; negative if it has launched more. */
int64_t gsh_blocks_left(const struct gsh_vgpu *v);

/* Reports whether the server will issue block tokens soon without a request. Reads the clock. */
bool gsh_blocks_expected(const struct gsh_vgpu *v);

/*
 * Takes block tokens for up to `launches` launches of `blocks` thread blocks each: at least for one, even if fewer are left,
 * and at most a sixteenth of a tick's. Returns how many; 0 if none are left.
 */
uint64_t gsh_blocks_take(struct gsh_vgpu *v, uint64_t blocks, uint64_t launches);

/* Returns unused tokens; a negative number takes tokens for thread blocks that were launched without any. */
void gsh_blocks_return(struct gsh_vgpu *v, int64_t unused);

/* Begins a launch cycle unless one is open. Called before a launch is made or waits for its token. Reads the clock. */
void gsh_cycle_begin(struct gsh_vgpu *v);

/* Ends the open launch cycle and stores its length on the client page; false if none is open. Called after a wait. */
bool gsh_cycle_end(struct gsh_vgpu *v);

#endif
