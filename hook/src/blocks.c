#include "blocks.h"

#define BATCHES 16 /* number of batches in a tick's tokens; when the server cuts the tokens, each thread may still launch one batch */

bool gsh_blocks_metered(const struct gsh_vgpu *v) {
	return atomic_load_explicit(&v->server->unit, memory_order_relaxed) == GSHARE_UNIT_BLOCKS &&
	       atomic_load_explicit(&gsh_mode, memory_order_relaxed) != GSHARE_MODE_OBSERVE &&
	       !atomic_load_explicit(&gsh_self_paced, memory_order_relaxed);
}

int64_t gsh_blocks_left(const struct gsh_vgpu *v) {
	return (int64_t)(atomic_load(&v->server->credit) - atomic_load(&v->container->taken));
}

bool gsh_blocks_expected(const struct gsh_vgpu *v) {
	return gsh_blocks_metered(v) && atomic_load(&v->server->deadline) > gsh_server_now();
}

/* Returns the thread blocks of a batch: at most a sixteenth of a tick's tokens, in whole launches, but at least one launch. */
static uint64_t batch_size(const struct gsh_vgpu *v, uint64_t blocks, uint64_t launches) {
	uint64_t most = atomic_load(&v->server->amount) / BATCHES / blocks;
	if (launches > most) launches = most;
	return launches ? launches * blocks : blocks;
}

uint64_t gsh_blocks_take(struct gsh_vgpu *v, uint64_t blocks, uint64_t launches) {
	uint64_t credit = atomic_load(&v->server->credit), taken = atomic_load(&v->container->taken);
	uint64_t batch = batch_size(v, blocks, launches);
	do {
		int64_t left = (int64_t)(credit - taken);
		if (left <= 0) return 0;
		if (batch > (uint64_t)left) batch = (uint64_t)left > blocks ? (uint64_t)left : blocks;
	} while (!atomic_compare_exchange_weak(&v->container->taken, &taken, taken + batch));
	return batch;
}

void gsh_blocks_return(struct gsh_vgpu *v, int64_t unused) {
	if (unused) atomic_fetch_sub(&v->container->taken, (uint64_t)unused);
}

void gsh_cycle_begin(struct gsh_vgpu *v) {
	uint64_t none = 0;
	if (!gsh_blocks_metered(v) || atomic_load(&v->client->cycle_start)) return;
	atomic_compare_exchange_strong(&v->client->cycle_start, &none, gsh_server_now());
}

/*
 * If the waits of two threads return at once, only one of them ends the cycle. The time is stored before the count, as
 * the server reads the count first.
 */
bool gsh_cycle_end(struct gsh_vgpu *v) {
	uint64_t start = v ? atomic_load(&v->client->cycle_start) : 0;
	if (!start || !atomic_compare_exchange_strong(&v->client->cycle_start, &start, 0)) return false;
	uint64_t n = atomic_load(&v->client->cycles);
	atomic_store(&v->client->cycle_times[n % GSHARE_CYCLES], gsh_server_now() - start);
	atomic_store(&v->client->cycles, n + 1);
	return true;
}
