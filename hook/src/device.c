#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static struct gsh_vgpu *_Atomic device_vgpus[GSH_DEVICES_MAX]; /* the vGPU of each device, set by gsh_devices_map */
static atomic_int devices_mapped;                              /* how many devices the driver has */
static _Thread_local struct gsh_target current;                /* of the calling thread's current context; empty if it has none */

struct gsh_vgpu *gsh_vgpu_of_device(CUdevice d) { return d >= 0 && d < GSH_DEVICES_MAX ? device_vgpus[d] : NULL; }

/* Returns a UUID without its prefix GPU- or MIG-. */
static const char *without_prefix(const char *uuid) { return strlen(uuid) > 4 && uuid[3] == '-' ? uuid + 4 : uuid; }

struct gsh_vgpu *gsh_vgpu_of_uuid(const char *uuid) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (!strcasecmp(without_prefix(gsh_vgpus[i].uuid), without_prefix(uuid))) return &gsh_vgpus[i];
	return NULL;
}

/* Formats a UUID as the driver's tools print it. */
static void format_uuid(char *text, const CUuuid *u) {
	const unsigned char *b = u->bytes;
	snprintf(text, GSHARE_UUID_SIZE, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
		 b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

bool gsh_device_uuid(CUdevice d, char text[GSHARE_UUID_SIZE]) {
	CUuuid uuid;
	if (CALL(cuDeviceGetUuid_v2, &uuid, d) != CUDA_SUCCESS) return false;
	format_uuid(text, &uuid);
	return true;
}

/* Reports whether a vGPU has a UUID that a device can have; in tests and policies of devices without UUIDs it has some other text. */
static bool has_uuid(const struct gsh_vgpu *v) { return strlen(without_prefix(v->uuid)) == 36; }

/*
 * Returns the vGPU with the device's ordinal, or NULL. Where the device and the vGPU both have UUIDs, these differ, and
 * the ordinal says nothing: in a program that has changed CUDA_VISIBLE_DEVICES it may be that of any device.
 */
static struct gsh_vgpu *vgpu_by_ordinal(CUdevice d, bool uuid_known) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (gsh_vgpus[i].index == (uint32_t)d && !(uuid_known && has_uuid(&gsh_vgpus[i]))) return &gsh_vgpus[i];
	return NULL;
}

void gsh_devices_map(void) {
	int devices = 0;
	CALL(cuDeviceGetCount, &devices);
	for (CUdevice d = 0; d < devices && d < GSH_DEVICES_MAX; d++) {
		char uuid[GSHARE_UUID_SIZE];
		bool known = gsh_device_uuid(d, uuid);
		struct gsh_vgpu *v = known ? gsh_vgpu_of_uuid(uuid) : NULL;
		atomic_store(&device_vgpus[d], v ? v : vgpu_by_ordinal(d, known));
	}
	atomic_store(&devices_mapped, devices);
}

bool gsh_location_is_host(int type) { return type >= CU_MEM_LOCATION_TYPE_HOST && type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT; }

/* The server's kill switch, state OFF, is on the page of every vGPU; the first is as good as any. */
bool gsh_device_refused(CUdevice d) {
	if (d < 0 || d >= atomic_load(&devices_mapped) || gsh_vgpu_of_device(d)) return false;
	return atomic_load(&gsh_mode) != GSHARE_MODE_OFF && atomic_load(&gsh_vgpus[0].server->state) != GSHARE_OFF;
}

/* Returns the target of the calling thread's current context. */
static struct gsh_target of_thread(void) {
	if (current.context && current.vgpu) return current;
	current = (struct gsh_target){.device = -1};
	if (CALL(cuCtxGetCurrent, &current.context) != CUDA_SUCCESS || !current.context) return current;
	current.error = CALL(cuCtxGetDevice, &current.device);
	if (current.error == CUDA_SUCCESS) current.vgpu = gsh_vgpu_of_device(current.device);
	return current;
}

/* Returns the target of a context, NULL too. */
static struct gsh_target of_context(CUcontext c) {
	struct gsh_target t = {.context = c, .device = -1};
	CUcontext popped;
	if (c && c == of_thread().context) return current;
	if (!c || CALL(cuCtxPushCurrent_v2, c) != CUDA_SUCCESS) return t;
	if (CALL(cuCtxGetDevice, &t.device) == CUDA_SUCCESS) t.vgpu = gsh_vgpu_of_device(t.device);
	CALL(cuCtxPopCurrent_v2, &popped);
	return t;
}

/*
 * Returns the context of a named stream, or NULL. Version 1 has no answer for streams of green contexts. The result is the green one, which
 * has the stream's events.
 */
static CUcontext context_of_stream(CUstream s) {
	CUcontext c = NULL, of_green = NULL;
	CUgreenCtx green = NULL;
	if (CALL(cuStreamGetCtx_v2, s, &c, &green) != CUDA_SUCCESS) return CALL(cuStreamGetCtx, s, &c) == CUDA_SUCCESS ? c : NULL;
	return green && CALL(cuCtxFromGreenCtx, &of_green, green) == CUDA_SUCCESS ? of_green : c;
}

/* Returns the target of a device. */
static struct gsh_target of_device(CUdevice d) { return (struct gsh_target){.device = d, .vgpu = gsh_vgpu_of_device(d)}; }

/* Returns the target of a call whose device is not said. */
static struct gsh_target unsaid(void) {
	struct gsh_target t = of_thread();
	if (!t.context && atomic_load(&gsh_vgpu_count) == 1) t.vgpu = &gsh_vgpus[0];
	return t;
}

struct gsh_target gsh_target(enum gsh_by by, uint64_t handle) {
	CUstream s = (CUstream)handle;
	CUdevice d = -1;
	switch (by) {
	case BY_THREAD:
		return of_thread();
	case BY_STREAM:
		return !s || s == CU_STREAM_LEGACY || s == CU_STREAM_PER_THREAD ? of_thread() : of_context(context_of_stream(s));
	case BY_CONTEXT:
		return of_context((CUcontext)handle);
	case BY_DEVICE:
		return of_device((CUdevice)handle);
	case BY_POINTER:
		return CALL(cuPointerGetAttribute, &d, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, handle) == CUDA_SUCCESS && d >= 0 ? of_device(d) : unsaid();
	default:
		return unsaid();
	}
}

CUcontext gsh_current_cached(void) { return current.context; }

void gsh_current_invalidate(void) { current = (struct gsh_target){.device = -1}; }

bool gsh_stream_is_capturing(CUstream s) {
	int status = 0;
	if (!atomic_load(&gsh_captures)) return false;
	return CALL(cuStreamIsCapturing, s, &status) == CUDA_SUCCESS && status;
}
