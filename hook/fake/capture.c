/*
 * Stream capture, with the errors that a driver returns for illegal calls: a hook that makes one while its host process
 * captures invalidates the capture. Which calls are unsafe is documented at cuThreadExchangeStreamCaptureMode.
 */
#include "fake.h"

#include <stdlib.h>

/* CUstreamCaptureMode. */
enum { MODE_GLOBAL = 0, MODE_THREAD_LOCAL = 1, MODE_RELAXED = 2 };

int fake_checks;
pthread_mutex_t fake_lock = PTHREAD_MUTEX_INITIALIZER;

#define CAPTURES_MAX 64
static struct capture *active[CAPTURES_MAX]; /* guarded by fake_lock */
static unsigned long captured; /* launches; guarded by fake_lock */
static THREAD_LOCAL int thread_mode; /* the calling thread's capture mode */

unsigned long fakecuda_captured(void)
{
	LOCKED(fake_lock);
	return captured;
}

/* Reports whether a capture prohibits unsafe calls of the calling thread. */
static int prohibits(struct capture *c)
{
	int mine = pthread_equal(c->thread, pthread_self());
	if (thread_mode == MODE_RELAXED || c->mode == MODE_RELAXED)
		return 0;
	return mine || (thread_mode == MODE_GLOBAL && c->mode == MODE_GLOBAL);
}

/* An unsafe call fails and invalidates every capture that prohibits it. */
CUresult fake_check_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < CAPTURES_MAX; i++)
		if (active[i] && prohibits(active[i])) {
			active[i]->invalid = 1;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

struct capture *fake_capture(struct stream *stream)
{
	struct capture *capture = __atomic_load_n(&stream->capture, __ATOMIC_ACQUIRE);
	return capture && !__atomic_load_n(&capture->ended, __ATOMIC_ACQUIRE) ? capture : NULL;
}

/* Another thread may end the capture, and its owner destroy the graph, so the node is appended under the lock. */
int fake_capture_node(struct stream *stream, const struct graph_node *node)
{
	if (!fake_capture(stream))
		return 0;
	LOCKED(fake_lock);
	struct capture *capture = fake_capture(stream);
	if (capture)
		fake_node(capture->graph, node);
	if (capture && (node->type == NODE_KERNEL || node->type == NODE_GRAPH))
		captured++;
	return capture != NULL;
}

CUresult fake_check_wait(struct stream *stream)
{
	struct capture *capture = fake_capture(stream);
	if (capture) {
		capture->invalid = 1;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	return fake_check_unsafe();
}

/* A synchronisation with a context includes its streams that capture, whatever their modes and whoever's they are. */
CUresult fake_check_wait_context(const struct context *context)
{
	CUresult result = fake_check_unsafe();
	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < CAPTURES_MAX; i++)
		if (active[i] && active[i]->origin->context == context) {
			active[i]->invalid = 1;
			result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

/* The legacy stream synchronises with all blocking streams of its context, which is illegal while one of them captures. */
CUresult fake_check_legacy(struct stream *stream)
{
	if (!stream->context || stream != stream->context->legacy)
		return CUDA_SUCCESS;
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < CAPTURES_MAX; i++)
		if (active[i] && active[i]->origin->context == stream->context && !(active[i]->origin->flags & 1)) {
			active[i]->invalid = 1;
			result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

void fake_join_capture(struct stream *stream, struct event *event)
{
	if (event->capture->ended)
		return;
	if (!fake_capture(stream)) {
		stream->capture = event->capture;
		event->capture->forks++;
	} else if (stream->capture == event->capture && stream == event->capture->origin && event->capture->forks > 0) {
		event->capture->forks--;
	}
}

/* Begins a capture, into a given graph or a new one. */
static CUresult begin(CUstream handle, int mode, struct graph *into)
{
	NEED_STREAM(stream, handle);
	if (stream == stream->context->legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (fake_capture(stream))
		return CUDA_ERROR_ILLEGAL_STATE;
	struct capture *capture = calloc(1, sizeof *capture);
	*capture = (struct capture){into ? into : fake_graph(), stream, pthread_self(), mode, 0, 0, 0, fake_next_id()};
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < CAPTURES_MAX && result; i++)
		if (!active[i]) {
			active[i] = stream->capture = capture;
			__atomic_add_fetch(&fake_checks, 1, __ATOMIC_RELAXED);
			result = CUDA_SUCCESS;
		}
	pthread_mutex_unlock(&fake_lock);
	return result;
}

FN(cuStreamBeginCapture, , 10000, CUstream stream) { ENTER(cuStreamBeginCapture); return begin(stream, MODE_GLOBAL, NULL); }
TWIN(cuStreamBeginCapture, , _ptsz, 10000, (CUstream s), (PER_THREAD(s)))
FN(cuStreamBeginCapture, _v2, 10010, CUstream stream, int mode) { ENTER(cuStreamBeginCapture_v2); return begin(stream, mode, NULL); }
TWIN(cuStreamBeginCapture, _v2, _ptsz, 10010, (CUstream s, int m), (PER_THREAD(s), m))
FN(cuStreamBeginCaptureToGraph, , 12030, CUstream stream, CUgraph graph, const CUgraphNode *after, const void *data, size_t count, int mode)
{
	ENTER(cuStreamBeginCaptureToGraph);
	(void)after, (void)data, (void)count;
	return graph ? begin(stream, mode, graph) : CUDA_ERROR_INVALID_VALUE;
}
TWIN(cuStreamBeginCaptureToGraph, , _ptsz, 12030,
     (CUstream s, CUgraph g, const CUgraphNode *a, const void *d, size_t n, int m), (PER_THREAD(s), g, a, d, n, m))

FN(cuStreamEndCapture, , 10000, CUstream handle, CUgraph *graph)
{
	ENTER(cuStreamEndCapture);
	NEED_STREAM(stream, handle);
	struct capture *capture = fake_capture(stream);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = NULL;
	if (!capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (stream != capture->origin)
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	if (capture->mode != MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	pthread_mutex_lock(&fake_lock);
	for (int i = 0; i < CAPTURES_MAX; i++)
		if (active[i] == capture) {
			active[i] = NULL;
			__atomic_store_n(&capture->ended, 1, __ATOMIC_RELEASE);
			__atomic_sub_fetch(&fake_checks, 1, __ATOMIC_RELAXED);
		}
	pthread_mutex_unlock(&fake_lock);
	if (capture->invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (capture->forks)
		return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	*graph = capture->graph;
	return CUDA_SUCCESS;
}
TWIN(cuStreamEndCapture, , _ptsz, 10000, (CUstream s, CUgraph *g), (PER_THREAD(s), g))

/* Returns the CUstreamCaptureStatus: 0 none, 1 active, 2 invalidated. */
static int status(const struct capture *capture) { return !capture ? 0 : capture->invalid ? 2 : 1; }

FN(cuStreamIsCapturing, , 10000, CUstream handle, int *capturing)
{
	ENTER(cuStreamIsCapturing);
	NEED_STREAM(stream, handle);
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	*capturing = status(fake_capture(stream));
	if (*capturing)
		fake_returning(NULL); /* as AT_RETURN, but only in captures */
	return CUDA_SUCCESS;
}
TWIN(cuStreamIsCapturing, , _ptsz, 10000, (CUstream s, int *c), (PER_THREAD(s), c))

/* Stores status, number and graph of a capture. */
static CUresult info(CUstream handle, int *capturing, unsigned long long *id, CUgraph *graph)
{
	NEED_STREAM(stream, handle);
	struct capture *capture = fake_capture(stream);
	*capturing = status(capture);
	if (id)
		*id = capture ? capture->id : 0;
	if (graph)
		*graph = capture ? capture->graph : NULL;
	return CUDA_SUCCESS;
}

FN(cuStreamGetCaptureInfo, , 10010, CUstream stream, int *capturing, unsigned long long *id)
{
	ENTER(cuStreamGetCaptureInfo);
	return info(stream, capturing, id, NULL);
}
TWIN(cuStreamGetCaptureInfo, , _ptsz, 10010, (CUstream s, int *c, unsigned long long *id), (PER_THREAD(s), c, id))
FN(cuStreamGetCaptureInfo, _v2, 11030, CUstream stream, int *capturing, unsigned long long *id, CUgraph *graph,
   const CUgraphNode **after, size_t *count)
{
	ENTER(cuStreamGetCaptureInfo_v2);
	if (after)
		*after = NULL;
	if (count)
		*count = 0;
	return info(stream, capturing, id, graph);
}
TWIN(cuStreamGetCaptureInfo, _v2, _ptsz, 11030,
     (CUstream s, int *c, unsigned long long *id, CUgraph *g, const CUgraphNode **a, size_t *n), (PER_THREAD(s), c, id, g, a, n))
FN(cuStreamGetCaptureInfo, _v3, 12030, CUstream stream, int *capturing, unsigned long long *id, CUgraph *graph,
   const CUgraphNode **after, const void **data, size_t *count)
{
	ENTER(cuStreamGetCaptureInfo_v3);
	if (after)
		*after = NULL;
	if (data)
		*data = NULL;
	if (count)
		*count = 0;
	return info(stream, capturing, id, graph);
}
TWIN(cuStreamGetCaptureInfo, _v3, _ptsz, 12030,
     (CUstream s, int *c, unsigned long long *id, CUgraph *g, const CUgraphNode **a, const void **d, size_t *n),
     (PER_THREAD(s), c, id, g, a, d, n))

/* Nodes run one after another, so what the next one depends on makes no difference. */
static CUresult update(CUstream handle)
{
	NEED_STREAM(stream, handle);
	return fake_capture(stream) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_STATE;
}
FN(cuStreamUpdateCaptureDependencies, , 11030, CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags)
{
	ENTER(cuStreamUpdateCaptureDependencies);
	(void)nodes, (void)count, (void)flags;
	return update(stream);
}
TWIN(cuStreamUpdateCaptureDependencies, , _ptsz, 11030, (CUstream s, CUgraphNode *n, size_t c, unsigned f), (PER_THREAD(s), n, c, f))
FN(cuStreamUpdateCaptureDependencies, _v2, 12030, CUstream stream, CUgraphNode *nodes, const void *data, size_t count, unsigned flags)
{
	ENTER(cuStreamUpdateCaptureDependencies_v2);
	(void)nodes, (void)data, (void)count, (void)flags;
	return update(stream);
}
TWIN(cuStreamUpdateCaptureDependencies, _v2, _ptsz, 12030,
     (CUstream s, CUgraphNode *n, const void *d, size_t c, unsigned f), (PER_THREAD(s), n, d, c, f))

FN(cuThreadExchangeStreamCaptureMode, , 10010, int *mode)
{
	ENTER(cuThreadExchangeStreamCaptureMode);
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	int was = thread_mode;
	thread_mode = *mode;
	*mode = was;
	return CUDA_SUCCESS;
}
