/*
 * What every allocating wrapper does: reserve on the container's page, call the driver, then commit or release. The driver gets a
 * copy of the arguments that the hook has checked and returns into a variable of the wrapper, since another thread could change the
 * caller's memory in between.
 */
#ifndef GSHARE_RESERVE_H
#define GSHARE_RESERVE_H

#include "device.h"
#include "ledger.h"

/* Memory that is counted already and not yet allocated. */
struct gsh_reservation {
	struct gsh_target on; /* where the memory is allocated */
	uint64_t bytes;
	bool counted; /* false: nothing is counted, as the driver returns an error of its own */
};

/*
 * Returns how much of the device an allocation takes: whole blocks of 512 bytes, and of 2 MiB from 1 MiB on, which is what the
 * driver maps at once. UINT64_MAX where that overflows.
 */
uint64_t gsh_allocated_bytes(uint64_t bytes);

/*
 * Reserves bytes where a call acts (gsh_target). Returns the error that the wrapper has to return: CUDA_ERROR_OUT_OF_MEMORY if the limit would
 * be exceeded, or the driver's error where the calling thread's context is destroyed. The wrapper does not call the driver then: a new context
 * may have got the handle, and would take memory that is not counted. Starts the hook if that has not been done. Nothing is counted where the driver has to return its own error:
 * without the context that the call needs, and in a forked child.
 */
CUresult gsh_reserve(struct gsh_reservation *h, enum gsh_by by, uint64_t handle, uint64_t bytes);

/* Does so on a given vGPU. Returns false if the limit would be exceeded: the wrapper then returns CUDA_ERROR_OUT_OF_MEMORY. */
bool gsh_reserve_vgpu(struct gsh_reservation *h, struct gsh_vgpu *v, uint64_t bytes);

/*
 * Waits up to a second while the server serves others of the container and not this process, which may have nothing until then. The
 * functions above do so. Where the bytes depend on what other threads allocate, they are computed after the wait and then reserved by
 * gsh_reserve_at_once, or several threads would count on the same free memory.
 */
void gsh_reserve_wait(void);
bool gsh_reserve_at_once(struct gsh_reservation *h, struct gsh_vgpu *v, uint64_t bytes);
bool gsh_reserve_quietly(struct gsh_reservation *h, struct gsh_vgpu *v, uint64_t bytes); /* a refusal is not counted, since another attempt follows */

/* Enters what the driver allocated in the ledger at its real size, or releases the reservation if r is an error. Returns r. */
CUresult gsh_reserve_commit(struct gsh_reservation *h, CUresult r, enum gsh_item_kind kind, uint64_t key, uint64_t bytes);

/*
 * Evaluates `call`, which frees `key`, and releases its memory. The item leaves the ledger before the call, since the driver
 * may return the same key to another thread at once; if the call fails it is put back.
 */
#define GSH_FREE(kind, key, call)                                                                                       \
	({                                                                                                              \
		struct gsh_item item = {0};                                                                             \
		bool known = gsh_ledger_take(kind, (uint64_t)(key), &item);                                             \
		CUresult result = (call);                                                                               \
		if (known && result != CUDA_SUCCESS) gsh_ledger_put(&item);                                             \
		if (known && result == CUDA_SUCCESS && item.vgpu) gsh_memory_release(item.vgpu, item.bytes);            \
		result;                                                                                                 \
	})

#endif
