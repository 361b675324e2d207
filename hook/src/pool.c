#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>

#include "cancel.h"
#include "device.h"
#include "event.h"
#include "reserve.h"

/* Largest unit, in bytes, in which pools grow. What was reserved in excess is released right after the call. */
#define PIECE (32ull << 20)

/* More than any device has. Sums of such sizes would overflow. */
#define MOST (1ull << 56)

#define KEYS_MAX 64 /* keys that are listed at once */
#define NODES_MAX 64 /* NUMA nodes whose default pools are known */

/* CU_MEM_ALLOCATION_TYPE_MANAGED and CU_MEM_LOCATION_TYPE_NONE, which the headers have from CUDA 13 on. */
enum { MANAGED = 2, NO_LOCATION = 0 };

/* Flags of a POOL. ON_HOST: its memory is the host's. RETIRED: it was destroyed, but still has memory. */
enum { ON_HOST = 1, RETIRED = 2 };

/* Flag of a FREEING: its event may end at any moment, with its context, and is not queried. */
enum { ENDING = 1 };

/* Whether memory was freed into a pool since the pools were last refreshed. */
static atomic_bool freed;

/*
 * Held while a thread uses a pool or an event that it has found in the ledger, and while one is destroyed. The driver calls under it
 * ask or give back memory and wait for no work of the device.
 */
static pthread_mutex_t use = PTHREAD_MUTEX_INITIALIZER;

int gsh_pools_lock(void) {
	int cancel = gsh_cancel_disable();
	pthread_mutex_lock(&use);
	return cancel;
}

void gsh_pools_unlock(int cancel) {
	pthread_mutex_unlock(&use);
	gsh_cancel_restore(cancel);
}

/* Reads an attribute of a pool, in bytes; false if the driver does not return it. */
static bool get_attribute(CUmemoryPool pool, int attribute, uint64_t *value) {
	return CALL(cuMemPoolGetAttribute, pool, attribute, value) == CUDA_SUCCESS;
}

/* Reads the attribute again after setting the charge: if two threads do so at once, the last to set the charge has read the latest value. */
void gsh_pool_refresh(CUmemoryPool pool) {
	uint64_t before, after = 0;
	for (int i = 0; i < 8 && get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &before); i++) {
		gsh_item_resize(POOL, (uint64_t)pool, before);
		if (!get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &after) || after == before) return;
	}
}

/* Enters a pool in the ledger. Returns false if there is no room: its memory could not be charged. */
static bool enter(CUmemoryPool pool, struct gsh_vgpu *v, bool on_host) {
	gsh_ledger_lock();
	bool entered = gsh_item_put(&(struct gsh_item){POOL, (uint64_t)pool, on_host ? NULL : v, NULL, 0, 0, 0, on_host ? ON_HOST : 0});
	gsh_ledger_unlock();
	return entered;
}

/* Adds to how many calls allocate from a pool, if the ledger has it. Returns its item from before, all zeros if there is none. */
static struct gsh_item count_calls(CUmemoryPool pool, int calls) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(POOL, (uint64_t)pool), before = i ? *i : (struct gsh_item){0};
	if (i && (calls > 0 || i->other)) i->other += (uint64_t)calls; /* wraps round for -1 */
	gsh_ledger_unlock();
	return before;
}

/* Under the lock: a thread that knows the handle, from a pool that it was of before, must not find the pool before it is entered. */
CUresult gsh_pool_create(CUmemoryPool *pool, const CUmemPoolProps *props, struct gsh_vgpu *v, bool on_host, cuMemPoolCreate_fn real) {
	int cancel = gsh_pools_lock();
	CUresult r = real(pool, props);
	if (r == CUDA_SUCCESS && !enter(*pool, v, on_host)) {
		CALL(cuMemPoolDestroy, *pool);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	gsh_pools_unlock(cancel);
	return r;
}

/* Reports whether a pool is the default one of a location, for a type of allocation. */
static bool is_default(CUmemoryPool pool, int type, CUmemLocation location) {
	CUmemoryPool own = NULL;
	return CALL(cuMemGetDefaultMemPool, &own, &location, type) == CUDA_SUCCESS && own == pool;
}

/*
 * Enters a pool whose creation was not seen, if it is a default one of a device or, from CUDA 13 on, of a host or for managed memory, which
 * counts as memory of the device like all managed memory.
 */
static CUresult enter_default(CUmemoryPool pool) {
	int devices = 0;
	bool found = false, on_host = is_default(pool, CU_MEM_ALLOCATION_TYPE_PINNED, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0});
	struct gsh_vgpu *v = gsh_target(BY_UNSAID, 0).vgpu;
	CALL(cuDeviceGetCount, &devices);
	for (CUdevice d = 0; d < devices && !found; d++) {
		CUmemoryPool own = NULL;
		found = (CALL(cuDeviceGetDefaultMemPool, &own, d) == CUDA_SUCCESS && own == pool) ||
		        is_default(pool, MANAGED, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, d});
		if (found) v = gsh_vgpu_of_device(d);
	}
	for (int node = 0; node < NODES_MAX && !found && !on_host; node++) {
		on_host = is_default(pool, CU_MEM_ALLOCATION_TYPE_PINNED, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, node});
		found = is_default(pool, MANAGED, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST_NUMA, node});
	}
	found = found || on_host || is_default(pool, MANAGED, (CUmemLocation){NO_LOCATION, 0}) ||
	        is_default(pool, MANAGED, (CUmemLocation){CU_MEM_LOCATION_TYPE_HOST, 0});
	if (!found) return CUDA_ERROR_INVALID_VALUE;
	return enter(pool, v, on_host) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void gsh_pool_release(CUmemoryPool pool) {
	if (count_calls(pool, -1).flags & RETIRED) gsh_pools_freed();
}

/* Copies the item of a pool; false if the ledger has none. */
static bool find(CUmemoryPool pool, struct gsh_item *copy) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(POOL, (uint64_t)pool);
	if (i) *copy = *i;
	gsh_ledger_unlock();
	return i != NULL;
}

CUresult gsh_pool_hold(CUmemoryPool pool, struct gsh_vgpu **v, bool *on_host) {
	struct gsh_item item;
	CUresult r = find(pool, &item) ? CUDA_SUCCESS : enter_default(pool);
	if (r != CUDA_SUCCESS) return r;
	item = count_calls(pool, 1);
	*v = item.vgpu;
	*on_host = item.flags & ON_HOST;
	return r;
}

/* Returns all unused memory of a pool to the device. Reports whether the pool has none left. */
static bool drain(CUmemoryPool pool) {
	uint64_t nothing = 0, reserved = 1;
	CALL(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &nothing);
	CALL(cuMemPoolTrimTo, pool, 0);
	return !get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) || !reserved;
}

/* Makes the default pool current again on every device whose current pool this is, as its destruction would. */
static void replace_current(CUmemoryPool pool) {
	int devices = 0;
	CALL(cuDeviceGetCount, &devices);
	for (CUdevice d = 0; d < devices; d++) {
		CUmemoryPool now = NULL, own = NULL;
		if (CALL(cuDeviceGetMemPool, &now, d) == CUDA_SUCCESS && now == pool && CALL(cuDeviceGetDefaultMemPool, &own, d) == CUDA_SUCCESS)
			CALL(cuDeviceSetMemPool, d, own);
	}
}

/*
 * Keeps a pool until its last allocation is freed, and then destroys it. The driver would do the same, but no longer tell how much
 * memory the pool has, and give its handle to a new pool, from which a call under way would allocate. Returns false if the pool has no memory
 * and no calls, so that it may be destroyed at once.
 */
static bool retire(CUmemoryPool pool) {
	struct gsh_item item;
	if (!find(pool, &item) || (!item.other && drain(pool))) return false;
	replace_current(pool);
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(POOL, (uint64_t)pool);
	if (i) i->flags |= RETIRED;
	gsh_ledger_unlock();
	gsh_pool_refresh(pool);
	return true;
}

CUresult gsh_pool_destroy(CUmemoryPool pool, CUresult (*real)(CUmemoryPool)) {
	int cancel = gsh_pools_lock();
	CUresult r = retire(pool) ? CUDA_SUCCESS : GSH_FREE(POOL, pool, real(pool));
	gsh_pools_unlock(cancel);
	return r;
}

/* Destroys a retired pool once it has no memory left. */
static void destroy_retired(CUmemoryPool pool) {
	struct gsh_item item;
	if (!find(pool, &item) || !(item.flags & RETIRED) || item.other || !drain(pool) || !gsh_ledger_take(POOL, (uint64_t)pool, &item)) return;
	if (item.vgpu) gsh_memory_release(item.vgpu, item.bytes);
	CALL(cuMemPoolDestroy, pool);
}

uint64_t gsh_pool_growth(uint64_t bytes) { return bytes > MOST ? UINT64_MAX : (bytes + PIECE - 1) / PIECE * PIECE; }

/* Returns how much a pool keeps that is not in use, but for the rest of a piece. */
static uint64_t surplus_of(CUmemoryPool pool) {
	uint64_t used = 0, reserved = 0;
	if (!get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) || !get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved)) return 0;
	return reserved > used ? (reserved - used) / PIECE * PIECE : 0;
}

/* The driver notices only when it is asked that a stream has come to what was freed in its order. */
enum gsh_pool_state gsh_pool_trim(CUmemoryPool pool, CUstream s, const struct gsh_vgpu *v, uint64_t bytes) {
	struct gsh_item item;
	uint64_t surplus = 0;
	int cancel = gsh_pools_lock(), mode = gsh_capture_relax();
	if (find(pool, &item) && (surplus = surplus_of(pool))) {
		CALL(cuStreamQuery, s);
		CALL(cuMemPoolTrimTo, pool, 0);
		gsh_pool_refresh(pool);
	}
	gsh_capture_restore(mode);
	gsh_pools_unlock(cancel);
	uint64_t used = v ? gsh_memory_used(v) : 0, limit = v ? atomic_load(&v->server->memory_limit) : 0;
	return surplus && bytes <= limit && used - (used < surplus ? used : surplus) <= limit - bytes ? GSH_POOL_SURPLUS : GSH_POOL_FULL;
}

/*
 * Copies the lowest keys above a key of a kind's items, in ascending order, so that the driver can be called without the
 * ledger's lock. Returns how many; 0 if there are no more.
 */
static int list_keys(enum gsh_item_kind kind, uint64_t above, uint64_t keys[KEYS_MAX]) {
	int n = 0;
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i)) {
		if (i->kind != kind || i->key <= above || (n == KEYS_MAX && i->key > keys[n - 1])) continue;
		int at = n < KEYS_MAX ? n++ : n - 1;
		for (; at > 0 && keys[at - 1] > i->key; at--) keys[at] = keys[at - 1];
		keys[at] = i->key;
	}
	gsh_ledger_unlock();
	return n;
}

/* Calls a function with the key of an item, unless another thread has removed the item or ends it. Returns what it does. */
static bool check_item(enum gsh_item_kind kind, uint64_t key, bool (*check)(uint64_t key)) {
	int cancel = gsh_pools_lock();
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(kind, key);
	bool there = i && !(kind == FREEING && i->flags & ENDING);
	gsh_ledger_unlock();
	bool result = there && check(key);
	gsh_pools_unlock(cancel);
	return result;
}

/* Charges a pool with what it has reserved at present. */
static bool charge(uint64_t pool) {
	gsh_pool_refresh((CUmemoryPool)pool);
	return true;
}

bool gsh_pool_charge(CUmemoryPool pool) { return check_item(POOL, (uint64_t)pool, charge); }

/* Calls a function with the keys of a kind's items until it returns true. Reports whether it did. */
static bool any_key(enum gsh_item_kind kind, bool (*check)(uint64_t key)) {
	uint64_t keys[KEYS_MAX], above = 0;
	int n;
	do {
		n = list_keys(kind, above, keys);
		for (int i = 0; i < n; i++)
			if (check_item(kind, keys[i], check)) return true;
		if (n) above = keys[n - 1];
	} while (n == KEYS_MAX);
	return false;
}

/*
 * Releases memory that was freed in stream order, if the device has reached the event behind the free. Returns false, for
 * any_key to go on.
 */
static bool release_freed(uint64_t event) {
	struct gsh_item item;
	if (CALL(cuEventQuery, (CUevent)event) != CUDA_SUCCESS || !gsh_ledger_take(FREEING, event, &item)) return false;
	if (item.vgpu) gsh_memory_release(item.vgpu, item.bytes);
	CALL(cuEventDestroy_v2, (CUevent)event);
	return false;
}

/*
 * Charges a pool with what it has reserved at present, and destroys it if it is retired and has nothing left. Returns
 * false, like release_freed.
 */
static bool refresh(uint64_t pool) {
	gsh_pool_refresh((CUmemoryPool)pool);
	destroy_retired((CUmemoryPool)pool);
	return false;
}

void gsh_pools_refresh(void) {
	any_key(POOL, refresh);
	int mode = gsh_capture_relax();
	any_key(FREEING, release_freed);
	gsh_capture_restore(mode);
}

/* Reports whether a pool has reserved more than is in use, which it may return at a later synchronisation. */
static bool has_surplus(uint64_t pool) {
	uint64_t used, reserved;
	return get_attribute((CUmemoryPool)pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) &&
	       get_attribute((CUmemoryPool)pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved) && reserved > used;
}

/* Reports whether memory is being freed in stream order. */
static bool is_freeing(uint64_t event) { return event != 0; }

void gsh_pools_context_ending(const void *context, bool ending) {
	int cancel = gsh_pools_lock();
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); context && i; i = gsh_item_next(i))
		if (i->kind == FREEING && i->owner == context) i->flags = ending ? ENDING : 0;
	gsh_ledger_unlock();
	gsh_pools_unlock(cancel);
}

void gsh_pools_freed(void) { atomic_store(&freed, true); }

void gsh_pools_after_sync(void) {
	if (likely(!atomic_load_explicit(&freed, memory_order_relaxed)) || !atomic_exchange(&freed, false)) return;
	gsh_pools_refresh();
	if (any_key(POOL, has_surplus) || any_key(FREEING, is_freeing)) gsh_pools_freed();
}

void gsh_pools_after_fork(void) { pthread_mutex_init(&use, NULL); }
