/* Reserve, call, commit or cancel: what every allocating wrapper does. */
#ifndef GSHARE_MEMORY_H
#define GSHARE_MEMORY_H

#include "ledger.h"

struct gsh_hold {
	struct gsh_place place;
	uint64_t bytes;
	bool counted; /* false: there is no context, so the driver will say what is wrong */
};

/* Reserves on the calling thread's vGPU, or on the device's. False: refused, the answer is CUDA_ERROR_OUT_OF_MEMORY. */
bool gsh_hold(struct gsh_hold *h, uint64_t bytes);
bool gsh_hold_on(struct gsh_hold *h, CUdevice d, uint64_t bytes);

/* After the driver's call: the item is entered at its real size, or the reservation cancelled. Returns r. */
CUresult gsh_keep(struct gsh_hold *h, CUresult r, enum gsh_thing thing, uint64_t key, uint64_t bytes);

/* Around a freeing call f(key): the item leaves the ledger first, since the driver may give the key out again at once. */
#define GSH_FREE(thing, key, call)                                                                                      \
	({                                                                                                              \
		struct gsh_item item = {0};                                                                             \
		bool known = gsh_ledger_take(thing, (uint64_t)(key), &item);                                            \
		CUresult answer = (call);                                                                                \
		if (known && answer != CUDA_SUCCESS) gsh_ledger_put(&item);                                              \
		if (known && answer == CUDA_SUCCESS && item.vgpu) gsh_release(item.vgpu, item.bytes);                    \
		answer;                                                                                                 \
	})

/* Sets the bytes of an item that the driver lets grow and shrink. */
void gsh_set_charge(enum gsh_thing thing, uint64_t key, uint64_t bytes);

/* Brings the charges of all pools up to date with the driver. */
void gsh_pools_refresh(void);

/* Something may have been freed into a pool; a synchronisation may give it back to the device. */
void gsh_pool_freed(void);
void gsh_pools_synchronised(void);

#endif
