/* Which device is which vGPU, and which context the calling thread uses. */
#ifndef GSHARE_DEVICE_H
#define GSHARE_DEVICE_H

#include "account.h"

#define GSH_DEVICES_MAX 64 /* device ordinals */

/* Writes the UUID of a device as text; false if the driver does not return it. */
bool gsh_device_uuid(CUdevice d, char text[GSHARE_UUID_SIZE]);

/* Finds the vGPU of every device, by UUID, or by ordinal where either has none. Called after every WELCOME, by the thread that connected. */
void gsh_devices_map(void);

/* Returns the vGPU of a device, or NULL if the process has no share of it: contexts, memory and launches are refused there. */
struct gsh_vgpu *gsh_vgpu_of_device(CUdevice d);

/* Reports whether a CUmemLocationType means host memory. Types that the hook does not know count as device memory. */
bool gsh_location_is_host(int type);

/* Reports whether contexts and launches on a device are refused: the driver has the device, but the process has no share of it. */
bool gsh_device_refused(CUdevice d);

/* Returns the vGPU with this UUID, or NULL. The prefixes GPU- and MIG- do not matter, nor does case. */
struct gsh_vgpu *gsh_vgpu_of_uuid(const char *uuid);

/*
 * Where a call acts. context and vgpu may be NULL; device is -1 where it is not known. error is the driver's, where it does not return the
 * device of the calling thread's context: that may be destroyed.
 */
struct gsh_target {
	CUcontext context;
	CUdevice device;
	struct gsh_vgpu *vgpu;
	CUresult error;
};

/*
 * Returns where a call acts, by what decides for its function and the handle that it names: a stream, device (as a number), context or
 * address. This is the only function that asks for the calling thread's current context. Without a context or device that is known, e.g. of
 * memory of another driver, the process's only vGPU is charged; of several none, so that the memory is refused. May call the driver, so
 * not on the fast path.
 */
struct gsh_target gsh_target(enum gsh_by by, uint64_t handle);

/* Returns the calling thread's cached context, or NULL if none is cached. Does not call the driver. */
CUcontext gsh_current_cached(void);

/* Clears the calling thread's cached context, after its context has changed. */
void gsh_current_invalidate(void);

/* Reports whether a stream captures. Queries the driver only while some stream of the process is known to capture. */
bool gsh_stream_is_capturing(CUstream s);

#endif
