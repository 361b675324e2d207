/* Events. Their times are those of the simulation; without it, those of cuEventRecord, since kernels take no time. */
#include "fake.h"
#include "wire.h"

#include <stdlib.h>

static struct event *destroyed; /* guarded by fake_lock */

/* An event is destroyed with its context. */
struct event *fake_event(CUevent event)
{
	return event && event->context && event->context->id == event->context_id ? event : NULL;
}

FN(cuEventCreate, , 2000, CUevent *event, unsigned flags)
{
	ENTER(cuEventCreate);
	NEED_CONTEXT();
	if (!event)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake_lock);
	struct event *made = destroyed;
	if (made)
		destroyed = made->next;
	pthread_mutex_unlock(&fake_lock);
	if (!made)
		made = calloc(1, sizeof *made);
	*made = (struct event){.context = fake_current, .context_id = fake_current->id, .flags = flags, .done = 1};
	*event = made;
	return CUDA_SUCCESS;
}

FN(cuEventDestroy, _v2, 4000, CUevent event)
{
	ENTER(cuEventDestroy_v2);
	if (!event || !event->context)
		return CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&fake_lock);
	event->context = NULL;
	event->next = destroyed;
	destroyed = event;
	pthread_mutex_unlock(&fake_lock);
	return CUDA_SUCCESS;
}

FN(cuEventRecord, , 2000, CUevent event, CUstream handle)
{
	ENTER(cuEventRecord);
	NEED_STREAM(stream, handle);
	if (!fake_event(event) || event->context != stream->context) /* cuda.h does not say whether an event of the primary context fits a green one's stream */
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	event->recorded = 1;
	event->capture = fake_capture(stream);
	if (fake_capture_node(stream, &(struct graph_node){.type = NODE_EMPTY}))
		return CUDA_SUCCESS;
	event->capture = NULL;
	event->id = fake_next_id();
	event->done = !fake_simulated;
	if (fake_simulated) {
		fake_spend(1000);
		fake_sim_work(SIM_RECORD, stream, 0, 0, 0, event->id);
	} else {
		event->time = fake_now();
	}
	return CUDA_SUCCESS;
}
TWIN(cuEventRecord, , _ptsz, 7000, (CUevent e, CUstream s), (e, PER_THREAD(s)))
FN(cuEventRecordWithFlags, , 11010, CUevent event, CUstream stream, unsigned flags)
{
	ENTER(cuEventRecordWithFlags);
	(void)flags;
	return cuEventRecord(event, stream);
}
TWIN(cuEventRecordWithFlags, , _ptsz, 11010, (CUevent e, CUstream s, unsigned f), (e, PER_THREAD(s), f))

/* Queries an event, or waits for it. */
static CUresult query(struct event *event, int wait)
{
	if (!fake_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (event->capture)
		return CUDA_ERROR_CAPTURED_EVENT;
	CUresult refused = fake_checks ? fake_check_unsafe() : CUDA_SUCCESS;
	if (refused)
		return refused;
	fake_spend(1000); /* time has to pass for a program that polls */
	if (!event->done)
		event->done = fake_sim_event(event, wait);
	return event->done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

FN(cuEventQuery, , 2000, CUevent event) { ENTER(cuEventQuery); return query(event, 0); }
FN(cuEventSynchronize, , 2000, CUevent event) { ENTER(cuEventSynchronize); return query(event, 1); }

/* Stores the ms between two events. */
static CUresult elapsed(float *ms, CUevent from, CUevent to)
{
	if (!ms || !fake_event(from) || !fake_event(to) || from->context != to->context || !from->recorded || !to->recorded || (from->flags | to->flags) & 2)
		return CUDA_ERROR_INVALID_HANDLE;
	if (query(from, 0) || query(to, 0))
		return CUDA_ERROR_NOT_READY;
	*ms = (float)((double)(int64_t)(to->time - from->time) / 1e6);
	return CUDA_SUCCESS;
}

FN(cuEventElapsedTime, , 2000, float *ms, CUevent from, CUevent to) { ENTER(cuEventElapsedTime); return elapsed(ms, from, to); }
FN(cuEventElapsedTime, _v2, 12080, float *ms, CUevent from, CUevent to)
{
	ENTER(cuEventElapsedTime_v2);
	return elapsed(ms, from, to);
}

/* CUipcEventHandle. */
struct ipc_event {
	char bytes[64];
};
#define SHAREABLE 6 /* CU_EVENT_INTERPROCESS and CU_EVENT_DISABLE_TIMING */

/* An event that was opened is complete until this process records it: what the other process does with it is not modelled. */
FN(cuIpcGetEventHandle, , 4010, struct ipc_event *handle, CUevent event)
{
	ENTER(cuIpcGetEventHandle);
	if (!fake_event(event))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!handle || (event->flags & SHAREABLE) != SHAREABLE)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = (struct ipc_event){{0}};
	return CUDA_SUCCESS;
}
FN(cuIpcOpenEventHandle, , 4010, CUevent *event, struct ipc_event handle)
{
	ENTER(cuIpcOpenEventHandle);
	(void)handle;
	return cuEventCreate(event, SHAREABLE);
}
