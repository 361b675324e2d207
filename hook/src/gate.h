/*
 * The gate in front of launches. Its fast path is inline in this header: it makes no system call, takes no
 * lock, reads no clock and allocates nothing. A launch takes the slow path (gate.c) when the server has changed a word of
 * its page, after 128 launches, when the estimated work since the last event has used up the stream's budget, and once in
 * every round of the helper thread.
 */
#ifndef GSHARE_GATE_H
#define GSHARE_GATE_H

#include "cost.h"
#include "stream.h"

/* Launches between two events; recording one takes a driver about a microsecond, so 8 ns for each launch. */
#define GSH_BATCH 128

/* Counts a launch of this cost in the stream's state. Returns NULL, with nothing counted, if it has to take the slow path. */
static inline struct gsh_stream_state *gsh_enter_state(struct gsh_stream_state *st, uint64_t cost) {
	uint64_t work = st->work + cost;
	if (unlikely(!st->launches_left || work > st->budget || st->epoch != atomic_load_explicit(&gsh_epoch, memory_order_relaxed) ||
		     st->generation != atomic_load_explicit(&st->page->generation, memory_order_relaxed)))
		return NULL;
	st->launches_left--;
	st->work = work;
	return st;
}

/*
 * Counts a launch (key) into a stream if both are in the preferred entries of their tables; else returns NULL. The caller adds
 * the thread blocks. It needs so few registers that most of the launch's arguments stay in theirs.
 */
static inline struct gsh_stream_state *gsh_enter_fast(CUstream s, const void *key) {
	struct gsh_stream_state *st = gsh_stream_preferred(s);
	struct gsh_cost *c = gsh_cost_slot(key);
	if (unlikely(st->stream != s || atomic_load_explicit(&c->key, memory_order_relaxed) != key)) return NULL;
	return gsh_enter_state(st, atomic_load_explicit(&c->ns, memory_order_relaxed));
}

/* Counts a launch like gsh_enter_fast, but also looks in the other ways of the stream's set and in the neighbour of the cost's entry. */
static inline struct gsh_stream_state *gsh_enter_set(CUstream s, const void *key) {
	struct gsh_stream_state *st = gsh_stream_find(s);
	return st ? gsh_enter_state(st, gsh_cost_of(key)) : NULL;
}

/*
 * The slow path of a launch: returns once the launch is permitted. Called by the launching thread, which may wait in it for
 * a token or for the device. The caller launches, then calls gsh_leave with the driver's result. Returns NULL if the launch is refused,
 * since the process has no share of the device.
 */
struct gsh_stream_state *gsh_enter_slow(CUstream s, const void *key, uint64_t blocks);
void gsh_leave(struct gsh_stream_state *st, CUresult r);

/* Reports whether a launch that was entered becomes a node of a graph, as its stream captures. To be called before gsh_leave. */
bool gsh_is_captured(const struct gsh_stream_state *st);

#define GSH_SYNC_UNNAMED ((CUstream)-1) /* for a synchronising call that names no stream */
#define GSH_SYNC_CONTEXT ((CUstream)-2) /* for a synchronising call that waits for a whole context */
#define GSH_SYNC_QUERY ((CUstream)-3)   /* for a call that queries an event and does not wait */

/*
 * Called before and after a synchronising call, with the stream that it names or one of the above. Before, an event is
 * recorded behind the stream's launches; after, completed events are charged.
 */
void gsh_sync_before(CUstream s);
void gsh_sync_after(CUstream s, CUresult r);

/* Makes threads drop the states of their streams when they end. Called once, before the first launch. */
void gsh_gate_watch_threads(void);

/* Records an event behind the stream's launches and drops its state. Called before the stream is destroyed. */
void gsh_stream_forget(CUstream s);

#endif
