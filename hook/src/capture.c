/*
 * Streams that capture. While any stream captures, every launch queries whether its own stream does: such a launch is
 * not gated and is charged when the graph is launched. No event is recorded in a capturing stream, where it would become a
 * node of the graph.
 */
#define _GNU_SOURCE
#include "capturing.h"
#include "device.h"
#include "gate.h"

/* Counts a capture before it begins. Changes the epoch too, so that no thread is on the fast path during the capture. */
static void begin_capture(void) {
	atomic_fetch_add(&gsh_captures, 1);
	atomic_fetch_add(&gsh_epoch, 1);
}

/* Undoes begin_capture if the driver began no capture. Returns r. */
static CUresult capture_begun(CUresult r) {
	if (r != CUDA_SUCCESS) atomic_fetch_sub(&gsh_captures, 1);
	return r;
}

#define BEGIN(name, parameters, arguments)                                                                              \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		begin_capture();                                                                                        \
		return capture_begun(real arguments);                                                                   \
	}
BEGIN(cuStreamBeginCapture, (CUstream s), (s))
BEGIN(cuStreamBeginCapture_ptsz, (CUstream s), (s))
BEGIN(cuStreamBeginCapture_v2, (CUstream s, int mode), (s, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream s, int mode), (s, mode))
BEGIN(cuStreamBeginCaptureToGraph, (CUstream s, CUgraph g, const CUgraphNode *from, const void *edges, size_t n, int mode),
      (s, g, from, edges, n, mode))
BEGIN(cuStreamBeginCaptureToGraph_ptsz,
      (CUstream s, CUgraph g, const CUgraphNode *from, const void *edges, size_t n, int mode), (s, g, from, edges, n, mode))

/* A call that fails may or may not have ended the capture, so the driver is queried. No other thread ends it meanwhile. */
#define END(name, twin)                                                                                                 \
	GSH_EXPORT CUresult name(CUstream s, CUgraph *g) {                                                              \
		NEED(name);                                                                                             \
		if (!gsh_captures_lock()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;                                 \
		bool before = gsh_stream_is_capturing(gsh_stream_handle(s, twin));                                      \
		CUresult r = real(s, g);                                                                                \
		if (before && !gsh_stream_is_capturing(gsh_stream_handle(s, twin))) atomic_fetch_sub(&gsh_captures, 1); \
		gsh_captures_unlock();                                                                                  \
		return r;                                                                                               \
	}
END(cuStreamEndCapture, false)
END(cuStreamEndCapture_ptsz, true)

#define DESTROY(name)                                                                                                   \
	GSH_EXPORT CUresult name(CUstream s) {                                                                          \
		NEED(name);                                                                                             \
		gsh_stream_forget(s);                                                                                   \
		if (!gsh_captures_lock()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;                                 \
		bool before = gsh_stream_is_capturing(s);                                                                                  \
		CUresult r = real(s);                                                                                   \
		if (before && r == CUDA_SUCCESS) atomic_fetch_sub(&gsh_captures, 1);                                    \
		gsh_captures_unlock();                                                                                  \
		return r;                                                                                               \
	}
DESTROY(cuStreamDestroy)
DESTROY(cuStreamDestroy_v2)
