/*
 * The wrappers of arrays. The driver does not report their size, so it is computed from the descriptor, level by level for
 * mipmapped ones.
 */
#define _GNU_SOURCE
#include "reserve.h"

/* Returns the bytes of one channel of a CUarray_format; for block-compressed and planar formats an upper bound. */
static uint64_t channel_bytes(int format) {
	switch (format) {
	case 0x01: /* unsigned 8 */
	case 0x08: /* signed 8 */
		return 1;
	case 0x02: /* unsigned 16 */
	case 0x09: /* signed 16 */
	case 0x10: /* half */
		return 2;
	default:
		return 4;
	}
}

/* Returns 1 for a dimension that is not used. */
static uint64_t at_least_1(uint64_t n) { return n ? n : 1; }

/* Returns the product, or UINT64_MAX if it overflows. */
static uint64_t times(uint64_t a, uint64_t b) {
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

#define LAYERED 1u /* the depth is a number of layers, which is the same at every level */

/* Returns the bytes of one mipmap level. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level) {
	unsigned depth_shift = d->Flags & LAYERED ? 0 : level;
	uint64_t texel = channel_bytes(d->Format) * at_least_1(d->NumChannels);
	uint64_t row = times(at_least_1(d->Width >> level), texel);
	return times(times(row, at_least_1(d->Height >> level)), at_least_1(d->Depth >> depth_shift));
}

/* Returns the bytes of all levels, UINT64_MAX on overflow, 0 without a descriptor. */
static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	uint64_t sum = 0;
	for (unsigned level = 0; d && level < levels && level < 32; level++)
		if (__builtin_add_overflow(sum, level_bytes(d, level), &sum)) return UINT64_MAX;
	return sum;
}

GSH_EXPORT CUresult cuArrayCreate_v2(CUarray *a, const CUDA_ARRAY_DESCRIPTOR *d) {
	NEED(cuArrayCreate_v2);
	struct gsh_reservation h;
	CUDA_ARRAY3D_DESCRIPTOR flat = {0};
	if (d) flat = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
	uint64_t bytes = d ? array_bytes(&flat, 1) : 0;
	if (!gsh_reserve_current(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(a, d);
	return gsh_reserve_commit(&h, r, ARRAY, r == CUDA_SUCCESS ? (uint64_t)*a : 0, bytes);
}

GSH_EXPORT CUresult cuArray3DCreate_v2(CUarray *a, const CUDA_ARRAY3D_DESCRIPTOR *d) {
	NEED(cuArray3DCreate_v2);
	struct gsh_reservation h;
	uint64_t bytes = array_bytes(d, 1);
	if (!gsh_reserve_current(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(a, d);
	return gsh_reserve_commit(&h, r, ARRAY, r == CUDA_SUCCESS ? (uint64_t)*a : 0, bytes);
}

GSH_EXPORT CUresult cuArrayDestroy(CUarray a) {
	NEED(cuArrayDestroy);
	return GSH_FREE(ARRAY, a, real(a));
}

GSH_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *a, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	NEED(cuMipmappedArrayCreate);
	struct gsh_reservation h;
	uint64_t bytes = array_bytes(d, levels);
	if (!gsh_reserve_current(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(a, d, levels);
	return gsh_reserve_commit(&h, r, MIPMAP, r == CUDA_SUCCESS ? (uint64_t)*a : 0, bytes);
}

GSH_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray a) {
	NEED(cuMipmappedArrayDestroy);
	return GSH_FREE(MIPMAP, a, real(a));
}
