/*
 * The slow path of a launch, on the launching thread:
 *
 *   gsh_enter_slow
 *       |  device without a share ------------------------------------> refused
 *       |  no context, OFF or MEMORY mode, stream captures
 *       |------------------------------------------------------------> launch, uncounted
 *       v
 *   RECONCILE   return block tokens that were taken and not launched (reconcile_blocks)
 *       v
 *   PERMITTED?  gsh_token_permits: mode, server's state, block tokens; without a server the window <-----------+
 *       |  no:  record an event behind what was launched, release the budget,                                  |
 *       |       ask the server once, wait on the page's futex word (wait_for_token) -- woken or 10 ms passed --+
 *       v                                                                                                      |
 *   BOUNDED?    unfinished work + this launch <= 3/4 of run_ahead, or 4/4 if it is long (wait_for_bound)        |
 *       |  no:  release the budget, sleep, reap, again; a batch open for long is taken out (gsh_reap_pause)     |
 *       v                                                                                                      |
 *   PAID?       block tokens for this launch and for some that follow (pay_blocks)                             |
 *       |  no tokens left, or the page's generation changed since PERMITTED ------------------------------------+
 *       v
 *   BUDGET      take a part of the last quarter of run_ahead for the launches that follow (gsh_budget_take)
 *       v
 *   SAMPLE?     first launch of this epoch, or of long or unknown cost, or chosen: an event right before it (begin_sample)
 *       v
 *   driver's launch
 *       v
 *   gsh_leave   record an event behind it (close_batch), publish; the next launches take the fast path
 *
 * Nothing is held while it waits: no lock, no budget.
 */
#define _GNU_SOURCE
#include "gate.h"

#include "blocks.h"
#include "budget.h"
#include "cancel.h"
#include "capturing.h"
#include "device.h"
#include "helper.h"
#include "libc.h"
#include "platform.h"
#include "pool.h"
#include "reap.h"
#include "start.h"
#include "token.h"

/* The states for launches that are not counted: while the hook is switched off, and in a capture, which is held until gsh_leave. */
static _Thread_local struct gsh_stream_state uncounted, captured;

/* Returns a number that no other sequence of events has. */
static uint64_t new_chain(void) {
	static _Atomic uint64_t chains;
	return atomic_fetch_add(&chains, 1) + 1;
}

/* Adds the state's counters to the vGPU's sums and resets them. */
static void flush_counters(struct gsh_stream_state *st) {
	if (!st->vgpu) return;
	atomic_fetch_add(&st->vgpu->launches, st->launches_at_event - st->launches_left);
	atomic_fetch_add(&st->vgpu->blocks, st->blocks);
	st->blocks_paid -= (int64_t)st->blocks;
	st->launches_at_event = st->launches_left;
	st->blocks = st->work = 0;
	st->sample = NULL;
	st->unknown = false;
}

/* Returns the block tokens that were taken but not launched, or takes tokens for thread blocks that were launched without any. */
static void reconcile_blocks(struct gsh_stream_state *st) {
	if (gsh_blocks_metered(st->vgpu)) gsh_blocks_return(st->vgpu, st->blocks_paid - (int64_t)st->blocks);
	st->blocks_paid = (int64_t)st->blocks;
}

/* Returns the ns to charge where no event can be recorded: 0 for a launch of unknown cost, whose work is a bound and no estimate. */
static uint64_t work_estimate(const struct gsh_stream_state *st) {
	return st->unknown ? 0 : st->work;
}

#define WATCHED (250 * GSH_MILLISECOND) /* longer than that a launch is not watched: it may wait for a later one of this thread */

/*
 * Returns the ns from a launch of unknown cost until its stream is idle, where no event can be recorded. 0 where the stream captures: the
 * launch is a node of a graph.
 */
static uint64_t watch_launch(const struct gsh_stream_state *st) {
	int mode = gsh_capture_relax(), capturing = 0;
	while (CALL(cuStreamIsCapturing, st->stream, &capturing) == CUDA_SUCCESS && !capturing && gsh_now() - st->launched_at < WATCHED &&
	       CALL(cuStreamQuery, st->stream) == CUDA_ERROR_NOT_READY)
		gsh_sleep(50 * GSH_MICROSECOND);
	gsh_capture_restore(mode);
	return capturing ? 0 : gsh_now() - st->launched_at;
}

/*
 * Records an event behind what was launched since the last one. If none can be recorded, the launches are charged at their
 * estimate and the chain ends.
 */
static void close_batch(struct gsh_stream_state *st) {
	uint64_t launches = st->launches_at_event - st->launches_left;
	if (!st->vgpu || (!launches && st->last_event)) return;
	struct gsh_batch b = {st->vgpu, st->context, st->stream, st->chain, st->last_event, launches, st->work, st->unknown, st->sample,
	                      st->sample ? gsh_now() : 0};
	if (st->last_event == 0 && launches == 0) b.chain = st->chain = new_chain();
	st->last_event = b.chain ? gsh_event_record(&b) : 0;
	if (!st->last_event) {
		if (st->unknown && st->sample)
			gsh_charge_watched(st->vgpu, st->sample, watch_launch(st));
		else
			gsh_charge_estimate(st->vgpu, work_estimate(st));
		st->chain = 0;
	}
	flush_counters(st);
}

/* Undoes charge_open, once the launch has an event behind it has to wait again, or will never return. */
static void uncharge_open(struct gsh_stream_state *st) {
	if (st->work_charged) atomic_fetch_sub(&st->vgpu->open, st->work_charged);
	st->work_charged = 0;
}

/*
 * Clears a state. Its stream may be destroyed, so no event is recorded there: its launches are charged at their estimate. That of a
 * thread that was cancelled in the driver has a launch that does not return.
 */
static void drop_state(struct gsh_stream_state *st) {
	if (st->vgpu && st->launches_at_event != st->launches_left) gsh_charge_estimate(st->vgpu, work_estimate(st));
	flush_counters(st);
	if (st->vgpu) reconcile_blocks(st);
	if (st->vgpu) gsh_budget_release(st);
	if (st->vgpu) uncharge_open(st);
	*st = (struct gsh_stream_state){.next_victim = st->next_victim};
}

typedef int (*create_key_fn)(pthread_key_t *, void (*)(void *));
typedef int (*set_key_fn)(pthread_key_t, const void *);
static pthread_key_t thread_key; /* has a value in threads with states */
static set_key_fn set_thread_key; /* NULL: the key cannot be used */

/* Drops the states of a thread that ends: its last launches are charged at their estimate, and its block tokens are returned. */
static void end_thread(void *unused) {
	int cancel = gsh_cancel_disable();
	(void)unused;
	for (int i = 0; i < GSH_STREAM_STATES; i++) drop_state(&gsh_stream_states[i]);
	gsh_cancel_restore(cancel);
}

/*
 * Keys above the first 32 are not used: the C library would allocate memory for their values, with the application's allocator, from which
 * this launch may come.
 */
void gsh_gate_watch_threads(void) {
	create_key_fn create = (create_key_fn)gsh_libc_symbol("pthread_key_create");
	set_key_fn set = (set_key_fn)gsh_libc_symbol("pthread_setspecific");
	if (create && set && !create(&thread_key, end_thread) && thread_key < 32) set_thread_key = set;
}

/* Counts the launch as open before it is made, if it fits. If two threads reach the bound at once, one of them waits. */
static bool charge_open(struct gsh_stream_state *st, uint64_t more, uint64_t most) {
	uint64_t open = atomic_load(&st->vgpu->open);
	do {
		if (open && open + more > most) return false;
	} while (!atomic_compare_exchange_weak(&st->vgpu->open, &open, open + more));
	st->work_charged = more;
	return true;
}

/* Counts a launch that is too long for a budget, if the budgets of the streams leave room for it. */
static bool charge_open_beside_budgets(struct gsh_stream_state *st, uint64_t more, uint64_t bound) {
	if (!charge_open(st, more, bound)) return false;
	if (gsh_budgets_fit(st->vgpu)) return true;
	uncharge_open(st);
	return false;
}

/*
 * Waits until the process's unfinished work leaves room for the launch. Work with events behind it may fill three quarters of the
 * bound; the last quarter is kept for the budgets of the streams. If the process launches into one stream only, launches that are
 * too long for its budget may fill the last quarter too. Then two launches of up to half of the bound each can be under way, and
 * the device need not wait for the host between them. A launch of unknown cost counts as half of the bound, so that no second one
 * is under way until it has been measured.
 *
 * The thread polls instead of waiting in the driver, since a running kernel may itself wait for the launch that is held here. While
 * other threads are still launching all the open work, there is no event to wait for. After 100 sleeps of 20 us without one the
 * launch goes ahead, so that a launch that hangs in the driver does not block the process for ever.
 */
static void wait_for_bound(struct gsh_stream_state *st, uint64_t budget, uint64_t cost) {
	uint64_t bound = gsh_run_ahead_bound(st->vgpu), most = bound - bound / 4, more = cost >= GSH_COST_UNKNOWN ? bound / 2 : cost;
	bool single = budget == bound / 4; /* only one stream is in use: it may take all that is kept for budgets */
	if (charge_open(st, st->work + more, most)) return;
	if (st->launches_left != st->launches_at_event) close_batch(st);
	gsh_budget_release(st);
	for (int patience = 100; patience; patience--) {
		uint64_t pause = gsh_reap_pause(st->vgpu);
		if (charge_open(st, more, most)) return;
		if (single && cost > budget && cost < GSH_COST_UNKNOWN && charge_open_beside_budgets(st, more, bound)) return;
		if (pause) patience = 100;
		gsh_sleep(pause ? pause : 20 * GSH_MICROSECOND);
	}
}

/* Counts the launch that is about to be made. */
static struct gsh_stream_state *count_launch(struct gsh_stream_state *st, uint64_t blocks, uint64_t cost) {
	st->launches_left--;
	st->unknown = cost >= GSH_COST_UNKNOWN;
	st->work += cost >= GSH_COST_UNKNOWN ? gsh_run_ahead_bound(st->vgpu) / 2 : cost;
	st->blocks += blocks;
	return st;
}

/* Waits until the token may permit the launch. An event is recorded first, so that the wait is not measured as work. */
static void wait_for_token(struct gsh_stream_state *st) {
	if (st->launches_left != st->launches_at_event) close_batch(st);
	gsh_budget_release(st);
	gsh_token_wait(st->vgpu);
	st->epoch = 0;
}

/* Records an event behind launches that have none. Returns whether one was recorded now. */
static bool close_pending(struct gsh_stream_state *st) {
	if (st->launches_left == st->launches_at_event) return false;
	close_batch(st);
	return st->last_event != 0;
}

/* Makes the next launch a sample: it gets an event before and one behind it, which measure its cost. */
static void begin_sample(struct gsh_stream_state *st, const void *key) {
	if (!close_pending(st)) {
		st->last_event = 0;
		st->launches_left = st->launches_at_event;
		close_batch(st);
	}
	st->launches_left = st->launches_at_event = GSH_BATCH;
	st->sample = key;
	st->launched_at = gsh_now();
}

/* Returns how many launches of this cost, at least 1, the budget allows before the next event. */
static uint64_t launches_within(uint64_t budget, uint64_t cost) {
	if (cost > budget) return 1;
	return cost < budget / GSH_BATCH ? GSH_BATCH : 1 + budget / cost;
}

/* Takes block tokens for the launch and for others like it. Returns false if none are left; true where none are needed. */
static bool pay_blocks(struct gsh_stream_state *st, uint64_t budget, uint64_t cost, uint64_t blocks) {
	uint64_t size = blocks ? blocks : 1;
	st->next_launches_left = GSH_BATCH;
	if (!gsh_blocks_metered(st->vgpu)) return true;
	uint64_t taken = gsh_blocks_take(st->vgpu, size, launches_within(budget, cost));
	st->blocks_paid += (int64_t)taken;
	st->next_launches_left = (uint32_t)(taken ? taken / size - 1 : 0);
	return taken != 0;
}

/*
 * Waits until the launch is permitted, bounded and paid. The page's generation is read before its state and compared after the wait
 * for the bound, so that no change in between is missed. Returns the cost of the launch, which may have been measured while this
 * thread waited.
 */
static uint64_t wait_for_permission(struct gsh_stream_state *st, const void *key, uint64_t budget, uint64_t blocks) {
	uint64_t cost;
	reconcile_blocks(st);
	do {
		uncharge_open(st);
		while (st->generation = atomic_load(&st->page->generation), !gsh_token_permits(st->vgpu)) wait_for_token(st);
		cost = gsh_cost_of(key);
		wait_for_bound(st, budget, cost);
	} while (st->generation != atomic_load(&st->page->generation) || !pay_blocks(st, budget, cost, blocks));
	return cost;
}

/*
 * Now and then makes one more launch of the epoch a sample. The program cannot predict which; the next few are the most likely.
 * Otherwise a function that is short at the beginning of every epoch and long later would be charged as short.
 */
static void choose_sample(struct gsh_stream_state *st) {
	uint64_t random = (gsh_now() ^ (uint64_t)st->epoch << 32) * 0x9e3779b97f4a7c15ull;
	uint32_t launches = (uint32_t)(random >> 57) >> (random >> 40 & 7); /* below GSH_BATCH */
	if (random >> 32 & 15 || launches > st->next_launches_left) return;
	st->next_launches_left = launches;
	st->sample_next = true;
}

/* The slow path of a launch that is counted. */
static struct gsh_stream_state *enter_gated(struct gsh_stream_state *st, const void *key, uint64_t blocks) {
	uint64_t budget = gsh_budget_share(st);
	gsh_cycle_begin(st->vgpu);
	uint64_t cost = wait_for_permission(st, key, budget, blocks);
	gsh_budget_take(st, cost > budget ? 0 : budget); /* the next launch is probably like this one */
	bool new_epoch = st->epoch != st->budget_epoch;
	if (new_epoch || cost > budget || st->sample_next) begin_sample(st, key);
	st->sample_next = false;
	st->epoch = st->budget_epoch;
	if (new_epoch && cost <= budget) choose_sample(st);
	gsh_helper_wake();
	return count_launch(st, blocks, cost);
}

/* Implements gsh_enter_slow. The caller has disabled cancellation. */
static struct gsh_stream_state *enter(CUstream s, const void *key, uint64_t blocks) {
	struct gsh_target on = gsh_target(BY_STREAM, (uint64_t)s);
	if (!on.context) return &uncounted;
	gsh_start();
	if (!on.vgpu) on = gsh_target(BY_STREAM, (uint64_t)s); /* the start tells which devices have one */
	struct gsh_stream_state *st = gsh_stream_assign(s);
	if (st->stream != s || st->context != on.context || st->vgpu != on.vgpu) drop_state(st);
	if (!on.vgpu && gsh_device_refused(on.device)) return NULL;
	if (!on.vgpu || gsh_token_disabled(on.vgpu)) return &uncounted;
	if (gsh_capture_hold(s)) return &captured;
	if (!st->vgpu && set_thread_key) set_thread_key(thread_key, gsh_stream_states); /* again where end_thread has run before */
	st->stream = s;
	st->context = on.context;
	st->vgpu = on.vgpu;
	st->page = on.vgpu->server;
	return enter_gated(st, key, blocks);
}

struct gsh_stream_state *gsh_enter_slow(CUstream s, const void *key, uint64_t blocks) {
	int cancel = gsh_cancel_disable();
	struct gsh_stream_state *st = enter(s, key, blocks);
	gsh_cancel_restore(cancel);
	return st;
}

bool gsh_is_captured(const struct gsh_stream_state *st) { return st == &captured; }

void gsh_leave(struct gsh_stream_state *st, CUresult r) {
	if (st == &captured) gsh_capture_release();
	if (st == &captured || st == &uncounted) return;
	int cancel = gsh_cancel_disable();
	if (r != CUDA_SUCCESS) st->sample = NULL; /* nothing ran, so nothing is measured */
	close_batch(st);
	uncharge_open(st);
	gsh_publish(st->vgpu);
	st->launches_left = st->launches_at_event = st->next_launches_left;
	gsh_cancel_restore(cancel);
}

/* Records an event behind the stream's launches. That is not possible in a default stream whose context may have changed. */
static void record_before_sync(struct gsh_stream_state *st) {
	bool own = st->stream != CU_STREAM_LEGACY && st->stream != CU_STREAM_PER_THREAD;
	if ((own || st->epoch) && st->launches_left != st->launches_at_event) close_batch(st);
}

/*
 * With an event behind them, the launches that the call waits for are measured to their end. For a whole context, events are
 * recorded in the default streams only: the handles of others may have been destroyed.
 */
void gsh_sync_before(CUstream s) {
	int cancel = gsh_cancel_disable();
	if (s == GSH_SYNC_CONTEXT) {
		gsh_sync_before(CU_STREAM_LEGACY);
		gsh_sync_before(CU_STREAM_PER_THREAD);
	} else if (gsh_stream_find(s)) {
		record_before_sync(gsh_stream_find(s));
	}
	gsh_cancel_restore(cancel);
}

/* Drops the states whose launches have no event: the call has waited for the whole context, so these launches are complete too. */
static void drop_completed(void) {
	for (int i = 0; i < GSH_STREAM_STATES; i++)
		if (gsh_stream_states[i].launches_left != gsh_stream_states[i].launches_at_event) drop_state(&gsh_stream_states[i]);
}

/* Makes the thread's next launches take the slow path, where the first begins a launch cycle. */
static void expect_cycle(void) {
	for (int i = 0; i < GSH_STREAM_STATES; i++) gsh_stream_states[i].generation--;
}

void gsh_sync_after(CUstream s, CUresult r) {
	if (r != CUDA_SUCCESS) return;
	int cancel = gsh_cancel_disable();
	bool cycles = atomic_load_explicit(&gsh_mode, memory_order_relaxed) == GSHARE_MODE_BLOCKS, named = s < GSH_SYNC_QUERY;
	if (cycles && s != GSH_SYNC_QUERY && gsh_cycle_end(gsh_target(named ? BY_STREAM : BY_UNSAID, (uint64_t)s).vgpu)) expect_cycle();
	if (s == GSH_SYNC_CONTEXT) drop_completed();
	if (gsh_events_open()) gsh_reap();
	gsh_pools_after_sync();
	gsh_cancel_restore(cancel);
}

void gsh_stream_forget(CUstream s) {
	struct gsh_stream_state *st = gsh_stream_find(s);
	if (!s || !st) return;
	int cancel = gsh_cancel_disable();
	record_before_sync(st);
	drop_state(st);
	gsh_cancel_restore(cancel);
}
