/*
 * The device memory that this process holds, handle by handle: a hash table in pages of its own, since the hook may be called
 * from inside the application's malloc.
 */
#ifndef GSHARE_LEDGER_H
#define GSHARE_LEDGER_H

#include "account.h"

/*
 * What an item is. OBJECT: physical memory behind handles and mappings (vmm.c). EXEC: an executable graph; NODE: one of its
 * kernels. CONTEXT: a context that was created, with its copies of the variables of libraries. OPENED: memory of another
 * process. FREEING: memory that was freed in stream order and whose event the device has not reached. NODE_MEMORY: an address of a graph's
 * memory node that the graph does not free. NODE_FREE: one that a graph frees and has not allocated.
 */
enum gsh_item_kind { NOTHING, POINTER, ARRAY, MIPMAP, EXTERNAL, HANDLE, MAPPING, OBJECT, POOL, GRAPH_MEMORY, EXEC, CONTEXT_LIMIT,
		     MODULE, LIBRARY, CONTEXT, OPENED, NODE, FREEING, NODE_MEMORY, NODE_FREE };

/* One allocation, or something that refers to one. */
struct gsh_item {
	enum gsh_item_kind kind;
	uint64_t key;          /* the driver's handle or address */
	struct gsh_vgpu *vgpu; /* the vGPU that is charged; NULL: none is */
	const void *owner;     /* its end removes the item: a context, or the graph of a NODE; NULL: nothing's end does */
	uint64_t bytes;        /* charged, where there is a vGPU; EXEC: of its memory nodes */
	uint64_t other;        /* OBJECT: handles; POOL: calls under way that allocate from it; HANDLE, MAPPING: key of the object; GRAPH_MEMORY: bytes that launches under way may take; EXEC: device of its memory nodes; NODE: thread blocks;
	                        * LIBRARY: bytes in one context; NODE_MEMORY: frees_seen when a call that frees it last began or ended; NODE_FREE: address; OPENED: how often, beyond once */
	uint64_t mappings;     /* OBJECT: mappings; HANDLE: how often it was retained; EXEC: thread blocks; NODE_MEMORY: calls under way that free it */
	unsigned flags;        /* OBJECT, POOL, FREEING, EXEC: bits that vmm.c, pool.c and graph.c define */
};

/* Adds an item. Takes the lock. If there is no memory for the item, its bytes stay charged until the process ends. */
void gsh_ledger_put(const struct gsh_item *item);

/* Reports whether there is room for what the calls under way will add. There may be none if the process may map no more memory. */
bool gsh_ledger_has_room(void);

/* Removes the item of this kind and key and stores it; false if there is none. Takes the lock. */
bool gsh_ledger_take(enum gsh_item_kind kind, uint64_t key, struct gsh_item *item);

/* Sets the bytes of an item that the driver lets grow and shrink, and charges the difference. Takes the lock. */
void gsh_item_resize(enum gsh_item_kind kind, uint64_t key, uint64_t bytes);

/*
 * The functions below are called between lock and unlock, where no driver call is allowed. An item's pointer is valid until
 * the next put, take or remove. gsh_item_next lists all items in no order: NULL begins and ends.
 */
void gsh_ledger_lock(void);
void gsh_ledger_unlock(void);
struct gsh_item *gsh_item_find(enum gsh_item_kind kind, uint64_t key);
bool gsh_item_put(const struct gsh_item *item); /* false if there is no memory for it */
void gsh_item_remove(struct gsh_item *item);
struct gsh_item *gsh_item_next(struct gsh_item *from);

/* Removes all items of an owner that has ended and releases their memory. Takes the lock. */
void gsh_ledger_drop_owned(const void *owner);

/* Makes another context the owner of all items of one. Takes the lock. */
void gsh_ledger_hand_on(const void *from, const void *to);

/* Returns the number of items, for tests. */
uint64_t gsh_ledger_count(void);

/* Removes all items in a forked child. */
void gsh_ledger_after_fork(void);

#endif
