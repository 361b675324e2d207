/* Mapping the memory of the store, with the driver that the program uses. */
#define _GNU_SOURCE
#include "gshare_store.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

/* The versions of these functions that containers with an older C library have, too: the agent mounts this library in any. */
#ifdef __aarch64__
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.17")
#else
#define OLD(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
#endif
OLD(dlopen);
OLD(dlsym);
OLD(pthread_once);

#define EXPORT __attribute__((visibility("default")))

/* CUmemAccessDesc. */
struct access {
	int type, id, flags; /* type 1: a device; flags 1: read, 3: read and write */
};

#define FUNCTIONS(X)                                                                                                    \
	X(cuCtxGetDevice, (int *))                                                                                      \
	X(cuMemImportFromShareableHandle, (unsigned long long *, void *, int))                                          \
	X(cuMemRelease, (unsigned long long))                                                                           \
	X(cuMemAddressReserve, (unsigned long long *, size_t, size_t, unsigned long long, unsigned long long))          \
	X(cuMemAddressFree, (unsigned long long, size_t))                                                               \
	X(cuMemMap, (unsigned long long, size_t, size_t, unsigned long long, unsigned long long))                       \
	X(cuMemUnmap, (unsigned long long, size_t))                                                                     \
	X(cuMemSetAccess, (unsigned long long, size_t, const struct access *, size_t))

#define DECLARE(name, parameters) int(*name) parameters;
static struct { FUNCTIONS(DECLARE) } cuda;
static int missing; /* whether the driver or one of the functions is */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define FIND(name, parameters) missing |= !library || !(cuda.name = (int(*) parameters)dlsym(library, #name));
	FUNCTIONS(FIND)
}

/* Maps a handle. */
static int map(unsigned long long handle, uint64_t size, int writable, unsigned long long *address)
{
	struct access access = {1, 0, writable ? 3 : 1};
	unsigned long long at;
	int result = cuda.cuCtxGetDevice(&access.id);
	if (result || (result = cuda.cuMemAddressReserve(&at, size, 0, 0, 0)))
		return result;
	if ((result = cuda.cuMemMap(at, size, 0, handle, 0)) == 0) {
		if ((result = cuda.cuMemSetAccess(at, size, &access, 1)) == 0) {
			*address = at;
			return 0;
		}
		cuda.cuMemUnmap(at, size);
	}
	cuda.cuMemAddressFree(at, size);
	return result;
}

EXPORT int gshare_store_map(const struct gshare_weights *weights, int writable, unsigned long long *address)
{
	unsigned long long handle;
	if (!weights || !address)
		return -EINVAL;
	pthread_once(&once, load);
	if (missing)
		return -ENOSYS;
	int result = cuda.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)weights->file, 1);
	if (!result) {
		result = map(handle, weights->size, writable, address);
		cuda.cuMemRelease(handle); /* the mapping keeps the memory */
	}
	return result ? GSHARE_STORE_CUDA + result : 0;
}

EXPORT int gshare_store_unmap(unsigned long long address, uint64_t size)
{
	pthread_once(&once, load);
	if (missing)
		return -ENOSYS;
	int result = cuda.cuMemUnmap(address, size);
	if (!result)
		result = cuda.cuMemAddressFree(address, size);
	return result ? GSHARE_STORE_CUDA + result : 0;
}
