/*
 * Checks which context the functions of a driver use: the calling thread's, that of the stream that they name, or none. The table says it as
 * cuda.h does. Prints every difference, and exits with 1 if there is one; where cuda.h says nothing, a difference is marked, and is an error
 * of the fake driver only. Runs on any driver, with a second device for what concerns two: LD_LIBRARY_PATH=DIR contexts.
 */
#define _GNU_SOURCE
#include "../fake.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *cuda;
static int failures, is_fake;
static int per_thread; /* the functions are meant that take the calling thread's stream for stream 0 */

/* Returns a function of the driver, or NULL. */
static void *find(const char *name)
{
	char twin[64];
	void *found = NULL;
	for (int i = 0; per_thread && !found && i < 2; i++) {
		snprintf(twin, sizeof twin, "%s_%s", name, i ? "ptds" : "ptsz");
		found = dlsym(cuda, twin);
	}
	return found ? found : dlsym(cuda, name);
}

/* Calls a function; NOT_FOUND if the driver lacks it. */
#define CALL(name, ...) (find(#name) ? ((CUresult(*)())find(#name))(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND)
#define MUST(name, ...)                                                                                                 \
	do {                                                                                                            \
		CUresult must_ = CALL(name, __VA_ARGS__);                                                               \
		if (must_) {                                                                                            \
			printf("line %d: %s: %d\n", __LINE__, #name, must_);                                            \
			exit(1);                                                                                        \
		}                                                                                                       \
	} while (0)

#define PTX ".version 8.0\n.target sm_52\n.address_size 64\n.visible .global .align 4 .b8 some[65536];\n.visible .entry nothing() { ret; }\n"

static CUcontext context, other; /* the contexts of the objects below, and another one of the same device */
static CUcontext far;            /* a context of the second device; NULL without one */
static CUfunction kernel;        /* a CUkernel, which belongs to no context */
static CUevent event;
static CUdeviceptr memory; /* 1 MiB */
static CUgraph graph;
static CUgraphExec exec;
static void *pool, *library;

static CUdeviceptr p;
static void *made;
static size_t size, more;
static int number;

static CUresult launch_ex(CUstream s)
{
	struct { unsigned grid[3], block[3], shared; CUstream stream; void *attributes; unsigned count; } c = {{1, 1, 1}, {1, 1, 1}, 0, s, NULL, 0};
	return CALL(cuLaunchKernelEx, &c, kernel, NULL, NULL);
}
static CUresult allocate(CUstream s)
{
	CUresult result = CALL(cuMemAllocAsync, &p, (size_t)512, s);
	return result ? result : CALL(cuMemFreeAsync, p, s);
}
static CUresult allocate_from_pool(CUstream s)
{
	CUresult result = CALL(cuMemAllocFromPoolAsync, &p, (size_t)512, pool, s);
	return result ? result : CALL(cuMemFreeAsync, p, s);
}
static CUresult capture(CUstream s)
{
	CUgraph captured;
	CUresult result = CALL(cuStreamBeginCapture_v2, s, 2);
	return result ? result : CALL(cuStreamEndCapture, s, &captured);
}
static CUresult plain(void)
{
	CUresult result = CALL(cuMemAlloc_v2, &p, (size_t)512);
	return result ? result : CALL(cuMemFree_v2, p);
}
static CUresult array(void)
{
	struct { size_t width, height; int format; unsigned channels; } d = {4, 4, 0x20, 1};
	CUresult result = CALL(cuArrayCreate_v2, &made, &d);
	return result ? result : CALL(cuArrayDestroy, made);
}
static CUresult deep_array(void)
{
	struct { size_t width, height, depth; int format; unsigned channels, flags; } d = {4, 4, 4, 0x20, 1, 0};
	CUresult result = CALL(cuArray3DCreate_v2, &made, &d);
	return result ? result : CALL(cuArrayDestroy, made);
}
static CUresult mipmap(void)
{
	struct { size_t width, height, depth; int format; unsigned channels, flags; } d = {4, 4, 0, 0x20, 1, 0};
	CUresult result = CALL(cuMipmappedArrayCreate, &made, &d, 1u);
	return result ? result : CALL(cuMipmappedArrayDestroy, made);
}
static CUresult module(void)
{
	CUresult result = CALL(cuModuleLoadData, &made, PTX);
	return result ? result : CALL(cuModuleUnload, made);
}
static CUresult physical(void)
{
	int prop[8] = {1, 0, 1, 0};
	unsigned long long handle;
	CUresult result = CALL(cuMemCreate, &handle, (size_t)2 << 20, prop, 0ull);
	return result ? result : CALL(cuMemRelease, handle);
}
static CUresult new_pool(void)
{
	int props[22] = {1, 0, 1, 0};
	CUresult result = CALL(cuMemPoolCreate, &made, props);
	return result ? result : CALL(cuMemPoolDestroy, made);
}
static CUresult instantiate(void)
{
	CUgraphExec e;
	CUresult result = CALL(cuGraphInstantiateWithFlags, &e, graph, 0ull);
	return result ? result : CALL(cuGraphExecDestroy, e);
}
static CUresult new_library(void)
{
	CUresult result = CALL(cuLibraryLoadData, &made, PTX, NULL, NULL, 0, NULL, NULL, 0);
	return result ? result : CALL(cuLibraryUnload, made);
}
static CUresult retain(void)
{
	CUresult result = CALL(cuDevicePrimaryCtxRetain, &made, 0);
	return result ? result : CALL(cuDevicePrimaryCtxRelease_v2, 0);
}
static CUresult new_event(void)
{
	CUevent e;
	CUresult result = CALL(cuEventCreate, &e, 0);
	return result ? result : CALL(cuEventDestroy_v2, e);
}
static CUresult new_stream(void)
{
	CUstream s;
	CUresult result = CALL(cuStreamCreate, &s, 1);
	return result ? result : CALL(cuStreamDestroy_v2, s);
}

/* What decides. QUEUES and WAITS: the stream, and a default stream's is that of the current context; WAITS may not be called in a capture. */
enum decides { QUEUES, WAITS, CURRENT, NOTHING };
enum { SAID, UNSAID }; /* whether cuda.h says so */

/* Functions that are called with a stream. A function for each, as they have different arguments. */
#define STREAM_TABLE(ROW)                                                                                               \
	ROW(cuLaunchKernel, QUEUES, SAID, CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL))             \
	ROW(cuLaunchKernelEx, QUEUES, SAID, launch_ex(s))                                                               \
	ROW(cuLaunchCooperativeKernel, QUEUES, SAID, CALL(cuLaunchCooperativeKernel, kernel, 1, 1, 1, 1, 1, 1, 0, s, NULL)) \
	ROW(cuMemsetD8Async, QUEUES, UNSAID, CALL(cuMemsetD8Async, memory, 0, (size_t)4, s))                            \
	ROW(cuMemsetD16Async, QUEUES, UNSAID, CALL(cuMemsetD16Async, memory, 0, (size_t)4, s))                          \
	ROW(cuMemsetD32Async, QUEUES, UNSAID, CALL(cuMemsetD32Async, memory, 0, (size_t)4, s))                          \
	ROW(cuMemsetD2D8Async, QUEUES, UNSAID, CALL(cuMemsetD2D8Async, memory, (size_t)8, 0, (size_t)4, (size_t)2, s))  \
	ROW(cuMemsetD2D16Async, QUEUES, UNSAID, CALL(cuMemsetD2D16Async, memory, (size_t)8, 0, (size_t)4, (size_t)2, s)) \
	ROW(cuMemsetD2D32Async, QUEUES, UNSAID, CALL(cuMemsetD2D32Async, memory, (size_t)16, 0, (size_t)4, (size_t)2, s)) \
	ROW(cuMemcpyDtoDAsync_v2, QUEUES, UNSAID, CALL(cuMemcpyDtoDAsync_v2, memory, memory + 512, (size_t)4, s))       \
	ROW(cuMemcpyAsync, QUEUES, UNSAID, CALL(cuMemcpyAsync, memory, memory + 512, (size_t)4, s))                     \
	ROW(cuMemcpyPeerAsync, QUEUES, UNSAID, CALL(cuMemcpyPeerAsync, memory, context, memory + 512, context, (size_t)4, s)) \
	ROW(cuGraphLaunch, QUEUES, UNSAID, CALL(cuGraphLaunch, exec, s))                                                \
	ROW(cuGraphUpload, WAITS, UNSAID, CALL(cuGraphUpload, exec, s))                                                 \
	ROW(cuMemAllocAsync, QUEUES, SAID, allocate(s))                                                                 \
	ROW(cuMemAllocFromPoolAsync, QUEUES, SAID, allocate_from_pool(s))                                               \
	ROW(cuStreamSynchronize, WAITS, UNSAID, CALL(cuStreamSynchronize, s))                                           \
	ROW(cuStreamQuery, WAITS, UNSAID, CALL(cuStreamQuery, s))                                                       \
	ROW(cuEventRecord, QUEUES, SAID, CALL(cuEventRecord, event, s))                                                 \
	ROW(cuStreamWaitEvent, QUEUES, UNSAID, CALL(cuStreamWaitEvent, s, event, 0))                               \
	ROW(cuStreamGetCtx, QUEUES, SAID, CALL(cuStreamGetCtx, s, &made))                                               \
	ROW(cuStreamGetCtx_v2, QUEUES, SAID, CALL(cuStreamGetCtx_v2, s, &made, &size))                                  \
	ROW(cuStreamIsCapturing, QUEUES, UNSAID, CALL(cuStreamIsCapturing, s, &number))

/* Functions that are not. */
#define TABLE(ROW)                                                                                                      \
	ROW(cuMemAlloc_v2, CURRENT, UNSAID, plain())                                                                    \
	ROW(cuMemAllocPitch_v2, CURRENT, UNSAID, CALL(cuMemAllocPitch_v2, &p, &size, (size_t)4, (size_t)4, 4))          \
	ROW(cuMemAllocManaged, CURRENT, UNSAID, CALL(cuMemAllocManaged, &p, (size_t)4096, 1))                           \
	ROW(cuArrayCreate_v2, CURRENT, UNSAID, array())                                                                 \
	ROW(cuArray3DCreate_v2, CURRENT, UNSAID, deep_array())                                                          \
	ROW(cuMipmappedArrayCreate, CURRENT, UNSAID, mipmap())                                                          \
	ROW(cuModuleLoadData, CURRENT, SAID, module())                                                                  \
	ROW(cuMemGetInfo_v2, CURRENT, SAID, CALL(cuMemGetInfo_v2, &size, &more))                                        \
	ROW(cuCtxSynchronize, CURRENT, SAID, CALL(cuCtxSynchronize))                                                    \
	ROW(cuCtxSetLimit, CURRENT, SAID, CALL(cuCtxSetLimit, 1, (size_t)2 << 20)) /* more than the default for printf */ \
	ROW(cuCtxGetDevice, CURRENT, SAID, CALL(cuCtxGetDevice, &number))                                               \
	ROW(cuEventCreate, CURRENT, SAID, new_event())                                                                  \
	ROW(cuStreamCreate, CURRENT, SAID, new_stream())                                                                \
	ROW(cuMemsetD8_v2, CURRENT, UNSAID, CALL(cuMemsetD8_v2, memory, 0, (size_t)4))                                  \
	ROW(cuMemcpyDtoD_v2, CURRENT, UNSAID, CALL(cuMemcpyDtoD_v2, memory, memory + 512, (size_t)4))                   \
	ROW(cuMemcpy, CURRENT, UNSAID, CALL(cuMemcpy, memory, memory + 512, (size_t)4))                                 \
	ROW(cuMemCreate, NOTHING, SAID, physical())                                                                     \
	ROW(cuMemPoolCreate, NOTHING, SAID, new_pool())                                                                 \
	ROW(cuMemPoolTrimTo, NOTHING, SAID, CALL(cuMemPoolTrimTo, pool, (size_t)0))                                     \
	ROW(cuDeviceGetMemPool, NOTHING, SAID, CALL(cuDeviceGetMemPool, &made, 0))                                      \
	ROW(cuDeviceTotalMem_v2, NOTHING, SAID, CALL(cuDeviceTotalMem_v2, &size, 0))                                    \
	ROW(cuDeviceGraphMemTrim, NOTHING, SAID, CALL(cuDeviceGraphMemTrim, 0))                                         \
	ROW(cuGraphInstantiateWithFlags, NOTHING, SAID, instantiate())                                                  \
	ROW(cuLibraryLoadData, NOTHING, SAID, new_library())                                                            \
	ROW(cuDevicePrimaryCtxRetain, NOTHING, SAID, retain())                                                          \
	ROW(cuEventQuery, NOTHING, SAID, CALL(cuEventQuery, event))                                                     \
	ROW(cuEventSynchronize, NOTHING, UNSAID, CALL(cuEventSynchronize, event))

#define DEFINE_STREAM(name, decides, said, call) static CUresult on_##name(CUstream s) { return call; }
#define DEFINE(name, decides, said, call) static CUresult do_##name(void) { return call; }
STREAM_TABLE(DEFINE_STREAM)
TABLE(DEFINE)

static const struct row {
	const char *name;
	enum decides decides;
	int unsaid;
	CUresult (*on)(CUstream);
	CUresult (*without)(void);
} rows[] = {
#define STREAM_ROW(name, decides, said, call) {#name, decides, said, on_##name, NULL},
#define ROW(name, decides, said, call) {#name, decides, said, NULL, do_##name},
	STREAM_TABLE(STREAM_ROW) TABLE(ROW)
};

/* Reports a result that is not the wanted one. A driver may lack a function that is newer than it. */
static void want(const struct row *row, const char *when, CUresult wanted, CUresult got)
{
	if (got == wanted || got == CUDA_ERROR_NOT_FOUND)
		return;
	printf("%s, %s: %d, want %d%s\n", row->name, when, got, wanted, row->unsaid ? " (cuda.h does not say)" : "");
	failures += !row->unsaid || is_fake;
}

/* Makes a context current, NULL too. */
static void use(CUcontext c) { MUST(cuCtxSetCurrent, c); }

/* Destroys a context, in a thread in which it is not current. */
static void *destroy(void *c)
{
	MUST(cuCtxDestroy_v2, c);
	return NULL;
}

/* Makes a context current that is destroyed already. */
static void use_destroyed(void)
{
	CUcontext c;
	pthread_t thread;
	MUST(cuCtxCreate_v2, &c, 0, 0);
	pthread_create(&thread, NULL, destroy, c);
	pthread_join(thread, NULL);
}

static void check_stream_row(const struct row *row, CUstream named)
{
	CUstream destroyed;
	use(context);
	want(row, "in a named stream", CUDA_SUCCESS, row->on(named));
	want(row, "in the legacy stream", CUDA_SUCCESS, row->on(NULL));
	want(row, "in the legacy stream by its handle", CUDA_SUCCESS, row->on(STREAM_LEGACY));
	want(row, "in the thread's stream", CUDA_SUCCESS, row->on(STREAM_PER_THREAD));
	use(other);
	want(row, "in a named stream of another context", CUDA_SUCCESS, row->on(named));
	if (far) {
		use(far);
		want(row, "in a named stream of another device", CUDA_SUCCESS, row->on(named));
	}
	for (int destroyed = 0; destroyed < 2; destroyed++) {
		CUresult none = destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
		use(NULL);
		if (destroyed)
			use_destroyed();
		want(row, "in a named stream, without a context", CUDA_SUCCESS, row->on(named));
		want(row, "in the legacy stream, without a context", none, row->on(NULL));
		want(row, "in the legacy stream by its handle, without a context", none, row->on(STREAM_LEGACY));
		want(row, "in the thread's stream, without a context", none, row->on(STREAM_PER_THREAD));
	}
	if (!is_fake) /* with another driver the behaviour is undefined */
		return;
	use(context);
	MUST(cuStreamCreate, &destroyed, 1);
	MUST(cuStreamDestroy_v2, destroyed);
	use(NULL);
	want(row, "in a destroyed stream", CUDA_ERROR_INVALID_HANDLE, row->on(destroyed));
}

static void check_row(const struct row *row)
{
	use(context);
	want(row, "with a context", CUDA_SUCCESS, row->without());
	if (far && row->decides == NOTHING) {
		use(far);
		want(row, "with a context of another device", CUDA_SUCCESS, row->without());
	}
	use(NULL);
	want(row, "without a context", row->decides == CURRENT ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS, row->without());
	use_destroyed();
	want(row, "with a destroyed context", row->decides == CURRENT ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS, row->without());
}

/* In a capture, what waits is refused and ends it, and what queues becomes a node, without a context too. */
static void check_captured(const struct row *row)
{
	CUstream s;
	CUgraph captured;
	if (!strcmp(row->name, "cuGraphUpload") || !strcmp(row->name, "cuStreamWaitEvent")) /* not said; an event from outside the capture */
		return;
	use(context);
	MUST(cuStreamCreate, &s, 1);
	MUST(cuStreamBeginCapture_v2, s, 2);
	use(NULL);
	want(row, "in a capture", row->decides == WAITS ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS, row->on(s));
	CALL(cuStreamEndCapture, s, &captured);
	CALL(cuEventRecord, event, s); /* the event is none of the capture any more */
	MUST(cuStreamDestroy_v2, s);
}

static void check(const char *what, CUresult wanted, CUresult got)
{
	want(&(struct row){.name = what}, "as said", wanted, got);
}

/* An event fits the streams of its context only. Streams of green contexts. */
static void check_events(CUstream named)
{
	CUevent foreign;
	CUstream green_stream;
	CUcontext green = NULL, of = NULL, of_green = NULL;
	use(other);
	MUST(cuEventCreate, &foreign, 0);
	check("cuEventRecord of another context's event", CUDA_ERROR_INVALID_HANDLE, CALL(cuEventRecord, foreign, named));
	check("cuStreamWaitEvent of another context's event", CUDA_SUCCESS, CALL(cuStreamWaitEvent, named, foreign, 0));
	use(context);
	check("cuStreamGetCtx", CUDA_SUCCESS, CALL(cuStreamGetCtx, named, &of));
	check("the stream's context", 1, of == context);
	if (!is_fake || !find("cuGreenCtxStreamCreate")) /* other drivers want a description of the SMs */
		return;
	MUST(cuGreenCtxCreate, &green, NULL, 0, 1);
	MUST(cuGreenCtxStreamCreate, &green_stream, green, 1, 0);
	use(NULL);
	check("cuStreamGetCtx of a green context's stream", CUDA_ERROR_NOT_SUPPORTED, CALL(cuStreamGetCtx, green_stream, &of));
	check("cuStreamGetCtx_v2 of a green context's stream", CUDA_SUCCESS, CALL(cuStreamGetCtx_v2, green_stream, &of, &of_green));
	check("its contexts", 1, of == context && of_green == green);
	MUST(cuGreenCtxDestroy, green);
}

/* While a stream captures that waits for the legacy one, what is put into the legacy stream is refused, and into the thread's own stream not. */
static void check_legacy(const struct row *row)
{
	CUstream blocking;
	CUgraph captured;
	if (row->decides != QUEUES || !strncmp(row->name, "cuStreamGetCtx", 14) || !strcmp(row->name, "cuStreamIsCapturing") ||
	    !strcmp(row->name, "cuStreamWaitEvent")) /* puts nothing into the stream */
		return;
	use(context);
	for (per_thread = 0; per_thread < 2; per_thread++) {
		MUST(cuStreamCreate, &blocking, 0);
		MUST(cuStreamBeginCapture_v2, blocking, 2);
		if (!per_thread || find(row->name) != dlsym(cuda, row->name))
			want(row, per_thread ? "in stream 0 of the per-thread functions, beside a capture" : "in the legacy stream, beside a capture",
			     per_thread ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, row->on(NULL));
		CALL(cuStreamEndCapture, blocking, &captured);
		MUST(cuStreamDestroy_v2, blocking);
	}
	per_thread = 0;
}

/* Returns the device of memory. */
static int device_of(CUdeviceptr at)
{
	int device = -1;
	return CALL(cuPointerGetAttribute, &device, 9, at) ? -1 : device; /* CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL */
}

/* Streams, memory, pools and events of two devices: each keeps its own, whatever is current. */
static void check_devices(CUstream named)
{
	CUstream stream;
	CUevent far_event;
	CUdeviceptr there, in_order, from_pool;
	void *far_pool;
	use(far);
	MUST(cuStreamCreate, &stream, 1);
	MUST(cuEventCreate, &far_event, 0);
	MUST(cuMemAlloc_v2, &there, (size_t)4096);
	MUST(cuDeviceGetDefaultMemPool, &far_pool, 1);
	for (int i = 0; i < 2; i++) {
		use(i ? NULL : context);
		check("the device of memory of another device", 1, device_of(there));
		check("cuMemAllocAsync in a stream of another device", CUDA_SUCCESS, CALL(cuMemAllocAsync, &in_order, (size_t)512, stream));
		check("the device of its memory", 1, device_of(in_order));
		check("cuMemFreeAsync in that stream", CUDA_SUCCESS, CALL(cuMemFreeAsync, in_order, stream));
		check("cuMemAllocFromPoolAsync from another device's pool", CUDA_SUCCESS, CALL(cuMemAllocFromPoolAsync, &from_pool, (size_t)512, far_pool, named));
		check("the device of its memory", 1, device_of(from_pool));
		check("cuMemFreeAsync in a stream of another device than the pool's", CUDA_SUCCESS, CALL(cuMemFreeAsync, from_pool, named));
		check("cuLaunchKernel in a stream of another device", CUDA_SUCCESS, CALL(cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL));
		check("cuMemsetD8Async of memory of the stream's device", CUDA_SUCCESS, CALL(cuMemsetD8Async, there, 0, (size_t)4, stream));
		check("cuMemcpyPeerAsync to another device", CUDA_SUCCESS, CALL(cuMemcpyPeerAsync, there, far, memory, context, (size_t)4, named));
		check("cuEventRecord of an event of another device", CUDA_ERROR_INVALID_HANDLE, CALL(cuEventRecord, event, stream));
		check("cuEventRecord in a stream of another device", CUDA_SUCCESS, CALL(cuEventRecord, far_event, stream));
		check("cuStreamWaitEvent for an event of another device", CUDA_SUCCESS, CALL(cuStreamWaitEvent, named, far_event, 0));
		check("cuStreamSynchronize of another device's stream", CUDA_SUCCESS, CALL(cuStreamSynchronize, stream));
	}
	use(context);
	check("cuMemFree of memory of another device", CUDA_SUCCESS, CALL(cuMemFree_v2, there));
	CALL(cuEventDestroy_v2, far_event);
	CALL(cuStreamDestroy_v2, stream);
}

/* What has been destroyed is refused by the fake driver; with another one the behaviour is undefined. */
static void check_destroyed(CUstream named)
{
	CUevent gone;
	CUdeviceptr freed;
	use(context);
	MUST(cuEventCreate, &gone, 0);
	MUST(cuEventDestroy_v2, gone);
	check("cuEventRecord of a destroyed event", CUDA_ERROR_INVALID_HANDLE, CALL(cuEventRecord, gone, named));
	check("cuEventQuery of a destroyed event", CUDA_ERROR_INVALID_HANDLE, CALL(cuEventQuery, gone));
	check("cuEventSynchronize of a destroyed event", CUDA_ERROR_INVALID_HANDLE, CALL(cuEventSynchronize, gone));
	check("cuStreamWaitEvent for a destroyed event", CUDA_ERROR_INVALID_HANDLE, CALL(cuStreamWaitEvent, named, gone, 0));
	check("cuEventDestroy of a destroyed event", CUDA_ERROR_INVALID_HANDLE, CALL(cuEventDestroy_v2, gone));
	MUST(cuMemAlloc_v2, &freed, (size_t)512);
	MUST(cuMemFree_v2, freed);
	check("cuMemFree of freed memory", CUDA_ERROR_INVALID_VALUE, CALL(cuMemFree_v2, freed));
	check("cuMemFreeAsync of freed memory", CUDA_ERROR_INVALID_VALUE, CALL(cuMemFreeAsync, freed, named));
}

int main(void)
{
	CUstream named;
	int devices = 0;
	cuda = dlopen("libcuda.so.1", RTLD_NOW);
	if (!cuda)
		return puts(dlerror()), 1;
	is_fake = find("fakecuda_used") != NULL;
	MUST(cuInit, 0);
	MUST(cuCtxCreate_v2, &other, 0, 0);
	MUST(cuDeviceGetCount, &devices);
	if (devices > 1 && CALL(cuCtxCreate_v2, &far, 0, 1)) /* a share may have one of them only */
		far = NULL;
	MUST(cuDevicePrimaryCtxRetain, &context, 0);
	use(context);
	MUST(cuLibraryLoadData, &library, PTX, NULL, NULL, 0, NULL, NULL, 0);
	MUST(cuLibraryGetKernel, &kernel, library, "nothing");
	MUST(cuEventCreate, &event, 0);
	MUST(cuMemAlloc_v2, &memory, (size_t)1 << 20);
	MUST(cuDeviceGetDefaultMemPool, &pool, 0);
	MUST(cuStreamCreate, &named, 1);
	MUST(cuGraphCreate, &graph, 0);
	MUST(cuGraphInstantiateWithFlags, &exec, graph, 0ull);
	use(NULL);
	check("capture without a context", CUDA_SUCCESS, capture(named));
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (rows[i].on) {
			check_stream_row(&rows[i], named);
			check_captured(&rows[i]);
			check_legacy(&rows[i]);
		} else {
			check_row(&rows[i]);
		}
	}
	check_events(named);
	if (far)
		check_devices(named);
	if (is_fake)
		check_destroyed(named);
	if (!failures)
		puts("ok");
	return failures != 0;
}
