/* Which context and vGPU the calling thread is on, and the calls that change it. */
#define _GNU_SOURCE
#include "place.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gate.h"
#include "ledger.h"
#include "mark.h"

#define DEVICES_MAX 64 /* ordinals */

static struct gsh_vgpu *_Atomic of_device[DEVICES_MAX];
static CUcontext _Atomic primary[DEVICES_MAX];
static _Thread_local struct gsh_place here;

struct gsh_vgpu *gsh_vgpu_of_device(CUdevice d) { return d >= 0 && d < DEVICES_MAX ? of_device[d] : NULL; }

/* A UUID is GPU-... or MIG-...; what follows the prefix names the device. */
static const char *bare(const char *uuid) { return strlen(uuid) > 4 && uuid[3] == '-' ? uuid + 4 : uuid; }

struct gsh_vgpu *gsh_vgpu_of_uuid(const char *uuid) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (!strcasecmp(bare(gsh_vgpus[i].uuid), bare(uuid))) return &gsh_vgpus[i];
	return NULL;
}

static void print_uuid(char *text, const CUuuid *u) {
	const unsigned char *b = u->bytes;
	snprintf(text, GSHARE_UUID_SIZE, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

bool gsh_device_uuid(CUdevice d, char text[GSHARE_UUID_SIZE]) {
	CUuuid uuid;
	if (CALL(cuDeviceGetUuid_v2, &uuid, d) != CUDA_SUCCESS) return false;
	print_uuid(text, &uuid);
	return true;
}

static struct gsh_vgpu *by_index(CUdevice d) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (gsh_vgpus[i].index == (uint32_t)d) return &gsh_vgpus[i];
	return NULL;
}

void gsh_devices_find(void) {
	int devices = 0;
	CALL(cuDeviceGetCount, &devices);
	for (CUdevice d = 0; d < devices && d < DEVICES_MAX; d++) {
		char uuid[GSHARE_UUID_SIZE];
		struct gsh_vgpu *v = gsh_device_uuid(d, uuid) ? gsh_vgpu_of_uuid(uuid) : NULL;
		atomic_store(&of_device[d], v ? v : by_index(d));
	}
}

struct gsh_place gsh_here(void) {
	if (here.context && here.vgpu) return here;
	here = (struct gsh_place){0};
	if (CALL(cuCtxGetCurrent, &here.context) != CUDA_SUCCESS || !here.context) return here;
	if (CALL(cuCtxGetDevice, &here.device) == CUDA_SUCCESS) here.vgpu = gsh_vgpu_of_device(here.device);
	return here;
}

void gsh_place_forget(void) {
	here = (struct gsh_place){0};
	gsh_tracks_stale();
}

/* Everything of a context goes with it: memory, events, streams. */
static void context_gone(CUcontext c) {
	gsh_place_forget();
	gsh_ledger_context_gone(c);
}

#define CREATE(name, parameters, arguments)                                                                             \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		CUresult r = real arguments;                                                                            \
		gsh_place_forget();                                                                                                \
		return r;                                                                                               \
	}
CREATE(cuCtxCreate_v2, (CUcontext * c, unsigned flags, CUdevice d), (c, flags, d))
CREATE(cuCtxCreate_v3, (CUcontext * c, void *affinity, int n, unsigned flags, CUdevice d), (c, affinity, n, flags, d))
CREATE(cuCtxCreate_v4, (CUcontext * c, void *params, unsigned flags, CUdevice d), (c, params, flags, d))
CREATE(cuCtxPushCurrent_v2, (CUcontext c), (c))
CREATE(cuCtxPopCurrent_v2, (CUcontext * c), (c))

GSH_EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
	NEED(cuCtxSetCurrent);
	CUresult r = real(c);
	if (c != here.context) gsh_place_forget();
	return r;
}

GSH_EXPORT CUresult cuCtxDestroy_v2(CUcontext c) {
	NEED(cuCtxDestroy_v2);
	gsh_marks_context_gone(c);
	CUresult r = real(c);
	if (r == CUDA_SUCCESS) context_gone(c);
	return r;
}

GSH_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	NEED(cuDevicePrimaryCtxRetain);
	CUresult r = real(c, d);
	if (r == CUDA_SUCCESS && c && d >= 0 && d < DEVICES_MAX) atomic_store(&primary[d], *c);
	return r;
}

static CUcontext primary_of(CUdevice d) { return d >= 0 && d < DEVICES_MAX ? atomic_load(&primary[d]) : NULL; }

/* The last release ends the context, so events are given up first; marks of a context that lives on are estimated. */
GSH_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	NEED(cuDevicePrimaryCtxRelease_v2);
	CUcontext c = primary_of(d);
	unsigned flags;
	int active = 1;
	gsh_marks_context_gone(c);
	CUresult r = real(d);
	if (c && CALL(cuDevicePrimaryCtxGetState, d, &flags, &active) == CUDA_SUCCESS && !active) context_gone(c);
	return r;
}

GSH_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) {
	NEED(cuDevicePrimaryCtxReset_v2);
	CUcontext c = primary_of(d);
	gsh_marks_context_gone(c);
	CUresult r = real(d);
	if (c && r == CUDA_SUCCESS) context_gone(c);
	return r;
}
