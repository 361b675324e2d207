#include "credit.h"

#include "platform.h"

#define BATCHES 16 /* that a tick's tokens are taken in: what a cut comes too late for is one a thread */

bool gsh_credit_counts(const struct gsh_vgpu *v) {
	return atomic_load_explicit(&v->server->unit, memory_order_relaxed) == GSHARE_UNIT_BLOCKS &&
	       atomic_load_explicit(&gsh_mode, memory_order_relaxed) != GSHARE_MODE_OBSERVE &&
	       !atomic_load_explicit(&gsh_alone, memory_order_relaxed);
}

int64_t gsh_credit_left(const struct gsh_vgpu *v) {
	return (int64_t)(atomic_load(&v->server->credit) - atomic_load(&v->container->taken));
}

bool gsh_credit_coming(const struct gsh_vgpu *v) {
	return gsh_credit_counts(v) && atomic_load(&v->server->deadline) > gsh_now();
}

/* A sixteenth of the tokens, in whole launches. */
static uint64_t batch_of(const struct gsh_vgpu *v, uint64_t blocks, uint64_t launches) {
	uint64_t most = atomic_load(&v->server->amount) / BATCHES / blocks;
	if (launches > most) launches = most;
	return launches ? launches * blocks : blocks;
}

uint64_t gsh_credit_take(struct gsh_vgpu *v, uint64_t blocks, uint64_t launches) {
	uint64_t credit = atomic_load(&v->server->credit), taken = atomic_load(&v->container->taken);
	uint64_t batch = batch_of(v, blocks, launches);
	do {
		int64_t left = (int64_t)(credit - taken);
		if (left <= 0) return 0;
		if (batch > (uint64_t)left) batch = (uint64_t)left > blocks ? (uint64_t)left : blocks;
	} while (!atomic_compare_exchange_weak(&v->container->taken, &taken, taken + batch));
	return batch;
}

void gsh_credit_return(struct gsh_vgpu *v, int64_t unused) {
	if (unused) atomic_fetch_sub(&v->container->taken, (uint64_t)unused);
}
