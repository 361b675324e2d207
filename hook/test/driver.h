/* The driver functions that the test programs call besides those of symbols.def. */
#ifndef GSHARE_TEST_DRIVER_H
#define GSHARE_TEST_DRIVER_H

#include "../src/symbols.h"

CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *name);
CUresult cuStreamCreate(CUstream *s, unsigned flags);
CUresult cuEventCreate(CUevent *e, unsigned flags);
CUresult cuEventDestroy_v2(CUevent e);
CUresult cuMemAddressReserve(CUdeviceptr *p, size_t bytes, size_t align, CUdeviceptr at, unsigned long long flags);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice d);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props);
CUresult cuStreamIsCapturing(CUstream s, int *status);
CUresult cuGraphCreate(CUgraph *g, unsigned flags);
CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph g, const CUgraphNode *from, size_t n);
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph g, const CUgraphNode *from, size_t n, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGreenCtxStreamCreate(CUstream *s, CUgreenCtx g, unsigned flags, int priority);
CUresult cuCtxFromGreenCtx(CUcontext *c, CUgreenCtx g);
CUresult cuCtxGetCurrent(CUcontext *c);
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph g, const CUgraphNode *from, size_t n, CUgraph child);
CUresult cuGraphDestroy(CUgraph g);
CUresult cuGraphGetNodes(CUgraph g, CUgraphNode *nodes, size_t *n);
CUresult cuDeviceGetGraphMemAttribute(CUdevice d, int attribute, void *value);

/* Initialises the driver, makes a context on device 0 current and returns a kernel; NULL if any of this fails. */
static inline CUfunction driver_start(const char *kernel) {
	CUcontext c = NULL;
	CUmodule m = NULL;
	CUfunction f = NULL;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&c, 0) || cuCtxSetCurrent(c) || cuModuleLoadData(&m, "") ||
	    cuModuleGetFunction(&f, m, kernel))
		return NULL;
	return f;
}

/* Launches one thread block. */
static inline CUresult driver_launch(CUfunction f, CUstream s) { return cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL); }

#endif
