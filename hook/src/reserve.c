#define _GNU_SOURCE
#include "reserve.h"

#include "cancel.h"
#include "peers.h"
#include "platform.h"
#include "pool.h"
#include "start.h"

uint64_t gsh_allocated_bytes(uint64_t bytes) {
	uint64_t block = bytes < 1 << 20 ? 512 : 2 << 20;
	return bytes > UINT64_MAX - block ? UINT64_MAX : (bytes + block - 1) / block * block;
}

/* When a server ends or starts again, its processes notice it at different times, a few hundred ms apart. */
void gsh_reserve_wait(void) {
	int cancel = gsh_cancel_disable();
	for (int i = 0; i < 100 && atomic_load(&gsh_self_paced) && !atomic_load(&gsh_refused) && gsh_peers_usable() && gsh_peers_served(); i++)
		gsh_sleep(10 * GSH_MILLISECOND);
	gsh_cancel_restore(cancel);
}

/* Reserves bytes on the reservation's vGPU. */
static bool try(struct gsh_reservation *h, uint64_t bytes) {
	struct gsh_vgpu *v = h->on.vgpu;
	h->bytes = bytes;
	h->counted = true;
	bool room = gsh_ledger_has_room();
	if (v && room && gsh_memory_reserve(v, bytes)) return true;
	gsh_pools_refresh(); /* a pool may have returned memory since it was last charged */
	return v && room && gsh_memory_reserve(v, bytes);
}

/* Does the same, and counts a refusal on the client page. */
static bool reserve(struct gsh_reservation *h, uint64_t bytes) {
	bool fits = try(h, bytes);
	if (!fits && h->on.vgpu) atomic_fetch_add(&h->on.vgpu->client->refused, 1);
	return fits;
}

CUresult gsh_reserve(struct gsh_reservation *h, enum gsh_by by, uint64_t handle, uint64_t bytes) {
	*h = (struct gsh_reservation){0};
	if (by == BY_THREAD && !gsh_target(by, handle).context) return CUDA_SUCCESS;
	gsh_start();
	h->on = gsh_target(by, handle);
	if (h->on.error != CUDA_SUCCESS) return h->on.error;
	gsh_reserve_wait();
	return gsh_driver_lost() || reserve(h, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool gsh_reserve_vgpu(struct gsh_reservation *h, struct gsh_vgpu *v, uint64_t bytes) {
	gsh_start();
	gsh_reserve_wait();
	return gsh_reserve_at_once(h, v, bytes);
}

bool gsh_reserve_quietly(struct gsh_reservation *h, struct gsh_vgpu *v, uint64_t bytes) {
	*h = (struct gsh_reservation){.on.vgpu = v};
	return gsh_driver_lost() || try(h, bytes);
}

bool gsh_reserve_at_once(struct gsh_reservation *h, struct gsh_vgpu *v, uint64_t bytes) {
	*h = (struct gsh_reservation){0};
	h->on.vgpu = v;
	return gsh_driver_lost() || reserve(h, bytes);
}

CUresult gsh_reserve_commit(struct gsh_reservation *h, CUresult r, enum gsh_item_kind kind, uint64_t key, uint64_t bytes) {
	if (!h->counted) return r;
	if (r != CUDA_SUCCESS) {
		gsh_memory_release(h->on.vgpu, h->bytes);
		return r;
	}
	gsh_memory_charge(h->on.vgpu, bytes - h->bytes); /* the difference to the real size, possibly negative */
	gsh_ledger_put(&(struct gsh_item){kind, key, h->on.vgpu, h->on.context, bytes, 0, 0, 0});
	return r;
}
