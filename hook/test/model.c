#include "model.h"

#include <stdlib.h>
#include <string.h>

#include "../src/cost.h"
#include "../src/gate.h"
#include "../src/interval.h"
#include "../src/reap.h"
#include "../src/platform.h"
#include "../src/start.h"

struct model_stream model_streams[MODEL_STREAMS];
uint64_t model_max_unfinished;
int model_captured_records, model_stale_event_calls, model_events, model_blocking_events;
CUresult model_launch_result;
int model_record_fails;
void (*model_on_bound_wait)(void), (*model_on_token_wait)(void);
uint64_t model_before_launch, model_after_launch;
int model_width;
static uint64_t clock_ns = GSH_SECOND, busy, ends[MODEL_STREAMS];
static struct gsh_union all;

struct event {
	uint64_t at; /* ns at which it is complete */
	int alive;
};

/* The platform: a wait advances the clock. */
uint64_t gsh_now(void) { return clock_ns; }
void gsh_sleep(uint64_t duration) {
	if (model_on_bound_wait) model_on_bound_wait();
	clock_ns += duration;
}
void gsh_wake_word(_Atomic uint32_t *word) { (void)word; }
int gsh_send(int fd, const void *frame, size_t length) { return (void)fd, (void)frame, (void)length, 0; }
int gsh_thread_start(void *(*main)(void *)) { return (void)main, 0; }
bool gsh_wait_word(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout) {
	(void)word, (void)seen;
	clock_ns += timeout;
	if (model_on_token_wait) model_on_token_wait();
	return false;
}

/* Returns the stream of a handle. */
static struct model_stream *stream_of(CUstream s) { return &model_streams[(uintptr_t)s % MODEL_STREAMS]; }
CUstream model_handle(int stream) { return (CUstream)(uintptr_t)(stream + 64 * MODEL_STREAMS); }

/* Returns the end of the parallel kernel that ends first, after which the next one can start. */
static uint64_t *earliest_end(void) {
	uint64_t *first = &ends[0];
	for (int i = 1; i < model_width; i++)
		if (ends[i] < *first) first = &ends[i];
	return first;
}

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static CUresult launch(CUfunction f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
		       CUstream s, void **p, void **x) {
	(void)b, (void)c, (void)d, (void)e, (void)g, (void)h, (void)p, (void)x;
	struct model_stream *st = stream_of(s);
	if (model_launch_result || st->capturing) return model_launch_result;
	clock_ns += model_before_launch;
	uint64_t before = model_unfinished(), *slot = earliest_end(), start = later(later(st->end, clock_ns), *slot);
	if (before > model_max_unfinished) model_max_unfinished = before;
	struct model_kernel *k = (struct model_kernel *)f;
	*slot = st->end = start + k->duration + k->per_block * a;
	busy += gsh_union_add(&all, (int64_t)start, (int64_t)st->end);
	clock_ns += model_after_launch;
	return CUDA_SUCCESS;
}

static CUresult event_create(CUevent *e, unsigned flags) {
	model_blocking_events += (flags & CU_EVENT_BLOCKING_SYNC) != 0;
	struct event *made = calloc(1, sizeof *made);
	made->alive = 1;
	model_events++;
	*e = (CUevent)made;
	return CUDA_SUCCESS;
}

/* The memory is kept, so that a later use is counted. */
static CUresult event_destroy(CUevent e) {
	model_stale_event_calls += !((struct event *)e)->alive;
	((struct event *)e)->alive = 0;
	model_events--;
	return CUDA_SUCCESS;
}

static CUresult event_record(CUevent e, CUstream s) {
	struct model_stream *st = stream_of(s);
	if (model_record_fails) return CUDA_ERROR_INVALID_VALUE;
	model_stale_event_calls += !((struct event *)e)->alive;
	model_captured_records += st->capturing;
	((struct event *)e)->at = st->end > clock_ns ? st->end : clock_ns;
	return CUDA_SUCCESS;
}

static CUresult event_query(CUevent e) {
	model_stale_event_calls += !((struct event *)e)->alive;
	return ((struct event *)e)->at <= clock_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult event_wait(CUevent e) {
	model_stale_event_calls += !((struct event *)e)->alive;
	if (((struct event *)e)->at > clock_ns) clock_ns = ((struct event *)e)->at;
	return CUDA_SUCCESS;
}

static CUresult event_elapsed(float *ms, CUevent from, CUevent to) {
	model_stale_event_calls += !((struct event *)from)->alive + !((struct event *)to)->alive;
	*ms = (float)((double)(int64_t)(((struct event *)to)->at - ((struct event *)from)->at) / 1e6);
	return CUDA_SUCCESS;
}

static CUresult is_capturing(CUstream s, int *status) { return *status = stream_of(s)->capturing, CUDA_SUCCESS; }
static CUresult begin_capture(CUstream s, int mode) { return (void)mode, stream_of(s)->capturing = 1, CUDA_SUCCESS; }
static CUresult end_capture(CUstream s, CUgraph *g) { return (void)g, stream_of(s)->capturing = 0, CUDA_SUCCESS; }
static CUresult stream_wait(CUstream s) {
	if (stream_of(s)->end > clock_ns) clock_ns = stream_of(s)->end;
	return CUDA_SUCCESS;
}
static CUresult context_current(CUcontext *c) { return *c = (CUcontext)0x1000, CUDA_SUCCESS; }
static CUresult stream_context(CUstream s, CUcontext *c) { return (void)s, *c = (CUcontext)0x1000, CUDA_SUCCESS; }
static CUresult stream_query(CUstream s) { return stream_of(s)->end > clock_ns ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS; }
static CUresult context_device(CUdevice *d) { return *d = 0, CUDA_SUCCESS; }
static CUresult context_destroy(CUcontext c) { return (void)c, CUDA_SUCCESS; }
static CUresult context_wait(void) {
	for (int i = 0; i < MODEL_STREAMS; i++)
		if (model_streams[i].end > clock_ns) clock_ns = model_streams[i].end;
	return CUDA_SUCCESS;
}
static CUresult graph_launch(CUgraphExec e, CUstream s) { return launch((CUfunction)e, 0, 0, 0, 0, 0, 0, 0, s, 0, 0); }
/* Every change of an executable graph; the test changes what it runs. */
static CUresult graph_change(void) { return CUDA_SUCCESS; }
static CUresult device_count(int *n) { return *n = 1, CUDA_SUCCESS; }

/* Puts the functions of the model in place of the driver's. */
static void install_functions(void) {
	static const struct {
		int at;
		void *function;
	} functions[] = {{I_cuLaunchKernel, launch},
		     {I_cuEventCreate, event_create},
		     {I_cuEventDestroy_v2, event_destroy},
		     {I_cuEventRecord, event_record},
		     {I_cuEventQuery, event_query},
		     {I_cuEventSynchronize, event_wait},
		     {I_cuEventElapsedTime, event_elapsed},
		     {I_cuStreamIsCapturing, is_capturing},
		     {I_cuStreamBeginCapture_v2, begin_capture},
		     {I_cuStreamEndCapture, end_capture},
		     {I_cuStreamSynchronize, stream_wait},
		     {I_cuCtxSynchronize, context_wait},
		     {I_cuCtxGetCurrent, context_current},
		     {I_cuStreamGetCtx, stream_context},
		     {I_cuStreamQuery, stream_query},
		     {I_cuCtxGetDevice, context_device},
		     {I_cuCtxDestroy_v2, context_destroy},
		     {I_cuGraphLaunch, graph_launch},
		     {I_cuGraphExecUpdate, graph_change},
		     {I_cuGraphExecUpdate_v2, graph_change},
		     {I_cuGraphExecKernelNodeSetParams, graph_change},
		     {I_cuGraphExecKernelNodeSetParams_v2, graph_change},
		     {I_cuGraphExecChildGraphNodeSetParams, graph_change},
		     {I_cuGraphExecNodeSetParams, graph_change},
		     {I_cuGraphExecMemcpyNodeSetParams, graph_change},
		     {I_cuGraphExecMemsetNodeSetParams, graph_change},
		     {I_cuGraphNodeSetEnabled, graph_change},
		     {I_cuDeviceGetCount, device_count}};
	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) atomic_store(&gsh_real[functions[i].at], functions[i].function);
}

void model_start(uint64_t run_ahead) {
	install_functions();
	setenv("GSHARE_DIR", "/nonexistent", 1);
	gsh_start();
	gsh_reap_context((CUcontext)0x1000);
	gsh_account_after_fork(); /* resets all sums */
	gsh_streams_after_fork();
	memset(gsh_costs, 0, sizeof gsh_costs);
	memset(model_streams, 0, sizeof model_streams);
	atomic_store(&gsh_mode, GSHARE_MODE_TIME);
	atomic_store(&gsh_self_paced, false);
	atomic_store(&gsh_vgpus[0].server->run_ahead, run_ahead);
	model_max_unfinished = busy = model_captured_records = model_stale_event_calls = 0;
	model_before_launch = model_after_launch = 0;
	model_launch_result = CUDA_SUCCESS;
	model_width = MODEL_STREAMS;
	clock_ns += 20 * GSH_SECOND;
}

void model_advance(uint64_t ns) {
	for (uint64_t end = clock_ns + ns; clock_ns < end;) {
		uint64_t next = (clock_ns / GSH_MILLISECOND + 1) * GSH_MILLISECOND;
		clock_ns = next < end ? next : end;
		if (clock_ns != next) continue;
		gsh_reap();
		atomic_fetch_add(&gsh_epoch, 1);
	}
}

void model_launch(struct model_kernel *k, int stream) { model_launch_blocks(k, stream, 4); }

void model_launch_blocks(struct model_kernel *k, int stream, unsigned blocks) {
	model_advance(5 * GSH_MICROSECOND);
	cuLaunchKernel((CUfunction)k, blocks, 1, 1, 32, 1, 1, 0, model_handle(stream), NULL, NULL);
}

uint64_t model_unfinished(void) {
	uint64_t sum = 0;
	for (int i = 0; i < MODEL_STREAMS; i++)
		if (model_streams[i].end > clock_ns) sum += model_streams[i].end - clock_ns;
	return sum;
}

uint64_t model_busy(void) { return busy; }
