/*
 * What this process holds of device memory, handle by handle: a hash table in pages of its own, since the application's
 * malloc may be what is calling us.
 */
#ifndef GSHARE_LEDGER_H
#define GSHARE_LEDGER_H

#include "account.h"

enum gsh_thing { NOTHING, POINTER, ARRAY, MIPMAP, EXTERNAL, HANDLE, MAPPING, OBJECT, POOL, GRAPH_MEMORY, EXEC };

struct gsh_item {
	enum gsh_thing thing;
	uint64_t key;           /* the driver's handle or address */
	struct gsh_vgpu *vgpu;  /* who pays; NULL: nobody */
	CUcontext context;      /* whose end frees it; NULL: none does */
	uint64_t bytes;         /* charged */
	uint64_t other;         /* OBJECT: handles; HANDLE, MAPPING: key of the object; POOL: bytes being allocated; EXEC: blocks */
	uint64_t mappings;      /* OBJECT */
};

/* Single steps; each takes the lock. */
void gsh_ledger_put(const struct gsh_item *item);
bool gsh_ledger_take(enum gsh_thing thing, uint64_t key, struct gsh_item *item);

/* Several steps at once: between lock and unlock, and no driver call there. A pointer is good until the next put or take. */
void gsh_ledger_lock(void);
void gsh_ledger_unlock(void);
struct gsh_item *gsh_item_find(enum gsh_thing thing, uint64_t key);
bool gsh_item_put(const struct gsh_item *item);
void gsh_item_remove(struct gsh_item *item);
struct gsh_item *gsh_item_next(struct gsh_item *from); /* NULL begins and ends; in no order */

/* Gives back what a context's end has freed. */
void gsh_ledger_context_gone(CUcontext c);

uint64_t gsh_ledger_count(void);
void gsh_ledger_fork(void); /* in the child */

#endif
