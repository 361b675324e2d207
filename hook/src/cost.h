/*
 * The cost of one launch of a function or graph: an estimate from measured device times, in a table of fixed size that is
 * read without a lock. A key whose entry was taken by another key is measured again at its next launch. A function has a key
 * for each power of two of thread blocks: networks launch the same function for layers of very different sizes.
 */
#ifndef GSHARE_COST_H
#define GSHARE_COST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GSH_COST_BITS 14 /* programs have a few hundred keys; three that share their two places would be measured again and again */
#define GSH_COSTS (1 << GSH_COST_BITS)
#define GSH_COST_UNKNOWN (1ull << 62) /* larger than any budget */
#define GSH_BLOCKS_UNKNOWN UINT64_MAX /* the entry has been taken by another key */

/* The cost of one launch of a function or graph. */
struct gsh_cost {
	_Atomic(const void *) key; /* gsh_kernel_key, CUgraphExec or gsh_copy_key */
	_Atomic uint64_t ns;
	_Atomic uint64_t blocks; /* thread blocks of a graph, or GSH_BLOCKS_UNKNOWN */
	_Atomic uint32_t measured; /* number of measurements */
	_Atomic uint32_t usual; /* us; the least time that was measured lately, or 0 */
} __attribute__((aligned(32)));
/* The table: each key has one of two neighbouring entries. */
extern struct gsh_cost gsh_costs[GSH_COSTS];

#define GSH_SIZE_SHIFT 58 /* above the bits of an address */

/* Returns the key of a function that is launched with this number of thread blocks. It tells functions and sizes apart; it is no address. */
static inline const void *gsh_kernel_key(const void *f, uint64_t blocks) {
	uint64_t size = 63 - (uint64_t)__builtin_clzll(blocks | 1);
	return (const void *)(uintptr_t)((uintptr_t)f ^ size << GSH_SIZE_SHIFT);
}

/* Returns the preferred entry of a key. */
static inline struct gsh_cost *gsh_cost_slot(const void *key) {
	return &gsh_costs[((uintptr_t)key * 0x9e3779b97f4a7c15ull) >> (64 - GSH_COST_BITS)];
}

/* Returns the entry of a key, which is its preferred one or the neighbour; NULL if it was never measured, or its entry was taken. */
static inline struct gsh_cost *gsh_cost_find(const void *key) {
	struct gsh_cost *c = gsh_cost_slot(key), *neighbour = &gsh_costs[(c - gsh_costs) ^ 1];
	if (atomic_load_explicit(&c->key, memory_order_relaxed) == key) return c;
	return atomic_load_explicit(&neighbour->key, memory_order_relaxed) == key ? neighbour : NULL;
}

/* Returns the ns of one launch, or GSH_COST_UNKNOWN. Any thread, on the fast path too. */
static inline uint64_t gsh_cost_of(const void *key) {
	struct gsh_cost *c = gsh_cost_find(key);
	return c ? atomic_load_explicit(&c->ns, memory_order_relaxed) : GSH_COST_UNKNOWN;
}

/*
 * Corrects the estimate of a key by a measured device time. The launch took at most `most` ns; for `most` - `least` of
 * them other streams of the process were busy, so it may have waited for them. The first measurement may include the
 * loading of the function. One beside other processes (`beside`) may include waiting for their kernels. Called by the
 * thread that reaps.
 */
void gsh_cost_learn(const void *key, uint64_t least, uint64_t most, bool beside);

/* Returns the ns that launches of a key have taken at least lately, or UINT64_MAX if none was measured. Called by the thread that reaps. */
uint64_t gsh_cost_usual(const void *key);

/* Makes the time of every key unknown, so that each is measured before further launches follow it. Called by the thread that reaps. */
void gsh_costs_doubt(void);

/* Adds an entry for a graph, with its number of thread blocks and an unknown time. Called when a graph is instantiated. */
void gsh_cost_add_graph(const void *key, uint64_t blocks);

/* Sets the thread blocks of a graph, where it has an entry. */
void gsh_cost_set_blocks(const void *key, uint64_t blocks);

/* Makes the time of a key unknown. Others call gsh_reap_forget. */
void gsh_cost_forget(const void *key);

#endif
