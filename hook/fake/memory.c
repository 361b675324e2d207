/* Device memory and plain allocations. The contents are in contents.c. */
#define _GNU_SOURCE
#include "memory.h"

#include "account.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUCKETS 4096
static struct block *blocks[BUCKETS]; /* hash table, guarded by table */
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static uint64_t used[DEVICES_MAX]; /* bytes, of this process */
static uint64_t most_used[DEVICES_MAX]; /* the most that it has had */

int fake_charge(CUdevice device, uint64_t size)
{
	uint64_t now = __atomic_load_n(&used[device], __ATOMIC_RELAXED);
	uint64_t most = fake_mps_memory < fake_memory ? fake_mps_memory : fake_memory; /* of this process */
	do {
		if (size > most || now > most - size)
			return 0;
	} while (!__atomic_compare_exchange_n(&used[device], &now, now + size, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	if (account_add(fake_gpu(device), size, fake_memory)) {
		uint64_t most_before = __atomic_load_n(&most_used[device], __ATOMIC_RELAXED);
		while (now + size > most_before &&
		       !__atomic_compare_exchange_n(&most_used[device], &most_before, now + size, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			;
		return 1;
	}
	__atomic_sub_fetch(&used[device], size, __ATOMIC_RELAXED);
	return 0;
}

void fake_refund(CUdevice device, uint64_t size)
{
	__atomic_sub_fetch(&used[device], size, __ATOMIC_RELAXED);
	account_subtract(fake_gpu(device), size);
}

uint64_t fakecuda_used_by_all(CUdevice device) { return account_used(fake_gpu(device), fake_used(device)); }
uint64_t fakecuda_most_used(CUdevice device) { return __atomic_load_n(&most_used[device], __ATOMIC_RELAXED); }
uint64_t fake_used(CUdevice device) { return __atomic_load_n(&used[device], __ATOMIC_RELAXED); }

/* Returns the list of blocks that may have this key. */
static struct block **bucket(uint64_t key) { return &blocks[(key >> 9 ^ key) % BUCKETS]; }

struct block *block_add(uint64_t key, uint64_t size, CUdevice device)
{
	struct block *block = calloc(1, sizeof *block);
	*block = (struct block){.key = key, .size = size, .device = device, .references = 1, .file = -1};
	pthread_mutex_lock(&table);
	block->next = *bucket(key);
	*bucket(key) = block;
	pthread_mutex_unlock(&table);
	return block;
}

struct block *block_find(uint64_t key)
{
	pthread_mutex_lock(&table);
	struct block *block = *bucket(key);
	while (block && block->key != key)
		block = block->next;
	pthread_mutex_unlock(&table);
	return block;
}

struct block *block_containing(uint64_t key)
{
	struct block *found = NULL;
	pthread_mutex_lock(&table);
	for (int i = 0; i < BUCKETS && !found; i++)
		for (struct block *b = blocks[i]; b && !found; b = b->next)
			if (key >= b->key && key - b->key < b->length)
				found = b;
	pthread_mutex_unlock(&table);
	return found;
}

void block_remove(struct block *block)
{
	pthread_mutex_lock(&table);
	struct block **at = bucket(block->key);
	while (*at != block)
		at = &(*at)->next;
	*at = block->next;
	pthread_mutex_unlock(&table);
	if (block->bytes)
		munmap(block->bytes, block->length);
	if (block->file >= 0)
		close(block->file);
	free(block);
}

void block_free(struct block *block)
{
	if (block->size)
		fake_refund(block->device, block->size);
	if (block->size)
		account_disown(block->shared);
	else
		account_close(block->shared);
	block_remove(block);
}

struct block *block_share(uint64_t key, uint64_t shared, CUdevice device)
{
	struct block *block = block_add(key, 0, device);
	block->shared = shared;
	account_open(shared);
	return block;
}

struct block *block_of(struct context *context, const void *module, uint64_t shared)
{
	struct block *found = NULL;
	pthread_mutex_lock(&table);
	for (int i = 0; i < BUCKETS && !found; i++)
		for (struct block *b = blocks[i]; b && !found; b = b->next)
			if ((!context || b->context == context) && (!module || b->module == module) &&
			    (!shared || (b->shared == shared && b->imported)))
				found = b;
	pthread_mutex_unlock(&table);
	return found;
}

void fake_context_ended(struct context *context)
{
	for (struct block *block; (block = block_of(context, NULL, 0));)
		block_free(block);
	for (int i = 0; i < 3; i++)
		fake_refund(context->device, context->limits[i]);
	memset(context->limits, 0, sizeof context->limits);
}

void fake_context_hand_on(struct context *from, struct context *to)
{
	for (struct block *block; (block = block_of(from, NULL, 0));)
		block->context = to;
}

uint64_t block_new_address(uint64_t size)
{
	static uint64_t next = FIRST_ADDRESS;
	return __atomic_fetch_add(&next, ROUND(size, CHUNK) + CHUNK, __ATOMIC_RELAXED);
}

uint64_t block_size(uint64_t size) { return size < 1 << 20 ? ROUND(size, 512) : ROUND(size, CHUNK); }

/* Allocates. */
static CUresult allocate(CUdeviceptr *address, uint64_t size)
{
	NEED_CONTEXT();
	if (!address || !size)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult refused = fake_checks ? fake_check_unsafe() : CUDA_SUCCESS;
	if (refused)
		return refused;
	if (fake_simulated)
		fake_free_reached();
	if (size > fake_memory || !fake_charge(fake_current->device, block_size(size)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*address = block_new_address(size);
	struct block *block = block_add(*address, block_size(size), fake_current->device);
	block->context = fake_current;
	block->length = size;
	return CUDA_SUCCESS;
}

/* Frees an address, possibly of a pool. */
static CUresult release(CUdeviceptr address)
{
	if (!address)
		return CUDA_SUCCESS;
	struct block *block = block_find(address);
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	if (block->of_graph) {
		fake_returning(NULL); /* another thread may act before */
		if (!block->used)
			return CUDA_ERROR_INVALID_VALUE;
		block->used = 0;
		fake_graph_memory_freed(block->device, block->length);
		return CUDA_SUCCESS;
	}
	if (!block->pool) {
		block_free(block);
		return CUDA_SUCCESS;
	}
	pool_release(block->pool, block->size);
	account_disown(block->shared);
	block_remove(block);
	return CUDA_SUCCESS;
}

FN(cuMemAlloc, _v2, 3020, CUdeviceptr *p, size_t size) { ENTER(cuMemAlloc_v2); return allocate(p, size); }
FN(cuMemFree, _v2, 3020, CUdeviceptr p) { ENTER(cuMemFree_v2); return release(p); }

FN(cuMemAllocPitch, _v2, 3020, CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element)
{
	ENTER(cuMemAllocPitch_v2);
	(void)element;
	if (!pitch)
		return CUDA_ERROR_INVALID_VALUE;
	if (width > fake_memory || height > fake_memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*pitch = ROUND(width, 512);
	return allocate(p, *pitch * height);
}

/* More managed memory may be used than the device has: what does not fit stays on the host. */
void block_populate(struct block *block, CUdevice device)
{
	if (!block->managed || block->size || block->managed > fake_memory || !fake_charge(device, block_size(block->managed)))
		return;
	block->size = block_size(block->managed);
	block->device = device;
}

/* Allocates address space: devices of this compute capability (attribute 89) take memory where it is first touched. */
FN(cuMemAllocManaged, , 6000, CUdeviceptr *p, size_t size, unsigned flags)
{
	ENTER(cuMemAllocManaged);
	(void)flags;
	NEED_CONTEXT();
	if (!p || !size)
		return CUDA_ERROR_INVALID_VALUE;
	void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (bytes == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*p = (CUdeviceptr)(uintptr_t)bytes; /* the host uses it, too */
	struct block *block = block_add(*p, 0, fake_current->device);
	block->context = fake_current;
	block->managed = block->length = size;
	block->bytes = bytes;
	fake_has_managed();
	return CUDA_SUCCESS;
}

/* Version 1 of these calls has 32-bit sizes and addresses, and allocates nothing here. */
FN(cuMemAlloc, , 2000, unsigned *p, unsigned size) { ENTER(cuMemAlloc); (void)p, (void)size; return CUDA_ERROR_OUT_OF_MEMORY; }
FN(cuMemAllocPitch, , 2000, unsigned *p, unsigned *pitch, unsigned width, unsigned height, unsigned element)
{
	ENTER(cuMemAllocPitch);
	(void)p, (void)pitch, (void)width, (void)height, (void)element;
	return CUDA_ERROR_OUT_OF_MEMORY;
}
FN(cuMemFree, , 2000, unsigned p) { ENTER(cuMemFree); return p ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS; }
FN(cuMemGetInfo, , 2000, unsigned *left, unsigned *total)
{
	ENTER(cuMemGetInfo);
	*left = *total = (unsigned)(fake_memory > 0xffffffffu ? 0xffffffffu : fake_memory);
	return CUDA_SUCCESS;
}

FN(cuMemGetInfo, _v2, 3020, size_t *left, size_t *total)
{
	ENTER(cuMemGetInfo_v2);
	NEED_CONTEXT();
	fake_drop_closed();
	if (left)
		*left = fake_memory - account_used(fake_gpu(fake_current->device), fake_used(fake_current->device));
	if (total)
		*total = fake_memory;
	return CUDA_SUCCESS;
}

FN(cuMemGetAddressRange, _v2, 3020, CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
	ENTER(cuMemGetAddressRange_v2);
	struct block *block = block_containing(address);
	if (!block)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = block->key;
	if (size)
		*size = block->length;
	return CUDA_SUCCESS;
}
