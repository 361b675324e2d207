/* The table of all device memory, by address or handle. */
#ifndef GSHARE_FAKE_MEMORY_H
#define GSHARE_FAKE_MEMORY_H

#include "fake.h"

/* A memory pool; sizes in bytes. */
struct pool {
	CUdevice device;
	uint64_t used, used_high, reserved, reserved_high, threshold;
	int destroyed;
	int on_host; /* takes no memory of the device */
};

/* One allocation, handle or mapping. */
struct block {
	struct block *next;
	uint64_t key; /* address or handle */
	uint64_t size;
	CUdevice device;
	struct pool *pool; /* that it was allocated from, or NULL */
	struct block *backs; /* of a mapping: its physical memory */
	struct context *context; /* whose end frees it; NULL: no context's does */
	const void *module; /* whose variables it has */
	uint64_t shared;         /* number of its entry in account.c if other processes may have it too; 0: none may */
	uint64_t range; /* bytes at an address whose memory is another process's */
	uint64_t managed; /* bytes of managed memory, which is on the host until it is prefetched */
	int references;
};

struct block *block_add(uint64_t key, uint64_t size, CUdevice device); /* enters a block with one reference */
struct block *block_find(uint64_t key);   /* returns the block with this key, or NULL */
struct block *block_containing(uint64_t key); /* returns the block that contains the address, or NULL */
struct block *block_of(struct context *context, const void *module, uint64_t shared); /* returns a block with these; NULL or 0: any */
void block_remove(struct block *block);
void block_free(struct block *block); /* removes a block and gives its memory back, unless other processes still have it */
struct block *block_share(uint64_t key, uint64_t shared, CUdevice device); /* enters memory of another process with no size of its own */
uint64_t block_size(uint64_t size); /* returns what an allocation takes: blocks of 512 bytes, of 2 MiB from 1 MiB on */
uint64_t block_new_address(uint64_t size); /* returns an address that was never used */

CUresult cuMemFree_v2(CUdeviceptr address);
void pool_release(struct pool *pool, uint64_t size);

#define CHUNK (2ull << 20)
#define ROUND(size, unit) (((size) + (unit)-1) / (unit) * (unit))

#endif
