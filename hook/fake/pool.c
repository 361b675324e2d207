/* Memory pools: they reserve in pieces and keep freed memory until a synchronisation, up to their release threshold. */
#include "account.h"
#include "memory.h"

#include <stdlib.h>

#define RESERVE (32ull << 20)

CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventQuery(CUevent event);

static struct pool defaults[DEVICES_MAX];  /* the default pools */
static struct pool *current[DEVICES_MAX]; /* the pools set by cuDeviceSetMemPool; NULL: the default */
static struct pool *made[256]; /* created pools; guarded by pools */
static struct pool *ended;     /* destroyed ones, the last one first, whose handles are used again; guarded by pools */
static pthread_mutex_t pools = PTHREAD_MUTEX_INITIALIZER;

static unsigned long stale; /* calls of cuMemPoolGetAttribute with a destroyed pool */

unsigned long fakecuda_stale_pools(void) { return __atomic_load_n(&stale, __ATOMIC_RELAXED); }

/* Returns a device's default pool. */
static struct pool *default_pool(CUdevice device)
{
	defaults[device].device = device;
	return &defaults[device];
}

/* Returns the pool from which a device allocates. */
static struct pool *device_pool(CUdevice device) { return current[device] ? current[device] : default_pool(device); }

/* Takes memory of a pool, which grows if needed. Returns 0 if there is not enough. */
static int pool_reserve(struct pool *pool, uint64_t size)
{
	pthread_mutex_lock(&pools);
	uint64_t need = ROUND(pool->used + pool->unusable + size, RESERVE);
	int fits = size <= fake_memory && (need <= pool->reserved || pool->on_host || fake_charge(pool->device, need - pool->reserved));
	if (fits) {
		pool->used += size;
		if (need > pool->reserved)
			pool->reserved = need;
		if (pool->used > pool->used_high)
			pool->used_high = pool->used;
		if (pool->reserved > pool->reserved_high)
			pool->reserved_high = pool->reserved;
	}
	pthread_mutex_unlock(&pools);
	return fits;
}

/* Returns unused memory to the device, but for `keep` bytes; pools are locked. */
static void trim(struct pool *pool, uint64_t keep)
{
	pool->unusable = 0;
	uint64_t need = ROUND(pool->used, RESERVE);
	if (need < keep)
		need = keep;
	if (need >= pool->reserved)
		return;
	if (!pool->on_host)
		fake_refund(pool->device, pool->reserved - need);
	pool->reserved = need;
}

void pool_release(struct pool *pool, uint64_t size)
{
	pthread_mutex_lock(&pools);
	pool->used -= size;
	if (pool->no_reuse)
		pool->unusable += size;
	if (pool->destroyed)
		trim(pool, 0);
	pthread_mutex_unlock(&pools);
}

void fake_pools_trim(CUdevice device)
{
	pthread_mutex_lock(&pools);
	trim(default_pool(device), defaults[device].threshold);
	for (int i = 0; i < 256; i++)
		if (made[i] && made[i]->device == device)
			trim(made[i], made[i]->threshold);
	pthread_mutex_unlock(&pools);
}

/* The beginning of CUmemPoolProps; the rest is ignored. */
struct pool_props {
	int type, handles, location_type, location_id;
};

FN(cuMemPoolCreate, , 11020, struct pool **pool, const struct pool_props *props)
{
	ENTER(cuMemPoolCreate);
	int on_host = props && props->location_type >= 2;
	if (!pool || !props || (!on_host && (props->location_id < 0 || props->location_id >= fake_devices)))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pools);
	struct pool *again = ended && !ended->used ? ended : NULL;
	if (again)
		ended = again->next;
	*pool = again ? again : calloc(1, sizeof **pool);
	**pool = (struct pool){.device = on_host ? 0 : props->location_id, .on_host = on_host};
	for (int i = 0; i < 256; i++)
		if (!made[i]) {
			made[i] = *pool;
			break;
		}
	pthread_mutex_unlock(&pools);
	fake_returning(NULL); /* another thread may act before */
	return CUDA_SUCCESS;
}

FN(cuMemPoolDestroy, , 11020, struct pool *pool)
{
	ENTER(cuMemPoolDestroy);
	if (!pool || pool == &defaults[pool->device])
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pools);
	for (int i = 0; i < 256; i++)
		if (made[i] == pool)
			made[i] = NULL;
	if (current[pool->device] == pool)
		current[pool->device] = NULL;
	if (!pool->destroyed) {
		pool->next = ended;
		ended = pool;
	}
	pool->destroyed = 1; /* it may still have blocks */
	trim(pool, 0);
	pthread_mutex_unlock(&pools);
	return CUDA_SUCCESS;
}

/* Returns the field of a CUmemPool_attribute, or NULL. */
static uint64_t *attribute_of(struct pool *pool, int attribute)
{
	switch (attribute) {
	case 4:
		return &pool->threshold;
	case 5:
		return &pool->reserved;
	case 6:
		return &pool->reserved_high;
	case 7:
		return &pool->used;
	case 8:
		return &pool->used_high;
	}
	return NULL;
}

FN(cuMemPoolGetAttribute, , 11020, struct pool *pool, int attribute, void *value)
{
	ENTER(cuMemPoolGetAttribute);
	AT_RETURN();
	if (pool->destroyed)
		__atomic_fetch_add(&stale, 1, __ATOMIC_RELAXED);
	uint64_t *from = attribute_of(pool, attribute);
	if (from)
		*(uint64_t *)value = *from;
	else
		*(int *)value = 1; /* the reuse policies */
	return CUDA_SUCCESS;
}

FN(cuMemPoolSetAttribute, , 11020, struct pool *pool, int attribute, void *value)
{
	ENTER(cuMemPoolSetAttribute);
	uint64_t *to = attribute_of(pool, attribute);
	if (attribute == 2)
		pool->no_reuse = !*(int *)value;
	else if (attribute == 4)
		*to = *(uint64_t *)value;
	else if (to)
		*to = 0; /* the high marks are reset */
	return CUDA_SUCCESS;
}

FN(cuMemPoolTrimTo, , 11020, struct pool *pool, size_t keep)
{
	ENTER(cuMemPoolTrimTo);
	pthread_mutex_lock(&pools);
	trim(pool, keep);
	pthread_mutex_unlock(&pools);
	return CUDA_SUCCESS;
}

STUB(cuMemPoolSetAccess, , 11020, struct pool *pool __attribute__((unused)), const void *map __attribute__((unused)),
     size_t count __attribute__((unused)))

FN(cuDeviceGetDefaultMemPool, , 11020, struct pool **pool, CUdevice device)
{
	ENTER(cuDeviceGetDefaultMemPool);
	if (!pool || device < 0 || device >= fake_devices)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = default_pool(device);
	return CUDA_SUCCESS;
}

/* CUmemLocation. */
struct location {
	int type, id;
};

static struct pool managed[DEVICES_MAX + 1], of_host = {.on_host = 1}; /* default pools; the last managed one is of no device */

/* Only pinned memory of devices and hosts, and managed memory of devices and of no location, are modelled. */
FN(cuMemGetDefaultMemPool, , 13000, struct pool **pool, struct location *location, int type)
{
	ENTER(cuMemGetDefaultMemPool);
	if (!pool || !location || location->type < 0 || location->type > 2 || (location->type == 1 && (location->id < 0 || location->id >= fake_devices)))
		return CUDA_ERROR_INVALID_VALUE;
	CUdevice device = location->type == 1 ? location->id : 0;
	struct pool *of_type = &managed[location->type == 1 ? device : DEVICES_MAX];
	of_type->device = device;
	if (type == 2 && location->type != 2)
		*pool = of_type;
	else if (type == 1 && location->type)
		*pool = location->type == 1 ? default_pool(device) : &of_host;
	else
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

FN(cuDeviceGetMemPool, , 11020, struct pool **pool, CUdevice device)
{
	ENTER(cuDeviceGetMemPool);
	AT_RETURN();
	if (!pool || device < 0 || device >= fake_devices)
		return CUDA_ERROR_INVALID_VALUE;
	*pool = device_pool(device);
	return CUDA_SUCCESS;
}

FN(cuDeviceSetMemPool, , 11020, CUdevice device, struct pool *pool)
{
	ENTER(cuDeviceSetMemPool);
	if (!pool || device < 0 || device >= fake_devices)
		return CUDA_ERROR_INVALID_VALUE;
	current[device] = pool;
	return CUDA_SUCCESS;
}

/* An imported pool has only the pointers that are imported into it. */
FN(cuMemPoolImportFromShareableHandle, , 11020, struct pool **pool, void *handle, int type, unsigned long long flags)
{
	ENTER(cuMemPoolImportFromShareableHandle);
	(void)handle, (void)type, (void)flags;
	*pool = calloc(1, sizeof **pool);
	return CUDA_SUCCESS;
}

FN(cuMemPoolExportPointer, , 11020, struct peer_memory *data, CUdeviceptr address)
{
	ENTER(cuMemPoolExportPointer);
	struct block *block = block_find(address);
	if (!data || !block || !block->pool)
		return CUDA_ERROR_INVALID_VALUE;
	return block_offer(block, data);
}

FN(cuMemPoolImportPointer, , 11020, CUdeviceptr *address, struct pool *pool, const struct peer_memory *data)
{
	ENTER(cuMemPoolImportPointer);
	if (!address || !pool || !data)
		return CUDA_ERROR_INVALID_VALUE;
	struct block *block = block_take(data);
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	*address = block->key;
	return CUDA_SUCCESS;
}

/* Allocates from a pool, or appends a node to a capture. */
static CUresult allocate(CUdeviceptr *address, size_t size, struct pool *pool, struct stream *stream)
{
	if (!address || !size || !pool)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	if (fake_capture(stream)) {
		struct graph_node node = fake_alloc_node(size, pool->device);
		if (fake_capture_node(stream, &node)) {
			*address = node.address;
			return CUDA_SUCCESS;
		}
	}
	if (pool->destroyed)
		return CUDA_ERROR_INVALID_VALUE;
	size = ROUND(size, 512);
	if (!pool_reserve(pool, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = block_new_address(size);
	struct block *block = block_add(*address, size, pool->device);
	block->pool = pool;
	block->length = size;
	return CUDA_SUCCESS;
}

FN(cuMemAllocAsync, , 11020, CUdeviceptr *address, size_t size, CUstream handle)
{
	ENTER(cuMemAllocAsync);
	NEED_STREAM(stream, handle);
	return allocate(address, size, device_pool(stream->context->device), stream);
}
TWIN(cuMemAllocAsync, , _ptsz, 11020, (CUdeviceptr *p, size_t n, CUstream s), (p, n, PER_THREAD(s)))

FN(cuMemAllocFromPoolAsync, , 11020, CUdeviceptr *address, size_t size, struct pool *pool, CUstream handle)
{
	ENTER(cuMemAllocFromPoolAsync);
	fake_returning(NULL); /* another thread may act before */
	NEED_STREAM(stream, handle);
	return allocate(address, size, pool, stream);
}
TWIN(cuMemAllocFromPoolAsync, , _ptsz, 11020, (CUdeviceptr *p, size_t n, struct pool *pool, CUstream s), (p, n, pool, PER_THREAD(s)))

/* Memory that is freed when its stream has come to an event. */
static struct freed {
	struct freed *next;
	struct event *event;
	CUdeviceptr address;
} *freed; /* guarded by pools */

void fake_free_reached(void)
{
	pthread_mutex_lock(&pools);
	for (struct freed **at = &freed; *at;) {
		struct freed *f = *at;
		if (cuEventQuery(f->event) != CUDA_SUCCESS) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		block_free(block_find(f->address));
		free(f);
	}
	pthread_mutex_unlock(&pools);
}

FN(cuMemFreeAsync, , 11020, CUdeviceptr address, CUstream handle)
{
	ENTER(cuMemFreeAsync);
	NEED_STREAM(stream, handle);
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	if (fake_capture_node(stream, &(struct graph_node){.type = NODE_FREE, .address = address}))
		return CUDA_SUCCESS;
	struct block *block = block_find(address);
	if (!block || block->pool || block->of_graph || !fake_simulated)
		return cuMemFree_v2(address);
	struct context *was = fake_current;
	struct event *event = NULL;
	fake_current = stream->context;
	CUresult result = cuEventCreate(&event, 2);
	fake_current = was;
	if (result || (result = cuEventRecord(event, handle)))
		return result;
	pthread_mutex_lock(&pools);
	struct freed *f = calloc(1, sizeof *f);
	*f = (struct freed){freed, event, address};
	freed = f;
	pthread_mutex_unlock(&pools);
	return CUDA_SUCCESS;
}
TWIN(cuMemFreeAsync, , _ptsz, 11020, (CUdeviceptr p, CUstream s), (p, PER_THREAD(s)))
