#include "budget.h"

#define UNBOUNDED 4000000000ull /* ns; used where the server sets no bound, so that events are still recorded now and then */

uint64_t gsh_run_ahead_bound(const struct gsh_vgpu *v) {
	uint64_t bound = atomic_load_explicit(&v->server->run_ahead, memory_order_relaxed);
	return bound ? bound : UNBOUNDED;
}

/*
 * Counts the stream once per epoch and returns how many streams are in use: the count of this epoch or of the previous one,
 * whichever is larger. v->streams packs the epoch (32 bits), the previous epoch's count (16) and this epoch's count (16). The
 * epoch is read after the word, so that a word of a later epoch is never mistaken for an outdated one.
 */
static uint32_t streams_in_use(const struct gsh_stream_state *st) {
	uint32_t epoch, before, now;
	uint64_t old = atomic_load(&st->vgpu->streams), next;
	do {
		epoch = atomic_load(&gsh_epoch);
		bool same = old >> 32 == epoch;
		before = same ? old >> 16 & 0xffff : epoch - (old >> 32) == 1 ? old & 0xffff : 0;
		now = (same ? old & 0xffff : 0) + (!same || st->epoch != epoch);
		if (now > 0xffff) now = 0xffff;
		next = (uint64_t)epoch << 32 | before << 16 | now;
	} while (next != old && !atomic_compare_exchange_weak(&st->vgpu->streams, &old, next));
	return before > now ? before : now;
}

uint64_t gsh_budget_share(const struct gsh_stream_state *st) {
	return gsh_run_ahead_bound(st->vgpu) / 4 / streams_in_use(st);
}

/* Returns what `others` leave of `all`, at most `wanted`. */
static uint64_t remaining(uint64_t others, uint64_t all, uint64_t wanted) {
	uint64_t left = others < all ? all - others : 0;
	return wanted < left ? wanted : left;
}

/*
 * v->budgets packs an epoch and the sum of the budgets taken in it. In the next epoch every stream takes the slow path again,
 * so the budget of a thread that has ended, or no longer launches, need not be released.
 */
void gsh_budget_take(struct gsh_stream_state *st, uint64_t wanted) {
	uint64_t all = gsh_run_ahead_bound(st->vgpu) / 4, old = atomic_load(&st->vgpu->budgets), others, budget;
	uint32_t epoch;
	do {
		epoch = atomic_load(&gsh_epoch);
		others = old >> 32 == epoch ? (uint32_t)old - (st->budget_epoch == epoch ? st->budget : 0) : 0;
		budget = remaining(others, all, wanted);
	} while (!atomic_compare_exchange_weak(&st->vgpu->budgets, &old, (uint64_t)epoch << 32 | (others + budget)));
	st->budget_epoch = epoch;
	st->budget = budget;
	if (!gsh_budgets_fit(st->vgpu)) gsh_budget_release(st);
}

void gsh_budget_release(struct gsh_stream_state *st) {
	uint64_t old = atomic_load(&st->vgpu->budgets);
	while (st->budget && old >> 32 == st->budget_epoch)
		if (atomic_compare_exchange_weak(&st->vgpu->budgets, &old, old - st->budget)) break;
	st->budget = 0;
}

/*
 * A thread that takes a budget and a thread that counts a launch as open both add their part before they check. So if the two
 * do not fit together, at least one of them notices.
 */
bool gsh_budgets_fit(const struct gsh_vgpu *v) {
	uint64_t budgets = atomic_load(&v->budgets), taken = budgets >> 32 == atomic_load(&gsh_epoch) ? (uint32_t)budgets : 0;
	return !taken || atomic_load(&v->open) + taken <= gsh_run_ahead_bound(v);
}
