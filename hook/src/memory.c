/* Plain, pitched and managed memory, and the parts that all allocations share (FG-86, F46). */
#define _GNU_SOURCE
#include "memory.h"

#include "start.h"

static bool hold_at(struct gsh_hold *h, struct gsh_vgpu *v, uint64_t bytes) {
	h->place.vgpu = v;
	h->bytes = bytes;
	h->counted = true;
	if (v && gsh_reserve(v, bytes)) return true;
	gsh_pools_refresh(); /* what a pool gave back since may be enough */
	if (v && gsh_reserve(v, bytes)) return true;
	if (v) atomic_fetch_add(&v->client->refused, 1);
	return false;
}

bool gsh_hold(struct gsh_hold *h, uint64_t bytes) {
	*h = (struct gsh_hold){0};
	if (!gsh_here().context) return true;
	gsh_start();
	h->place = gsh_here();
	return hold_at(h, h->place.vgpu, bytes);
}

bool gsh_hold_on(struct gsh_hold *h, CUdevice d, uint64_t bytes) {
	*h = (struct gsh_hold){0};
	gsh_start();
	h->place.device = d;
	return hold_at(h, gsh_vgpu_of_device(d), bytes);
}

CUresult gsh_keep(struct gsh_hold *h, CUresult r, enum gsh_thing thing, uint64_t key, uint64_t bytes) {
	if (!h->counted) return r;
	if (r != CUDA_SUCCESS) {
		gsh_release(h->place.vgpu, h->bytes);
		return r;
	}
	gsh_charge(h->place.vgpu, bytes - h->bytes); /* what it really took; may be less */
	gsh_ledger_put(&(struct gsh_item){thing, key, h->place.vgpu, h->place.context, bytes, 0, 0});
	return r;
}

GSH_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t bytes) {
	NEED(cuMemAlloc_v2);
	struct gsh_hold h;
	if (!gsh_hold(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(p, bytes);
	return gsh_keep(&h, r, POINTER, r == CUDA_SUCCESS ? *p : 0, bytes);
}

/* The pitch is known only afterwards: reserve for the widest alignment, then keep what it was. */
GSH_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *p, size_t *pitch, size_t width, size_t height, unsigned element) {
	NEED(cuMemAllocPitch_v2);
	struct gsh_hold h;
	uint64_t most = 0;
	bool fits = !__builtin_mul_overflow((width + 511) & ~(size_t)511, height, &most);
	if (!gsh_hold(&h, fits ? most : UINT64_MAX)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(p, pitch, width, height, element);
	return gsh_keep(&h, r, POINTER, r == CUDA_SUCCESS ? *p : 0, r == CUDA_SUCCESS ? *pitch * height : 0);
}

static uint32_t policy_of(const struct gsh_vgpu *v) { return v ? atomic_load(&v->server->policy) : 0; }

/* No other line of defence counts managed memory as the device's, so by default we do, in full. */
GSH_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *p, size_t bytes, unsigned flags) {
	NEED(cuMemAllocManaged);
	struct gsh_hold h;
	uint32_t policy = policy_of(gsh_here().vgpu);
	if (policy & GSHARE_MANAGED_DENY) return CUDA_ERROR_NOT_SUPPORTED;
	uint64_t counted = policy & GSHARE_MANAGED_IGNORE ? 0 : bytes;
	if (!gsh_hold(&h, counted)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(p, bytes, flags);
	return gsh_keep(&h, r, POINTER, r == CUDA_SUCCESS ? *p : 0, counted);
}

/* A pointer that we do not know may be a pool's. */
GSH_EXPORT CUresult cuMemFree_v2(CUdeviceptr p) {
	NEED(cuMemFree_v2);
	CUresult r = GSH_FREE(POINTER, p, real(p));
	if (r == CUDA_SUCCESS) gsh_pool_freed();
	return r;
}

GSH_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *m, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d) {
	NEED(cuImportExternalMemory);
	struct gsh_hold h;
	uint64_t bytes = d ? d->size : 0; /* made outside of CUDA, so nobody else has counted it */
	if (!gsh_hold(&h, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = real(m, d);
	return gsh_keep(&h, r, EXTERNAL, r == CUDA_SUCCESS ? (uint64_t)*m : 0, bytes);
}

GSH_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory m) {
	NEED(cuDestroyExternalMemory);
	return GSH_FREE(EXTERNAL, m, real(m));
}
