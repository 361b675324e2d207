/* Arrays and mipmapped arrays. */
#include "memory.h"

/* CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR. */
struct array_desc {
	size_t width, height;
	int format;
	unsigned channels;
};
struct array_desc3 {
	size_t width, height, depth;
	int format;
	unsigned channels, flags;
};

/* Returns the bytes of a channel. */
static uint64_t format_bytes(int format)
{
	switch (format) {
	case 0x01: /* 8 bits */
	case 0x08:
		return 1;
	case 0x02: /* 16 bits */
	case 0x09:
	case 0x10:
		return 2;
	}
	return 4;
}

/* Returns the bytes of a block of 4 x 4 texels of the compressed formats BC1 to BC7; 0 for others. */
static uint64_t block_bytes(int format)
{
	if (format < 0x91 || format > 0x9e)
		return 0;
	return format <= 0x92 || format == 0x97 || format == 0x98 ? 8 : 16; /* BC1 and BC4 */
}

#define WITHOUT_MEMORY 0xc0u /* sparse, or mapped later: memory is mapped into it */

/* Returns the bytes of an array. */
static uint64_t bytes(const struct array_desc3 *d)
{
	uint64_t width = d->width, height = d->height ? d->height : 1, depth = d->depth ? d->depth : 1, compressed = block_bytes(d->format);
	uint64_t unit = compressed ? compressed : d->channels * format_bytes(d->format);
	if (d->flags & WITHOUT_MEMORY)
		return 0;
	if (compressed)
		width = (width + 3) / 4, height = (height + 3) / 4;
	unsigned __int128 size = (unsigned __int128)width * height;
	if (size > fake_memory || (size *= depth) > fake_memory || (size *= unit) > fake_memory)
		return UINT64_MAX; /* more than there is */
	return block_size((uint64_t)size);
}

/* Takes memory for an array and returns its handle. */
static CUresult create(struct block **array, uint64_t size)
{
	NEED_CONTEXT();
	if (!array)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > fake_memory || !fake_charge(fake_current->device, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*array = block_add(0x4000000000 + fake_next_id(), size, fake_current->device);
	(*array)->context = fake_current;
	return CUDA_SUCCESS;
}

/* Frees an array. */
static CUresult destroy(struct block *array)
{
	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	block_free(array);
	return CUDA_SUCCESS;
}

/* Version 1, whose descriptors have 32-bit sizes, creates nothing here. */
FN(cuArrayCreate, , 2000, struct block **array, const void *d) { ENTER(cuArrayCreate); (void)array, (void)d; return CUDA_ERROR_OUT_OF_MEMORY; }
FN(cuArray3DCreate, , 2000, struct block **array, const void *d)
{
	ENTER(cuArray3DCreate);
	(void)array, (void)d;
	return CUDA_ERROR_OUT_OF_MEMORY;
}

FN(cuArrayCreate, _v2, 3020, struct block **array, const struct array_desc *d)
{
	ENTER(cuArrayCreate_v2);
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	struct array_desc3 whole = {d->width, d->height, 0, d->format, d->channels, 0};
	return d->width ? create(array, bytes(&whole)) : CUDA_ERROR_INVALID_VALUE;
}

FN(cuArray3DCreate, _v2, 3020, struct block **array, const struct array_desc3 *d)
{
	ENTER(cuArray3DCreate_v2);
	return d && d->width ? create(array, bytes(d)) : CUDA_ERROR_INVALID_VALUE;
}

/* Returns the sum of two sizes, of which one may be UINT64_MAX. */
static uint64_t plus(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

FN(cuMipmappedArrayCreate, , 5000, struct block **array, const struct array_desc3 *d, unsigned levels)
{
	ENTER(cuMipmappedArrayCreate);
	if (!d || !d->width)
		return CUDA_ERROR_INVALID_VALUE;
	struct array_desc3 level = *d;
	uint64_t size = 0;
	if (!levels)
		levels = 1; /* as documented */
	for (unsigned i = 0; i < levels; i++) {
		size = plus(size, bytes(&level));
		level.width = level.width > 1 ? level.width / 2 : 1;
		level.height = level.height > 1 ? level.height / 2 : level.height;
		level.depth = level.depth > 1 ? level.depth / 2 : level.depth;
	}
	return create(array, size);
}

FN(cuArrayDestroy, , 2000, struct block *array) { ENTER(cuArrayDestroy); return destroy(array); }
FN(cuMipmappedArrayDestroy, , 5000, struct block *array) { ENTER(cuMipmappedArrayDestroy); return destroy(array); }

/* CUDA_ARRAY_MEMORY_REQUIREMENTS */
struct requirements {
	size_t size, alignment;
	unsigned reserved[4];
};

/* Stores an array's size. */
static CUresult requirements(struct requirements *r, struct block *array)
{
	if (!r || !array)
		return CUDA_ERROR_INVALID_VALUE;
	*r = (struct requirements){array->size, 512, {0}};
	return CUDA_SUCCESS;
}

FN(cuArrayGetMemoryRequirements, , 11060, struct requirements *r, struct block *array, CUdevice device)
{
	ENTER(cuArrayGetMemoryRequirements);
	(void)device;
	return requirements(r, array);
}
FN(cuMipmappedArrayGetMemoryRequirements, , 11060, struct requirements *r, struct block *array, CUdevice device)
{
	ENTER(cuMipmappedArrayGetMemoryRequirements);
	(void)device;
	return requirements(r, array);
}

/* CUtensorMap: which memory copies of tiles use, whose contents are not modelled. */
struct tensor_map {
	uint64_t opaque[16];
};
FN(cuTensorMapEncodeTiled, , 12000, struct tensor_map *map, int type, unsigned rank, void *address)
{
	ENTER(cuTensorMapEncodeTiled);
	(void)type, (void)rank;
	if (!map || !address)
		return CUDA_ERROR_INVALID_VALUE;
	*map = (struct tensor_map){{(uintptr_t)address}};
	return CUDA_SUCCESS;
}
