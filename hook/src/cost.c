#include "cost.h"

#include "platform.h"

struct gsh_cost gsh_costs[GSH_COSTS];

/*
 * Creates an entry of unknown time for a key. An entry that the key has already, as where the driver has used an address again, is reset.
 * Otherwise a free one of the key's two places is taken, or else its preferred one, which is overwritten.
 */
static struct gsh_cost *insert(const void *key) {
	struct gsh_cost *c = gsh_cost_find(key), *preferred = gsh_cost_slot(key), *neighbour = &gsh_costs[(preferred - gsh_costs) ^ 1];
	if (!c) c = atomic_load(&preferred->key) && !atomic_load(&neighbour->key) ? neighbour : preferred;
	atomic_store(&c->ns, GSH_COST_UNKNOWN);
	atomic_store(&c->blocks, GSH_BLOCKS_UNKNOWN);
	atomic_store(&c->measured, 0);
	atomic_store(&c->usual, 0);
	atomic_store(&c->key, key);
	return c;
}

/*
 * Returns the estimate after a measurement. A time that is several times longer is adopted at once, so that no more launches
 * are made at the old estimate. A time that is several times shorter has little weight, as a function that once took long may
 * do so again. But if the old estimate may contain more than the function's own time (replaced), any shorter time replaces
 * it.
 */
static uint64_t next_estimate(uint64_t old, uint64_t ns, bool replaced) {
	if (old >= GSH_COST_UNKNOWN || ns / 4 > old || (replaced && ns < old)) return ns;
	return ns < old / 4 ? old - (old - ns) / 64 : (3 * old + ns) / 4;
}

/* Returns the time between two bounds that is nearest to the old estimate. Without an estimate that is the upper bound. */
static uint64_t nearest(uint64_t old, uint64_t least, uint64_t most) { return old > most ? most : old < least ? least : old; }

/* A longer time, of a launch that may have waited for neighbours, counts little. */
static uint32_t next_usual(uint32_t old, uint64_t us) {
	if (us > UINT32_MAX / 2) us = UINT32_MAX / 2;
	return !old || us < old ? (uint32_t)us : us - old < old / 8 + 1 ? (uint32_t)us : old + old / 8 + 1;
}

uint64_t gsh_cost_usual(const void *key) {
	const struct gsh_cost *c = gsh_cost_find(key);
	uint64_t usual = c ? atomic_load(&c->usual) : 0;
	return usual ? usual * GSH_MICROSECOND : UINT64_MAX;
}

void gsh_cost_learn(const void *key, uint64_t least, uint64_t most, bool beside) {
	struct gsh_cost *c = gsh_cost_find(key);
	if (!c) c = insert(key);
	bool replaced = beside || atomic_load(&c->measured) == 1;
	uint64_t old = atomic_load(&c->ns);
	atomic_store(&c->ns, next_estimate(old, nearest(old, least, most), replaced));
	atomic_store(&c->usual, next_usual(atomic_load(&c->usual), most / GSH_MICROSECOND + 1));
	atomic_fetch_add(&c->measured, 1);
}

void gsh_costs_doubt(void) {
	for (int i = 0; i < GSH_COSTS; i++) atomic_store(&gsh_costs[i].ns, GSH_COST_UNKNOWN);
}

void gsh_cost_add_graph(const void *key, uint64_t blocks) { atomic_store(&insert(key)->blocks, blocks); }

void gsh_cost_set_blocks(const void *key, uint64_t blocks) {
	struct gsh_cost *c = gsh_cost_find(key);
	if (c) atomic_store(&c->blocks, blocks);
}

void gsh_cost_forget(const void *key) {
	struct gsh_cost *c = gsh_cost_find(key);
	if (!c) return;
	atomic_store(&c->ns, GSH_COST_UNKNOWN);
	atomic_store(&c->measured, 0);
	atomic_store(&c->usual, 0);
}
