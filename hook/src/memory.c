/* The wrappers of plain, pitched, managed and stream-ordered memory (F46). */
#define _GNU_SOURCE
#include "capturing.h"
#include "event.h"
#include "graph.h"
#include "platform.h"
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
	CUresult r = gsh_reserve(&h, BY_cuMemAlloc_v2, 0, taken);
	if (r != CUDA_SUCCESS) return r;
	CUdeviceptr at = 0;
	r = real(p ? &at : NULL, bytes);
	if (r == CUDA_SUCCESS) *p = at;
	return gsh_reserve_commit(&h, r, POINTER, at, taken);
}

/* The pitch is known only after the call: reserves for rows aligned to 512 bytes, then commits the real size. */
GSH_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element) {
	NEED(cuMemAllocPitch_v2);
	struct gsh_reservation h;
	uint64_t most = 0;
	bool fits = width <= SIZE_MAX - 511 && !__builtin_mul_overflow((width + 511) & ~(size_t)511, height, &most);
	CUresult r = gsh_reserve(&h, BY_cuMemAllocPitch_v2, 0, fits ? gsh_allocated_bytes(most) : UINT64_MAX);
	if (r != CUDA_SUCCESS) return r;
	CUdeviceptr at = 0;
	size_t row = 0;
	r = real(p ? &at : NULL, pitch ? &row : NULL, width, height, element);
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
	CUresult r = gsh_reserve(&h, BY_cuMemAllocManaged, 0, counted);
	if (r != CUDA_SUCCESS) return r;
	CUdeviceptr at = 0;
	r = real(p ? &at : NULL, bytes, flags);
	if (r == CUDA_SUCCESS) *p = at;
	return gsh_reserve_commit(&h, r, POINTER, at, counted);
}

/* A pointer that is not in the ledger may have been allocated from a pool. */
GSH_EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
	NEED(cuMemFree_v2);
	gsh_graph_memory_freeing(p, 1);
	CUresult r = GSH_FREE(POINTER, p, real(p));
	gsh_graph_memory_freeing(p, -1);
	if (r == CUDA_SUCCESS) gsh_pools_freed();
	return r;
}

/* Stores the pool from which cuMemAllocAsync allocates in a stream. */
static CUresult pool_of(CUstream s, CUmemoryPool *pool) {
	struct gsh_target on = gsh_target(BY_cuMemAllocAsync, (uint64_t)s);
	if (on.error != CUDA_SUCCESS) return on.error;
	if (!on.context) return s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
	return CALL(cuDeviceGetMemPool, pool, on.device);
}

/* An allocation in stream order, from a given pool or from the device's current one. */
struct async {
	struct gsh_reservation hold;
	CUmemoryPool pool; /* NULL: not known yet */
	bool held;         /* the pool is */
	bool captured;     /* it becomes a node of a graph, charged at the graph's launch */
	uint64_t bytes;
	CUstream stream;
};

/* Looks the pool up if it is not given, and holds it. The driver is not called with a pool that is not known (gsh_pool_hold). */
static CUresult enter(struct async *a, struct gsh_vgpu **v, bool *on_host) {
	int cancel = gsh_pools_lock();
	CUresult r = a->pool ? CUDA_SUCCESS : pool_of(a->stream, &a->pool);
	if (r == CUDA_SUCCESS) r = gsh_pool_hold(a->pool, v, on_host);
	a->held = r == CUDA_SUCCESS;
	gsh_pools_unlock(cancel);
	return r;
}

/*
 * Reserves the most by which a pool may grow, whatever is idle in it: the driver may be unable to use that. Nothing else would keep the
 * device's memory within the limit at every moment. Where that does not fit, the pool returns what is idle.
 */
static bool reserve_growth(struct async *a, struct gsh_vgpu *v) {
	uint64_t most = gsh_pool_growth(a->bytes);
	for (int i = 0; i < 1000; i++) {
		if (gsh_reserve_quietly(&a->hold, v, most)) return true;
		if (gsh_pool_trim(a->pool, a->stream, v, most) == GSH_POOL_FULL) break;
		if (i) gsh_sleep(GSH_MILLISECOND);
	}
	return gsh_reserve_at_once(&a->hold, v, most);
}

/* Reserves what the allocation may take. Returns the error that the wrapper has to return. */
static CUresult begin_async(struct async *a) {
	struct gsh_vgpu *v = NULL;
	bool on_host = false;
	gsh_start();
	if (gsh_driver_lost()) return CUDA_SUCCESS;
	if ((a->captured = gsh_capture_hold(a->stream))) return CUDA_SUCCESS;
	gsh_reserve_wait();
	CUresult r = enter(a, &v, &on_host);
	if (r != CUDA_SUCCESS || on_host || reserve_growth(a, v)) return r;
	gsh_pool_release(a->pool);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Charges the pool with its real size and releases the reservation. Stores the address for the caller; returns r, or an error. */
static CUresult end_async(struct async *a, CUresult r, CUdeviceptr p, CUdeviceptr *to) {
	if (a->captured) gsh_capture_release();
	if (a->held) {
		gsh_pool_charge(a->pool);
		gsh_pool_release(a->pool);
		if (a->hold.counted) gsh_memory_release(a->hold.on.vgpu, a->hold.bytes);
	}
	if (r == CUDA_SUCCESS) *to = p;
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
	struct gsh_vgpu *v = on_device ? gsh_vgpu_of_device(own.location.id) : gsh_target(BY_UNSAID, 0).vgpu;
	CUmemoryPool created = NULL;
	CUresult r = pool ? gsh_pool_create(&created, &own, v, on_host, real) : real(NULL, &own);
	if (r == CUDA_SUCCESS) *pool = created;
	return r;
}

/* The driver gets the pool that was looked up: another thread may make another one current. */
#define ALLOCATE(name, from, twin)                                                                                      \
	GSH_EXPORT CUresult name(CUdeviceptr *p, size_t bytes, CUstream s) {                                            \
		NEED(name);                                                                                             \
		struct async a = {.bytes = bytes, .stream = s ? s : twin};                                              \
		CUdeviceptr at = 0, *to = p ? &at : NULL;                                                               \
		CUresult r = begin_async(&a);                                                                           \
		if (r != CUDA_SUCCESS) return r;                                                                        \
		r = a.held ? CALL(from, to, bytes, a.pool, s) : real(to, bytes, s);                            \
		return end_async(&a, r, at, p);                                                                         \
	}
ALLOCATE(cuMemAllocAsync, cuMemAllocFromPoolAsync, CU_STREAM_LEGACY)
ALLOCATE(cuMemAllocAsync_ptsz, cuMemAllocFromPoolAsync_ptsz, CU_STREAM_PER_THREAD)

#define ALLOCATE_FROM(name, twin)                                                                                       \
	GSH_EXPORT CUresult name(CUdeviceptr *p, size_t bytes, CUmemoryPool pool, CUstream s) {                         \
		NEED(name);                                                                                             \
		struct async a = {.pool = pool, .bytes = bytes, .stream = s ? s : twin};                                \
		CUdeviceptr at = 0;                                                                                     \
		CUresult r = pool ? begin_async(&a) : CUDA_ERROR_INVALID_VALUE;                                         \
		if (r != CUDA_SUCCESS) return r;                                                                        \
		r = real(p ? &at : NULL, bytes, pool, s);                                                               \
		return end_async(&a, r, at, p);                                                                         \
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
		gsh_graph_memory_freeing(p, 1);                                                                         \
		bool known = gsh_ledger_take(POINTER, p, &item);                                                        \
		CUresult r = real(p, s);                                                                                \
		gsh_graph_memory_freeing(p, -1);                                                                        \
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
	gsh_pool_charge(pool);
	return r;
}
