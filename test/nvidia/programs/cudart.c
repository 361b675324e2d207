/*
 * cudart: a small CUDA runtime on top of the driver API. It replaces NVIDIA's, which makes the driver prove that it is NVIDIA's before doing
 * anything. It has what programs compiled by nvcc with -cudart shared need: registration, launches, memory, streams, events, graphs.
 * Like NVIDIA's, it gets every driver function from cuGetProcAddress, at the version that it was compiled for. It returns the
 * driver's error numbers as those of the runtime.
 */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#undef cudaGetDeviceProperties

/* Returns a function of the driver, or NULL. */
static void *find(const char *name) {
	typedef CUresult (*ask_fn)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
	static ask_fn ask;
	if (!ask) {
		void *driver = dlopen("libcuda.so.1", RTLD_NOW);
		ask = driver ? (ask_fn)dlsym(driver, "cuGetProcAddress_v2") : NULL;
	}
	void *function = NULL;
	return ask && !ask(name, &function, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, NULL) ? function : NULL;
}

static __thread cudaError_t last_error;
static __thread int device;

/* Stores an error as the calling thread's last one. */
static cudaError_t note(int result) {
	if (result != cudaSuccess && result != cudaErrorNotReady) last_error = (cudaError_t)result;
	return (cudaError_t)result;
}

/* Calls the driver function with a name and type, and looks it up only once. The name is without the version that cuda.h appends. */
#define INVOKE(type, name, ...)                                                                                         \
	({                                                                                                              \
		static type function_;                                                                                  \
		if (!function_) function_ = (type)find(name);                                                           \
		function_ ? (int)function_(__VA_ARGS__) : (int)cudaErrorNotSupported;                                   \
	})
#define CALL(name, ...) INVOKE(__typeof__(&name), #name, __VA_ARGS__)

/* Initialises the driver, and gives the calling thread a context if it has none. */
static cudaError_t start(void) {
	CUcontext context = NULL;
	int r = CALL(cuInit, 0);
	if (!r) r = CALL(cuCtxGetCurrent, &context);
	if (!r && !context) {
		r = CALL(cuDevicePrimaryCtxRetain, &context, device);
		if (!r) r = CALL(cuCtxSetCurrent, context);
	}
	return (cudaError_t)r;
}

/* Initialises the driver, calls a function, and returns the result from the enclosing runtime function. */
#define RETURN(name, ...)                                                                                               \
	do {                                                                                                            \
		cudaError_t started = start();                                                                          \
		return note(started ? (int)started : INVOKE(__typeof__(&name), #name, __VA_ARGS__));                    \
	} while (0)

/* What compiled programs register: an image, and the kernels in it by the addresses of their stubs on the host. */
struct image {
	const void *data;
	CUmodule module;
};
struct kernel {
	struct kernel *next;
	struct image *image;
	const void *stub;
	const char *name;
	CUfunction function;
};
static struct kernel *kernels;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void **__cudaRegisterFatBinary(void *wrapper) {
	struct image *image = calloc(1, sizeof *image);
	image->data = ((void **)wrapper)[1]; /* after a magic number and a version */
	return (void **)image;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
void __cudaUnregisterFatBinary(void **handle) { (void)handle; } /* the process is ending, or the driver is already gone */
char __cudaInitModule(void **handle) { return handle != NULL; }

void __cudaRegisterFunction(void **handle, const char *stub, char *name, const char *device_name, int threads, uint3 *tid, uint3 *bid,
			    dim3 *block, dim3 *grid, int *size) {
	(void)name, (void)threads, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
	struct kernel *k = calloc(1, sizeof *k);
	*k = (struct kernel){kernels, (struct image *)handle, stub, device_name, NULL};
	kernels = k;
}

/* Returns the driver's function for a kernel. The kernel's image is loaded at its first use. */
static cudaError_t function_of(const void *stub, CUfunction *function) {
	int r = start();
	pthread_mutex_lock(&lock);
	struct kernel *k = kernels;
	while (k && k->stub != stub) k = k->next;
	if (!r && !k) r = cudaErrorInvalidDeviceFunction;
	if (!r && !k->image->module) r = CALL(cuModuleLoadData, &k->image->module, k->image->data);
	if (!r && !k->function) r = CALL(cuModuleGetFunction, &k->function, k->image->module, k->name);
	if (!r) *function = k->function;
	pthread_mutex_unlock(&lock);
	return (cudaError_t)r;
}

/* The launch configuration between <<< and >>>, until the kernel's stub fetches it. */
static __thread struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} configuration;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream) {
	configuration.grid = grid, configuration.block = block, configuration.shared = shared, configuration.stream = stream;
	return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
	*grid = configuration.grid, *block = configuration.block, *shared = configuration.shared;
	*(void **)stream = configuration.stream;
	return cudaSuccess;
}

/* Defines a launch. */
#define LAUNCH(name, real, ...)                                                                                         \
	cudaError_t name(const void *stub, dim3 g, dim3 b, void **arguments, size_t shared, cudaStream_t s) {           \
		CUfunction f = NULL;                                                                                    \
		int r = function_of(stub, &f);                                                                          \
		if (!r)                                                                                                 \
			r = INVOKE(__typeof__(&real), #real, f, g.x, g.y, g.z, b.x, b.y, b.z, shared, s,                \
				   arguments __VA_ARGS__);                                                              \
		return note(r);                                                                                         \
	}
LAUNCH(cudaLaunchKernel, cuLaunchKernel, , NULL)
LAUNCH(cudaLaunchCooperativeKernel, cuLaunchCooperativeKernel)

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *stub, void **arguments) {
	CUfunction f = NULL;
	CUlaunchConfig config = {c->gridDim.x,  c->gridDim.y,  c->gridDim.z, c->blockDim.x, c->blockDim.y,
				 c->blockDim.z, c->dynamicSmemBytes, c->stream, (CUlaunchAttribute *)c->attrs, c->numAttrs};
	int r = function_of(stub, &f);
	return note(r ? r : CALL(cuLaunchKernelEx, &config, f, arguments, NULL));
}

/* Errors */
cudaError_t cudaPeekAtLastError(void) { return last_error; }
cudaError_t cudaGetLastError(void) {
	cudaError_t e = last_error;
	last_error = cudaSuccess;
	return e;
}
const char *cudaGetErrorName(cudaError_t e) {
	const char *text = NULL;
	return CALL(cuGetErrorName, (CUresult)e, &text) || !text ? "unknown" : text;
}
const char *cudaGetErrorString(cudaError_t e) {
	const char *text = NULL;
	return CALL(cuGetErrorString, (CUresult)e, &text) || !text ? "unknown" : text;
}

/* Devices */
cudaError_t cudaRuntimeGetVersion(int *v) { return *v = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *v) { return note(CALL(cuDriverGetVersion, v)); }
cudaError_t cudaGetDeviceCount(int *n) {
	int r = CALL(cuInit, 0);
	return note(r ? r : CALL(cuDeviceGetCount, n));
}
cudaError_t cudaGetDevice(int *d) { return *d = device, cudaSuccess; }
cudaError_t cudaSetDevice(int d) {
	CUcontext context = NULL;
	device = d;
	int r = CALL(cuInit, 0);
	if (!r) r = CALL(cuDevicePrimaryCtxRetain, &context, d);
	return note(r ? r : CALL(cuCtxSetCurrent, context));
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr a, int d) { RETURN(cuDeviceGetAttribute, value, (CUdevice_attribute)a, d); }
cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *p, int d) {
	int r = start();
	memset(p, 0, sizeof *p);
	if (!r) r = CALL(cuDeviceGetName, p->name, sizeof p->name, d);
	if (!r) r = CALL(cuDeviceTotalMem, &p->totalGlobalMem, d);
	if (!r) r = CALL(cuDeviceGetAttribute, &p->multiProcessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d);
	if (!r) r = CALL(cuDeviceGetAttribute, &p->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, d);
	if (!r) r = CALL(cuDeviceGetAttribute, &p->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, d);
	return note(r);
}
cudaError_t cudaDeviceSynchronize(void) { RETURN(cuCtxSynchronize, ); }
cudaError_t cudaDeviceReset(void) { RETURN(cuDevicePrimaryCtxReset, device); }
cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) { RETURN(cuCtxSetLimit, (CUlimit)limit, value); }

/* Memory */
#define ADDRESS(p) ((CUdeviceptr)(uintptr_t)(p))
cudaError_t cudaMalloc(void **p, size_t n) { RETURN(cuMemAlloc, (CUdeviceptr *)p, n); }
cudaError_t cudaMallocManaged(void **p, size_t n, unsigned flags) { RETURN(cuMemAllocManaged, (CUdeviceptr *)p, n, flags); }
cudaError_t cudaMallocPitch(void **p, size_t *pitch, size_t width, size_t height) {
	RETURN(cuMemAllocPitch, (CUdeviceptr *)p, pitch, width, height, 16);
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) { RETURN(cuMemAllocAsync, (CUdeviceptr *)p, n, s); }
cudaError_t cudaMallocHost(void **p, size_t n) { RETURN(cuMemAllocHost, p, n); }
cudaError_t cudaFree(void *p) {
	if (!p) return note(start());
	RETURN(cuMemFree, ADDRESS(p));
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) { RETURN(cuMemFreeAsync, ADDRESS(p), s); }
cudaError_t cudaFreeHost(void *p) { RETURN(cuMemFreeHost, p); }
cudaError_t cudaMemGetInfo(size_t *left, size_t *total) { RETURN(cuMemGetInfo, left, total); }
cudaError_t cudaMemset(void *p, int value, size_t n) { RETURN(cuMemsetD8, ADDRESS(p), value, n); }
cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s) { RETURN(cuMemsetD8Async, ADDRESS(p), value, n, s); }
cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
	switch (kind) {
	case cudaMemcpyHostToDevice: RETURN(cuMemcpyHtoD, ADDRESS(to), from, n);
	case cudaMemcpyDeviceToHost: RETURN(cuMemcpyDtoH, to, ADDRESS(from), n);
	default: RETURN(cuMemcpy, ADDRESS(to), ADDRESS(from), n);
	}
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind, cudaStream_t s) {
	switch (kind) {
	case cudaMemcpyHostToDevice: RETURN(cuMemcpyHtoDAsync, ADDRESS(to), from, n, s);
	case cudaMemcpyDeviceToHost: RETURN(cuMemcpyDtoHAsync, to, ADDRESS(from), n, s);
	default: RETURN(cuMemcpyAsync, ADDRESS(to), ADDRESS(from), n, s);
	}
}

/* Streams and events */
cudaError_t cudaStreamCreate(cudaStream_t *s) { RETURN(cuStreamCreate, s, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) { RETURN(cuStreamCreate, s, flags); }
cudaError_t cudaStreamDestroy(cudaStream_t s) { RETURN(cuStreamDestroy, s); }
cudaError_t cudaStreamSynchronize(cudaStream_t s) { RETURN(cuStreamSynchronize, s); }
cudaError_t cudaStreamQuery(cudaStream_t s) { RETURN(cuStreamQuery, s); }
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) { RETURN(cuStreamWaitEvent, s, e, flags); }
cudaError_t cudaEventCreate(cudaEvent_t *e) { RETURN(cuEventCreate, e, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) { RETURN(cuEventCreate, e, flags); }
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) { RETURN(cuEventRecord, e, s); }
cudaError_t cudaEventSynchronize(cudaEvent_t e) { RETURN(cuEventSynchronize, e); }
cudaError_t cudaEventQuery(cudaEvent_t e) { RETURN(cuEventQuery, e); }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) { RETURN(cuEventElapsedTime, ms, from, to); }
cudaError_t cudaEventDestroy(cudaEvent_t e) { RETURN(cuEventDestroy, e); }

/* Graphs */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
	RETURN(cuStreamBeginCapture, s, (CUstreamCaptureMode)mode);
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) { RETURN(cuStreamEndCapture, s, g); }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *e, cudaGraph_t g, unsigned long long flags) {
	RETURN(cuGraphInstantiateWithFlags, e, g, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t e, cudaStream_t s) { RETURN(cuGraphLaunch, e, s); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t e) { RETURN(cuGraphExecDestroy, e); }
cudaError_t cudaGraphDestroy(cudaGraph_t g) { RETURN(cuGraphDestroy, g); }
