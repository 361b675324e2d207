/* The wrappers of plain, pitched, managed and stream-ordered memory (FG-86, F46). */
#define _GNU_SOURCE
#include "event.h"
#include "pool.h"
#include "reserve.h"
#include "start.h"

/* Version 1: 32-bit addresses and sizes. */
GSH_EXPORT CUresult cuMemAlloc(unsigned *p, unsigned bytes) { return (void)p, (void)bytes, CUDA_ERROR_NOT_SUPPORTED; }
GSH_EXPORT CUresult cuMemAllocPitch(unsigned *p, unsigned *pitch, unsigned width, unsigned height, unsigned element) {
	return (void)p, (void)pitch, (void)width, (void)height, (void)element, CUDA_ERROR_NOT_SUPPORTED;
}

GSH_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes) {
	NEED(cuMemAlloc_v2);
	struct gsh_reservation h;
	uint64_t taken = gsh_allocated_bytes(bytes);
	if (!gsh_reserve(&h, BY_cuMemAlloc_v2, 0, taken)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr at = 0;
	CUresult r = real(p ? &at : NULL, bytes);
	if (r == CUDA_SUCCESS) *p = at;
	return gsh_reserve_commit(&h, r, POINTER, at, taken);
}

/* The pitch is known only after the call: reserves for rows aligned to 512 bytes, then commits the real size. */
GSH_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element) {
	NEED(cuMemAllocPitch_v2);
	struct gsh_reservation h;
	uint64_t most = 0;
	bool fits = width <= SIZE_MAX - 511 && !__builtin_mul_overflow((width + 511) & ~(size_t)511, height, &most);
	if (!gsh_reserve(&h, BY_cuMemAllocPitch_v2, 0, fits ? gsh_allocated_bytes(most) : UINT64_MAX)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr at = 0;
	size_t row = 0;
	CUresult r = real(p ? &at : NULL, pitch ? &row : NULL, width, height, element);
	if (r == CUDA_SUCCESS) *p = at, *pitch = row;
	return gsh_reserve_commit(&h, r, POINTER, at, gsh_allocated_bytes(row * height));
}

/* Returns the bits of enum gshare_policy that the server has set for a vGPU. */
static uint32_t policy_of(const struct gsh_vgpu *v) { return v ? atomic_load(&v->server->policy) : 0; }

/* Neither MPS nor the driver limits managed memory, so by default it is counted in full. */
GSH_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags) {
	NEED(cuMemAllocManaged);
	struct gsh_reservation h;
	uint32_t policy = policy_of(gsh_target(BY_cuMemAllocManaged, 0).vgpu);
	if (policy & GSHARE_MANAGED_DENY) return CUDA_ERROR_NOT_SUPPORTED;
	uint64_t counted = policy & GSHARE_MANAGED_IGNORE ? 0 : gsh_allocated_bytes(bytes);
	if (!gsh_reserve(&h, BY_cuMemAllocManaged, 0, counted)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUdeviceptr at = 0;
	CUresult r = real(p ? &at : NULL, bytes, flags);
	if (r == CUDA_SUCCESS) *p = at;
	return gsh_reserve_commit(&h, r, POINTER, at, counted);
}

/* A pointer that is not in the ledger may have been allocated from a pool. */
GSH_EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
	NEED(cuMemFree_v2);
	CUresult r = GSH_FREE(POINTER, p, real(p));
	if (r == CUDA_SUCCESS) gsh_pools_freed();
	return r;
}

/* More than any device has. Sums of such sizes would overflow. */
#define MOST (1ull << 56)

/* Returns the pool from which cuMemAllocAsync allocates in a stream, or NULL. */
static CUmemoryPool pool_of(CUstream s) {
	CUmemoryPool pool = NULL;
	struct gsh_target on = gsh_target(BY_cuMemAllocAsync, (uint64_t)s);
	if (!on.context || CALL(cuDeviceGetMemPool, &pool, on.device) != CUDA_SUCCESS) return NULL;
	return pool;
}

/* An allocation in stream order, from a given pool or from the device's current one. */
struct async {
	struct gsh_reservation hold;
	CUmemoryPool pool;
	bool current; /* the driver looks the pool up again, and may find another one */
	uint64_t bytes;
	CUstream stream;
};

/*
 * Looks the pool up if it is not given, and enters it in the ledger, unless it is a host's. Stores its vGPU and by how much it may grow,
 * unless the stream is capturing. Returns false if the allocation cannot be charged.
 */
static bool enter(struct async *a, bool capturing, bool *counted, struct gsh_vgpu **v, uint64_t *growth) {
	bool on_host = true;
	if (a->current) a->pool = pool_of(a->stream);
	if (a->pool) *v = gsh_pool_vgpu(a->pool, &on_host);
	if (on_host) return true;
	if (!gsh_pool_enter(a->pool, *v, false)) return false;
	if (capturing) return true;
	if (a->bytes > MOST) return false;
	*growth = gsh_pool_begin(a->pool, a->bytes);
	*counted = true;
	return true;
}

/* Reserves what the pool may grow by. Reserves nothing in a capture: the allocation becomes a node, charged at the graph's launch. */
static bool begin_async(struct async *a) {
	bool counted = false;
	struct gsh_vgpu *v = NULL;
	uint64_t growth = 0;
	gsh_start();
	if (gsh_driver_lost()) return a->pool = NULL, true;
	bool capturing = gsh_stream_is_capturing(a->stream);
	if (!capturing) gsh_reserve_wait();
	int cancel = gsh_pools_lock();
	bool entered = enter(a, capturing, &counted, &v, &growth);
	gsh_pools_unlock(cancel);
	if (!counted) return entered;
	if (gsh_reserve_at_once(&a->hold, v, growth)) return true;
	gsh_pool_end(a->pool, a->bytes);
	return false;
}

/* Charges the pool from which the driver has allocated since the first one was destroyed. */
static void charge_current(CUstream s) {
	bool on_host = true;
	int cancel = gsh_pools_lock();
	CUmemoryPool pool = pool_of(s);
	struct gsh_vgpu *v = pool ? gsh_pool_vgpu(pool, &on_host) : NULL;
	if (!on_host && gsh_pool_enter(pool, v, false)) gsh_pool_refresh(pool);
	gsh_pools_unlock(cancel);
}

/* Charges the pool with its real size, even if the capture has ended meanwhile, and releases the reservation. Returns r. */
static CUresult end_async(struct async *a, CUresult r) {
	if (a->hold.counted) gsh_pool_end(a->pool, a->bytes);
	if (a->pool && !gsh_pool_charge(a->pool) && a->current) charge_current(a->stream);
	if (a->hold.counted) gsh_memory_release(a->hold.on.vgpu, a->hold.bytes);
	return r;
}

/* Reports whether a pool is of host memory. Pools of all other kinds, including kinds that later drivers add, count as device memory. */
static bool is_host_pool(const CUmemPoolProps *props) {
	int location = props->location.type;
	return props->allocType == CU_MEM_ALLOCATION_TYPE_PINNED && gsh_location_is_host(location);
}

/*
 * A pool takes memory of the device that it was created for, whatever context allocates from it. The driver gets a copy
 * of the properties that were checked.
 */
GSH_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
	NEED(cuMemPoolCreate);
	if (!props) return real(pool, props);
	gsh_start();
	CUmemPoolProps own = *props;
	bool on_host = is_host_pool(&own), on_device = own.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	if (on_device && gsh_device_refused(own.location.id)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUmemoryPool created = NULL;
	CUresult r = real(pool ? &created : NULL, &own);
	if (r != CUDA_SUCCESS) return r;
	if (!gsh_pool_enter(created, on_device ? gsh_vgpu_of_device(own.location.id) : gsh_target(BY_UNSAID, 0).vgpu, on_host)) {
		CALL(cuMemPoolDestroy, created);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*pool = created;
	return r;
}

#define ALLOCATE(name, twin)                                                                                            \
	GSH_EXPORT CUresult name(CUdeviceptr *p, size_t bytes, CUstream s) {                                            \
		NEED(name);                                                                                             \
		struct async a = {.current = true, .bytes = bytes, .stream = s ? s : twin};                             \
		return begin_async(&a) ? end_async(&a, real(p, bytes, s)) : CUDA_ERROR_OUT_OF_MEMORY;                   \
	}
ALLOCATE(cuMemAllocAsync, CU_STREAM_LEGACY)
ALLOCATE(cuMemAllocAsync_ptsz, CU_STREAM_PER_THREAD)

#define ALLOCATE_FROM(name, twin)                                                                                       \
	GSH_EXPORT CUresult name(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream s) {                         \
		NEED(name);                                                                                             \
		struct async a = {.pool = pool, .bytes = bytes, .stream = s ? s : twin};                                \
		return begin_async(&a) ? end_async(&a, real(p, bytes, pool, s)) : CUDA_ERROR_OUT_OF_MEMORY;             \
	}
ALLOCATE_FROM(cuMemAllocFromPoolAsync, CU_STREAM_LEGACY)
ALLOCATE_FROM(cuMemAllocFromPoolAsync_ptsz, CU_STREAM_PER_THREAD)

/*
 * Keeps memory that was freed in stream order charged until the device reaches an event behind the free, which may never
 * happen. If no event can be recorded, it stays charged until the context ends.
 */
static void free_in_order(struct gsh_item *item, CUstream s) {
	struct gsh_target on = gsh_target(BY_cuMemFreeAsync, (uint64_t)s);
	int mode = gsh_capture_relax();
	CUevent e = gsh_event_create(on.context, CU_EVENT_DISABLE_TIMING);
	if (e && CALL(cuEventRecord, e, s) != CUDA_SUCCESS) {
		CALL(cuEventDestroy_v2, e);
		e = NULL;
	}
	gsh_capture_restore(mode);
	item->kind = FREEING;
	item->key = (uint64_t)e;
	if (e) item->owner = on.context; /* with which the event ends */
	gsh_ledger_put(item);
}

/* A pool returns memory at some later synchronisation. A pointer from cuMemAlloc may be freed this way too. */
#define FREE_ASYNC(name, twin)                                                                                          \
	GSH_EXPORT CUresult name(CUdeviceptr p, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		struct gsh_item item = {0};                                                                             \
		bool known = gsh_ledger_take(POINTER, p, &item);                                                        \
		CUresult r = real(p, s);                                                                                \
		if (known && r == CUDA_SUCCESS) free_in_order(&item, s ? s : twin);                                     \
		if (known && r != CUDA_SUCCESS) gsh_ledger_put(&item);                                                  \
		if (r == CUDA_SUCCESS) gsh_pools_freed();                                                               \
		return r;                                                                                               \
	}
FREE_ASYNC(cuMemFreeAsync, CU_STREAM_LEGACY)
FREE_ASYNC(cuMemFreeAsync_ptsz, CU_STREAM_PER_THREAD)

GSH_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool) {
	NEED(cuMemPoolDestroy);
	return gsh_pool_destroy(pool, real);
}

GSH_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
	NEED(cuMemPoolTrimTo);
	CUresult r = real(pool, keep);
	gsh_pool_refresh(pool);
	return r;
}
