/* Events. Their times are those of the simulation; without it, those of cuEventRecord, since kernels take no time. */
#include "fake.h"
#include "wire.h"

#include <stdlib.h>

FN(cuEventCreate, , 2000, CUevent *event, unsigned flags)
{
	ENTER(cuEventCreate);
	NEED_CONTEXT();
	if (!event)
		return CUDA_ERROR_INVALID_VALUE;
	*event = calloc(1, sizeof **event);
	(*event)->flags = flags;
	(*event)->done = 1;
	return CUDA_SUCCESS;
}

FN(cuEventDestroy, _v2, 4000, CUevent event)
{
	ENTER(cuEventDestroy_v2);
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	free(event);
	return CUDA_SUCCESS;
}

FN(cuEventRecord, , 2000, CUevent event, CUstream handle)
{
	ENTER(cuEventRecord);
	NEED_CONTEXT();
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	struct stream *stream = fake_stream(handle);
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	event->recorded = 1;
	event->capture = stream->capture;
	if (stream->capture) {
		fake_node(stream->capture->graph, NODE_EMPTY);
		return CUDA_SUCCESS;
	}
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
	if (!event)
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
	if (!ms || !from || !to || !from->recorded || !to->recorded || (from->flags | to->flags) & 2)
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
