/*
 * The wrappers of memory queries in CUDA and NVML: they return the share's size and what is free of it. A query never fails
 * because of the hook; if more is in use than the limit, which may have been lowered, nothing is free.
 */
#define _GNU_SOURCE
#include "device.h"
#include "pool.h"
#include "start.h"

/* Returns the smaller number. */
static uint64_t lower(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Reports whether queries are answered for a share; if not, the driver's answer stands. */
static bool limited(const struct gsh_vgpu *v) {
	return v && atomic_load(&gsh_mode) != GSHARE_MODE_OFF && atomic_load(&v->server->state) != GSHARE_OFF;
}

/* Returns the bytes that the container may still allocate. */
static uint64_t free_of(const struct gsh_vgpu *v, uint64_t limit) {
	uint64_t used = gsh_memory_used(v);
	return used < limit ? limit - used : 0;
}

GSH_EXPORT CUresult cuMemGetInfo_v2(size_t *left, size_t *total) {
	NEED(cuMemGetInfo_v2);
	CUresult r = real(left, total);
	if (r != CUDA_SUCCESS) return r;
	gsh_start();
	gsh_pools_refresh();
	struct gsh_vgpu *v = gsh_target(BY_cuMemGetInfo_v2, 0).vgpu;
	if (!limited(v)) return r;
	uint64_t limit = atomic_load(&v->server->memory_limit);
	if (left) *left = lower(*left, free_of(v, limit));
	if (total) *total = lower(*total, limit);
	return r;
}

GSH_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
	NEED(cuDeviceTotalMem_v2);
	CUresult r = real(bytes, d);
	if (r != CUDA_SUCCESS) return r;
	gsh_start();
	struct gsh_vgpu *v = gsh_vgpu_of_device(d);
	if (limited(v) && bytes) *bytes = lower(*bytes, atomic_load(&v->server->memory_limit));
	return r;
}

/*
 * Returns the vGPU of an NVML device, or NULL. NVML is used without CUDA too (nvidia-smi). Such a process has no session,
 * so the limit of the policy file applies to it.
 */
static struct gsh_vgpu *vgpu_of(nvmlDevice_t d) {
	char uuid[96] = "";
	if (CALL(nvmlDeviceGetUUID, d, uuid, sizeof uuid)) return NULL;
	gsh_start_queries();
	return gsh_vgpu_of_uuid(uuid);
}

/* Replaces total and free by the share's size and what is free of it. used is their difference, so that the three agree. */
static void narrow(nvmlDevice_t d, unsigned long long *total, unsigned long long *left, unsigned long long *used) {
	struct gsh_vgpu *v = vgpu_of(d);
	if (!limited(v)) return;
	*total = lower(*total, atomic_load(&v->server->memory_limit));
	*left = lower(*left, free_of(v, *total));
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
	if (m->reserved > m->total - m->free) m->reserved = 0; /* reserved memory is not part of the share */
	return r;
}
