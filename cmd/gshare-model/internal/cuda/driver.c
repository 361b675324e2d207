#include "driver.h"

#include <dlfcn.h>

typedef unsigned long long address;

/* The functions, by the names of the oldest ABI with 64-bit addresses. */
#define FUNCTIONS(X)                                                                                                    \
	X(cuInit, (unsigned))                                                                                           \
	X(cuDeviceGet, (int *, int))                                                                                    \
	X(cuDeviceGetAttribute, (int *, int, int))                                                                      \
	X(cuDevicePrimaryCtxRetain, (void **, int))                                                                     \
	X(cuCtxSetCurrent, (void *))                                                                                    \
	X(cuMemAlloc_v2, (address *, size_t))                                                                           \
	X(cuMemFree_v2, (address))                                                                                      \
	X(cuMemAllocHost_v2, (void **, size_t))                                                                         \
	X(cuMemFreeHost, (void *))                                                                                      \
	X(cuStreamCreate, (void **, unsigned))                                                                          \
	X(cuStreamSynchronize, (void *))                                                                                \
	X(cuMemcpyHtoDAsync_v2, (address, const void *, size_t, void *))                                                \
	X(cuMemcpyDtoHAsync_v2, (void *, address, size_t, void *))                                                      \
	X(cuModuleLoadData, (void **, const void *))                                                                    \
	X(cuModuleGetFunction, (void **, void *, const char *))                                                         \
	X(cuLaunchKernel, (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **)) \
	X(cuGetErrorName, (int, const char **))

#define DECLARE(name, parameters) int(*name) parameters;
static struct { FUNCTIONS(DECLARE) } cuda;
static void *context;
static int device;

int driver_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		return DRIVER_ABSENT;
#define FIND(name, parameters)                                                                                          \
	if (!(cuda.name = (int(*) parameters)dlsym(library, #name)))                                                    \
		return DRIVER_TOO_OLD;
	FUNCTIONS(FIND)
	int result = cuda.cuInit(0);
	if (!result)
		result = cuda.cuDeviceGet(&device, 0);
	if (!result)
		result = cuda.cuDevicePrimaryCtxRetain(&context, device);
	return result ? result : driver_enter();
}

int driver_enter(void) { return cuda.cuCtxSetCurrent(context); }
int driver_attribute(int *value, int attribute) { return cuda.cuDeviceGetAttribute(value, attribute, device); }
int driver_allocate(address *to, size_t bytes) { return cuda.cuMemAlloc_v2(to, bytes); }
int driver_free(address memory) { return cuda.cuMemFree_v2(memory); }
int driver_allocate_host(void **memory, size_t bytes) { return cuda.cuMemAllocHost_v2(memory, bytes); }
int driver_free_host(void *memory) { return cuda.cuMemFreeHost(memory); }
int driver_stream(void **stream) { return cuda.cuStreamCreate(stream, 1); /* not ordered with the legacy stream */ }
int driver_upload(address to, const void *from, size_t bytes, void *stream) { return cuda.cuMemcpyHtoDAsync_v2(to, from, bytes, stream); }
int driver_download(void *to, address from, size_t bytes, void *stream) { return cuda.cuMemcpyDtoHAsync_v2(to, from, bytes, stream); }
int driver_wait(void *stream) { return cuda.cuStreamSynchronize(stream); }

int driver_kernel(void **kernel, const char *ptx, const char *name)
{
	void *module;
	int result = cuda.cuModuleLoadData(&module, ptx);
	return result ? result : cuda.cuModuleGetFunction(kernel, module, name);
}

int driver_launch(void *kernel, unsigned blocks, unsigned threads, void *stream)
{
	return cuda.cuLaunchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, 0, 0);
}

const char *driver_error(int result)
{
	const char *name = "unknown error";
	if (result == DRIVER_ABSENT)
		return "libcuda.so.1 cannot be opened";
	if (result == DRIVER_TOO_OLD)
		return "libcuda.so.1 lacks a function";
	if (cuda.cuGetErrorName)
		cuda.cuGetErrorName(result, &name);
	return name;
}
