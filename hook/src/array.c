/*
 * The wrappers of arrays. The driver does not report their size, so it is computed from the descriptor, level by level for
 * mipmapped ones.
 */
#define _GNU_SOURCE
#include "reserve.h"

/* Bits of a texel of the CUarray_format values that have a fixed number of channels: {first value, last value, bits}. */
static const struct { int first, last; unsigned bits; } texels[] = {
	{0x50, 0x50, 32},                                                                  /* 10, 10, 10 and 2 bits */
	{0x91, 0x92, 4}, {0x93, 0x96, 8}, {0x97, 0x98, 4}, {0x99, 0x9e, 8},                /* block-compressed: BC1, 2-3, 4, 5-7 */
	{0x9f, 0xa1, 24}, {0xa2, 0xa2, 16}, {0xa3, 0xa4, 32}, {0xa5, 0xa5, 16},            /* P010, P016, NV16, P210, P216, YUY2 */
	{0xa6, 0xa9, 32}, {0xb0, 0xb0, 12}, {0xb1, 0xb1, 64}, {0xb2, 0xb2, 24}, {0xb3, 0xb3, 48}, /* Y210 to Y410, NV12, Y416, Y444 */
	{0xc0, 0xc0, 8}, {0xc1, 0xc1, 16}, {0xc2, 0xc2, 32}, {0xc3, 0xc3, 16}, {0xc4, 0xc4, 32}, {0xc5, 0xc5, 64}, /* unsigned, normalised */
	{0xc6, 0xc6, 8}, {0xc7, 0xc7, 16}, {0xc8, 0xc8, 32}, {0xc9, 0xc9, 16}, {0xca, 0xca, 32}, {0xcb, 0xcb, 64}, /* signed, normalised */
};

/* Returns the bits of a texel; 32 for each channel, which is an upper bound, where the format is not known. */
static uint64_t texel_bits(int format, uint64_t channels) {
	for (size_t i = 0; i < sizeof texels / sizeof texels[0]; i++)
		if (format >= texels[i].first && format <= texels[i].last) return texels[i].bits;
	switch (format) {
	case 0x01: /* unsigned 8 */
	case 0x08: /* signed 8 */
		return 8 * channels;
	case 0x02: /* unsigned 16 */
	case 0x09: /* signed 16 */
	case 0x10: /* half */
		return 16 * channels;
	default:
		return 32 * channels;
	}
}

/* Reports whether texels are stored in blocks of 4 x 4. */
static bool is_block_compressed(int format) { return format >= 0x91 && format <= 0x9e; }

/* Returns 1 for a dimension that is not used. */
static uint64_t at_least_1(uint64_t n) { return n ? n : 1; }

/* Returns the product, or UINT64_MAX if it overflows. */
static uint64_t times(uint64_t a, uint64_t b) {
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

#define LAYERED 1u          /* the depth is a number of layers, which is the same at every level */
#define CUBEMAP 4u          /* the depth is a number of faces, the same at every level */
#define SPARSE 0x40u        /* no memory of its own: mapped from memory that is charged when it is created */
#define DEFERRED_MAPPING 0x80u /* the same */

/* Returns the bytes of one mipmap level. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level) {
	unsigned depth_shift = d->Flags & (LAYERED | CUBEMAP) ? 0 : level;
	uint64_t width = at_least_1(d->Width >> level), height = at_least_1(d->Height >> level);
	if (is_block_compressed(d->Format)) {
		width = (width + 3) & ~3ull;
		height = (height + 3) & ~3ull;
	}
	uint64_t texels_of_level = times(times(width, height), at_least_1(d->Depth >> depth_shift));
	uint64_t bits = times(texels_of_level, texel_bits(d->Format, at_least_1(d->NumChannels)));
	return bits == UINT64_MAX ? bits : bits / 8 + (bits % 8 != 0);
}

/* Returns the bytes of all levels, UINT64_MAX on overflow, 0 without a descriptor. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	uint64_t sum = 0;
	if (!levels) levels = 1; /* as the driver does */
	if (d && d->Flags & (SPARSE | DEFERRED_MAPPING)) return 0;
	for (unsigned level = 0; d && level < levels && level < 32; level++)
		if (__builtin_add_overflow(sum, level_bytes(d, level), &sum)) return UINT64_MAX;
	return gsh_allocated_bytes(sum);
}

/* Version 1: a descriptor with 32-bit sizes. */
GSH_EXPORT CUresult cuArrayCreate(CUarray *a, const void *d) { return (void)a, (void)d, CUDA_ERROR_NOT_SUPPORTED; }
GSH_EXPORT CUresult cuArray3DCreate(CUarray *a, const void *d) { return (void)a, (void)d, CUDA_ERROR_NOT_SUPPORTED; }

GSH_EXPORT CUresult cuArrayCreate_v2(CUarray *a, const CUDA_ARRAY_DESCRIPTOR *d) {
	NEED(cuArrayCreate_v2);
	struct gsh_reservation h;
	CUDA_ARRAY3D_DESCRIPTOR flat = {0};
	if (d) flat = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
	CUDA_ARRAY_DESCRIPTOR own = {flat.Width, flat.Height, flat.Format, flat.NumChannels};
	uint64_t bytes = d ? array_bytes(&flat, 1) : 0;
	CUresult r = gsh_reserve(&h, BY_cuArrayCreate_v2, 0, bytes);
	if (r != CUDA_SUCCESS) return r;
	CUarray created = NULL;
	r = real(a ? &created : NULL, d ? &own : NULL);
	if (r == CUDA_SUCCESS) *a = created;
	return gsh_reserve_commit(&h, r, ARRAY, (uint64_t)created, bytes);
}

GSH_EXPORT CUresult cuArray3DCreate_v2(CUarray *a, const CUDA_ARRAY3D_DESCRIPTOR *d) {
	NEED(cuArray3DCreate_v2);
	struct gsh_reservation h;
	CUDA_ARRAY3D_DESCRIPTOR own = d ? *d : (CUDA_ARRAY3D_DESCRIPTOR){0};
	uint64_t bytes = d ? array_bytes(&own, 1) : 0;
	CUresult r = gsh_reserve(&h, BY_cuArray3DCreate_v2, 0, bytes);
	if (r != CUDA_SUCCESS) return r;
	CUarray created = NULL;
	r = real(a ? &created : NULL, d ? &own : NULL);
	if (r == CUDA_SUCCESS) *a = created;
	return gsh_reserve_commit(&h, r, ARRAY, (uint64_t)created, bytes);
}

GSH_EXPORT CUresult cuArrayDestroy(CUarray a) {
	NEED(cuArrayDestroy);
	return GSH_FREE(ARRAY, a, real(a));
}

GSH_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *a, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	NEED(cuMipmappedArrayCreate);
	struct gsh_reservation h;
	CUDA_ARRAY3D_DESCRIPTOR own = d ? *d : (CUDA_ARRAY3D_DESCRIPTOR){0};
	uint64_t bytes = d ? array_bytes(&own, levels) : 0;
	CUresult r = gsh_reserve(&h, BY_cuMipmappedArrayCreate, 0, bytes);
	if (r != CUDA_SUCCESS) return r;
	CUmipmappedArray created = NULL;
	r = real(a ? &created : NULL, d ? &own : NULL, levels);
	if (r == CUDA_SUCCESS) *a = created;
	return gsh_reserve_commit(&h, r, MIPMAP, (uint64_t)created, bytes);
}

GSH_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray a) {
	NEED(cuMipmappedArrayDestroy);
	return GSH_FREE(MIPMAP, a, real(a));
}
