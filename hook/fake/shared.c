/* Memory that the device can access but that is not its own: of other processes and drivers. */
#define _GNU_SOURCE
#include "account.h"
#include "memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Memory of another process lives until its owner has freed it or ended, and all that have opened it have closed it. */
CUresult block_offer(struct block *block, struct peer_memory *memory)
{
	int file = block_file(block);
	struct stat status;
	if (file < 0 || fstat(file, &status) != 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!block->shared)
		block->shared = account_share(fake_gpu(block->device), block->size);
	*memory = (struct peer_memory){block->shared, block->length, (uint64_t)block->device, (uint64_t)getpid(), (uint64_t)file, status.st_ino, {0}};
	return CUDA_SUCCESS;
}

struct block *block_take(const struct peer_memory *memory)
{
	char name[64];
	struct stat status;
	snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)memory->pid, (int)memory->file);
	int file = memory->pid ? open(name, O_RDWR | O_CLOEXEC) : -1;
	if (memory->pid && (file < 0 || fstat(file, &status) != 0 || status.st_ino != memory->inode)) {
		close(file);
		return NULL;
	}
	struct block *block = block_share(block_new_address(memory->size), memory->shared, (CUdevice)memory->device);
	block->imported = 1;
	block->length = memory->size;
	block->file = file;
	return block;
}

FN(cuIpcGetMemHandle, , 4010, struct peer_memory *handle, CUdeviceptr address)
{
	ENTER(cuIpcGetMemHandle);
	struct block *block = block_find(address);
	if (!handle || !block)
		return CUDA_ERROR_INVALID_VALUE;
	return block_offer(block, handle);
}

/* Maps the memory, or counts one more opening where the context has it already. */
static CUresult ipc_open(CUdeviceptr *address, struct peer_memory handle)
{
	NEED_CONTEXT();
	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	struct block *block = handle.shared ? block_of(fake_current, NULL, handle.shared) : NULL;
	if (block)
		block->references++;
	else if ((block = block_take(&handle)))
		block->context = fake_current;
	else
		return CUDA_ERROR_INVALID_VALUE;
	*address = block->key;
	return CUDA_SUCCESS;
}

FN(cuIpcOpenMemHandle, , 4010, CUdeviceptr *p, struct peer_memory h, unsigned flags)
{
	ENTER(cuIpcOpenMemHandle);
	AT_RETURN();
	(void)flags;
	return ipc_open(p, h);
}
FN(cuIpcOpenMemHandle, _v2, 11000, CUdeviceptr *p, struct peer_memory h, unsigned flags)
{
	ENTER(cuIpcOpenMemHandle_v2);
	AT_RETURN();
	(void)flags;
	return ipc_open(p, h);
}

FN(cuIpcCloseMemHandle, , 4010, CUdeviceptr address)
{
	ENTER(cuIpcCloseMemHandle);
	struct block *block = block_find(address);
	if (!block || !block->imported)
		return CUDA_ERROR_INVALID_VALUE;
	if (--block->references == 0)
		block_free(block);
	return CUDA_SUCCESS;
}

/* CUDA_EXTERNAL_MEMORY_HANDLE_DESC: type, union of handles, size. */
struct external_desc {
	int type, pad;
	void *handle[2];
	unsigned long long size;
};

FN(cuImportExternalMemory, , 10000, struct block **memory, const struct external_desc *desc)
{
	ENTER(cuImportExternalMemory);
	if (!memory || !desc)
		return CUDA_ERROR_INVALID_VALUE;
	*memory = block_add(block_new_address(desc->size), 0, fake_current ? fake_current->device : 0);
	return CUDA_SUCCESS;
}

FN(cuDestroyExternalMemory, , 10000, struct block *memory)
{
	ENTER(cuDestroyExternalMemory);
	block_remove(memory);
	return CUDA_SUCCESS;
}
