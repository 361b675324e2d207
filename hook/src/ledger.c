#define _GNU_SOURCE
#include "ledger.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST 1024 /* places */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gsh_item *items;
static uint64_t places, count; /* places is a power of two, at most half used */

void gsh_ledger_lock(void) { pthread_mutex_lock(&lock); }
void gsh_ledger_unlock(void) { pthread_mutex_unlock(&lock); }
uint64_t gsh_ledger_count(void) { return count; }

static uint64_t home(const struct gsh_item *i) {
	uint64_t h = (i->key ^ (uint64_t)i->thing << 56) * 0x9e3779b97f4a7c15ull;
	return (h ^ h >> 32) & (places - 1);
}

static struct gsh_item *insert(const struct gsh_item *item) {
	uint64_t at = home(item);
	while (items[at].thing) at = (at + 1) & (places - 1);
	items[at] = *item;
	return &items[at];
}

static bool grow(void) {
	uint64_t old_places = places, want = places ? 2 * places : FIRST;
	struct gsh_item *old = items;
	void *bigger = mmap(NULL, want * sizeof *items, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (bigger == MAP_FAILED) return false;
	items = bigger;
	places = want;
	for (uint64_t i = 0; i < old_places; i++)
		if (old[i].thing) insert(&old[i]);
	if (old) munmap(old, old_places * sizeof *old);
	return true;
}

struct gsh_item *gsh_item_find(enum gsh_thing thing, uint64_t key) {
	struct gsh_item wanted = {.thing = thing, .key = key};
	for (uint64_t at = places ? home(&wanted) : 0; places && items[at].thing; at = (at + 1) & (places - 1))
		if (items[at].thing == thing && items[at].key == key) return &items[at];
	return NULL;
}

bool gsh_item_put(const struct gsh_item *item) {
	if (2 * (count + 1) > places && !grow() && count + 1 >= places) return false;
	insert(item);
	count++;
	return true;
}

/* Closes the gap: whatever follows and may stand nearer to its home moves up, so searches can stop at a gap. */
void gsh_item_remove(struct gsh_item *item) {
	uint64_t gap = (uint64_t)(item - items), mask = places - 1;
	for (uint64_t at = (gap + 1) & mask; items[at].thing; at = (at + 1) & mask) {
		if (((at - home(&items[at])) & mask) < ((at - gap) & mask)) continue;
		items[gap] = items[at];
		gap = at;
	}
	memset(&items[gap], 0, sizeof items[gap]);
	count--;
}

struct gsh_item *gsh_item_next(struct gsh_item *from) {
	for (uint64_t at = from ? (uint64_t)(from - items) + 1 : 0; at < places; at++)
		if (items[at].thing) return &items[at];
	return NULL;
}

void gsh_ledger_put(const struct gsh_item *item) {
	gsh_ledger_lock();
	gsh_item_put(item);
	gsh_ledger_unlock();
}

bool gsh_ledger_take(enum gsh_thing thing, uint64_t key, struct gsh_item *item) {
	gsh_ledger_lock();
	struct gsh_item *found = gsh_item_find(thing, key);
	if (found) {
		*item = *found;
		gsh_item_remove(found);
	}
	gsh_ledger_unlock();
	return found != NULL;
}

/* A removal may move a later item into the place just looked at, so that place is looked at again. */
void gsh_ledger_context_gone(CUcontext c) {
	gsh_ledger_lock();
	for (uint64_t at = 0; at < 2 * places;) { /* twice: a removal at the end may move one across the border */
		struct gsh_item *i = &items[at & (places - 1)];
		if (!i->thing || !c || i->context != c) {
			at++;
			continue;
		}
		if (i->vgpu) gsh_release(i->vgpu, i->bytes);
		gsh_item_remove(i);
	}
	gsh_ledger_unlock();
}

void gsh_ledger_fork(void) {
	pthread_mutex_init(&lock, NULL);
	if (items) munmap(items, places * sizeof *items);
	items = NULL;
	places = count = 0;
}
