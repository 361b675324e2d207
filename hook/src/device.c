#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static struct gsh_vgpu *_Atomic device_vgpus[GSH_DEVICES_MAX]; /* the vGPU of each device, set by gsh_devices_map */
static atomic_int devices_mapped;                              /* how many devices the driver has */
static _Thread_local struct gsh_current current;               /* the cache of gsh_current; empty if it has no context */

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

struct gsh_current gsh_current(void) {
	if (current.context && current.vgpu) return current;
	current = (struct gsh_current){0};
	if (CALL(cuCtxGetCurrent, &current.context) != CUDA_SUCCESS || !current.context) return current;
	if (CALL(cuCtxGetDevice, &current.device) == CUDA_SUCCESS) current.vgpu = gsh_vgpu_of_device(current.device);
	return current;
}

CUcontext gsh_current_cached(void) { return current.context; }

void gsh_current_invalidate(void) { current = (struct gsh_current){0}; }

bool gsh_stream_is_capturing(CUstream s) {
	int status = 0;
	if (!atomic_load(&gsh_captures)) return false;
	return CALL(cuStreamIsCapturing, s, &status) == CUDA_SUCCESS && status;
}
