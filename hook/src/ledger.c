#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define INITIAL_CAPACITY 1024

/* Guards the table. No driver call is made while it is held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gsh_item *items; /* open addressing; a free entry has kind NOTHING */
static uint64_t capacity, count; /* capacity is a power of two, of which at most half is used */

void gsh_ledger_lock(void) { pthread_mutex_lock(&lock); }
void gsh_ledger_unlock(void) { pthread_mutex_unlock(&lock); }
uint64_t gsh_ledger_count(void) { return count; }

/* Returns the index at which the search for an item begins. */
static uint64_t home(const struct gsh_item *i) {
	uint64_t h = (i->key ^ (uint64_t)i->kind << 56) * 0x9e3779b97f4a7c15ull;
	return (h ^ h >> 32) & (capacity - 1);
}

/* Copies an item into the first free entry at or behind its home. There is always a free one. */
static struct gsh_item *insert(const struct gsh_item *item) {
	uint64_t at = home(item);
	while (items[at].kind) at = (at + 1) & (capacity - 1);
	items[at] = *item;
	return &items[at];
}

/* Doubles the table. Returns false, with the table as it was, if there is no memory. */
static bool grow(void) {
	uint64_t old_capacity = capacity, want = capacity ? 2 * capacity : INITIAL_CAPACITY;
	struct gsh_item *old = items;
	void *bigger = mmap(NULL, want * sizeof *items, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bigger == MAP_FAILED) return false;
	items = bigger;
	capacity = want;
	for (uint64_t i = 0; i < old_capacity; i++)
		if (old[i].kind) insert(&old[i]);
	if (old) munmap(old, old_capacity * sizeof *old);
	return true;
}

struct gsh_item *gsh_item_find(enum gsh_item_kind kind, uint64_t key) {
	struct gsh_item wanted = {.kind = kind, .key = key};
	for (uint64_t at = capacity ? home(&wanted) : 0; capacity && items[at].kind; at = (at + 1) & (capacity - 1))
		if (items[at].kind == kind && items[at].key == key) return &items[at];
	return NULL;
}

bool gsh_item_put(const struct gsh_item *item) {
	if (2 * (count + 1) > capacity && !grow() && count + 1 >= capacity) return false;
	insert(item);
	count++;
	return true;
}

/* Items that follow the gap and may be nearer to their home move up, so that a search can stop at a free entry. */
void gsh_item_remove(struct gsh_item *item) {
	uint64_t gap = (uint64_t)(item - items), mask = capacity - 1;
	for (uint64_t at = (gap + 1) & mask; items[at].kind; at = (at + 1) & mask) {
		if (((at - home(&items[at])) & mask) < ((at - gap) & mask)) continue;
		items[gap] = items[at];
		gap = at;
	}
	memset(&items[gap], 0, sizeof items[gap]);
	count--;
}

struct gsh_item *gsh_item_next(struct gsh_item *from) {
	for (uint64_t at = from ? (uint64_t)(from - items) + 1 : 0; at < capacity; at++)
		if (items[at].kind) return &items[at];
	return NULL;
}

bool gsh_ledger_has_room(void) {
	gsh_ledger_lock();
	bool room = 2 * (count + 1) <= capacity || grow();
	gsh_ledger_unlock();
	return room;
}

void gsh_ledger_put(const struct gsh_item *item) {
	gsh_ledger_lock();
	gsh_item_put(item);
	gsh_ledger_unlock();
}

bool gsh_ledger_take(enum gsh_item_kind kind, uint64_t key, struct gsh_item *item) {
	gsh_ledger_lock();
	struct gsh_item *found = gsh_item_find(kind, key);
	if (found) {
		*item = *found;
		gsh_item_remove(found);
	}
	gsh_ledger_unlock();
	return found != NULL;
}

void gsh_item_resize(enum gsh_item_kind kind, uint64_t key, uint64_t bytes) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(kind, key);
	struct gsh_vgpu *v = i ? i->vgpu : NULL;
	uint64_t change = i ? bytes - i->bytes : 0;
	if (i) i->bytes = bytes;
	if (v) gsh_memory_charge(v, change);
	gsh_ledger_unlock();
}

/* A removal may move a later item into the entry just visited, so that entry is visited again. */
void gsh_ledger_drop_owned(const void *owner) {
	gsh_ledger_lock();
	for (uint64_t at = 0; at < 2 * capacity;) { /* twice: a removal at the end may move an item from the start of the table */
		struct gsh_item *i = &items[at & (capacity - 1)];
		if (!i->kind || !owner || i->owner != owner) {
			at++;
			continue;
		}
		if (i->vgpu) gsh_memory_release(i->vgpu, i->bytes);
		gsh_item_remove(i);
	}
	gsh_ledger_unlock();
}

void gsh_ledger_hand_on(const void *from, const void *to) {
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->owner == from) i->owner = to;
	gsh_ledger_unlock();
}

void gsh_ledger_after_fork(void) {
	pthread_mutex_init(&lock, NULL);
	if (items) munmap(items, capacity * sizeof *items);
	items = NULL;
	capacity = count = 0;
}
