/* The table of all device memory, by address or handle. */
#ifndef GSHARE_FAKE_MEMORY_H
#define GSHARE_FAKE_MEMORY_H

#include "fake.h"

/* A memory pool; sizes in bytes. */
struct pool {
	struct pool *next; /* destroyed before */
	CUdevice device;
	uint64_t used, used_high, reserved, reserved_high, threshold;
	int destroyed;
	int on_host; /* takes no memory of the device */
	int no_reuse;      /* what is freed is not allocated again before the pool is trimmed, as if each allocation had another stream */
	uint64_t unusable; /* bytes freed since then, if so */
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
	int imported;    /* its memory is another process's */
	int of_graph, used; /* it is what a memory node allocates; whether a launch has, and nothing has freed it */
	int handles;     /* of its references, those that cuMemRelease ends */
	uint64_t length; /* bytes at an address or behind a handle */
	uint64_t offset; /* of a mapping, into its physical memory */
	int access;      /* of a mapping: CUmemAccess_flags */
	unsigned char *bytes; /* its contents, once anything has touched them */
	int file;             /* that has the contents, if other processes may have them; -1: none */
	uint64_t managed; /* bytes of managed memory, which is on the host until a device touches it or it is prefetched */
	int references;
	int exported;                /* whether one of the references is that of exported descriptors */
	struct block *next_exported; /* of the list of such blocks in vmm.c */
};

struct block *block_add(uint64_t key, uint64_t size, CUdevice device); /* enters a block with one reference */
struct block *block_find(uint64_t key);   /* returns the block with this key, or NULL */
struct block *block_containing(uint64_t key); /* returns the block that contains the address, or NULL */
struct block *block_of(struct context *context, const void *module, uint64_t shared); /* returns a block with these; NULL or 0: any */
void block_remove(struct block *block);
void block_populate(struct block *block, CUdevice device); /* moves managed memory to a device, all of a block at once */
unsigned char *block_contents(struct block *block); /* returns the contents, all zeros before the first use; NULL without memory */
void fake_has_managed(void); /* tells contents.c that addresses may be those of the host, too */
int block_file(struct block *block); /* returns the file that has the contents for other processes, or -1 */
void block_free(struct block *block); /* removes a block and gives its memory back, unless other processes still have it */
struct block *block_share(uint64_t key, uint64_t shared, CUdevice device); /* enters memory of another process with no size of its own */
uint64_t block_size(uint64_t size); /* returns what an allocation takes: blocks of 512 bytes, of 2 MiB from 1 MiB on */
uint64_t block_new_address(uint64_t size); /* returns an address that was never used */
#define FIRST_ADDRESS (1ull << 48) /* behind all addresses that a process's own memory has */

/*
 * CUipcMemHandle and CUmemPoolPtrExportData: names memory of a process for others, which take its contents from /proc. With pid 0, as tests
 * make one up, the contents are no other process's.
 */
struct peer_memory {
	uint64_t shared, size, device, pid, file, inode, rest[2];
};
CUresult block_offer(struct block *block, struct peer_memory *memory); /* names the memory of a block */
struct block *block_take(const struct peer_memory *memory); /* enters such memory at a new address; NULL if its process has ended */

void fake_drop_closed(void); /* frees exported memory whose descriptors have been closed everywhere */
CUresult cuMemFree_v2(CUdeviceptr address);
void pool_release(struct pool *pool, uint64_t size);

#define PAGE 4096u
#define CHUNK (2ull << 20)
#define ROUND(size, unit) (((size) + (unit)-1) / (unit) * (unit))

#endif
