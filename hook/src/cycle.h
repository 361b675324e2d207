/*
 * Launch cycles, by which the server sees contention (Dilu DI-56): from the first launch after the host last waited until its
 * next wait returns. Shown on the client's page where tokens are blocks. Slow path only.
 */
#ifndef GSHARE_CYCLE_H
#define GSHARE_CYCLE_H

#include "account.h"

/* A launch is about to be made, or to wait for its token. */
void gsh_cycle_begin(struct gsh_vgpu *v);

/* A wait returned. True if a cycle ended: the next launch is the first of another. */
bool gsh_cycle_end(struct gsh_vgpu *v);

#endif
