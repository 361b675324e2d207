/*
 * What one launch of a function or graph costs: a moving average of measured device time, in a table of fixed size that
 * is read without a lock. A lost entry is measured again at its next launch.
 */
#ifndef GSHARE_COST_H
#define GSHARE_COST_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define GSH_COSTS 4096
#define GSH_UNKNOWN (1ull << 62) /* more than any room */

struct gsh_cost {
	_Atomic(const void *) key; /* CUfunction or CUgraphExec */
	_Atomic uint64_t ns;
	_Atomic uint64_t blocks; /* thread blocks of a graph */
} __attribute__((aligned(32)));
extern struct gsh_cost gsh_costs[GSH_COSTS];

static inline struct gsh_cost *gsh_cost_slot(const void *key) {
	return &gsh_costs[((uintptr_t)key * 0x9e3779b97f4a7c15ull) >> 52];
}

/* The key's own place or its neighbour, so that two in one place both fit. NULL: never seen, or driven out. */
static inline struct gsh_cost *gsh_cost_find(const void *key) {
	struct gsh_cost *c = gsh_cost_slot(key), *neighbour = &gsh_costs[(c - gsh_costs) ^ 1];
	if (atomic_load_explicit(&c->key, memory_order_relaxed) == key) return c;
	return atomic_load_explicit(&neighbour->key, memory_order_relaxed) == key ? neighbour : NULL;
}

/* ns of one launch, or GSH_UNKNOWN. */
static inline uint64_t gsh_cost(const void *key) {
	struct gsh_cost *c = gsh_cost_find(key);
	return c ? atomic_load_explicit(&c->ns, memory_order_relaxed) : GSH_UNKNOWN;
}

/* Takes one measurement in. One thread at a time. */
void gsh_cost_learn(const void *key, uint64_t ns);

/* Enters a graph with its thread blocks; its time is not known yet. */
void gsh_cost_graph(const void *key, uint64_t blocks);

/* Forgets a key whose handle may be used again. */
void gsh_cost_forget(const void *key);

#endif
