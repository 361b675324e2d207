/*
 * Streams that capture. While there is one, every launch asks whether its own stream captures: such a launch passes, and
 * is charged when the graph is launched. No mark goes into a capturing stream (it would become a node of the graph).
 */
#define _GNU_SOURCE
#include "gate.h"

static bool captures(CUstream s) {
	int status = 0;
	return CALL(cuStreamIsCapturing, s, &status) == CUDA_SUCCESS && status;
}

/* The epoch changes first, so that no thread is on the fast path when the capture begins. */
static CUresult begun(CUresult r) {
	if (r != CUDA_SUCCESS) atomic_fetch_sub(&gsh_captures, 1);
	return r;
}

static void begin(void) {
	atomic_fetch_add(&gsh_captures, 1);
	atomic_fetch_add(&gsh_epoch, 1);
}

#define BEGIN(name, parameters, arguments)                                                                              \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		begin();                                                                                                \
		return begun(real arguments);                                                                           \
	}
BEGIN(cuStreamBeginCapture, (CUstream s), (s))
BEGIN(cuStreamBeginCapture_ptsz, (CUstream s), (s))
BEGIN(cuStreamBeginCapture_v2, (CUstream s, int mode), (s, mode))
BEGIN(cuStreamBeginCapture_v2_ptsz, (CUstream s, int mode), (s, mode))
BEGIN(cuStreamBeginCaptureToGraph, (CUstream s, CUgraph g, const CUgraphNode *from, const void *edges, size_t n, int mode),
      (s, g, from, edges, n, mode))
BEGIN(cuStreamBeginCaptureToGraph_ptsz,
      (CUstream s, CUgraph g, const CUgraphNode *from, const void *edges, size_t n, int mode), (s, g, from, edges, n, mode))

/* An end that fails may or may not have ended the capture: the driver knows. */
#define END(name, twin)                                                                                                 \
	GSH_EXPORT CUresult name(CUstream s, CUgraph *g) {                                                              \
		NEED(name);                                                                                             \
		bool before = captures(gsh_stream(s, twin));                                                            \
		CUresult r = real(s, g);                                                                                \
		if (before && !captures(gsh_stream(s, twin))) atomic_fetch_sub(&gsh_captures, 1);                       \
		return r;                                                                                               \
	}
END(cuStreamEndCapture, false)
END(cuStreamEndCapture_ptsz, true)

GSH_EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
	NEED(cuStreamDestroy_v2);
	bool before = atomic_load(&gsh_captures) && captures(s);
	gsh_stream_gone(s);
	CUresult r = real(s);
	if (before && r == CUDA_SUCCESS) atomic_fetch_sub(&gsh_captures, 1);
	return r;
}
