#include "memory.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>

/* CUmemAllocationProp and CUmemAccessDesc, as in cuda.h. */
struct location {
	int type, id; /* 1: a device */
};
struct prop {
	int type, handles; /* 1: pinned; 1: POSIX file descriptors */
	struct location location;
	void *attributes;
	unsigned char flags[8];
};
struct access {
	struct location location;
	int flags; /* 1: read, 3: read and write */
};

#define FUNCTIONS(X)                                                                                                    \
	X(cuInit, (unsigned))                                                                                           \
	X(cuDevicePrimaryCtxRetain, (void **, int))                                                                     \
	X(cuCtxSetCurrent, (void *))                                                                                    \
	X(cuMemCreate, (memory_handle *, size_t, const struct prop *, unsigned long long))                              \
	X(cuMemRelease, (memory_handle))                                                                                \
	X(cuMemExportToShareableHandle, (void *, memory_handle, int, unsigned long long))                               \
	X(cuMemImportFromShareableHandle, (memory_handle *, void *, int))                                               \
	X(cuMemAddressReserve, (memory_address *, size_t, size_t, memory_address, unsigned long long))                  \
	X(cuMemAddressFree, (memory_address, size_t))                                                                   \
	X(cuMemMap, (memory_address, size_t, size_t, memory_handle, unsigned long long))                                \
	X(cuMemUnmap, (memory_address, size_t))                                                                         \
	X(cuMemSetAccess, (memory_address, size_t, const struct access *, size_t))                                      \
	X(cuMemcpyDtoH_v2, (void *, memory_address, size_t))                                                            \
	X(cuMemcpyHtoD_v2, (memory_address, const void *, size_t))                                                      \
	X(cuGetErrorName, (int, const char **))

#define DECLARE(name, parameters) int(*name) parameters;
static struct { FUNCTIONS(DECLARE) } cuda;
static void *context; /* NULL before the first mapping */
static pthread_mutex_t creating = PTHREAD_MUTEX_INITIALIZER;

int memory_open(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library)
		return MEMORY_ABSENT;
#define FIND(name, parameters)                                                                                          \
	if (!(cuda.name = (int(*) parameters)dlsym(library, #name)))                                                    \
		return MEMORY_TOO_OLD;
	FUNCTIONS(FIND)
	return cuda.cuInit(0);
}

/* Makes the primary context the current one of the thread. */
static int enter(void)
{
	pthread_mutex_lock(&creating);
	int result = context ? 0 : cuda.cuDevicePrimaryCtxRetain(&context, 0);
	pthread_mutex_unlock(&creating);
	return result ? result : cuda.cuCtxSetCurrent(context);
}

int memory_create(memory_handle *handle, size_t bytes)
{
	struct prop prop = {.type = 1, .handles = 1, .location = {1, 0}};
	return cuda.cuMemCreate(handle, bytes, &prop, 0);
}

int memory_export(int *file, memory_handle handle) { return cuda.cuMemExportToShareableHandle(file, handle, 1, 0); }
int memory_import(memory_handle *handle, int file) { return cuda.cuMemImportFromShareableHandle(handle, (void *)(intptr_t)file, 1); }
int memory_release(memory_handle handle) { return cuda.cuMemRelease(handle); }

int memory_map(memory_address *to, memory_handle handle, size_t bytes, int writable)
{
	struct access access = {{1, 0}, writable ? 3 : 1};
	memory_address at;
	int result = enter();
	if (result || (result = cuda.cuMemAddressReserve(&at, bytes, 0, 0, 0)))
		return result;
	if ((result = cuda.cuMemMap(at, bytes, 0, handle, 0)) == 0) {
		if ((result = cuda.cuMemSetAccess(at, bytes, &access, 1)) == 0) {
			*to = at;
			return 0;
		}
		cuda.cuMemUnmap(at, bytes);
	}
	cuda.cuMemAddressFree(at, bytes);
	return result;
}

int memory_unmap(memory_address at, size_t bytes)
{
	int result = enter();
	if (result || (result = cuda.cuMemUnmap(at, bytes)))
		return result;
	return cuda.cuMemAddressFree(at, bytes);
}

int memory_read(void *to, memory_address from, size_t bytes)
{
	int result = enter();
	return result ? result : cuda.cuMemcpyDtoH_v2(to, from, bytes);
}

int memory_write(memory_address to, const void *from, size_t bytes)
{
	int result = enter();
	return result ? result : cuda.cuMemcpyHtoD_v2(to, from, bytes);
}

const char *memory_error(int result)
{
	const char *name = "unknown error";
	if (result == MEMORY_ABSENT)
		return "libcuda.so.1 cannot be opened";
	if (result == MEMORY_TOO_OLD)
		return "libcuda.so.1 lacks a function";
	if (cuda.cuGetErrorName)
		cuda.cuGetErrorName(result, &name);
	return name;
}
