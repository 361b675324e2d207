#include "room.h"

#include "platform.h"

#define UNBOUNDED 4000000000ull /* ns; where the server names no bound, marks still come now and then */

uint64_t gsh_run_ahead(const struct gsh_vgpu *v) {
	uint64_t bound = atomic_load_explicit(&v->server->run_ahead, memory_order_relaxed);
	return bound ? bound : UNBOUNDED;
}

/*
 * Each track is counted once an epoch, and the epoch before says how many there will be. Epoch, count of the one before and
 * count are one word.
 */
static uint32_t streams_in_use(const struct gsh_track *k) {
	uint32_t epoch = atomic_load(&gsh_epoch), before, now;
	uint64_t old = atomic_load(&k->vgpu->streams);
	do {
		bool same = old >> 32 == epoch;
		before = same ? old >> 16 & 0xffff : epoch - (old >> 32) == 1 ? old & 0xffff : 0;
		now = (same ? old & 0xffff : 0) + (!same || k->epoch != epoch);
		if (now > 0xffff) now = 0xffff;
	} while (!atomic_compare_exchange_weak(&k->vgpu->streams, &old, (uint64_t)epoch << 32 | before << 16 | now));
	return before > now ? before : now;
}

uint64_t gsh_room_wanted(const struct gsh_track *k) { return gsh_run_ahead(k->vgpu) / 4 / streams_in_use(k); }

/*
 * Epoch and sum are one word. After its epoch a track takes the slow path, so what a thread took that has ended, or does
 * other things, need not be given back.
 */
void gsh_room_take(struct gsh_track *k, uint64_t wanted) {
	uint64_t all = gsh_run_ahead(k->vgpu) / 4, old = atomic_load(&k->vgpu->rooms), taken;
	k->since = atomic_load(&gsh_epoch);
	do {
		taken = old >> 32 == k->since ? (uint32_t)old : 0;
		k->room = taken >= all ? 0 : all - taken < wanted ? all - taken : wanted;
	} while (!atomic_compare_exchange_weak(&k->vgpu->rooms, &old, (uint64_t)k->since << 32 | (taken + k->room)));
}

void gsh_room_leave(struct gsh_track *k) {
	uint64_t old = atomic_load(&k->vgpu->rooms);
	while (k->room && old >> 32 == k->since)
		if (atomic_compare_exchange_weak(&k->vgpu->rooms, &old, old - k->room)) break;
	k->room = 0;
}

uint64_t gsh_rooms(const struct gsh_vgpu *v) {
	uint64_t rooms = atomic_load(&v->rooms);
	return atomic_load(&gsh_epoch) - (uint32_t)(rooms >> 32) <= 1 ? (uint32_t)rooms : 0;
}
