/* Streams. */
#include "fake.h"
#include "wire.h"

#include <stdlib.h>

static THREAD_LOCAL struct stream *own; /* the calling thread's default stream */

uint64_t fake_next_id(void)
{
	static uint64_t next;
	return __atomic_add_fetch(&next, 1, __ATOMIC_RELAXED);
}

/* Creates a stream of the current context. */
static struct stream *make(unsigned flags, int priority)
{
	struct stream *stream = calloc(1, sizeof *stream);
	stream->context = fake_current;
	stream->id = fake_next_id();
	stream->flags = flags;
	stream->priority = priority;
	return stream;
}

struct stream *fake_stream(CUstream stream)
{
	if (!fake_current)
		return NULL;
	if (!stream || stream == STREAM_LEGACY)
		return fake_current->legacy;
	if (stream != STREAM_PER_THREAD)
		return stream;
	if (!own || own->context != fake_current)
		own = make(0, 0);
	return own;
}

/* The functions that create streams. */
static CUresult create(CUstream *stream, unsigned flags, int priority)
{
	NEED_CONTEXT();
	if (!stream)
		return CUDA_ERROR_INVALID_VALUE;
	*stream = make(flags, priority);
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
	*stream = calloc(1, sizeof **stream);
	(*stream)->context = green;
	(*stream)->id = fake_next_id();
	(*stream)->flags = flags;
	(*stream)->priority = priority;
	return CUDA_SUCCESS;
}

/* The functions that destroy streams. */
static CUresult destroy(CUstream stream)
{
	if (!stream || stream == STREAM_LEGACY || stream == STREAM_PER_THREAD)
		return CUDA_ERROR_INVALID_HANDLE;
	free(stream);
	return CUDA_SUCCESS;
}

FN(cuStreamDestroy, , 2000, CUstream stream) { ENTER(cuStreamDestroy); return destroy(stream); }
FN(cuStreamDestroy, _v2, 4000, CUstream stream) { ENTER(cuStreamDestroy_v2); return destroy(stream); }

FN(cuStreamSynchronize, , 2000, CUstream handle)
{
	ENTER(cuStreamSynchronize);
	NEED_CONTEXT();
	struct stream *stream = fake_stream(handle);
	CUresult refused = fake_checks ? fake_check_wait(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	if (fake_simulated)
		fake_sim_wait_stream(stream);
	fake_pools_trim(stream->context->device);
	return CUDA_SUCCESS;
}
TWIN(cuStreamSynchronize, , _ptsz, 7000, (CUstream s), (PER_THREAD(s)))

FN(cuStreamQuery, , 2000, CUstream handle)
{
	ENTER(cuStreamQuery);
	NEED_CONTEXT();
	struct stream *stream = fake_stream(handle);
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
	NEED_CONTEXT();
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	struct stream *stream = fake_stream(handle);
	if (event->capture)
		fake_join_capture(stream, event);
	else if (stream->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else if (fake_simulated && event->recorded && !event->done)
		fake_sim_work(SIM_AFTER, stream, 0, 0, 0, event->id);
	return CUDA_SUCCESS;
}
TWIN(cuStreamWaitEvent, , _ptsz, 7000, (CUstream s, CUevent e, unsigned f), (PER_THREAD(s), e, f))

FN(cuStreamGetFlags, , 5050, CUstream handle, unsigned *flags)
{
	ENTER(cuStreamGetFlags);
	NEED_CONTEXT();
	*flags = fake_stream(handle)->flags;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetFlags, , _ptsz, 7000, (CUstream s, unsigned *f), (PER_THREAD(s), f))

FN(cuStreamGetPriority, , 5050, CUstream handle, int *priority)
{
	ENTER(cuStreamGetPriority);
	NEED_CONTEXT();
	*priority = fake_stream(handle)->priority;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetPriority, , _ptsz, 7000, (CUstream s, int *p), (PER_THREAD(s), p))

FN(cuStreamGetCtx, , 9020, CUstream handle, CUcontext *context)
{
	ENTER(cuStreamGetCtx);
	NEED_CONTEXT();
	*context = fake_stream(handle)->context;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetCtx, , _ptsz, 9020, (CUstream s, CUcontext *c), (PER_THREAD(s), c))

FN(cuStreamGetId, , 12000, CUstream handle, unsigned long long *id)
{
	ENTER(cuStreamGetId);
	NEED_CONTEXT();
	*id = fake_stream(handle)->id;
	return CUDA_SUCCESS;
}
TWIN(cuStreamGetId, , _ptsz, 12000, (CUstream s, unsigned long long *id), (PER_THREAD(s), id))
