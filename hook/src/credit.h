/*
 * Block tokens (Dilu DI-54, DI-55): the server's page shows how many thread blocks the container may have taken in all, and
 * the container's page how many its processes took. A thread takes what a few launches need, and gives back what it did not
 * launch; what it launched beyond is taken too, so that all are in debt (D21). Slow path only.
 */
#ifndef GSHARE_CREDIT_H
#define GSHARE_CREDIT_H

#include "account.h"

/* Whether launches are paid in blocks: not while the process paces itself. */
bool gsh_credit_counts(const struct gsh_vgpu *v);

/* Blocks that are left; below 0 in debt. */
int64_t gsh_credit_left(const struct gsh_vgpu *v);

/* Whether the server gives blocks soon without being asked. */
bool gsh_credit_coming(const struct gsh_vgpu *v);

/*
 * Takes as much as launches of this many blocks need: one, at least, even if that is more than is left, and at most so many,
 * within a sixteenth of a tick's tokens. Returns how many blocks; 0: none are left.
 */
uint64_t gsh_credit_take(struct gsh_vgpu *v, uint64_t blocks, uint64_t launches);

/* Gives back what was not used, or takes what was launched beyond (below 0). */
void gsh_credit_return(struct gsh_vgpu *v, int64_t unused);

#endif
