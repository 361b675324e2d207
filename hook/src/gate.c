/* The slow path of a launch: permission, bound of unfinished work, marks. */
#define _GNU_SOURCE
#include "gate.h"

#include "credit.h"
#include "cycle.h"
#include "mark.h"
#include "memory.h"
#include "platform.h"
#include "room.h"
#include "start.h"
#include "token.h"

_Thread_local struct gsh_track gsh_tracks[GSH_TRACKS];

/* For launches that are not counted: in a capture, on a device without a share, when switched off. */
static _Thread_local struct gsh_track uncounted;

void gsh_tracks_stale(void) {
	for (int i = 0; i < GSH_TRACKS; i++) gsh_tracks[i].epoch = 0;
}

void gsh_tracks_fork(void) {
	for (int i = 0; i < GSH_TRACKS; i++) gsh_tracks[i] = (struct gsh_track){0};
}

static uint64_t new_chain(void) {
	static _Atomic uint64_t chains;
	return atomic_fetch_add(&chains, 1) + 1;
}

/* Hands the thread's counters over and starts the track's next batch. */
static void flush(struct gsh_track *k) {
	if (!k->vgpu) return;
	atomic_fetch_add(&k->vgpu->launches, k->armed - k->left);
	atomic_fetch_add(&k->vgpu->blocks, k->blocks);
	k->paid -= (int64_t)k->blocks;
	k->armed = k->left;
	k->blocks = k->work = 0;
	k->sample = NULL;
}

/* Squares what the track took with what it launched (DI-54). */
static void square(struct gsh_track *k) {
	if (gsh_credit_counts(k->vgpu)) gsh_credit_return(k->vgpu, k->paid - (int64_t)k->blocks);
	k->paid = (int64_t)k->blocks;
}

/* What is charged where no mark can be: nothing for what was never measured, since its work is only a bound. */
static uint64_t unmeasured(const struct gsh_track *k) {
	return k->sample && gsh_cost(k->sample) >= GSH_UNKNOWN ? 0 : k->work;
}

/* Puts a mark behind what was launched. Without one the batch is counted at its estimate and the chain is broken. */
static void close_batch(struct gsh_track *k) {
	uint64_t launches = k->armed - k->left;
	if (!k->vgpu || (!launches && k->last)) return;
	struct gsh_batch b = {k->vgpu, k->context, k->stream, k->chain, k->last, launches, k->work, k->sample};
	if (k->last == 0 && launches == 0) b.chain = k->chain = new_chain();
	k->last = b.chain ? gsh_mark(&b) : 0;
	if (!k->last) {
		gsh_settle_estimate(k->vgpu, unmeasured(k));
		k->chain = 0;
	}
	flush(k);
}

/* A track that is given up: its stream may be gone, so nothing can be recorded there. */
static void drop(struct gsh_track *k) {
	if (k->vgpu && k->armed != k->left) gsh_settle_estimate(k->vgpu, unmeasured(k));
	flush(k);
	if (k->vgpu) square(k);
	if (k->vgpu) gsh_room_leave(k);
	*k = (struct gsh_track){.turn = k->turn};
}

static bool capturing(CUstream s) {
	int status = 0;
	if (!atomic_load(&gsh_captures)) return false;
	return CALL(cuStreamIsCapturing, s, &status) == CUDA_SUCCESS && status;
}

/* Counts the launch as unfinished before it is made: of two threads at the bound one waits. */
static bool charge(struct gsh_track *k, uint64_t more, uint64_t most) {
	uint64_t open = atomic_load(&k->vgpu->open);
	do {
		if (open && open + more > most) return false;
	} while (!atomic_compare_exchange_weak(&k->vgpu->open, &open, open + more));
	k->charged = more;
	return true;
}

static void uncharge(struct gsh_track *k) {
	if (k->charged) atomic_fetch_sub(&k->vgpu->open, k->charged);
	k->charged = 0;
}

/*
 * Marked work may fill three quarters of the bound; the last is the room of the batches that the process's streams begin
 * now. A launch of unknown cost counts as half: two may be under way until the first was measured. What was launched before
 * a wait gets its mark first. Where all that is open is being launched by other threads, there is no mark to wait for; a
 * launch that hangs in the driver holds up nobody for ever.
 */
static void bound_work(struct gsh_track *k, uint64_t cost) {
	uint64_t bound = gsh_run_ahead(k->vgpu), most = bound - bound / 4, more = cost >= GSH_UNKNOWN ? bound / 2 : cost;
	if (charge(k, k->work + more, most)) return;
	if (k->left != k->armed) close_batch(k);
	gsh_room_leave(k);
	gsh_settle();
	for (int patience = 100; patience && !charge(k, more, most); patience--)
		if (gsh_settle_oldest(k->vgpu))
			patience = 100;
		else
			gsh_sleep(20 * GSH_MICROSECOND);
}

static struct gsh_track *count_one(struct gsh_track *k, uint64_t blocks, uint64_t cost) {
	k->left--;
	k->work += cost >= GSH_UNKNOWN ? gsh_run_ahead(k->vgpu) / 2 : cost;
	k->blocks += blocks;
	return k;
}

/* Until the token allows it. What was launched before the rest is marked first, and the rest is not work. */
static void rest(struct gsh_track *k) {
	if (k->left != k->armed) close_batch(k);
	gsh_room_leave(k);
	gsh_token_wait(k->vgpu);
	k->epoch = 0;
}

/* A mark behind what has none yet. Returns whether one was put now. */
static bool mark_rest(struct gsh_track *k) {
	if (k->left == k->armed) return false;
	close_batch(k);
	return k->last != 0;
}

/* A launch between two marks of its own: the first of each millisecond, and all that are long or of unknown cost. */
static void begin_sample(struct gsh_track *k, const void *key) {
	if (!mark_rest(k)) {
		k->last = 0;
		k->left = k->armed;
		close_batch(k);
	}
	k->left = k->armed = GSH_BATCH;
	k->sample = key;
}

/* How many launches like this one the room holds before the next mark, with this one. */
static uint64_t launches_in(uint64_t room, uint64_t cost) {
	if (cost > room) return 1;
	return cost < room / GSH_BATCH ? GSH_BATCH : 1 + room / cost;
}

/* Where tokens are blocks, pays for the launch and for others like it. False: somebody else took the last. */
static bool pay(struct gsh_track *k, uint64_t room, uint64_t cost, uint64_t blocks) {
	uint64_t size = blocks ? blocks : 1;
	k->batch = GSH_BATCH;
	if (!gsh_credit_counts(k->vgpu)) return true;
	uint64_t got = gsh_credit_take(k->vgpu, size, launches_in(room, cost));
	k->paid += (int64_t)got;
	k->batch = (uint32_t)(got ? got / size - 1 : 0);
	return got != 0;
}

/* The generation is read before the state, and compared after the wait for the bound: no flip in between is missed. */
static void get_permission(struct gsh_track *k, uint64_t room, uint64_t cost, uint64_t blocks) {
	square(k);
	do {
		uncharge(k);
		while (k->generation = atomic_load(&k->page->generation), !gsh_token_allows(k->vgpu)) rest(k);
		bound_work(k, cost);
	} while (k->generation != atomic_load(&k->page->generation) || !pay(k, room, cost, blocks));
}

static struct gsh_track *enter_gated(struct gsh_track *k, const void *key, uint64_t blocks) {
	uint64_t cost = gsh_cost(key), room = gsh_room_wanted(k);
	gsh_cycle_begin(k->vgpu);
	get_permission(k, room, cost, blocks);
	gsh_room_take(k, cost > room ? 0 : room); /* the next launch is most likely one like this */
	if (k->epoch != k->since || cost > room) begin_sample(k, key);
	k->epoch = k->since;
	gsh_helper_poke();
	return count_one(k, blocks, cost);
}

static struct gsh_track *free_place(struct gsh_track *home) {
	for (int i = 0; i < GSH_WAYS; i++)
		if (!home[i].stream) return &home[i];
	return NULL;
}

/* The stream's track, or a place for it: the first one, another one that is free, else each in turn. */
static struct gsh_track *place_of(CUstream s) {
	struct gsh_track *home = gsh_track_home(s), *k = gsh_track_of(s);
	if (!k && !gsh_track_first(s)->stream) k = gsh_track_first(s);
	if (!k) k = free_place(home);
	if (!k) k = &home[home->turn++ % GSH_WAYS];
	return k;
}

struct gsh_track *gsh_enter_slow(CUstream s, const void *key, uint64_t blocks) {
	if (!gsh_here().context) return &uncounted;
	gsh_start();
	struct gsh_place here = gsh_here();
	struct gsh_track *k = place_of(s);
	if (k->stream != s || k->context != here.context || k->vgpu != here.vgpu) drop(k);
	if (!here.vgpu || gsh_token_off(here.vgpu) || capturing(s)) return &uncounted;
	k->stream = s;
	k->context = here.context;
	k->vgpu = here.vgpu;
	k->page = here.vgpu->server;
	return enter_gated(k, key, blocks);
}

void gsh_leave(struct gsh_track *k, CUresult r) {
	if (k == &uncounted) return;
	if (r != CUDA_SUCCESS) k->sample = NULL; /* nothing ran */
	close_batch(k);
	uncharge(k);
	gsh_publish(k->vgpu);
	k->left = k->armed = k->batch;
}

static void sync_track(struct gsh_track *k) {
	if (k->epoch && k->left != k->armed) close_batch(k);
}

/*
 * The stream that a synchronising call names takes a mark, so that what the call waits for is measured to its end. Of a
 * whole context only the default streams can be named safely.
 */
void gsh_sync_before(CUstream s) {
	if (s == GSH_ALL) {
		gsh_sync_before(CU_STREAM_LEGACY);
		gsh_sync_before(CU_STREAM_PER_THREAD);
	} else if (gsh_track_of(s)) {
		sync_track(gsh_track_of(s));
	}
}

/* After a whole context was waited for, what has no mark is done too. */
static void all_done(void) {
	for (int i = 0; i < GSH_TRACKS; i++)
		if (gsh_tracks[i].left != gsh_tracks[i].armed) drop(&gsh_tracks[i]);
}

/* The next launch is to be seen: it begins a launch cycle. */
static void look_out(void) {
	for (int i = 0; i < GSH_TRACKS; i++) gsh_tracks[i].generation--;
}

void gsh_sync_after(CUstream s, CUresult r) {
	if (r != CUDA_SUCCESS) return;
	bool cycles = atomic_load_explicit(&gsh_mode, memory_order_relaxed) == GSHARE_MODE_BLOCKS;
	if (cycles && s != GSH_LOOK && gsh_cycle_end(gsh_here().vgpu)) look_out();
	if (s == GSH_ALL) all_done();
	if (gsh_marks_open()) gsh_settle();
	gsh_pools_synchronised();
}

/* The stream is about to go: mark what is left in it and forget it. */
void gsh_stream_gone(CUstream s) {
	struct gsh_track *k = gsh_track_of(s);
	if (!s || !k) return;
	sync_track(k);
	drop(k);
}
