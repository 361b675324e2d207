/*
 * What the hook gates besides kernels: memsets, copies within device memory or between devices, and prefetches. They fill the
 * SMs or the memory bandwidth that kernels need. Copies between host and device run on a copy engine beside kernels, at a
 * fiftieth of the memory bandwidth, so these are left alone.
 */
#ifndef GSHARE_COPY_H
#define GSHARE_COPY_H

#include "symbols.h"

/* A kind of copy. */
enum gsh_copy { GSH_MEMSET = 1, GSH_DEVICE_COPY, GSH_ANY_COPY, GSH_PEER_COPY, GSH_PREFETCH, GSH_DISCARD, GSH_DECOMPRESS };

/* The bytes that count as one thread block. An operation of a batch counts as this many where its size is not known. */
#define GSH_COPY_BLOCK 65536u

/*
 * Returns the key under which the cost of a copy is learned, one for each kind and power of two of bytes. Keys are below the
 * address of any function. NULL for a copy of no bytes, which is not gated.
 */
static inline const void *gsh_copy_key(enum gsh_copy kind, uint64_t bytes) {
	return bytes ? (const void *)(uintptr_t)((uint64_t)kind << 6 | (63 - (uint64_t)__builtin_clzll(bytes))) : NULL;
}

/* Returns the thread blocks that a copy counts as, where tokens are thread blocks. */
static inline uint64_t gsh_copy_blocks(uint64_t bytes) { return 1 + bytes / GSH_COPY_BLOCK; }

/* Returns the bytes of a copy of rows; 0 if it is from or to host memory, or NULL. */
static inline uint64_t gsh_copy_rows(const CUDA_MEMCPY2D *c) {
	if (!c || c->srcMemoryType == CU_MEMORYTYPE_HOST || c->dstMemoryType == CU_MEMORYTYPE_HOST) return 0;
	return (uint64_t)c->WidthInBytes * c->Height;
}

/* Returns the bytes of a copy of layers; 0 if it is from or to host memory, or NULL. */
static inline uint64_t gsh_copy_layers(const CUDA_MEMCPY3D *c) {
	if (!c || c->srcMemoryType == CU_MEMORYTYPE_HOST || c->dstMemoryType == CU_MEMORYTYPE_HOST) return 0;
	return (uint64_t)c->WidthInBytes * c->Height * c->Depth;
}

/* Returns the sum of n sizes; 0 if there are none. */
static inline uint64_t gsh_copy_sum(const size_t *sizes, size_t n) {
	uint64_t sum = 0;
	for (size_t i = 0; sizes && i < n; i++) sum += sizes[i];
	return sum;
}

#endif
