/* Checks the fake driver without a simulation: errors, counts and memory. Prints each check that fails. */
#include "../fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *cuda;
static int failures;

/* Returns a function of the driver. */
static void *find(const char *name)
{
	void *function = dlsym(cuda, name);
	if (!function) {
		printf("no %s\n", name);
		exit(1);
	}
	return function;
}

#define CALL(name, ...) ((CUresult(*)())find(#name))(__VA_ARGS__)
#define WANT(result, ...)                                                                                               \
	do {                                                                                                            \
		int got_ = (int)(__VA_ARGS__);                                                                          \
		if (got_ != (int)(result)) {                                                                            \
			printf("line %d: %s is %d, want %d\n", __LINE__, #__VA_ARGS__, got_, (int)(result));            \
			failures++;                                                                                     \
		}                                                                                                       \
	} while (0)
#define OK(...) WANT(CUDA_SUCCESS, __VA_ARGS__)

static CUcontext context;
static CUfunction kernel;
static CUstream stream;

static CUresult launch(CUstream s)
{
	return ((CUresult(*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **,
			     void **))find("cuLaunchKernel"))(kernel, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL);
}

static uint64_t used(void)
{
	size_t left, total;
	OK(CALL(cuMemGetInfo_v2, &left, &total));
	return total - left;
}

static void start(void)
{
	int count = 0;
	CUmodule module;
	WANT(CUDA_ERROR_NOT_INITIALIZED, CALL(cuDeviceGetCount, &count));
	OK(CALL(cuInit, 0));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuInit, 1));
	WANT(CUDA_ERROR_INVALID_CONTEXT, CALL(cuCtxSynchronize));
	WANT(CUDA_ERROR_INVALID_CONTEXT, launch(NULL));
	OK(CALL(cuDevicePrimaryCtxRetain, &context, 0));
	OK(CALL(cuCtxSetCurrent, context));
	OK(CALL(cuModuleLoadData, &module, ""));
	WANT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetFunction, &kernel, module, "missing"));
	OK(CALL(cuModuleGetFunction, &kernel, module, "spin_ns1000_sm500_blocks8"));
	OK(CALL(cuStreamCreate, &stream, 1));
	OK(launch(stream));
}

static void look_up(void)
{
	void *f = NULL, *g = NULL;
	int status = -1;
	OK(CALL(cuGetProcAddress_v2, "cuMemAlloc", &f, 12000, (uint64_t)0, &status));
	WANT(1, f == find("cuMemAlloc_v2"));
	OK(CALL(cuGetProcAddress_v2, "cuMemAlloc", &f, 2000, (uint64_t)0, &status));
	WANT(1, f == find("cuMemAlloc"));
	OK(CALL(cuGetProcAddress_v2, "cuLaunchKernel", &f, 12000, (uint64_t)2, NULL));
	WANT(1, f == find("cuLaunchKernel_ptsz"));
	OK(CALL(cuGetProcAddress_v2, "cuCtxCreate", &f, 12000, (uint64_t)0, &status));
	OK(CALL(cuGetProcAddress_v2, "cuCtxCreate", &g, 13000, (uint64_t)0, &status));
	WANT(1, f == find("cuCtxCreate_v3") && g == find("cuCtxCreate_v4"));
	OK(CALL(cuGetProcAddress_v2, "cuNoSuchThing", &f, 12000, (uint64_t)0, &status));
	WANT(1, f == NULL && status == 1);
	OK(CALL(cuGetProcAddress_v2, "cuLaunchKernelEx", &f, 11000, (uint64_t)0, &status));
	WANT(1, f == NULL && status == 2);
	WANT(CUDA_ERROR_NOT_FOUND, CALL(cuGetProcAddress, "cuNoSuchThing", &f, 11030, (uint64_t)0));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuGetProcAddress_v2, "cuInit", &f, 99000, (uint64_t)0, &status));
	WANT(CUDA_ERROR_NOT_FOUND, CALL(cuGetExportTable, &f, "0123456789abcdef"));
}

/* Captures a launch and one illegal call, and returns the result of the end of the capture. */
static CUresult captured(int mode, CUresult want, CUresult (*wrong)(void))
{
	CUgraph graph;
	OK(CALL(cuStreamBeginCapture_v2, stream, mode));
	OK(launch(stream));
	if (wrong)
		WANT(want, wrong());
	return CALL(cuStreamEndCapture, stream, &graph);
}

static CUresult wait_for_it(void) { return CALL(cuStreamSynchronize, stream); }
static CUresult wait_for_all(void) { return CALL(cuCtxSynchronize); }
static CUresult allocate(void) { CUdeviceptr p; return CALL(cuMemAlloc_v2, &p, (size_t)4096); }
static CUresult ask(void)
{
	CUevent event;
	OK(CALL(cuEventCreate, &event, 0));
	return CALL(cuEventQuery, event);
}
static CUresult captured_event(void)
{
	CUevent event;
	OK(CALL(cuEventCreate, &event, 0));
	OK(CALL(cuEventRecord, event, stream));
	return CALL(cuEventQuery, event);
}
static void *elsewhere(void *relaxed)
{
	int mode = 2;
	CALL(cuCtxSetCurrent, context);
	if (relaxed)
		CALL(cuThreadExchangeStreamCaptureMode, &mode);
	return (void *)(intptr_t)ask();
}
static CUresult in_thread(void *relaxed)
{
	pthread_t t;
	void *result;
	pthread_create(&t, NULL, elsewhere, relaxed);
	pthread_join(t, &result);
	return (CUresult)(intptr_t)result;
}
static CUresult helper(void) { return in_thread(NULL); }
static CUresult relaxed_helper(void) { return in_thread(""); }

static void capture(void)
{
	CUgraph graph;
	CUgraphExec exec;
	CUgraphNode nodes[4];
	size_t count = 4;
	int type = -1;
	OK(captured(0, 0, NULL));
	WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, captured(0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, wait_for_it));
	for (int mode = 0; mode < 3; mode++)
		WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, captured(mode, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, wait_for_all));
	WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, captured(0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, allocate));
	WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, captured(0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, ask));
	WANT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, captured(0, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, helper));
	OK(captured(0, CUDA_SUCCESS, relaxed_helper));
	OK(captured(1, CUDA_SUCCESS, helper)); /* thread-local: other threads may */
	OK(captured(2, CUDA_SUCCESS, allocate));
	OK(captured(0, CUDA_ERROR_CAPTURED_EVENT, captured_event));
	WANT(CUDA_ERROR_ILLEGAL_STATE, CALL(cuStreamEndCapture, stream, &graph));
	OK(CALL(cuStreamBeginCapture_v2, stream, 0));
	OK(launch(stream));
	OK(launch(stream));
	OK(CALL(cuStreamEndCapture, stream, &graph));
	OK(CALL(cuGraphGetNodes, graph, nodes, &count));
	OK(CALL(cuGraphNodeGetType, nodes[1], &type));
	WANT(1, count == 2 && type == NODE_KERNEL);
	OK(CALL(cuGraphInstantiateWithFlags, &exec, graph, 0ull));
	OK(CALL(cuGraphLaunch, exec, stream));
}

static void memory(void)
{
	CUdeviceptr p, q;
	unsigned long long handle, again;
	int prop[8] = {1, 0, 1, 0}; /* pinned memory of device 0 */
	uint64_t before = used();
	OK(CALL(cuMemAlloc_v2, &p, (size_t)1000));
	WANT(1024, used() - before);
	OK(CALL(cuMemFree_v2, p));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2, p));
	WANT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAlloc_v2, &p, (size_t)1 << 50));
	/* The memory of a handle is freed with its last mapping. */
	OK(CALL(cuMemAddressReserve, &p, (size_t)4 << 20, (size_t)0, 0ull, 0ull));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemCreate, &handle, (size_t)1000, prop, 0ull));
	OK(CALL(cuMemCreate, &handle, (size_t)4 << 20, prop, 0ull));
	OK(CALL(cuMemMap, p, (size_t)4 << 20, (size_t)0, handle, 0ull));
	OK(CALL(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)p));
	OK(CALL(cuMemRelease, handle));
	OK(CALL(cuMemRelease, again));
	WANT(4 << 20, used() - before);
	OK(CALL(cuMemUnmap, p, (size_t)4 << 20));
	WANT(0, used() - before);
	/* A pool keeps its memory until a synchronisation. */
	OK(CALL(cuMemAllocAsync, &q, (size_t)1 << 20, stream));
	WANT(32 << 20, used() - before);
	OK(CALL(cuMemFreeAsync, q, stream));
	WANT(32 << 20, used() - before);
	OK(CALL(cuStreamSynchronize, stream));
	WANT(0, used() - before);
	size_t descriptor[4] = {100, 100, 0x100000020, 0}; /* 100 x 100 floats, one channel */
	OK(CALL(cuArrayCreate_v2, &handle, descriptor));
	WANT(40448, used() - before);
	OK(CALL(cuArrayDestroy, (void *)(uintptr_t)handle));
	WANT(0, used() - before);
}

/* Handles of released memory, arrays by their format, and memory of graphs that is freed elsewhere. */
static void more_memory(void)
{
	CUdeviceptr p;
	unsigned long long handle;
	int prop[8] = {1, 0, 1, 0};
	uint64_t before = used();
	OK(CALL(cuMemAddressReserve, &p, (size_t)4 << 20, (size_t)0, 0ull, 0ull));
	OK(CALL(cuMemCreate, &handle, (size_t)4 << 20, prop, 0ull));
	OK(CALL(cuMemMap, p, (size_t)4 << 20, (size_t)0, handle, 0ull));
	OK(CALL(cuMemRelease, handle));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemRelease, handle));
	WANT(4 << 20, used() - before);
	OK(CALL(cuMemUnmap, p, (size_t)4 << 20));
	WANT(0, used() - before);
	struct { size_t width, height, depth; int format; unsigned channels, flags; } bc1 = {8192, 8192, 0, 0x91, 4, 0}, sparse = {16384, 16384, 0, 0x20, 4, 0x40};
	OK(CALL(cuArray3DCreate_v2, &handle, &bc1));
	WANT(32 << 20, used() - before);
	OK(CALL(cuArrayDestroy, (void *)(uintptr_t)handle));
	OK(CALL(cuArray3DCreate_v2, &handle, &sparse));
	WANT(0, used() - before);
	OK(CALL(cuArrayDestroy, (void *)(uintptr_t)handle));
	CUgraph graph;
	CUgraphExec exec;
	OK(CALL(cuStreamBeginCapture_v2, stream, 0));
	OK(CALL(cuMemAllocAsync, &p, (size_t)4 << 20, stream));
	OK(CALL(cuStreamEndCapture, stream, &graph));
	OK(CALL(cuGraphInstantiateWithFlags, &exec, graph, 0ull));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2, p)); /* not launched */
	OK(CALL(cuGraphLaunch, exec, stream));
	WANT(4 << 20, used() - before);
	OK(CALL(cuMemFreeAsync, p, stream));
	OK(CALL(cuDeviceGraphMemTrim, 0));
	WANT(0, used() - before);
}

/* cuGraphAddNode adds the kinds that have functions of their own, and no others. */
static void nodes_of_all_kinds(void)
{
	static const int types[] = {NODE_KERNEL, NODE_GRAPH, NODE_EMPTY, NODE_ALLOC, NODE_FREE, NODE_HOST};
	CUgraph graph, child;
	CUgraphExec exec;
	CUgraphNode node;
	uint64_t before = used(), address = 0;
	OK(CALL(cuGraphCreate, &graph, 0));
	OK(CALL(cuGraphCreate, &child, 0));
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		int type = -1;
		struct { int type, zero[3]; union { uint64_t words[29]; struct kernel_params kernel; }; uint64_t last; } p = {.type = types[i]};
		if (types[i] == NODE_KERNEL)
			p.kernel = (struct kernel_params){.function = kernel, .grid = {1, 1, 1}, .block = {1, 1, 1}};
		if (types[i] == NODE_GRAPH)
			p.words[0] = (uintptr_t)child;
		if (types[i] == NODE_ALLOC)
			p.words[0] = 1, p.words[1] = 1, p.words[13] = 4 << 20; /* on device 0; bytes */
		if (types[i] == NODE_FREE)
			p.words[0] = address;
		p.zero[1] = 1;
		WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuGraphAddNode, &node, graph, NULL, (size_t)0, &p));
		p.zero[1] = 0;
		WANT(types[i] == NODE_HOST ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS, CALL(cuGraphAddNode, &node, graph, NULL, (size_t)0, &p));
		OK(CALL(cuGraphNodeGetType, node, &type));
		WANT(types[i] == NODE_HOST ? NODE_FREE : types[i], type);
		if (types[i] == NODE_ALLOC)
			address = p.words[14];
	}
	OK(CALL(cuGraphInstantiateWithFlags, &exec, graph, 0ull));
	OK(CALL(cuGraphLaunch, exec, stream));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2, address)); /* the graph has freed it */
	WANT(4 << 20, used() - before);
	OK(CALL(cuDeviceGraphMemTrim, 0));
	WANT(0, used() - before);
	OK(CALL(cuGraphExecDestroy, exec));
	OK(CALL(cuGraphDestroy, child));
	OK(CALL(cuGraphDestroy, graph));
}

/* Streams that have joined a capture leave it when it ends. */
static void joined(void)
{
	CUstream with;
	CUevent fork_event, join_event;
	CUgraph graph;
	int capturing = -1;
	OK(CALL(cuStreamCreate, &with, 1));
	OK(CALL(cuEventCreate, &fork_event, 2));
	OK(CALL(cuEventCreate, &join_event, 2));
	OK(CALL(cuStreamBeginCapture_v2, stream, 2));
	OK(CALL(cuEventRecord, fork_event, stream));
	OK(CALL(cuStreamWaitEvent, with, fork_event, 0));
	OK(CALL(cuEventRecord, join_event, with));
	OK(CALL(cuStreamWaitEvent, stream, join_event, 0));
	OK(CALL(cuStreamEndCapture, stream, &graph));
	OK(CALL(cuStreamIsCapturing, with, &capturing));
	WANT(0, capturing);
	OK(CALL(cuGraphDestroy, graph));
	OK(CALL(cuEventRecord, fork_event, with));
	OK(CALL(cuStreamDestroy_v2, with));
	WANT(CUDA_ERROR_INVALID_HANDLE, launch(with));
}

static int ended; /* whether the captures of end_captures are over */
static void *launch_on(void *unused)
{
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED))
		launch(stream);
	return unused;
}

/* A capture that one thread ends while another one launches. */
static void end_captures(void)
{
	pthread_t t;
	CUgraph graph;
	OK(pthread_create(&t, NULL, launch_on, NULL));
	for (int i = 0; i < 20000; i++) {
		OK(CALL(cuStreamBeginCapture_v2, stream, 2));
		OK(CALL(cuStreamEndCapture, stream, &graph));
		OK(CALL(cuGraphDestroy, graph));
	}
	__atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
	OK(pthread_join(t, NULL));
}

/* A child that was forked from a process with the driver has none. */
static void forked(void)
{
	int status = -1, bus = -1;
	char id[32] = "";
	OK(CALL(cuDeviceGetPCIBusId, id, 32, 0));
	OK(CALL(cuDeviceGetAttribute, &bus, 33, 0));
	WANT(strtol(id + 5, NULL, 16), bus);
	pid_t child = fork();
	if (child == 0) {
		CUdeviceptr p;
		WANT(CUDA_ERROR_NOT_INITIALIZED, CALL(cuInit, 0));
		WANT(CUDA_ERROR_NOT_INITIALIZED, CALL(cuMemAlloc_v2, &p, (size_t)512));
		OK(CALL(cuDriverGetVersion, &bus));
		_exit(failures != 0);
	}
	waitpid(child, &status, 0);
	WANT(0, status);
}

/* Fills a buffer with bytes that differ from those of another seed. */
static void fill(unsigned char *to, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (unsigned char)((i * 7 + seed) % 251);
}

/* Copies and memsets change the bytes of memory, and only those that they are called for. */
static void contents(void)
{
	enum { N = 3 << 20 };
	static unsigned char in[N], out[N];
	CUdeviceptr p, q, far, managed;
	OK(CALL(cuMemAlloc_v2, &p, (size_t)N));
	OK(CALL(cuMemAlloc_v2, &q, (size_t)N));
	fill(in, N, 1);
	OK(CALL(cuMemcpyHtoD_v2, p, in, (size_t)N));
	OK(CALL(cuMemcpyDtoDAsync_v2, q + 100, p, (size_t)(N - 100), stream));
	OK(CALL(cuMemcpyDtoHAsync_v2, out, q, (size_t)N, stream));
	OK(CALL(cuStreamSynchronize, stream));
	WANT(0, memcmp(out + 100, in, N - 100));
	WANT(1, out[0] == 0 && out[99] == 0); /* never written */
	OK(CALL(cuMemcpyDtoD_v2, p + 1, p, (size_t)1000)); /* rows may overlap */
	OK(CALL(cuMemcpyDtoH_v2, out, p, (size_t)2000));
	WANT(1, !memcmp(out + 1, in, 1000) && !memcmp(out + 1001, in + 1001, 999));
	OK(CALL(cuMemsetD32_v2, q + 4, 0x04030201u, (size_t)2));
	OK(CALL(cuMemsetD2D8_v2, q + 64, (size_t)16, 9, (size_t)2, (size_t)3));
	OK(CALL(cuMemcpy, (CUdeviceptr)(uintptr_t)out, q, (size_t)128));
	WANT(0, memcmp(out, "\0\0\0\0\1\2\3\4\1\2\3\4\0\0\0", 15));
	WANT(1, out[64] == 9 && out[65] == 9 && out[66] == 0 && out[80] == 9 && out[96] == 9 && out[97] == 9 && out[98] == 0);
	/* One row of each of two: x, y, type, host, device, array, pitch of both sides, then width and height. */
	size_t rows[16] = {3, 1, 1, (size_t)in, 0, 0, 64, 5, 0, 2, 0, p, 0, 32, 7, 2};
	OK(CALL(cuMemcpy2D_v2, rows));
	OK(CALL(cuMemcpyDtoH_v2, out, p, (size_t)64));
	WANT(1, !memcmp(out + 5, in + 67, 7) && !memcmp(out + 37, in + 131, 7));
	/* Errors: beyond the end, from the address NULL. */
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemcpyHtoD_v2, p + 1, in, (size_t)N));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemcpyHtoD_v2, p, NULL, (size_t)1));
	/* The device and the host use managed memory at one address. */
	OK(CALL(cuMemAllocManaged, &managed, (size_t)4096, 1));
	memcpy((void *)(uintptr_t)managed, "host", 5);
	OK(CALL(cuMemcpyDtoD_v2, p, managed, (size_t)5));
	OK(CALL(cuMemcpyDtoH_v2, out, p, (size_t)5));
	WANT(0, strcmp((char *)out, "host"));
	OK(CALL(cuMemFree_v2, managed));
	/* An allocation takes no memory of the host before it is used, and as much as is written then. */
	OK(CALL(cuMemAlloc_v2, &far, (size_t)12 << 30));
	OK(CALL(cuMemcpyHtoD_v2, far + (11ull << 30), in, (size_t)4));
	OK(CALL(cuMemcpyDtoH_v2, out, far + (11ull << 30), (size_t)4));
	WANT(0, memcmp(out, in, 4));
	OK(CALL(cuMemFree_v2, far));
	OK(CALL(cuMemFree_v2, p));
	OK(CALL(cuMemFree_v2, q));
}

/* Copies in a graph read what is there when it is launched. */
static void copies_in_graphs(void)
{
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr p;
	unsigned char out[8] = {0};
	OK(CALL(cuMemAlloc_v2, &p, (size_t)8));
	OK(CALL(cuStreamBeginCapture_v2, stream, 0));
	OK(CALL(cuMemsetD8Async, p, 7, (size_t)4, stream));
	OK(CALL(cuMemcpyDtoDAsync_v2, p + 4, p, (size_t)4, stream));
	OK(CALL(cuStreamEndCapture, stream, &graph));
	OK(CALL(cuGraphInstantiateWithFlags, &exec, graph, 0ull));
	OK(CALL(cuMemcpyDtoH_v2, out, p, (size_t)8));
	WANT(0, out[0] | out[7]);
	OK(CALL(cuGraphLaunch, exec, stream));
	OK(CALL(cuMemcpyDtoH_v2, out, p, (size_t)8));
	WANT(1, out[0] == 7 && out[7] == 7);
	OK(CALL(cuMemFree_v2, p));
}

/* A copy crosses the mappings of a range, at their offsets, and keeps to their access. */
static void mappings(void)
{
	enum { HALF = 2 << 20 };
	static unsigned char in[2 * HALF], out[2 * HALF];
	CUdeviceptr p;
	unsigned long long handle;
	int prop[8] = {1, 0, 1, 0}, read_only[3] = {1, 0, 1}, all[3] = {1, 0, 3};
	OK(CALL(cuMemAddressReserve, &p, (size_t)2 * HALF, (size_t)0, 0ull, 0ull));
	OK(CALL(cuMemCreate, &handle, (size_t)2 * HALF, prop, 0ull));
	OK(CALL(cuMemMap, p, (size_t)HALF, (size_t)HALF, handle, 0ull)); /* the halves change places */
	OK(CALL(cuMemMap, p + HALF, (size_t)HALF, (size_t)0, handle, 0ull));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemcpyHtoD_v2, p, in, (size_t)1));
	OK(CALL(cuMemSetAccess, p, (size_t)2 * HALF, all, (size_t)1));
	fill(in, sizeof in, 2);
	OK(CALL(cuMemcpyHtoD_v2, p, in, sizeof in));
	OK(CALL(cuMemcpyDtoH_v2, out, p, sizeof out));
	WANT(0, memcmp(in, out, sizeof in));
	OK(CALL(cuMemSetAccess, p, (size_t)2 * HALF, read_only, (size_t)1));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemsetD8_v2, p, 0, (size_t)1));
	OK(CALL(cuMemcpyDtoH_v2, out, p, (size_t)1));
	OK(CALL(cuMemUnmap, p, (size_t)2 * HALF));
	OK(CALL(cuMemMap, p, (size_t)2 * HALF, (size_t)0, handle, 0ull));
	OK(CALL(cuMemSetAccess, p, (size_t)2 * HALF, all, (size_t)1));
	OK(CALL(cuMemcpyDtoH_v2, out, p, sizeof out));
	WANT(1, !memcmp(out, in + HALF, HALF) && !memcmp(out + HALF, in, HALF));
	OK(CALL(cuMemUnmap, p, (size_t)2 * HALF));
	OK(CALL(cuMemRelease, handle));
}

static void faults(void)
{
	CUdeviceptr p;
	int (*order)(const char *, unsigned long, unsigned long, CUresult) = find("fakecuda_fail");
	unsigned long (*calls)(const char *) = find("fakecuda_calls");
	unsigned long before = calls("cuMemAlloc_v2");
	WANT(0, order("cuNoSuchThing", 1, 1, 2));
	WANT(1, order("cuMemAlloc_v2", 2, 1, CUDA_ERROR_OUT_OF_MEMORY));
	OK(CALL(cuMemAlloc_v2, &p, (size_t)512));
	WANT(CUDA_ERROR_OUT_OF_MEMORY, CALL(cuMemAlloc_v2, &p, (size_t)512));
	OK(CALL(cuMemAlloc_v2, &p, (size_t)512));
	WANT(3, calls("cuMemAlloc_v2") - before);
}

/* Managed memory is address space until a device touches it, or it is moved there; pointers say what they are. */
static void managed(void)
{
	CUdeviceptr p;
	uint64_t before = used();
	OK(CALL(cuMemAllocManaged, &p, (size_t)4 << 20, 1));
	*(volatile int *)(uintptr_t)p = 1;
	OK(CALL(cuMemPrefetchAsync, p, (size_t)4 << 20, -1, stream));
	WANT(0, used() - before);
	OK(CALL(cuMemsetD8_v2, p, 1, (size_t)1));
	WANT(4 << 20, used() - before);
	OK(CALL(cuMemFree_v2, p));
	WANT(0, used() - before);
	OK(CALL(cuMemAllocManaged, &p, (size_t)4 << 20, 1));
	OK(CALL(cuMemPrefetchAsync, p + 4096, (size_t)4096, 0, stream));
	WANT(4 << 20, used() - before);
	OK(CALL(cuMemFree_v2, p));
	OK(CALL(cuMemAllocManaged, &p, (size_t)1 << 40, 1)); /* more than the device has */
	OK(CALL(cuMemsetD8_v2, p, 1, (size_t)1));
	WANT(0, used() - before);
	OK(CALL(cuMemFree_v2, p));
}

/* Returns an attribute of a pointer by both functions, which have to agree. */
static uint64_t attribute(int which, const void *p)
{
	uint64_t one = 0, other = 0;
	void *values[] = {&other};
	OK(CALL(cuPointerGetAttribute, &one, which, (CUdeviceptr)(uintptr_t)p));
	OK(CALL(cuPointerGetAttributes, 1u, &which, values, (CUdeviceptr)(uintptr_t)p));
	WANT(1, one == other);
	return one;
}

static void pointers(void)
{
	char own[4096], *host = NULL;
	CUdeviceptr p;
	uint64_t value = 7, size = 7;
	int device = 7, which[] = {2, 12, 9};
	void *values[] = {&value, &size, &device};
	unsigned flags = 0;
	OK(CALL(cuMemAlloc_v2, &p, (size_t)1000));
	WANT(2, attribute(2, (char *)(uintptr_t)p + 10));
	WANT(1000, attribute(12, (char *)(uintptr_t)p + 10));
	WANT(1, attribute(11, (char *)(uintptr_t)p + 10) == p);
	OK(CALL(cuMemFree_v2, p));
	OK(CALL(cuMemHostAlloc, &host, (size_t)1000, 1u));
	WANT(1, attribute(2, host + 999));
	WANT(1000, attribute(12, host));
	OK(CALL(cuMemHostGetFlags, &flags, host));
	WANT(3, flags);
	WANT(713, CALL(cuMemHostUnregister, host));
	OK(CALL(cuMemFreeHost, host));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFreeHost, host));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuPointerGetAttribute, &value, 2, (CUdeviceptr)(uintptr_t)own));
	OK(CALL(cuPointerGetAttributes, 3u, which, values, (CUdeviceptr)(uintptr_t)own));
	WANT(1, value >> 32 == 0 && (unsigned)value == 0 && size == 0 && device == -2);
	OK(CALL(cuMemHostRegister_v2, own, sizeof own, 0u));
	WANT(712, CALL(cuMemHostRegister_v2, own, sizeof own, 0u));
	WANT(1, attribute(2, own));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuMemFreeHost, own));
	OK(CALL(cuMemHostUnregister, own));
	WANT(713, CALL(cuMemHostUnregister, own));
}

/* Attributes of kernels, variables, events for other processes, and words that a stream writes. */
static void programs(void)
{
	CUmodule module, again = NULL;
	CUfunction f;
	CUevent event, opened;
	CUdeviceptr p = 0, q = 0;
	struct { char bytes[64]; } handle;
	size_t bytes = 0;
	int value = 0;
	uint64_t word = 0;
	OK(CALL(cuModuleLoadData, &module, ".global .b8 table[1000000];"));
	OK(CALL(cuModuleGetGlobal_v2, &p, &bytes, module, "table"));
	WANT(1, p && bytes >= 1000000);
	OK(CALL(cuLibraryGetGlobal, &q, NULL, module, "table"));
	WANT(1, p == q);
	WANT(CUDA_ERROR_NOT_FOUND, CALL(cuModuleGetGlobal_v2, &p, &bytes, module, "missing"));
	OK(CALL(cuStreamWriteValue64_v2, stream, p, 0x123456789abcdef0ull, 0u));
	OK(CALL(cuMemcpyDtoH_v2, &word, p, (size_t)8));
	WANT(1, word == 0x123456789abcdef0);
	OK(CALL(cuModuleGetFunction, &f, module, "f"));
	OK(CALL(cuKernelGetLibrary, &again, f));
	WANT(1, again == module);
	OK(CALL(cuFuncGetAttribute, &value, 0, f));
	WANT(1024, value);
	OK(CALL(cuKernelSetAttribute, 8, 100000, f, 0));
	OK(CALL(cuFuncGetAttribute, &value, 8, f));
	WANT(100000, value);
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuFuncSetAttribute, f, 0, 1));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuFuncGetAttribute, &value, 16, f));
	OK(CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, &value, f, 256, (size_t)0, 0u));
	WANT(8, value);
	OK(CALL(cuModuleUnload, module));
	OK(CALL(cuEventCreate, &event, 0));
	WANT(CUDA_ERROR_INVALID_VALUE, CALL(cuIpcGetEventHandle, &handle, event));
	OK(CALL(cuEventDestroy_v2, event));
	OK(CALL(cuEventCreate, &event, 6));
	OK(CALL(cuIpcGetEventHandle, &handle, event));
	OK(CALL(cuIpcOpenEventHandle, &opened, handle));
	OK(CALL(cuEventSynchronize, opened));
	OK(CALL(cuStreamWaitEvent, stream, opened, 0u));
	OK(CALL(cuEventDestroy_v2, opened));
	OK(CALL(cuEventDestroy_v2, event));
	OK(CALL(cuDeviceGetPCIBusId, handle.bytes, 64, 0));
	OK(CALL(cuDeviceGetByPCIBusId, &value, handle.bytes));
	WANT(0, value);
}

int main(void)
{
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda) {
		puts(dlerror());
		return 1;
	}
	start();
	look_up();
	capture();
	memory();
	more_memory();
	nodes_of_all_kinds();
	joined();
	end_captures();
	forked();
	contents();
	copies_in_graphs();
	mappings();
	managed();
	pointers();
	programs();
	faults();
	puts(failures ? "failed" : "ok");
	return failures != 0;
}
