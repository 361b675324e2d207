/*
 * Memory pools of stream-ordered allocation. A pool reserves device memory in larger chunks and keeps it, so what is charged
 * is what the pool has reserved, read from the driver after each call that may change it.
 */
#ifndef GSHARE_POOL_H
#define GSHARE_POOL_H

#include "account.h"
#include "symbols.h"

/* Creates a pool by the driver's function and enters it in the ledger. Returns the driver's error, or one if there is no room. */
CUresult gsh_pool_create(CUmemoryPool *pool, const CUmemPoolProps *props, struct gsh_vgpu *v, bool on_host, cuMemPoolCreate_fn real);

/*
 * Between these two the pool is not destroyed, so its handle stays that of the same pool. gsh_pool_hold stores the vGPU whose memory the pool
 * takes, NULL for a device without a share, and whether it is of host memory, which is not counted. It returns an error for a pool that was
 * not created and is no default one: nothing tells whose memory that would take. It is called between gsh_pools_lock and gsh_pools_unlock.
 */
CUresult gsh_pool_hold(CUmemoryPool pool, struct gsh_vgpu **v, bool *on_host);
void gsh_pool_release(CUmemoryPool pool);

/* Returns the most bytes by which a pool may grow for an allocation. */
uint64_t gsh_pool_growth(uint64_t bytes);

/*
 * Returns the memory to the device that a pool of the ledger does not use, for an allocation of `bytes` in a stream. GSH_POOL_SURPLUS: with what
 * it had to return, they would fit in the limit, now or later: what was freed in stream order can be returned once the device has come to it.
 */
enum gsh_pool_state { GSH_POOL_FULL, GSH_POOL_SURPLUS };
enum gsh_pool_state gsh_pool_trim(CUmemoryPool pool, CUstream s, const struct gsh_vgpu *v, uint64_t bytes);

/* Charges a pool with what it has reserved at present. */
void gsh_pool_refresh(CUmemoryPool pool);

/* Does so if the ledger has the pool; false if not: another thread has destroyed it. */
bool gsh_pool_charge(CUmemoryPool pool);

/* Between these two no pool is destroyed, so that one that the driver names can be entered and asked. No wait is allowed there. */
int gsh_pools_lock(void);
void gsh_pools_unlock(int cancel);

/* Destroys a pool by the driver's function, now or, if it still has memory, once its last allocation is freed. */
CUresult gsh_pool_destroy(CUmemoryPool pool, CUresult (*real)(CUmemoryPool));

/* Charges all pools of the process with what they have reserved at present. */
void gsh_pools_refresh(void);

/*
 * Says whether a call is under way that may end a context, and with it the events behind memory that was freed in stream order. They
 * are not queried meanwhile; the memory stays charged.
 */
void gsh_pools_context_ending(const void *context, bool ending);

/* Records that memory may have been freed into a pool, which may return it to the device at a later synchronisation. */
void gsh_pools_freed(void);

/* Charges the pools again if something was freed. Called after every synchronising call; costs one load if nothing was. */
void gsh_pools_after_sync(void);

/* Releases the lock in a forked child. */
void gsh_pools_after_fork(void);

#endif
