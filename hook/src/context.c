/* The wrappers of calls that change the calling thread's context, or end one. */
#define _GNU_SOURCE
#include "capturing.h"
#include "device.h"
#include "ledger.h"
#include "module.h"
#include "pool.h"
#include "reap.h"
#include "reserve.h"
#include "start.h"
#include "stream.h"

/* Makes the calling thread's next launches take the slow path, which looks up its context again. */
static void context_changed(void) {
	gsh_current_invalidate();
	gsh_streams_invalidate();
}

/*
 * Gives up the events of a context that a call may end, and makes `call`, a variable of the caller, the owner of what belongs to the context:
 * once it has ended, another thread may get a new context with the same handle.
 */
static void context_ending(CUcontext c, const void *call) {
	gsh_reap_context(c);
	gsh_pools_context_ending(c, true);
	if (c) gsh_ledger_hand_on(c, call);
}

/* Undoes that, after a call that has not ended the context. */
static void context_lives(CUcontext c, const void *call) {
	if (c) gsh_ledger_hand_on(call, c);
	gsh_pools_context_ending(c, false);
}

/* Evaluates a call that may end a context, and with it the captures of its streams, whose handles new streams may then have. */
#define MAY_END(call)                                                                                                   \
	({                                                                                                              \
		CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;                                                \
		if (gsh_captures_lock()) {                                                                              \
			result = (call);                                                                                \
			gsh_captures_unlock();                                                                          \
		}                                                                                                       \
		result;                                                                                                 \
	})

/* Drops what belonged to a context that has ended: its memory, and the thread's cached state. */
static void context_ended(const void *call) {
	context_changed();
	gsh_ledger_drop_owned(call);
}

/* A call after which the thread's context may be another one. */
#define CHANGES_CONTEXT(name, parameters, arguments)                                                                    \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		CUresult r = real arguments;                                                                            \
		context_changed();                                                                                      \
		return r;                                                                                               \
	}
CHANGES_CONTEXT(cuCtxPushCurrent, (CUcontext c), (c))
CHANGES_CONTEXT(cuCtxPushCurrent_v2, (CUcontext c), (c))
CHANGES_CONTEXT(cuCtxPopCurrent, (CUcontext * c), (c))
CHANGES_CONTEXT(cuCtxPopCurrent_v2, (CUcontext * c), (c))

/* A call that creates a context and makes it current. The driver would allow one on any device whose file the process can open. */
#define CREATES_CONTEXT(name, parameters, arguments)                                                                    \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		struct gsh_reservation h;                                                                               \
		CUcontext created = NULL, *to = c;                                                                      \
		if (c) c = &created;                                                                                    \
		CUresult r = gsh_context_begin(&h, d), begun = r;                                                       \
		if (begun == CUDA_SUCCESS && (r = real arguments) == CUDA_SUCCESS) *to = created;                       \
		if (begun == CUDA_SUCCESS) gsh_context_commit(&h, r, created);                                          \
		context_changed();                                                                                      \
		return r;                                                                                               \
	}
CREATES_CONTEXT(cuCtxCreate, (CUcontext * c, unsigned flags, CUdevice d), (c, flags, d))
CREATES_CONTEXT(cuCtxCreate_v2, (CUcontext * c, unsigned flags, CUdevice d), (c, flags, d))
CREATES_CONTEXT(cuCtxCreate_v3, (CUcontext * c, void *affinity, int n, unsigned flags, CUdevice d), (c, affinity, n, flags, d))
CREATES_CONTEXT(cuCtxCreate_v4, (CUcontext * c, void *params, unsigned flags, CUdevice d), (c, params, flags, d))
CREATES_CONTEXT(cuGLCtxCreate, (CUcontext * c, unsigned flags, CUdevice d), (c, flags, d))
CREATES_CONTEXT(cuGLCtxCreate_v2, (CUcontext * c, unsigned flags, CUdevice d), (c, flags, d))
CREATES_CONTEXT(cuVDPAUCtxCreate, (CUcontext * c, unsigned flags, CUdevice d, unsigned vdp, void *get), (c, flags, d, vdp, get))
CREATES_CONTEXT(cuVDPAUCtxCreate_v2, (CUcontext * c, unsigned flags, CUdevice d, unsigned vdp, void *get), (c, flags, d, vdp, get))

GSH_EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
	NEED(cuCtxSetCurrent);
	CUcontext before = gsh_current_cached();
	CUresult r = real(c);
	if (c != before) context_changed();
	return r;
}

#define DESTROY(name)                                                                                                   \
	GSH_EXPORT CUresult name(CUcontext c) {                                                                         \
		NEED(name);                                                                                             \
		char call;                                                                                              \
		context_ending(c, &call);                                                                               \
		CUresult r = MAY_END(real(c));                                                                          \
		if (r == CUDA_SUCCESS)                                                                                  \
			context_ended(&call);                                                                           \
		else                                                                                                    \
			context_lives(c, &call);                                                                        \
		return r;                                                                                               \
	}
DESTROY(cuCtxDestroy)
DESTROY(cuCtxDestroy_v2)

/* The call may or may not end the context, and nothing tells which. So its events are given up, but its memory stays charged. */
GSH_EXPORT CUresult cuCtxDetach(CUcontext c) {
	NEED(cuCtxDetach);
	gsh_reap_context(c);
	CUresult r = MAY_END(real(c));
	context_changed();
	return r;
}

GSH_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	NEED(cuDevicePrimaryCtxRetain);
	gsh_start();
	return gsh_device_refused(d) ? CUDA_ERROR_DEVICE_UNAVAILABLE : real(c, d);
}

/* Reports whether the primary context of a device is active. */
static bool primary_is_active(CUdevice d) {
	unsigned flags;
	int active = 0;
	return CALL(cuDevicePrimaryCtxGetState, d, &flags, &active) == CUDA_SUCCESS && active;
}

/*
 * Returns the primary context of a device, or NULL if it is not active. Asks the driver, since a runtime can have retained it
 * through functions that are not exported (cuGetExportTable).
 */
static CUcontext primary_of(CUdevice d) {
	CUcontext c = NULL;
	if (!primary_is_active(d) || CALL(cuDevicePrimaryCtxRetain, &c, d) != CUDA_SUCCESS) return NULL;
	if (CALL(cuDevicePrimaryCtxRelease_v2, d) == CUDA_ERROR_NOT_FOUND) CALL(cuDevicePrimaryCtxRelease, d);
	return c;
}

/*
 * The last release ends the context, so its events are given up before the call. If the context lives on, the work behind
 * those events has been charged at its estimate.
 */
#define RELEASE(name)                                                                                                   \
	GSH_EXPORT CUresult name(CUdevice d) {                                                                          \
		NEED(name);                                                                                             \
		CUcontext c = primary_of(d);                                                                            \
		char call;                                                                                              \
		context_ending(c, &call);                                                                               \
		CUresult r = MAY_END(real(d));                                                                          \
		if (c && !primary_is_active(d))                                                                         \
			context_ended(&call);                                                                           \
		else                                                                                                    \
			context_lives(c, &call);                                                                        \
		return r;                                                                                               \
	}
RELEASE(cuDevicePrimaryCtxRelease)
RELEASE(cuDevicePrimaryCtxRelease_v2)

/* A green context retains the primary context of its device. */
GSH_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *g, void *resources, CUdevice d, unsigned flags) {
	NEED(cuGreenCtxCreate);
	gsh_start();
	return gsh_device_refused(d) ? CUDA_ERROR_DEVICE_UNAVAILABLE : real(g, resources, d, flags);
}

/*
 * What was allocated while the green context was current lives as long as the primary context, which the call may end. Without a
 * primary context it is gone: a reset has ended that.
 */
GSH_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx g) {
	NEED(cuGreenCtxDestroy);
	CUcontext c = NULL;
	CUdevice d = g && CALL(cuCtxFromGreenCtx, &c, g) == CUDA_SUCCESS ? gsh_target(BY_CONTEXT, (uint64_t)c).device : -1;
	CUcontext primary = d < 0 ? NULL : primary_of(d);
	char green, whole;
	context_ending(c, &green);
	context_ending(primary, &whole);
	CUresult r = MAY_END(real(g));
	context_changed();
	if (r == CUDA_SUCCESS && primary) gsh_ledger_hand_on(&green, &whole);
	if (r == CUDA_SUCCESS && !(primary && primary_is_active(d))) context_ended(primary ? &whole : &green);
	context_lives(c, &green);
	context_lives(primary, &whole);
	return r;
}

#define RESET(name)                                                                                                     \
	GSH_EXPORT CUresult name(CUdevice d) {                                                                          \
		NEED(name);                                                                                             \
		CUcontext c = primary_of(d);                                                                            \
		char call;                                                                                              \
		context_ending(c, &call);                                                                               \
		CUresult r = MAY_END(real(d));                                                                          \
		if (c && r == CUDA_SUCCESS)                                                                             \
			context_ended(&call);                                                                           \
		else                                                                                                    \
			context_lives(c, &call);                                                                        \
		return r;                                                                                               \
	}
RESET(cuDevicePrimaryCtxReset)
RESET(cuDevicePrimaryCtxReset_v2)

/* Returns an attribute of a device, or 0. */
static uint64_t attribute(int which, CUdevice d) {
	int value = 0;
	return CALL(cuDeviceGetAttribute, &value, which, d) == CUDA_SUCCESS && value > 0 ? (uint64_t)value : 0;
}

/*
 * Returns the bytes of device memory that a limit takes beyond the driver's default: for the stack of every thread that can be
 * resident, the buffer of printf, or the heap of malloc in kernels. What the default takes counts as the context's own memory.
 */
static uint64_t limit_bytes(int limit, uint64_t value, CUdevice d) {
	static const uint64_t defaults[] = {1024, 1 << 20, 8 << 20}; /* CU_LIMIT_STACK_SIZE, _PRINTF_FIFO_SIZE, _MALLOC_HEAP_SIZE */
	if (limit < 0 || limit > 2 || value <= defaults[limit]) return 0;
	uint64_t more = value - defaults[limit], bytes;
	if (limit) return more;
	uint64_t threads = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d) * attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, d);
	return __builtin_mul_overflow(more, threads, &bytes) ? UINT64_MAX : bytes;
}

/* Replaces the charge for the limit's last value by that for the new one. */
GSH_EXPORT CUresult cuCtxSetLimit(int limit, size_t value) {
	NEED(cuCtxSetLimit);
	struct gsh_target on = gsh_target(BY_cuCtxSetLimit, 0);
	if (on.error != CUDA_SUCCESS) return on.error;
	struct gsh_item last = {0};
	struct gsh_reservation h;
	uint64_t key = (uint64_t)on.context + (uint64_t)limit, bytes = limit_bytes(limit, value, on.device);
	bool known = gsh_ledger_take(CONTEXT_LIMIT, key, &last);
	if (known && last.owner != on.context) { /* of a context that another thread ends, with the same handle */
		gsh_ledger_put(&last);
		last = (struct gsh_item){0};
		known = false;
	}
	if (!known && !bytes) return real(limit, value);
	uint64_t more = bytes > last.bytes ? bytes - last.bytes : 0;
	CUresult r = gsh_reserve(&h, BY_cuCtxSetLimit, 0, more);
	uint64_t charged = r == CUDA_SUCCESS && h.counted ? more : 0;
	if (r == CUDA_SUCCESS) r = real(limit, value);
	if (r != CUDA_SUCCESS) {
		if (charged) gsh_memory_release(h.on.vgpu, charged);
		if (known) gsh_ledger_put(&last);
		return r;
	}
	if (on.vgpu) gsh_memory_charge(on.vgpu, bytes - charged - last.bytes); /* at once, so that no other thread takes what is released first */
	gsh_ledger_put(&(struct gsh_item){CONTEXT_LIMIT, key, on.vgpu, on.context, bytes, 0, 0, 0});
	return r;
}
