/*
 * Stream-ordered memory. A pool takes memory from the device in pieces and keeps it, so what counts is what the pool has
 * reserved, asked of the driver after each call that may change it.
 */
#define _GNU_SOURCE
#include "memory.h"

#define PIECE (32ull << 20) /* the most that a pool rounds its growth up to; what is too much is given back at once */

static atomic_bool freed;

static bool ask(CUmemoryPool pool, int attribute, uint64_t *value) {
	return CALL(cuMemPoolGetAttribute, pool, attribute, value) == CUDA_SUCCESS;
}

void gsh_set_charge(enum gsh_thing thing, uint64_t key, uint64_t bytes) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(thing, key);
	struct gsh_vgpu *v = i ? i->vgpu : NULL;
	uint64_t change = i ? bytes - i->bytes : 0;
	if (i) i->bytes = bytes;
	if (v) gsh_charge(v, change);
	gsh_ledger_unlock();
}

/* Asked again after the change: of two threads at once the last to write has seen the last state. */
static void sync_pool(CUmemoryPool pool) {
	uint64_t before, after = 0;
	for (int i = 0; i < 8 && ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &before); i++) {
		gsh_set_charge(POOL, (uint64_t)pool, before);
		if (!ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &after) || after == before) return;
	}
}

static void enter(CUmemoryPool pool, struct gsh_vgpu *v, int64_t pending) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(POOL, (uint64_t)pool);
	if (i)
		i->other += pending;
	else if (pending > 0)
		gsh_item_put(&(struct gsh_item){POOL, (uint64_t)pool, v, NULL, 0, pending, 0});
	gsh_ledger_unlock();
}

static uint64_t pending_of(CUmemoryPool pool) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(POOL, (uint64_t)pool);
	uint64_t pending = i ? i->other : 0;
	gsh_ledger_unlock();
	return pending;
}

/* By how much the pool will grow for this allocation and those under way. */
static uint64_t growth(CUmemoryPool pool, uint64_t bytes) {
	uint64_t used = 0, reserved = 0;
	if (bytes > UINT64_MAX / 2) return bytes;
	ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
	ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
	uint64_t need = used + pending_of(pool) + bytes;
	return need <= reserved ? 0 : (need - reserved + PIECE - 1) / PIECE * PIECE;
}

static bool capturing(CUstream s) {
	int status = 0;
	return atomic_load(&gsh_captures) && CALL(cuStreamIsCapturing, s, &status) == CUDA_SUCCESS && status;
}

static bool begin(struct gsh_hold *h, CUmemoryPool pool, uint64_t bytes, CUstream s) {
	*h = (struct gsh_hold){0};
	if (!pool || capturing(s)) return true; /* in a capture it becomes a node of a graph, charged at its launch */
	if (!gsh_hold(h, growth(pool, bytes))) return false;
	if (h->counted) enter(pool, h->place.vgpu, (int64_t)bytes);
	return true;
}

static CUresult end(struct gsh_hold *h, CUmemoryPool pool, uint64_t bytes, CUresult r) {
	if (!h->counted) return r;
	enter(pool, h->place.vgpu, -(int64_t)bytes);
	sync_pool(pool);
	gsh_release(h->place.vgpu, h->bytes);
	return r;
}

static CUmemoryPool own_pool(void) {
	CUmemoryPool pool = NULL;
	struct gsh_place here = gsh_here();
	if (!here.context || CALL(cuDeviceGetMemPool, &pool, here.device) != CUDA_SUCCESS) return NULL;
	return pool;
}

#define ALLOCATE(name, twin)                                                                                            \
	GSH_EXPORT CUresult name(CUdeviceptr *p, size_t bytes, CUstream s) {                                            \
		NEED(name);                                                                                             \
		struct gsh_hold h;                                                                                      \
		CUmemoryPool pool = own_pool();                                                                         \
		if (!begin(&h, pool, bytes, s ? s : twin)) return CUDA_ERROR_OUT_OF_MEMORY;                             \
		return end(&h, pool, bytes, real(p, bytes, s));                                                         \
	}
ALLOCATE(cuMemAllocAsync, CU_STREAM_LEGACY)
ALLOCATE(cuMemAllocAsync_ptsz, CU_STREAM_PER_THREAD)

#define ALLOCATE_FROM(name, twin)                                                                                       \
	GSH_EXPORT CUresult name(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream s) {                         \
		NEED(name);                                                                                             \
		struct gsh_hold h;                                                                                      \
		if (!begin(&h, pool, bytes, s ? s : twin)) return CUDA_ERROR_OUT_OF_MEMORY;                             \
		return end(&h, pool, bytes, real(p, bytes, pool, s));                                                   \
	}
ALLOCATE_FROM(cuMemAllocFromPoolAsync, CU_STREAM_LEGACY)
ALLOCATE_FROM(cuMemAllocFromPoolAsync_ptsz, CU_STREAM_PER_THREAD)

/* A pool gives memory back at some later synchronisation. A pointer from cuMemAlloc may be freed this way too. */
#define FREE_ASYNC(name)                                                                                                \
	GSH_EXPORT CUresult name(CUdeviceptr p, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		CUresult r = GSH_FREE(POINTER, p, real(p, s));                                                          \
		if (r == CUDA_SUCCESS) gsh_pool_freed();                                                        \
		return r;                                                                                               \
	}
FREE_ASYNC(cuMemFreeAsync)
FREE_ASYNC(cuMemFreeAsync_ptsz)

GSH_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
	NEED(cuMemPoolDestroy);
	return GSH_FREE(POOL, pool, real(pool));
}

GSH_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
	NEED(cuMemPoolTrimTo);
	CUresult r = real(pool, keep);
	sync_pool(pool);
	return r;
}

static int known_pools(CUmemoryPool *pools, int most) {
	int n = 0;
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i && n < most; i = gsh_item_next(i))
		if (i->thing == POOL) pools[n++] = (CUmemoryPool)i->key;
	gsh_ledger_unlock();
	return n;
}

void gsh_pools_refresh(void) {
	CUmemoryPool pools[64];
	int n = known_pools(pools, 64);
	for (int i = 0; i < n; i++) sync_pool(pools[i]);
}

/* Whether a pool holds more than is in use, which a later synchronisation may give back. */
static bool surplus(void) {
	CUmemoryPool pools[64];
	uint64_t used, reserved;
	for (int n = known_pools(pools, 64); n-- > 0;)
		if (ask(pools[n], CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) &&
		    ask(pools[n], CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) && reserved > used)
			return true;
	return false;
}

void gsh_pool_freed(void) { atomic_store(&freed, true); }

void gsh_pools_synchronised(void) {
	if (likely(!atomic_load_explicit(&freed, memory_order_relaxed)) || !atomic_exchange(&freed, false)) return;
	gsh_pools_refresh();
	if (surplus()) gsh_pool_freed();
}
