/*
 * The wrappers of memory that another process or driver has allocated. The process that opens such memory is charged for
 * it while it is open, and so is its owner, since the memory lives on when the owner ends. Memory that is imported as a
 * handle is in vmm.c.
 */
#define _GNU_SOURCE
#include "reserve.h"

GSH_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *m, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *d) {
	NEED(cuImportExternalMemory);
	struct gsh_reservation h;
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC own = {0};
	if (d) own = *d;
	CUresult r = gsh_reserve(&h, BY_cuImportExternalMemory, 0, own.size);
	if (r != CUDA_SUCCESS) return r;
	CUexternalMemory created = NULL;
	r = real(m ? &created : NULL, d ? &own : NULL);
	if (r == CUDA_SUCCESS) *m = created;
	return gsh_reserve_commit(&h, r, EXTERNAL, (uint64_t)created, own.size);
}

GSH_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory m) {
	NEED(cuDestroyExternalMemory);
	return GSH_FREE(EXTERNAL, m, real(m));
}

/* Returns the bytes of the allocation at an address; UINT64_MAX, which no share has, if the driver does not say. */
static uint64_t allocation_bytes(CUdeviceptr p) {
	size_t bytes = 0;
	CUdeviceptr base;
	if (CALL(cuMemGetAddressRange_v2, &base, &bytes, p) == CUDA_SUCCESS && bytes) return bytes;
	return CALL(cuPointerGetAttribute, &bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, p) == CUDA_SUCCESS && bytes ? bytes : UINT64_MAX;
}

/* Charges memory that was opened at an address, on the device that has it. Returns false if it does not fit. */
static bool charge_opened(CUdeviceptr p, enum gsh_item_kind kind) {
	struct gsh_reservation h;
	uint64_t bytes = allocation_bytes(p);
	if (gsh_reserve(&h, BY_POINTER, p, bytes) != CUDA_SUCCESS) return false;
	CUcontext owner = kind == OPENED ? gsh_target(BY_THREAD, 0).context : NULL; /* which opened it */
	gsh_ledger_put(&(struct gsh_item){kind, p, h.on.vgpu, owner, bytes, 0, 0, 0});
	return true;
}

/*
 * Changes how often memory at an address has been opened again: the driver returns the same address each time. Returns
 * false if the memory is not open, or if this closes its only opening.
 */
static bool change_openings(CUdeviceptr p, int by) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(OPENED, p);
	bool counted = i && (by > 0 || i->other);
	if (counted) i->other += (uint64_t)by;
	gsh_ledger_unlock();
	return counted;
}

#define OPEN(name)                                                                                                      \
	GSH_EXPORT CUresult name(CUdeviceptr *p, CUipcMemHandle handle, unsigned flags) {                               \
		NEED(name);                                                                                             \
		CUdeviceptr at = 0;                                                                                     \
		CUresult r = real(p ? &at : NULL, handle, flags);                                                       \
		if (r != CUDA_SUCCESS) return r;                                                                        \
		if (change_openings(at, 1) || charge_opened(at, OPENED)) {                                              \
			*p = at;                                                                                        \
			return r;                                                                                       \
		}                                                                                                       \
		CALL(cuIpcCloseMemHandle, at);                                                                          \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                                        \
	}
OPEN(cuIpcOpenMemHandle)
OPEN(cuIpcOpenMemHandle_v2)

GSH_EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr p) {
	NEED(cuIpcCloseMemHandle);
	if (!change_openings(p, -1)) return GSH_FREE(OPENED, p, real(p));
	CUresult r = real(p);
	if (r != CUDA_SUCCESS) change_openings(p, 1);
	return r;
}

/* What was imported into a pool is freed like any other memory. */
GSH_EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *p, CUmemoryPool pool, void *data) {
	NEED(cuMemPoolImportPointer);
	CUdeviceptr at = 0;
	CUresult r = real(p ? &at : NULL, pool, data);
	if (r != CUDA_SUCCESS) return r;
	if (charge_opened(at, POINTER)) {
		*p = at;
		return r;
	}
	CALL(cuMemFree_v2, at);
	return CUDA_ERROR_OUT_OF_MEMORY;
}
