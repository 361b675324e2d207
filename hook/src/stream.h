/*
 * The state that each thread keeps for each stream that it launches into. A thread's states form a small set-associative
 * cache: a stream's handle selects a set, and the stream's state may be in any way of that set. The preferred way is
 * tried first.
 */
#ifndef GSHARE_STREAM_H
#define GSHARE_STREAM_H

#include "account.h"

#define GSH_STREAM_STATES 16 /* of one thread; a power of two */
#define GSH_WAYS 4           /* states in a set */

/* One thread's launches into one stream since its last event. The fast path uses the first cache line only. */
struct gsh_stream_state {
	CUstream stream;
	const struct gshare_server_page *page;
	uint32_t epoch, generation; /* of the last slow path; if either has changed, the next launch takes it again */
	uint32_t launches_left;     /* until the next event */
	uint32_t next_victim;       /* of a set's first state: which way is replaced next */
	uint64_t budget, work;      /* ns, estimated: what may be launched until the next event, and what was */
	uint64_t blocks;            /* thread blocks launched since the last event */
	/* slow path only */
	struct gsh_vgpu *vgpu;
	CUcontext context;
	uint64_t chain;             /* number of the unbroken sequence of events in this stream; 0: none */
	uint64_t last_event;        /* number of the last event */
	uint32_t launches_at_event; /* launches_left at the last event */
	uint32_t next_launches_left; /* launches that may follow the present one before the next slow path */
	uint32_t budget_epoch;      /* epoch in which the budget was taken */
	bool unknown;               /* the cost of the sample was unknown when it was launched */
	bool sample_next;           /* the next launch on the slow path is a sample, in the same epoch too */
	int64_t blocks_paid;        /* block tokens taken for launches that are not counted yet */
	uint64_t work_charged;      /* ns counted as open while a launch is being made */
	uint64_t launched_at;       /* when the sample was about to be launched, CLOCK_MONOTONIC ns */
	const void *sample;         /* the only launch since the last event, if an event was recorded right before it */
} __attribute__((aligned(64)));

/* The calling thread's states; a free one has stream 0. */
extern _Thread_local struct gsh_stream_state gsh_stream_states[GSH_STREAM_STATES];

/* Returns the handle under which a stream is known here: stream 0 means the legacy or the calling thread's own stream. */
static inline CUstream gsh_stream_handle(CUstream s, bool per_thread) {
	return s ? s : per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* Returns the preferred entry of a stream: the one that its state gets if that entry is free. */
static inline struct gsh_stream_state *gsh_stream_preferred(CUstream s) {
	return &gsh_stream_states[((uintptr_t)s * 0x9e3779b97f4a7c15ull) >> 60];
}

/* Returns the first state of the stream's set. */
static inline struct gsh_stream_state *gsh_stream_set(CUstream s) {
	return &gsh_stream_states[(gsh_stream_preferred(s) - gsh_stream_states) & ~(GSH_WAYS - 1)];
}

/* Returns the calling thread's state of a stream, or NULL. */
static inline struct gsh_stream_state *gsh_stream_find(CUstream s) {
	struct gsh_stream_state *st = gsh_stream_set(s);
	for (int i = 0; i < GSH_WAYS; i++)
		if (st[i].stream == s) return &st[i];
	return NULL;
}

/*
 * Returns the calling thread's state of a stream, or the entry to use for a new one: the preferred way, another free one, or
 * else each way in turn. The caller drops the state of another stream that the entry still holds.
 */
struct gsh_stream_state *gsh_stream_assign(CUstream s);

/* Makes the next launch into each of the calling thread's streams take the slow path. */
void gsh_streams_invalidate(void);

/* Clears the states of the only thread of a forked child. */
void gsh_streams_after_fork(void);

#endif
