#include "cycle.h"

#include "credit.h"
#include "platform.h"

void gsh_cycle_begin(struct gsh_vgpu *v) {
	uint64_t none = 0;
	if (!gsh_credit_counts(v) || atomic_load(&v->client->cycle_start)) return;
	atomic_compare_exchange_strong(&v->client->cycle_start, &none, gsh_now());
}

/* Of two threads whose waits return together one ends the cycle. The server reads the count before the times. */
bool gsh_cycle_end(struct gsh_vgpu *v) {
	uint64_t start = v ? atomic_load(&v->client->cycle_start) : 0;
	if (!start || !atomic_compare_exchange_strong(&v->client->cycle_start, &start, 0)) return false;
	uint64_t n = atomic_load(&v->client->cycles);
	atomic_store(&v->client->cycle_times[n % GSHARE_CYCLES], gsh_now() - start);
	atomic_store(&v->client->cycles, n + 1);
	return true;
}
