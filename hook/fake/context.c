/* Contexts: primary, created and green ones. */
#include "fake.h"

#include <stdlib.h>

THREAD_LOCAL struct context *fake_current;

CUresult fake_no_context(void)
{
	if (!fake_initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	return fake_current ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
}

/* The primary contexts; guarded by fake_lock. */
static struct context primaries[DEVICES_MAX];
/* The calling thread's stack of contexts. */
static THREAD_LOCAL struct context *stack[64];
static THREAD_LOCAL int depth; /* contexts on the stack */
static struct context *destroyed; /* guarded by fake_lock */

/* Initialises a context. */
static void start(struct context *context, CUdevice device)
{
	context->device = device;
	context->id = fake_next_id();
	if (!context->legacy)
		context->legacy = calloc(1, sizeof *context->legacy);
	*context->legacy = (struct stream){.context = context, .context_id = context->id, .id = fake_next_id()};
}

/* Returns a new context. */
static struct context *new_context(CUdevice device, unsigned flags)
{
	pthread_mutex_lock(&fake_lock);
	struct context *made = destroyed;
	if (made)
		destroyed = made->next;
	pthread_mutex_unlock(&fake_lock);
	struct stream *legacy = made ? made->legacy : NULL;
	if (!made)
		made = calloc(1, sizeof *made);
	*made = (struct context){.legacy = legacy, .flags = flags};
	start(made, device);
	return made;
}

/* Ends a context that is no primary one. */
static void end_context(struct context *context)
{
	pthread_mutex_lock(&fake_lock);
	context->id = 0;
	context->next = destroyed;
	destroyed = context;
	pthread_mutex_unlock(&fake_lock);
}

struct context *fake_primary(CUdevice device) { return &primaries[device]; }

/* Retains a primary context. */
static CUresult retain_primary(CUcontext *context, CUdevice device)
{
	NEED(context);
	NEED_DEVICE(device);
	pthread_mutex_lock(&fake_lock);
	struct context *primary = &primaries[device];
	primary->primary = 1;
	if (!primary->id)
		start(primary, device);
	primary->references++;
	pthread_mutex_unlock(&fake_lock);
	*context = primary;
	return CUDA_SUCCESS;
}

FN(cuDevicePrimaryCtxRetain, , 7000, CUcontext *context, CUdevice device)
{
	ENTER(cuDevicePrimaryCtxRetain);
	return retain_primary(context, device);
}

CUresult fakecuda_retain_primary(CUcontext *context, CUdevice device) { return retain_primary(context, device); }

/* Releases a primary context once, or entirely. */
static CUresult release_primary(CUdevice device, int all)
{
	NEED_DEVICE(device);
	struct context *primary = &primaries[device];
	if (primary->references == 0 && !all)
		return CUDA_ERROR_INVALID_CONTEXT;
	primary->references = all ? 0 : primary->references - 1;
	if (primary->references)
		return CUDA_SUCCESS;
	fake_context_ended(primary);
	primary->id = 0;
	return CUDA_SUCCESS;
}

FN(cuDevicePrimaryCtxRelease, , 7000, CUdevice device) { ENTER(cuDevicePrimaryCtxRelease); return release_primary(device, 0); }
FN(cuDevicePrimaryCtxRelease, _v2, 11000, CUdevice device) { ENTER(cuDevicePrimaryCtxRelease_v2); return release_primary(device, 0); }
FN(cuDevicePrimaryCtxReset, , 7000, CUdevice device) { ENTER(cuDevicePrimaryCtxReset); return release_primary(device, 1); }
FN(cuDevicePrimaryCtxReset, _v2, 11000, CUdevice device) { ENTER(cuDevicePrimaryCtxReset_v2); return release_primary(device, 1); }
STUB(cuDevicePrimaryCtxSetFlags, _v2, 11000, CUdevice device __attribute__((unused)), unsigned flags __attribute__((unused)))

FN(cuDevicePrimaryCtxGetState, , 7000, CUdevice device, unsigned *flags, int *active)
{
	ENTER(cuDevicePrimaryCtxGetState);
	NEED_DEVICE(device);
	*flags = 0;
	*active = primaries[device].references > 0;
	return CUDA_SUCCESS;
}

/* Pushes a context onto the stack and makes it current. */
static CUresult push(struct context *context)
{
	if (depth == (int)(sizeof stack / sizeof *stack))
		return CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = fake_current;
	fake_current = context;
	return CUDA_SUCCESS;
}

/* Creates a context and makes it current. */
static CUresult create(CUcontext *context, unsigned flags, CUdevice device)
{
	NEED(context);
	NEED_DEVICE(device);
	*context = new_context(device, flags);
	return push(*context);
}

FN(cuCtxCreate, , 2000, CUcontext *context, unsigned flags, CUdevice device)
{
	ENTER(cuCtxCreate);
	return create(context, flags, device);
}

FN(cuCtxCreate, _v2, 3020, CUcontext *context, unsigned flags, CUdevice device)
{
	ENTER(cuCtxCreate_v2);
	return create(context, flags, device);
}

FN(cuCtxCreate, _v3, 11040, CUcontext *context, void *affinity, int count, unsigned flags, CUdevice device)
{
	ENTER(cuCtxCreate_v3);
	(void)affinity;
	(void)count;
	return create(context, flags, device);
}

FN(cuCtxCreate, _v4, 12050, CUcontext *context, void *parameters, unsigned flags, CUdevice device)
{
	ENTER(cuCtxCreate_v4);
	(void)parameters;
	return create(context, flags, device);
}

/* Contexts that share objects with graphics; the rest is as usual. */
FN(cuGLCtxCreate, , 2000, CUcontext *context, unsigned flags, CUdevice device) { ENTER(cuGLCtxCreate); return create(context, flags, device); }
FN(cuGLCtxCreate, _v2, 3020, CUcontext *context, unsigned flags, CUdevice device)
{
	ENTER(cuGLCtxCreate_v2);
	return create(context, flags, device);
}
FN(cuVDPAUCtxCreate, , 3010, CUcontext *context, unsigned flags, CUdevice device, unsigned vdp, void *get)
{
	ENTER(cuVDPAUCtxCreate);
	(void)vdp, (void)get;
	return create(context, flags, device);
}
FN(cuVDPAUCtxCreate, _v2, 3020, CUcontext *context, unsigned flags, CUdevice device, unsigned vdp, void *get)
{
	ENTER(cuVDPAUCtxCreate_v2);
	(void)vdp, (void)get;
	return create(context, flags, device);
}

/* Makes the context below the current one current; returns the former. */
static struct context *pop(void)
{
	struct context *was = fake_current;
	fake_current = depth > 0 ? stack[--depth] : NULL;
	return was;
}

/* Ends a created context. */
static CUresult destroy(struct context *context)
{
	if (!context || !context->id || context->primary || context->green)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (context == fake_current)
		pop();
	fake_context_ended(context);
	end_context(context);
	return CUDA_SUCCESS;
}

FN(cuCtxDestroy, , 2000, CUcontext context) { ENTER(cuCtxDestroy); return destroy(context); }
FN(cuCtxDestroy, _v2, 4000, CUcontext context)
{
	ENTER(cuCtxDestroy_v2);
	AT_RETURN();
	return destroy(context);
}
/* Unlike the others it wants the current one. */
FN(cuCtxDetach, , 2000, CUcontext context)
{
	ENTER(cuCtxDetach);
	return context == fake_current ? destroy(context) : CUDA_ERROR_INVALID_CONTEXT;
}

FN(cuCtxSetCurrent, , 4000, CUcontext context)
{
	ENTER(cuCtxSetCurrent);
	if (!fake_initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (context && !context->id)
		return CUDA_ERROR_INVALID_CONTEXT;
	fake_current = context;
	return CUDA_SUCCESS;
}

FN(cuCtxGetCurrent, , 4000, CUcontext *context)
{
	ENTER(cuCtxGetCurrent);
	NEED(context);
	if (!fake_initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	*context = fake_current;
	return CUDA_SUCCESS;
}

FN(cuCtxPushCurrent, , 2000, CUcontext context)
{
	ENTER(cuCtxPushCurrent);
	return context && context->id ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

FN(cuCtxPushCurrent, _v2, 4000, CUcontext context)
{
	ENTER(cuCtxPushCurrent_v2);
	return context && context->id ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

/* Pops the current context and stores it. */
static CUresult pop_into(CUcontext *context)
{
	NEED_CONTEXT();
	struct context *was = pop();
	if (context)
		*context = was;
	return CUDA_SUCCESS;
}

FN(cuCtxPopCurrent, , 2000, CUcontext *context) { ENTER(cuCtxPopCurrent); return pop_into(context); }
FN(cuCtxPopCurrent, _v2, 4000, CUcontext *context) { ENTER(cuCtxPopCurrent_v2); return pop_into(context); }

FN(cuCtxGetDevice, , 2000, CUdevice *device)
{
	ENTER(cuCtxGetDevice);
	NEED(device);
	NEED_CONTEXT();
	*device = fake_current->device;
	return CUDA_SUCCESS;
}

FN(cuCtxGetDevice, _v2, 13030, CUdevice *device, CUcontext context)
{
	ENTER(cuCtxGetDevice_v2);
	NEED(device);
	if (!context)
		context = fake_current;
	if (!context || !context->id)
		return CUDA_ERROR_INVALID_CONTEXT;
	*device = context->device;
	return CUDA_SUCCESS;
}

FN(cuCtxGetFlags, , 7000, unsigned *flags)
{
	ENTER(cuCtxGetFlags);
	NEED_CONTEXT();
	*flags = fake_current->flags;
	return CUDA_SUCCESS;
}

FN(cuCtxGetId, , 12000, CUcontext context, unsigned long long *id)
{
	ENTER(cuCtxGetId);
	NEED(id);
	if (!context && !(context = fake_current))
		return CUDA_ERROR_INVALID_CONTEXT;
	*id = context->id;
	return CUDA_SUCCESS;
}

FN(cuCtxGetApiVersion, , 3020, CUcontext context, unsigned *version)
{
	ENTER(cuCtxGetApiVersion);
	(void)context;
	*version = 3020;
	return CUDA_SUCCESS;
}

FN(cuCtxGetStreamPriorityRange, , 5050, int *least, int *greatest)
{
	ENTER(cuCtxGetStreamPriorityRange);
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

/* What a limit takes of the device beyond the driver's default; the stack for every thread that can be resident. */
static uint64_t limit_bytes(int limit, size_t value)
{
	static const size_t defaults[] = {1024, 1 << 20, 8 << 20};
	if (limit < 0 || limit > 2 || value <= defaults[limit])
		return 0;
	return (value - defaults[limit]) * (limit ? 1 : 100 * 2048);
}

FN(cuCtxSetLimit, , 3010, int limit, size_t value)
{
	ENTER(cuCtxSetLimit);
	NEED_CONTEXT();
	if (limit < 0 || limit > 2)
		return CUDA_SUCCESS;
	uint64_t bytes = limit_bytes(limit, value), before = fake_current->limits[limit];
	if (bytes > before && (bytes > fake_memory || !fake_charge(fake_current->device, bytes - before)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (bytes < before)
		fake_refund(fake_current->device, before - bytes);
	fake_current->limits[limit] = bytes;
	return CUDA_SUCCESS;
}

FN(cuCtxGetLimit, , 3010, size_t *value, int limit)
{
	ENTER(cuCtxGetLimit);
	(void)limit;
	NEED(value);
	*value = 1024;
	return CUDA_SUCCESS;
}

STUB(cuCtxSetCacheConfig, , 3020, int config __attribute__((unused)))
STUB(cuCtxEnablePeerAccess, , 4000, CUcontext peer __attribute__((unused)), unsigned flags __attribute__((unused)))
STUB(cuCtxDisablePeerAccess, , 4000, CUcontext peer __attribute__((unused)))

/* A green context retains the primary one, which has its memory. It has all SMs of its device: partitions are not modelled. */
FN(cuGreenCtxCreate, , 12040, CUcontext *green, void *description, CUdevice device, unsigned flags)
{
	ENTER(cuGreenCtxCreate);
	(void)description;
	NEED(green);
	NEED_DEVICE(device);
	CUcontext primary;
	CUresult result = retain_primary(&primary, device);
	if (result)
		return result;
	*green = new_context(device, flags);
	(*green)->green = 1;
	return CUDA_SUCCESS;
}

FN(cuCtxFromGreenCtx, , 12040, CUcontext *context, CUcontext green)
{
	ENTER(cuCtxFromGreenCtx);
	NEED(context);
	if (!green || !green->id)
		return CUDA_ERROR_INVALID_HANDLE;
	*context = green;
	return CUDA_SUCCESS;
}

FN(cuGreenCtxDestroy, , 12040, CUcontext green)
{
	ENTER(cuGreenCtxDestroy);
	NEED(green);
	if (!green->id)
		return CUDA_ERROR_INVALID_HANDLE;
	if (green == fake_current)
		pop();
	struct context *primary = &primaries[green->device];
	fake_context_hand_on(green, primary);
	end_context(green);
	return release_primary(green->device, primary->references == 0);
}

/* Waits for all work of a context. */
static CUresult synchronise(struct context *context)
{
	if (!context || !context->id)
		return context && context != fake_current ? CUDA_ERROR_INVALID_CONTEXT : fake_no_context();
	CUresult refused = fake_checks ? fake_check_wait_context(context) : CUDA_SUCCESS;
	if (refused)
		return refused;
	if (fake_simulated)
		fake_sim_wait_device(context->device);
	fake_pools_trim(context->device);
	return fake_broken;
}

FN(cuCtxSynchronize, , 2000, void) { ENTER(cuCtxSynchronize); return synchronise(fake_current); }
FN(cuCtxSynchronize, _v2, 13030, CUcontext context)
{
	ENTER(cuCtxSynchronize_v2);
	return synchronise(context ? context : fake_current);
}
