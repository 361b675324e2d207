/*
 * The gate in front of launches (FG-71, FG-75). The fast path is in this header: no system call, no lock, no clock, no
 * allocation. It ends whenever something happened: a word of the server changed, 128 launches went by, the estimated
 * work since the last mark reached its room, or the helper's millisecond is over.
 */
#ifndef GSHARE_GATE_H
#define GSHARE_GATE_H

#include "account.h"
#include "cost.h"

#define GSH_TRACKS 16 /* streams that one thread can use in turns on the fast path; a power of two */
#define GSH_WAYS 4    /* places that one stream may have */
#define GSH_BATCH 128 /* launches between marks, each of which costs a real driver a microsecond: 8 ns a launch */

/* One thread's launches into one stream since the last mark. The fast path needs the first cache line only. */
struct gsh_track {
	CUstream stream;
	const struct gshare_server_page *page;
	uint32_t epoch, generation;
	uint32_t left;       /* launches until the next mark */
	uint32_t turn;       /* of the places of a home, which is given up next */
	uint64_t room, work; /* ns, estimated: allowed and used until the next mark */
	uint64_t blocks;
	/* slow path only */
	struct gsh_vgpu *vgpu;
	CUcontext context;
	uint64_t chain;     /* marks of one chain follow each other in one stream; 0: none open */
	uint64_t last;      /* number of the last mark */
	uint32_t armed;     /* left at the last mark */
	uint32_t batch;     /* launches that may follow this one before the next slow path */
	uint32_t since;     /* epoch in which the room was taken */
	int64_t paid;       /* blocks taken for launches that are not yet counted */
	uint64_t charged;   /* counted as open while the launch is made */
	const void *sample; /* the only launch since the last mark, which was put right before it */
} __attribute__((aligned(64)));

extern _Thread_local struct gsh_track gsh_tracks[GSH_TRACKS];

/* Stream 0 has two meanings; each has a handle of its own. */
static inline CUstream gsh_stream(CUstream s, bool twin) { return s ? s : twin ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY; }

/* Where a stream's track is put first; it may be in any of the places of the same home. */
static inline struct gsh_track *gsh_track_first(CUstream s) {
	return &gsh_tracks[((uintptr_t)s * 0x9e3779b97f4a7c15ull) >> 60];
}

static inline struct gsh_track *gsh_track_home(CUstream s) {
	return &gsh_tracks[(gsh_track_first(s) - gsh_tracks) & ~(GSH_WAYS - 1)];
}

/* The calling thread's track of a stream, or NULL. */
static inline struct gsh_track *gsh_track_of(CUstream s) {
	struct gsh_track *k = gsh_track_home(s);
	for (int i = 0; i < GSH_WAYS; i++)
		if (k[i].stream == s) return &k[i];
	return NULL;
}

/* Counts a launch of this cost, if nothing speaks against it. */
static inline struct gsh_track *gsh_enter(struct gsh_track *k, uint64_t cost) {
	uint64_t work = k->work + cost;
	if (unlikely(!k->left || work > k->room || k->epoch != atomic_load_explicit(&gsh_epoch, memory_order_relaxed) ||
		     k->generation != atomic_load_explicit(&k->page->generation, memory_order_relaxed)))
		return NULL;
	k->left--;
	k->work = work;
	return k;
}

/*
 * Counts the launch, or leaves it to the slow path (NULL). Looks for stream and function only where they are found first,
 * and leaves the blocks to its caller: so it needs no more registers than the arguments leave free.
 */
static inline struct gsh_track *gsh_enter_fast(CUstream s, const void *key) {
	struct gsh_track *k = gsh_track_first(s);
	struct gsh_cost *c = gsh_cost_slot(key);
	if (unlikely(k->stream != s || atomic_load_explicit(&c->key, memory_order_relaxed) != key)) return NULL;
	return gsh_enter(k, atomic_load_explicit(&c->ns, memory_order_relaxed));
}

/* The same, with a look at the other places. */
static inline struct gsh_track *gsh_enter_again(CUstream s, const void *key) {
	struct gsh_track *k = gsh_track_of(s);
	return k ? gsh_enter(k, gsh_cost(key)) : NULL;
}

/* A launch that was refused above; then the launch; then gsh_leave with what it returned. */
struct gsh_track *gsh_enter_slow(CUstream s, const void *key, uint64_t blocks);
void gsh_leave(struct gsh_track *k, CUresult r);

#define GSH_NONE ((CUstream)-1) /* a synchronising call that names no stream */
#define GSH_ALL ((CUstream)-2)  /* one that waits for a whole context */
#define GSH_LOOK ((CUstream)-3) /* one that looks at an event and waits for nothing */

/* Before and after a synchronising call; s is the stream it names. */
void gsh_sync_before(CUstream s);
void gsh_sync_after(CUstream s, CUresult r);

/* Before a stream is destroyed. */
void gsh_stream_gone(CUstream s);

/* Sends all of the calling thread's tracks to the slow path: its context changed. */
void gsh_tracks_stale(void);

void gsh_tracks_fork(void); /* in the child */

#endif
