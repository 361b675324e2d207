/* Pinned memory of the host, and the attributes of pointers to it and to device memory. */
#define _GNU_SOURCE
#include "memory.h"

#include <stdlib.h>

enum { HOST_MEMORY_ALREADY_REGISTERED = 712, HOST_MEMORY_NOT_REGISTERED = 713 };
enum { MAPPED = 2 }; /* CU_MEMHOSTALLOC_DEVICEMAP, which all pinned memory has where the host and the devices share addresses */
enum { ON_HOST = 1, ON_DEVICE = 2 }; /* CUmemorytype */
#define NO_DEVICE (-2) /* CU_DEVICE_INVALID */

/* A range of pinned memory; registered: the program's own. */
struct pinned {
	struct pinned *next;
	uintptr_t at;
	size_t size;
	unsigned flags;
	int registered;
	struct context *context;
	uint64_t id;
};
static struct pinned *all;
static pthread_mutex_t pinning = PTHREAD_MUTEX_INITIALIZER; /* guards the list */

/* Copies the range that an address is in. Returns 0 if there is none. */
static int find(uintptr_t address, struct pinned *to)
{
	LOCKED(pinning);
	for (struct pinned *p = all; p; p = p->next)
		if (address - p->at < p->size)
			return *to = *p, 1;
	return 0;
}

static void pin(void *at, size_t size, unsigned flags, int registered)
{
	struct pinned *p = calloc(1, sizeof *p);
	LOCKED(pinning);
	*p = (struct pinned){all, (uintptr_t)at, size ? size : 1, flags, registered, fake_current, fake_next_id()};
	all = p;
}

/* Removes the range that begins at an address. Returns 0 if there is none. */
static int unpin(const void *at, int registered)
{
	LOCKED(pinning);
	for (struct pinned **p = &all; *p; p = &(*p)->next)
		if ((*p)->at == (uintptr_t)at && (*p)->registered == registered) {
			struct pinned *gone = *p;
			*p = gone->next;
			free(gone);
			return 1;
		}
	return 0;
}

static CUresult allocate(void **p, size_t size, unsigned flags)
{
	NEED_CONTEXT();
	NEED(p);
	if (posix_memalign(p, PAGE, size ? size : 1))
		return CUDA_ERROR_OUT_OF_MEMORY;
	pin(*p, size, flags, 0);
	return CUDA_SUCCESS;
}

FN(cuMemAllocHost, _v2, 3020, void **p, size_t size) { ENTER(cuMemAllocHost_v2); return allocate(p, size, 0); }
FN(cuMemHostAlloc, , 2020, void **p, size_t size, unsigned flags) { ENTER(cuMemHostAlloc); return allocate(p, size, flags); }
FN(cuMemFreeHost, , 2000, void *p)
{
	ENTER(cuMemFreeHost);
	if (!unpin(p, 0))
		return CUDA_ERROR_INVALID_VALUE;
	free(p);
	return CUDA_SUCCESS;
}

FN(cuMemHostRegister, _v2, 6050, void *p, size_t size, unsigned flags)
{
	struct pinned known;
	ENTER(cuMemHostRegister_v2);
	NEED_CONTEXT();
	if (!p || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (find((uintptr_t)p, &known))
		return HOST_MEMORY_ALREADY_REGISTERED;
	pin(p, size, flags, 1);
	return CUDA_SUCCESS;
}
FN(cuMemHostUnregister, , 4000, void *p) { ENTER(cuMemHostUnregister); return unpin(p, 1) ? CUDA_SUCCESS : HOST_MEMORY_NOT_REGISTERED; }

FN(cuMemHostGetFlags, , 2030, unsigned *flags, void *p)
{
	struct pinned known;
	ENTER(cuMemHostGetFlags);
	if (!flags || !find((uintptr_t)p, &known))
		return CUDA_ERROR_INVALID_VALUE;
	*flags = known.flags | MAPPED;
	return CUDA_SUCCESS;
}

FN(cuMemHostGetDevicePointer, _v2, 3020, CUdeviceptr *device, void *p, unsigned flags)
{
	ENTER(cuMemHostGetDevicePointer_v2);
	(void)flags;
	NEED(device);
	*device = (CUdeviceptr)(uintptr_t)p;
	return CUDA_SUCCESS;
}

/*
 * Stores a CUpointer_attribute of an address in a block, in pinned memory, or in neither, where every attribute has its default. Returns 0 if
 * the attribute is not modelled.
 */
static int store(void *value, int attribute, CUdeviceptr p, const struct block *b, const struct pinned *h)
{
	switch (attribute) {
	case 1: *(CUcontext *)value = b ? b->context : h ? h->context : NULL; break;
	case 2: *(unsigned *)value = b ? ON_DEVICE : h ? ON_HOST : 0; break;
	case 3: *(CUdeviceptr *)value = b || h ? p : 0; break;
	case 4: *(void **)value = h || (b && b->managed) ? (void *)(uintptr_t)p : NULL; break;
	case 6: *(unsigned *)value = 0; break; /* synchronous copies */
	case 7: *(unsigned long long *)value = b ? b->key : h ? h->id : 0; break; /* a number of the allocation */
	case 8: *(unsigned *)value = b && b->managed; break;
	case 9: *(int *)value = b ? b->device : h ? h->context->device : NO_DEVICE; break;
	case 10: *(unsigned *)value = b && !b->backs && !b->pool && !b->managed; break; /* cuIpcGetMemHandle takes it */
	case 11: *(CUdeviceptr *)value = b ? b->key : h ? h->at : 0; break;
	case 12: *(size_t *)value = b ? b->length : h ? h->size : 0; break;
	case 13: *(unsigned *)value = b || h; break;
	case 14: *(unsigned long long *)value = b && b->backs; break; /* as a file descriptor */
	case 17: *(struct pool **)value = b ? b->pool : NULL; break;
	default: return 0;
	}
	return 1;
}

FN(cuPointerGetAttribute, , 4000, void *value, int attribute, CUdeviceptr p)
{
	struct pinned h;
	ENTER(cuPointerGetAttribute);
	struct block *block = block_containing(p);
	int pinned = !block && find(p, &h);
	if (!value || (!block && !pinned))
		return CUDA_ERROR_INVALID_VALUE;
	return store(value, attribute, p, block, pinned ? &h : NULL) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

/* Unlike the above it succeeds for every address. */
FN(cuPointerGetAttributes, , 7000, unsigned n, const int *attributes, void **values, CUdeviceptr p)
{
	struct pinned h;
	ENTER(cuPointerGetAttributes);
	struct block *block = block_containing(p);
	int pinned = !block && find(p, &h);
	CUresult result = CUDA_SUCCESS;
	for (unsigned i = 0; i < n; i++)
		if (!store(values[i], attributes[i], p, block, pinned ? &h : NULL))
			result = CUDA_ERROR_NOT_SUPPORTED;
	return result;
}
