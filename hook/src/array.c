/* Arrays: the driver does not say what they take, so their size is computed, level by level for mipmapped ones. */
#define _GNU_SOURCE
#include "memory.h"

/* Bytes of one channel by CUarray_format; block-compressed and planar ones by an upper bound. */
static uint64_t element(int format) {
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

static uint64_t at_least_1(uint64_t n) { return n ? n : 1; }

static uint64_t times(uint64_t a, uint64_t b) {
	uint64_t product;
	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

#define LAYERED 1u /* the depth is a number of layers, which do not shrink with the level */

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level) {
	unsigned depth_shift = d->Flags & LAYERED ? 0 : level;
	uint64_t texel = element(d->Format) * at_least_1(d->NumChannels);
	uint64_t row = times(at_least_1(d->Width >> level), texel);
	return times(times(row, at_least_1(d->Height >> level)), at_least_1(d->Depth >> depth_shift));
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	uint64_t sum = 0;
	for (unsigned level = 0; d && level < levels && level < 32; level++)
		if (__builtin_add_overflow(sum, level_bytes(d, level), &sum)) return UINT64_MAX;
	return sum;
}

GSH_EXPORT CUresult cuArrayCreate_v2(CUarray *a, const CUDA_ARRAY_DESCRIPTOR *d) {
	NEED(cuArrayCreate_v2);
	struct gsh_hold h;
	CUDA_ARRAY3D_DESCRIPTOR flat = {0};
	if (d) flat = (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
	uint64_t bytes = d ? array_bytes(&flat, 1) : 0;
	if (!gsh_hold(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(a, d);
	return gsh_keep(&h, r, ARRAY, r == CUDA_SUCCESS ? (uint64_t)*a : 0, bytes);
}

GSH_EXPORT CUresult cuArray3DCreate_v2(CUarray *a, const CUDA_ARRAY3D_DESCRIPTOR *d) {
	NEED(cuArray3DCreate_v2);
	struct gsh_hold h;
	uint64_t bytes = array_bytes(d, 1);
	if (!gsh_hold(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(a, d);
	return gsh_keep(&h, r, ARRAY, r == CUDA_SUCCESS ? (uint64_t)*a : 0, bytes);
}

GSH_EXPORT CUresult cuArrayDestroy(CUarray a) {
	NEED(cuArrayDestroy);
	return GSH_FREE(ARRAY, a, real(a));
}

GSH_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *a, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels) {
	NEED(cuMipmappedArrayCreate);
	struct gsh_hold h;
	uint64_t bytes = array_bytes(d, levels);
	if (!gsh_hold(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(a, d, levels);
	return gsh_keep(&h, r, MIPMAP, r == CUDA_SUCCESS ? (uint64_t)*a : 0, bytes);
}

GSH_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray a) {
	NEED(cuMipmappedArrayDestroy);
	return GSH_FREE(MIPMAP, a, real(a));
}
