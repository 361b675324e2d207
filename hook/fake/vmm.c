/* Virtual memory management: physical memory exists while it has a handle or a mapping. */
#define _GNU_SOURCE
#include "account.h"
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t references = PTHREAD_MUTEX_INITIALIZER; /* held while the handles or mappings of a block change */
static struct block *exported; /* list of the blocks whose exported descriptors count as one reference; guarded by references */
static int watching;           /* whether a thread looks for closed descriptors; guarded by references */

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
	uint64_t charged = prop->location_type < 2 ? size : 0;
	fake_drop_closed();
	if (!fake_charge(prop->location_id, charged))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*handle = 0x1000000000 + fake_next_id();
	struct block *block = block_add(*handle, charged, prop->location_id);
	block->length = size;
	block->handles = 1;
	return CUDA_SUCCESS;
}

/*
 * An exported descriptor has the memory until its last copy is closed, in whatever process. Each is an open file of its own that keeps a
 * lock, which ends with it: as long as one is open somewhere, the lock of the whole file is refused.
 */
static int descriptors_open(const struct block *block)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	return fcntl(block->file, F_OFD_GETLK, &l) != 0 || l.l_type != F_UNLCK;
}

/* Opens the memory's file once more, for an export with the lock. Returns -1 if it cannot. */
static int open_again(int file, int with_lock)
{
	char name[32];
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	snprintf(name, sizeof name, "/proc/self/fd/%d", file);
	int opened = open(name, O_RDWR | O_CLOEXEC);
	if (opened >= 0 && with_lock && fcntl(opened, F_OFD_SETLK, &l) != 0) {
		close(opened);
		return -1;
	}
	return opened;
}

/* Removes a reference; the last one frees the memory. */
static CUresult drop(struct block *block)
{
	if (!block)
		return CUDA_ERROR_INVALID_VALUE;
	if (__atomic_sub_fetch(&block->references, 1, __ATOMIC_RELAXED) > 0)
		return CUDA_SUCCESS;
	block_free(block);
	return CUDA_SUCCESS;
}

/* Removes the references of exported descriptors that have been closed since. The caller holds references. */
static void drop_closed(void)
{
	for (struct block **at = &exported, *block; (block = *at);) {
		if (descriptors_open(block)) {
			at = &block->next_exported;
			continue;
		}
		*at = block->next_exported;
		block->exported = 0;
		drop(block);
	}
}

void fake_drop_closed(void)
{
	LOCKED(references);
	drop_closed();
}

/* Looks for closed descriptors as long as there are exported ones. */
static void *watch(void *unused)
{
	(void)unused;
	for (int more = 1; more;) {
		usleep(5000);
		LOCKED(references);
		drop_closed();
		more = exported != NULL;
		watching = more;
	}
	return NULL;
}

/* Starts the thread of watch, unless it runs. Without it, closed descriptors are seen at the next call. The caller holds references. */
static void start_watch(void)
{
	pthread_t thread;
	if (!watching && pthread_create(&thread, NULL, watch, NULL) == 0)
		watching = pthread_detach(thread) == 0;
}

/* Returns the memory behind a handle, which an imported one shares with that of the export; NULL if all of its handles were released. */
static struct block *memory_of(struct block *handle)
{
	return !handle || !handle->handles ? NULL : handle->backs ? handle->backs : handle;
}

FN(cuMemRelease, , 10020, unsigned long long handle)
{
	ENTER(cuMemRelease);
	AT_RETURN();
	LOCKED(references);
	struct block *block = block_find(handle), *memory = memory_of(block);
	if (memory)
		block->handles--;
	if (memory != block && memory)
		block_remove(block);
	CUresult result = drop(memory);
	drop_closed();
	return result;
}

FN(cuMemMap, , 10020, CUdeviceptr address, size_t size, size_t offset, unsigned long long handle, unsigned long long flags)
{
	ENTER(cuMemMap);
	AT_RETURN();
	LOCKED(references);
	(void)flags;
	struct block *block = memory_of(block_find(handle));
	if (!block || block_find(address) || offset > block->length || size > block->length - offset)
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&block->references, 1, __ATOMIC_RELAXED);
	struct block *mapping = block_add(address, 0, block->device);
	mapping->offset = offset;
	mapping->length = size;
	mapping->backs = block;
	return CUDA_SUCCESS;
}

/* Removes all mappings of a range. */
FN(cuMemUnmap, , 10020, CUdeviceptr address, size_t size)
{
	ENTER(cuMemUnmap);
	AT_RETURN();
	LOCKED(references);
	struct block *mapping = block_find(address);
	if (!mapping || !mapping->backs)
		return CUDA_ERROR_INVALID_VALUE;
	for (CUdeviceptr at = address; at < address + size; at += CHUNK) {
		if (!(mapping = block_find(at)) || !mapping->backs)
			continue;
		struct block *block = mapping->backs;
		block_remove(mapping);
		drop(block);
	}
	drop_closed();
	return CUDA_SUCCESS;
}

/* CUmemAccessDesc: location, flags. */
struct access {
	int type, id, flags;
};

/* A range without a mapping in it is none of ours. Access of hosts is not modelled. */
FN(cuMemSetAccess, , 10020, CUdeviceptr address, size_t size, const struct access *access, size_t count)
{
	ENTER(cuMemSetAccess);
	for (CUdeviceptr at = address; at < address + size; at += CHUNK) {
		struct block *mapping = block_find(at);
		for (size_t i = 0; mapping && mapping->backs && access && i < count; i++)
			if (access[i].type == 1)
				mapping->access = access[i].flags;
	}
	return CUDA_SUCCESS;
}

FN(cuMemRetainAllocationHandle, , 11000, unsigned long long *handle, void *address)
{
	ENTER(cuMemRetainAllocationHandle);
	AT_RETURN();
	LOCKED(references);
	struct block *mapping = block_find((uint64_t)(uintptr_t)address);
	if (!handle || !mapping || !mapping->backs)
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&mapping->backs->references, 1, __ATOMIC_RELAXED);
	mapping->backs->handles++;
	*handle = mapping->backs->key;
	return CUDA_SUCCESS;
}

FN(cuMemGetAllocationPropertiesFromHandle, , 10020, struct prop *prop, unsigned long long handle)
{
	ENTER(cuMemGetAllocationPropertiesFromHandle);
	struct block *block = memory_of(block_find(handle));
	if (!prop || !block)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = prop_of(block->device);
	return CUDA_SUCCESS;
}

/* What the file of an exported handle contains in its last page, behind the contents of the memory. */
struct exported {
	uint64_t pid, space, handle, shared, size, device;
};

/* Reports whether this process has exported the memory. */
static int own_export(const struct exported *e) { return e->pid == (uint64_t)getpid() && e->space == account_namespace(); }

/*
 * An exported descriptor keeps the memory until it is closed everywhere, which a thread of this process notices within some milliseconds, or its
 * next call of cuMemCreate, Release, Unmap or GetInfo. Not modelled: one that outlives the process which exported it and is imported nowhere.
 */
FN(cuMemExportToShareableHandle, , 10020, void *shared, unsigned long long handle, int type, unsigned long long flags)
{
	ENTER(cuMemExportToShareableHandle);
	AT_RETURN();
	LOCKED(references);
	(void)type, (void)flags;
	struct block *block = memory_of(block_find(handle));
	if (!block || !shared)
		return CUDA_ERROR_INVALID_VALUE;
	if (!block->shared)
		block->shared = account_share(fake_gpu(block->device), block->size);
	struct exported content = {(uint64_t)getpid(), account_namespace(), block->key, block->shared, block->length, (uint64_t)block->device};
	int file = block_file(block), fd = file < 0 ? -1 : open_again(file, 1);
	if (fd < 0 || pwrite(fd, &content, sizeof content, (off_t)block->length) != sizeof content) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!block->exported) {
		__atomic_add_fetch(&block->references, 1, __ATOMIC_RELAXED);
		block->exported = 1;
		block->next_exported = exported;
		exported = block;
	}
	start_watch();
	memcpy(shared, &fd, sizeof fd);
	return CUDA_SUCCESS;
}

/* Returns another handle of the memory, which may be another process's. The caller keeps the descriptor and may close it. */
FN(cuMemImportFromShareableHandle, , 10020, unsigned long long *handle, void *shared, int type)
{
	ENTER(cuMemImportFromShareableHandle);
	AT_RETURN();
	LOCKED(references);
	(void)type;
	struct exported content;
	struct stat status;
	int file = (int)(intptr_t)shared;
	if (!handle || fstat(file, &status) != 0 || pread(file, &content, sizeof content, status.st_size - (off_t)PAGE) != sizeof content)
		return CUDA_ERROR_INVALID_VALUE;
	struct block *block = own_export(&content) ? block_find(content.handle) : NULL;
	*handle = 0x2000000000 + fake_next_id();
	if (!block) {
		block = block_share(*handle, content.shared, (CUdevice)content.device);
		block->length = content.size;
		block->handles = 1;
		block->file = open_again(file, 0);
		return block->file < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
	}
	struct block *imported = block_add(*handle, 0, block->device);
	imported->backs = block;
	imported->handles = 1;
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
	struct block *block = block_add(*handle, 0, 0);
	block->handles = 1;
	block->length = prop->size;
	return CUDA_SUCCESS;
}

/* Bound memory lives as long as the multicast object, which is never destroyed here. */
static CUresult bind(struct block *memory)
{
	if (!memory)
		return CUDA_ERROR_INVALID_VALUE;
	__atomic_add_fetch(&memory->references, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

FN(cuMulticastBindMem, , 12010, unsigned long long multicast, size_t at, unsigned long long handle, size_t offset, size_t size,
   unsigned long long flags)
{
	ENTER(cuMulticastBindMem);
	LOCKED(references);
	(void)multicast, (void)at, (void)offset, (void)size, (void)flags;
	return bind(memory_of(block_find(handle)));
}

FN(cuMulticastBindAddr, , 12010, unsigned long long multicast, size_t at, CUdeviceptr address, size_t size, unsigned long long flags)
{
	ENTER(cuMulticastBindAddr);
	LOCKED(references);
	(void)multicast, (void)at, (void)flags;
	struct block *mapping = block_find(address);
	CUresult result = bind(mapping ? mapping->backs : NULL);
	for (CUdeviceptr next = address + CHUNK; result == CUDA_SUCCESS && next < address + size; next += CHUNK)
		if ((mapping = block_find(next)) && mapping->backs)
			bind(mapping->backs);
	return result;
}

/* CUarrayMapInfo. */
struct map_info {
	uint64_t resource[2];
	int subresource_type;
	uint64_t subresource[4];
	int operation, handle_type;
	unsigned long long handle, offset;
	unsigned devices, flags, reserved[2];
};

/* Memory that was mapped into an array stays there: the unmapping (operation 2) is not modelled. */
FN(cuMemMapArrayAsync, , 11010, struct map_info *list, unsigned count, CUstream stream)
{
	ENTER(cuMemMapArrayAsync);
	AT_RETURN();
	LOCKED(references);
	(void)stream;
	for (unsigned i = 0; i < count; i++)
		if (list[i].operation == 1 && bind(memory_of(block_find(list[i].handle))))
			return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}
TWIN(cuMemMapArrayAsync, , _ptsz, 11010, (struct map_info *l, unsigned n, CUstream s), (l, n, PER_THREAD(s)))
