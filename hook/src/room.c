#include "room.h"

#include "platform.h"

#define UNBOUNDED 4000000000ull /* ns; where the server names no bound, marks still come now and then */

uint64_t gsh_run_ahead(const struct gsh_vgpu *v) {
	uint64_t bound = atomic_load_explicit(&v->server->run_ahead, memory_order_relaxed);
	return bound ? bound : UNBOUNDED;
}

/*
 * Each track is counted once an epoch, and the epoch before says how many there will be. Epoch, count of the one before and
 * count are one word. The epoch is read after the word, so that a word of a later epoch is never taken for one of the past.
 */
static uint32_t streams_in_use(const struct gsh_track *k) {
	uint32_t epoch, before, now;
	uint64_t old = atomic_load(&k->vgpu->streams), next;
	do {
		epoch = atomic_load(&gsh_epoch);
		bool same = old >> 32 == epoch;
		before = same ? old >> 16 & 0xffff : epoch - (old >> 32) == 1 ? old & 0xffff : 0;
		now = (same ? old & 0xffff : 0) + (!same || k->epoch != epoch);
		if (now > 0xffff) now = 0xffff;
		next = (uint64_t)epoch << 32 | before << 16 | now;
	} while (next != old && !atomic_compare_exchange_weak(&k->vgpu->streams, &old, next));
	return before > now ? before : now;
}

uint64_t gsh_room_wanted(const struct gsh_track *k) { return gsh_run_ahead(k->vgpu) / 4 / streams_in_use(k); }

static uint64_t room_beside(uint64_t others, uint64_t all, uint64_t wanted) {
	uint64_t left = others < all ? all - others : 0;
	return wanted < left ? wanted : left;
}

/*
 * Epoch and sum are one word. After its epoch a track takes the slow path, so what a thread took that has ended, or does
 * other things, need not be given back.
 */
void gsh_room_take(struct gsh_track *k, uint64_t wanted) {
	uint64_t all = gsh_run_ahead(k->vgpu) / 4, old = atomic_load(&k->vgpu->rooms), others, room;
	uint32_t epoch;
	do {
		epoch = atomic_load(&gsh_epoch);
		others = old >> 32 == epoch ? (uint32_t)old - (k->since == epoch ? k->room : 0) : 0;
		room = room_beside(others, all, wanted);
	} while (!atomic_compare_exchange_weak(&k->vgpu->rooms, &old, (uint64_t)epoch << 32 | (others + room)));
	k->since = epoch;
	k->room = room;
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
