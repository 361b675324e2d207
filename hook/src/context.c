/* The wrappers of calls that change the calling thread's context, or end one. */
#define _GNU_SOURCE
#include "device.h"
#include "ledger.h"
#include "reap.h"
#include "stream.h"

/* The primary context of each device, as last retained. */
static CUcontext _Atomic primary[GSH_DEVICES_MAX];

/* Makes the calling thread's next launches take the slow path, which looks up its context again. */
static void context_changed(void) {
	gsh_current_invalidate();
	gsh_streams_invalidate();
}

/* Drops what belonged to a context that has ended: its memory, and the thread's cached state. */
static void context_ended(CUcontext c) {
	context_changed();
	gsh_ledger_drop_context(c);
}

/* A call after which the thread's context may be another one. */
#define CHANGES_CONTEXT(name, parameters, arguments)                                                                    \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		CUresult r = real arguments;                                                                            \
		context_changed();                                                                                      \
		return r;                                                                                               \
	}
CHANGES_CONTEXT(cuCtxCreate_v2, (CUcontext * c, unsigned flags, CUdevice d), (c, flags, d))
CHANGES_CONTEXT(cuCtxCreate_v3, (CUcontext * c, void *affinity, int n, unsigned flags, CUdevice d), (c, affinity, n, flags, d))
CHANGES_CONTEXT(cuCtxCreate_v4, (CUcontext * c, void *params, unsigned flags, CUdevice d), (c, params, flags, d))
CHANGES_CONTEXT(cuCtxPushCurrent_v2, (CUcontext c), (c))
CHANGES_CONTEXT(cuCtxPopCurrent_v2, (CUcontext * c), (c))

GSH_EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
	NEED(cuCtxSetCurrent);
	CUcontext before = gsh_current_cached();
	CUresult r = real(c);
	if (c != before) context_changed();
	return r;
}

GSH_EXPORT CUresult cuCtxDestroy_v2(CUcontext c) {
	NEED(cuCtxDestroy_v2);
	gsh_reap_context(c);
	CUresult r = real(c);
	if (r == CUDA_SUCCESS) context_ended(c);
	return r;
}

GSH_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	NEED(cuDevicePrimaryCtxRetain);
	CUresult r = real(c, d);
	if (r == CUDA_SUCCESS && c && d >= 0 && d < GSH_DEVICES_MAX) atomic_store(&primary[d], *c);
	return r;
}

/* Returns the device's primary context if the process has retained it, or NULL. */
static CUcontext primary_of(CUdevice d) { return d >= 0 && d < GSH_DEVICES_MAX ? atomic_load(&primary[d]) : NULL; }

/*
 * The last release ends the context, so its events are given up before the call. If the context lives on, the work behind
 * those events has been charged at its estimate.
 */
GSH_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	NEED(cuDevicePrimaryCtxRelease_v2);
	CUcontext c = primary_of(d);
	unsigned flags;
	int active = 1;
	gsh_reap_context(c);
	CUresult r = real(d);
	if (c && CALL(cuDevicePrimaryCtxGetState, d, &flags, &active) == CUDA_SUCCESS && !active) context_ended(c);
	return r;
}

GSH_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice d) {
	NEED(cuDevicePrimaryCtxReset_v2);
	CUcontext c = primary_of(d);
	gsh_reap_context(c);
	CUresult r = real(d);
	if (c && r == CUDA_SUCCESS) context_ended(c);
	return r;
}
