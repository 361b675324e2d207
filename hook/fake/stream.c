/* Streams. */
#include "fake.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

static THREAD_LOCAL struct stream *own; /* the calling thread's default stream */
static struct stream *destroyed;        /* guarded by fake_lock */

uint64_t fake_next_id(void)
{
	static uint64_t next;
	return __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
}

/* Creates a stream of a context. */
static struct stream *make(struct context *context, unsigned flags, int priority)
{
	pthread_mutex_lock(&fake_lock);
	struct stream *stream = destroyed;
	if (stream)
		destroyed = stream->next;
	pthread_mutex_unlock(&fake_lock);
	if (!stream)
		stream = calloc(1, sizeof *stream);
	*stream = (struct stream){.context = context, .context_id = context->id, .id = fake_next_id(), .flags = flags, .priority = priority};
	return stream;
}

/* A stream is destroyed with its context. */
static int is_live(const struct stream *stream) { return stream->id && stream->context->id == stream->context_id; }

struct stream *fake_stream(CUstream stream)
{
	if (stream > STREAM_PER_THREAD)
		return is_live(stream) ? stream : NULL;
	if (!fake_current || !fake_current->id)
		return NULL;
	if (stream != STREAM_PER_THREAD)
		return fake_current->legacy;
	if (!own || own->context != fake_current || !is_live(own))
		own = make(fake_current, 0, 0);
	return own;
}

CUresult fake_no_stream(CUstream handle)
{
	return handle > STREAM_PER_THREAD && fake_initialised ? CUDA_ERROR_INVALID_HANDLE : fake_no_context();
}

/* The functions that create streams. */
static CUresult create(CUstream *stream, unsigned flags, int priority)
{
	NEED_CONTEXT();
	if (!stream)
		return CUDA_ERROR_INVALID_VALUE;
	*stream = make(fake_current, flags, priority);
	return CUDA_SUCCESS;
}

FN(cuStreamCreate, , 2000, CUstream *stream, unsigned flags) { ENTER(cuStreamCreate); return create(stream, flags, 0); }
FN(cuStreamCreateWithPriority, , 5050, CUstream *stream, unsigned flags, int priority)
{
	ENTER(cuStreamCreateWithPriority);
	return create(stream, flags, priority);
}

FN(cuGreenCtxStreamCreate, , 12050, CUstream *stream, CUcontext green, unsigned flags, int priority)
{
	ENTER(cuGreenCtxStreamCreate);
	if (!stream || !green)
		return CUDA_ERROR_INVALID_VALUE;
	if (!green->id)
		return CUDA_ERROR_INVALID_HANDLE;
	*stream = make(green, flags, priority);
	return CUDA_SUCCESS;
}

/* The functions that destroy streams. */
static CUresult destroy(CUstream stream)
{
	if (stream <= STREAM_PER_THREAD || !is_live(stream))
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&fake_lock);
	stream->id = 0;
	stream->next = destroyed;
	destroyed = stream;
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

FN(cuStreamDestroy, , 2000, CUstream stream) { ENTER(cuStreamDestroy); return destroy(stream); }
FN(cuStreamDestroy, _v2, 4000, CUstream stream) { ENTER(cuStreamDestroy_v2); return destroy(stream); }

FN(cuStreamSynchronize, , 2000, CUstream handle)
{
	ENTER(cuStreamSynchronize);
	NEED_STREAM(stream, handle);
	CUresult refused = fake_checks ? fake_check_wait(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	if (fake_simulated)
		fake_sim_wait_stream(stream);
	fake_pools_trim(stream->context->device);
	return fake_broken;
}
TWIN(cuStreamSynchronize, , _ptsz, 7000, (CUstream s), (PER_THREAD(s)))

FN(cuStreamQuery, , 2000, CUstream handle)
{
	ENTER(cuStreamQuery);
	NEED_STREAM(stream, handle);
	CUresult refused = fake_checks ? fake_check_wait(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	fake_spend(1000);
	return fake_simulated && fake_sim_query_stream(stream) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}
TWIN(cuStreamQuery, , _ptsz, 7000, (CUstream s), (PER_THREAD(s)))

FN(cuStreamWaitEvent, , 3020, CUstream handle, CUevent event, unsigned flags)
{
	ENTER(cuStreamWaitEvent);
	(void)flags;
	if (!fake_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	NEED_STREAM(stream, handle);
	if (event->capture)
		fake_join_capture(stream, event);
	else if (fake_capture(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else if (fake_simulated && event->recorded && !event->done)
		fake_sim_work(SIM_AFTER, stream, 0, 0, 0, event->id);
	return CUDA_SUCCESS;
}
TWIN(cuStreamWaitEvent, , _ptsz, 7000, (CUstream s, CUevent e, unsigned f), (PER_THREAD(s), e, f))

FN(cuStreamGetFlags, , 5050, CUstream handle, unsigned *flags)
{
	ENTER(cuStreamGetFlags);
	NEED_STREAM(stream, handle);
	*flags = stream->flags;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetFlags, , _ptsz, 7000, (CUstream s, unsigned *f), (PER_THREAD(s), f))

FN(cuStreamGetPriority, , 5050, CUstream handle, int *priority)
{
	ENTER(cuStreamGetPriority);
	NEED_STREAM(stream, handle);
	*priority = stream->priority;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetPriority, , _ptsz, 7000, (CUstream s, int *p), (PER_THREAD(s), p))

/* Version 1 has no answer for streams of green contexts. Version 2 stores their primary context, and the green one. */
FN(cuStreamGetCtx, , 9020, CUstream handle, CUcontext *context)
{
	ENTER(cuStreamGetCtx);
	NEED_STREAM(stream, handle);
	if (stream->context->green && handle > STREAM_PER_THREAD)
		return CUDA_ERROR_NOT_SUPPORTED;
	*context = stream->context;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetCtx, , _ptsz, 9020, (CUstream s, CUcontext *c), (PER_THREAD(s), c))
FN(cuStreamGetCtx, _v2, 12050, CUstream handle, CUcontext *context, CUcontext *green)
{
	ENTER(cuStreamGetCtx_v2);
	NEED_STREAM(stream, handle);
	*green = stream->context->green ? stream->context : NULL;
	*context = *green ? fake_primary(stream->context->device) : stream->context;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetCtx, _v2, _ptsz, 12050, (CUstream s, CUcontext *c, CUcontext *g), (PER_THREAD(s), c, g))

FN(cuStreamGetId, , 12000, CUstream handle, unsigned long long *id)
{
	ENTER(cuStreamGetId);
	NEED_STREAM(stream, handle);
	*id = stream->id;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetId, , _ptsz, 12000, (CUstream s, unsigned long long *id), (PER_THREAD(s), id))

FN(cuStreamGetDevice, , 12080, CUstream handle, CUdevice *device)
{
	ENTER(cuStreamGetDevice);
	NEED_STREAM(stream, handle);
	*device = stream->context->device;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetDevice, , _ptsz, 12080, (CUstream s, CUdevice *d), (PER_THREAD(s), d))

/* Attributes of streams have no effect, and are not kept. */
FN(cuStreamGetAttribute, , 11000, CUstream handle, int attribute, void *value)
{
	ENTER(cuStreamGetAttribute);
	(void)attribute;
	NEED_STREAM(stream, handle);
	memset(value, 0, 64); /* CUstreamAttrValue */
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetAttribute, , _ptsz, 11000, (CUstream s, int a, void *v), (PER_THREAD(s), a, v))
STUB(cuStreamSetAttribute, , 11000, CUstream s __attribute__((unused)), int a __attribute__((unused)), const void *v __attribute__((unused)))
STUB(cuStreamCopyAttributes, , 11000, CUstream to __attribute__((unused)), CUstream from __attribute__((unused)))

/* A callback runs before the call returns. */
FN(cuStreamAddCallback, , 5000, CUstream handle, void (*call)(CUstream, CUresult, void *), void *data, unsigned flags)
{
	ENTER(cuStreamAddCallback);
	(void)flags;
	NEED_STREAM(stream, handle);
	if (fake_capture(stream))
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (fake_simulated)
		fake_sim_wait_stream(stream);
	call(handle, CUDA_SUCCESS, data);
	return CUDA_SUCCESS;
}
TWIN(cuStreamAddCallback, , _ptsz, 7000, (CUstream s, void (*c)(CUstream, CUresult, void *), void *d, unsigned f), (PER_THREAD(s), c, d, f))

/* Writes 32-bit words to memory. */
static CUresult write(CUstream handle, CUdeviceptr at, uint64_t value, int words)
{
	NEED_STREAM(stream, handle);
	for (int i = 0; i < words; i++) {
		struct move move = {.to = {at + 4u * (unsigned)i, 4, 4, EITHER}, .width = 4, .rows = 1, .layers = 1, .value = (uint32_t)(value >> 32 * i), .unit = 4};
		CUresult result = fake_move_check(&move);
		if (result)
			return result;
		fake_move(&move);
	}
	return CUDA_SUCCESS;
}
/* A wait for a value ends at once: who would write it later is not modelled. */
static CUresult wait(CUstream handle)
{
	NEED_STREAM(stream, handle);
	return CUDA_SUCCESS;
}
#define VALUE(name, type, ...)                                                                                          \
	FN(name, _v2, 11070, CUstream s, CUdeviceptr at, type value, unsigned flags)                                    \
	{                                                                                                               \
		ENTER(name##_v2);                                                                                       \
		(void)at, (void)value, (void)flags;                                                                     \
		return __VA_ARGS__;                                                                                     \
	}                                                                                                               \
	TWIN(name, _v2, _ptsz, 11070, (CUstream s, CUdeviceptr at, type value, unsigned flags), (PER_THREAD(s), at, value, flags))
VALUE(cuStreamWriteValue32, uint32_t, write(s, at, value, 1))
VALUE(cuStreamWriteValue64, uint64_t, write(s, at, value, 2))
VALUE(cuStreamWaitValue32, uint32_t, wait(s))
VALUE(cuStreamWaitValue64, uint64_t, wait(s))
