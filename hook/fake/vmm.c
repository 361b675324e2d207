/* Virtual memory management: physical memory exists while it has a handle or a mapping. */
#define _GNU_SOURCE
#include "memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* CUmemAllocationProp */
struct prop {
	int type, handles, location_type, location_id;
	void *attributes;
	unsigned char flags[8];
};

/* Returns the properties of memory on a device. */
static struct prop prop_of(CUdevice device) { return (struct prop){1, 0, 1, device, NULL, {0}}; }

FN(cuMemGetAllocationGranularity, , 10020, size_t *granularity, const struct prop *prop, int option)
{
	ENTER(cuMemGetAllocationGranularity);
	(void)option;
	if (!granularity || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*granularity = CHUNK;
	return CUDA_SUCCESS;
}

FN(cuMemAddressReserve, , 10020, CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
	ENTER(cuMemAddressReserve);
	(void)alignment, (void)hint, (void)flags;
	if (!address || !size || size % CHUNK)
		return CUDA_ERROR_INVALID_VALUE;
	*address = block_new_address(size);
	return CUDA_SUCCESS;
}

STUB(cuMemAddressFree, , 10020, CUdeviceptr address __attribute__((unused)), size_t size __attribute__((unused)))

/* A location of another type than device (1) is host memory. */
FN(cuMemCreate, , 10020, unsigned long long *handle, size_t size, const struct prop *prop, unsigned long long flags)
{
	ENTER(cuMemCreate);
	(void)flags;
	if (!handle || !prop || !size || size % CHUNK || prop->location_id < 0 || prop->location_id >= fake_devices)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t charged = prop->location_type == 1 ? size : 0;
	if (!fake_charge(prop->location_id, charged))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = 0x1000000000 + fake_next_id();
	block_add(*handle, charged, prop->location_id);
	return CUDA_SUCCESS;
}

/* Removes a reference; the last one frees the memory. */
static CUresult drop(struct block *block)
{
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	if (__atomic_sub_fetch(&block->references, 1, __ATOMIC_RELAXED) > 0)
		return CUDA_SUCCESS;
	fake_refund(block->device, block->size);
	block_remove(block);
	return CUDA_SUCCESS;
}

/* Returns the memory behind a handle, which an imported one shares with that of the export. */
static struct block *memory_of(struct block *handle) { return handle && handle->backs ? handle->backs : handle; }

FN(cuMemRelease, , 10020, unsigned long long handle)
{
	ENTER(cuMemRelease);
	struct block *block = block_find(handle), *memory = memory_of(block);
	if (memory != block)
		block_remove(block);
	return drop(memory);
}

FN(cuMemMap, , 10020, CUdeviceptr address, size_t size, size_t offset, unsigned long long handle, unsigned long long flags)
{
	ENTER(cuMemMap);
	(void)size, (void)offset, (void)flags;
	struct block *block = memory_of(block_find(handle));
	if (!block || block_find(address))
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&block->references, 1, __ATOMIC_RELAXED);
	block_add(address, 0, block->device)->backs = block;
	return CUDA_SUCCESS;
}

FN(cuMemUnmap, , 10020, CUdeviceptr address, size_t size)
{
	ENTER(cuMemUnmap);
	(void)size;
	struct block *mapping = block_find(address);
	if (!mapping || !mapping->backs)
		return CUDA_ERROR_INVALID_VALUE;
	struct block *block = mapping->backs;
	block_remove(mapping);
	return drop(block);
}

STUB(cuMemSetAccess, , 10020, CUdeviceptr address __attribute__((unused)), size_t size __attribute__((unused)),
     const void *access __attribute__((unused)), size_t count __attribute__((unused)))

FN(cuMemRetainAllocationHandle, , 11000, unsigned long long *handle, void *address)
{
	ENTER(cuMemRetainAllocationHandle);
	struct block *mapping = block_find((uint64_t)(uintptr_t)address);
	if (!handle || !mapping || !mapping->backs)
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&mapping->backs->references, 1, __ATOMIC_RELAXED);
	*handle = mapping->backs->key;
	return CUDA_SUCCESS;
}

FN(cuMemGetAllocationPropertiesFromHandle, , 10020, struct prop *prop, unsigned long long handle)
{
	ENTER(cuMemGetAllocationPropertiesFromHandle);
	struct block *block = block_find(handle);
	if (!prop || !block)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = prop_of(block->device);
	return CUDA_SUCCESS;
}

/* An exported handle is a file with the block's key, and keeps the memory until the process ends: nobody sees its closing. */
FN(cuMemExportToShareableHandle, , 10020, void *shared, unsigned long long handle, int type, unsigned long long flags)
{
	ENTER(cuMemExportToShareableHandle);
	(void)type, (void)flags;
	struct block *block = block_find(handle);
	int fd = block ? memfd_create("exported", MFD_CLOEXEC) : -1;
	unsigned long long content[2] = {(unsigned long long)getpid(), handle};
	if (fd < 0 || write(fd, content, sizeof content) != sizeof content)
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&block->references, 1, __ATOMIC_RELAXED);
	memcpy(shared, &fd, sizeof fd);
	return CUDA_SUCCESS;
}

/* Returns another handle of the block. That of another process has its memory there, so it takes none here. */
FN(cuMemImportFromShareableHandle, , 10020, unsigned long long *handle, void *shared, int type)
{
	ENTER(cuMemImportFromShareableHandle);
	(void)type;
	unsigned long long content[2] = {0, 0};
	int own = pread((int)(intptr_t)shared, content, sizeof content, 0) == sizeof content && content[0] == (unsigned long long)getpid();
	struct block *block = own ? block_find(content[1]) : NULL;
	*handle = 0x2000000000 + fake_next_id();
	block_add(*handle, 0, block ? block->device : 0)->backs = block;
	if (block)
		__atomic_add_fetch(&block->references, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

/* CUmulticastObjectProp: devices, size, handle types, flags. */
struct multicast {
	unsigned devices;
	size_t size;
	unsigned long long handles, flags;
};

FN(cuMulticastCreate, , 12010, unsigned long long *handle, const struct multicast *prop)
{
	ENTER(cuMulticastCreate);
	if (!handle || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*handle = 0x3000000000 + fake_next_id();
	block_add(*handle, 0, 0);
	return CUDA_SUCCESS;
}
