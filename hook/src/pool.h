/*
 * Memory pools of stream-ordered allocation. A pool reserves device memory in larger chunks and keeps it, so what is charged
 * is what the pool has reserved, read from the driver after each call that may change it.
 */
#ifndef GSHARE_POOL_H
#define GSHARE_POOL_H

#include "account.h"

/* Returns by how many bytes a pool may grow for an allocation of this size and those under way. */
uint64_t gsh_pool_growth(CUmemoryPool pool, uint64_t bytes);

/* Adds bytes, negative ones too, to the allocations under way in a pool; enters the pool in the ledger at its first use. */
void gsh_pool_add_pending(CUmemoryPool pool, struct gsh_vgpu *v, int64_t bytes);

/* Charges a pool with what it has reserved at present. */
void gsh_pool_refresh(CUmemoryPool pool);

/* Charges all pools of the process with what they have reserved at present. */
void gsh_pools_refresh(void);

/* Records that memory may have been freed into a pool, which may return it to the device at a later synchronisation. */
void gsh_pools_freed(void);

/* Charges the pools again if something was freed. Called after every synchronising call; costs one load if nothing was. */
void gsh_pools_after_sync(void);

#endif
