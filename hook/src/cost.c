#include "cost.h"

struct gsh_cost gsh_costs[GSH_COSTS];

/* Returns a new entry of unknown time for a key: a free one of its two, or else its preferred one, which is overwritten. */
static struct gsh_cost *insert(const void *key) {
	struct gsh_cost *c = gsh_cost_slot(key), *neighbour = &gsh_costs[(c - gsh_costs) ^ 1];
	if (atomic_load(&c->key) && !atomic_load(&neighbour->key)) c = neighbour;
	atomic_store(&c->ns, GSH_COST_UNKNOWN);
	atomic_store(&c->blocks, 0);
	atomic_store(&c->key, key);
	return c;
}

/* A new value has a weight of a quarter: a change is followed within milliseconds, an outlier moves little. */
void gsh_cost_learn(const void *key, uint64_t ns) {
	struct gsh_cost *c = gsh_cost_find(key);
	if (!c) c = insert(key);
	uint64_t old = atomic_load(&c->ns);
	atomic_store(&c->ns, old >= GSH_COST_UNKNOWN ? ns : (3 * old + ns) / 4);
}

void gsh_cost_add_graph(const void *key, uint64_t blocks) { atomic_store(&insert(key)->blocks, blocks); }

void gsh_cost_forget(const void *key) {
	struct gsh_cost *c = gsh_cost_find(key);
	if (c) atomic_store(&c->ns, GSH_COST_UNKNOWN);
}
