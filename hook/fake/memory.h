/* One table of everything that takes device memory, by address or handle. */
#ifndef GSHARE_FAKE_MEMORY_H
#define GSHARE_FAKE_MEMORY_H

#include "fake.h"

struct pool {
	CUdevice device;
	uint64_t used, used_high, reserved, reserved_high, threshold;
	int destroyed;
};

struct block {
	struct block *next;
	uint64_t key; /* address or handle */
	uint64_t size;
	CUdevice device;
	struct pool *pool; /* NULL: not from a pool */
	struct block *backs; /* a mapping: the physical memory under it */
	int references;
};

struct block *block_add(uint64_t key, uint64_t size, CUdevice device);
struct block *block_find(uint64_t key);   /* exact key */
struct block *block_around(uint64_t key); /* the block that the address lies in */
void block_remove(struct block *block);
uint64_t block_address(uint64_t size); /* a fresh one */

CUresult cuMemFree_v2(CUdeviceptr address);
void pool_give(struct pool *pool, uint64_t size);

#define CHUNK (2ull << 20)
#define ROUND(size, unit) (((size) + (unit)-1) / (unit) * (unit))

#endif
