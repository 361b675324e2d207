/*
 * What a program is told about memory: its share, in CUDA and NVML alike. A view never fails because of us; use beyond
 * the limit (it may have been lowered) shows as nothing free.
 */
#define _GNU_SOURCE
#include "memory.h"
#include "start.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

static bool limited(const struct gsh_vgpu *v) {
	return v && atomic_load(&gsh_mode) != GSHARE_MODE_OFF && atomic_load(&v->server->state) != GSHARE_OFF;
}

static uint64_t free_of(const struct gsh_vgpu *v, uint64_t limit) {
	uint64_t used = gsh_container_memory(v);
	return used < limit ? limit - used : 0;
}

GSH_EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
	NEED(cuMemGetInfo_v2);
	CUresult r = real(left, total);
	if (r != CUDA_SUCCESS) return r;
	gsh_start();
	gsh_pools_refresh();
	struct gsh_vgpu *v = gsh_here().vgpu;
	if (!limited(v)) return r;
	uint64_t limit = atomic_load(&v->server->memory_limit);
	if (left) *left = least(*left, free_of(v, limit));
	if (total) *total = least(*total, limit);
	return r;
}

GSH_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
	NEED(cuDeviceTotalMem_v2);
	CUresult r = real(bytes, d);
	if (r != CUDA_SUCCESS) return r;
	gsh_start();
	struct gsh_vgpu *v = gsh_vgpu_of_device(d);
	if (limited(v) && bytes) *bytes = least(*bytes, atomic_load(&v->server->memory_limit));
	return r;
}

/*
 * NVML is used without CUDA too (nvidia-smi). Such a process has no session; the policy file tells the limit, and use is
 * what the driver says, as far as it fits.
 */
static struct gsh_vgpu *vgpu_of(nvmlDevice_t d) {
	char uuid[96] = "";
	if (CALL(nvmlDeviceGetUUID, d, uuid, sizeof uuid)) return NULL;
	gsh_start_views();
	return gsh_vgpu_of_uuid(uuid);
}

/* Total and free of a share; used is the rest, so that the three agree. */
static void narrow(nvmlDevice_t d, unsigned long long *total, unsigned long long *left, unsigned long long *used) {
	struct gsh_vgpu *v = vgpu_of(d);
	if (!limited(v)) return;
	*total = least(*total, atomic_load(&v->server->memory_limit));
	*left = least(*left, free_of(v, *total));
	*used = *total - *left;
}

GSH_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *m) {
	NEED_OR(NVML_ERROR_FUNCTION_NOT_FOUND, nvmlDeviceGetMemoryInfo);
	nvmlReturn_t r = real(d, m);
	if (!r && m) narrow(d, &m->total, &m->free, &m->used);
	return r;
}

GSH_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t d, nvmlMemory_v2_t *m) {
	NEED_OR(NVML_ERROR_FUNCTION_NOT_FOUND, nvmlDeviceGetMemoryInfo_v2);
	nvmlReturn_t r = real(d, m);
	if (r || !m) return r;
	narrow(d, &m->total, &m->free, &m->used);
	if (m->reserved > m->total - m->free) m->reserved = 0; /* the driver's own part is not of the share */
	return r;
}
