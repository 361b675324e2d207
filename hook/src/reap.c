/* From completed events to device time: intervals on the device's own clock, merged over all streams. */
#define _GNU_SOURCE
#include "reap.h"

#include <string.h>

#include "blocks.h"
#include "budget.h"
#include "cancel.h"
#include "cost.h"
#include "interval.h"
#include "platform.h"

#define CONTEXTS 16
#define CHAINS 256
#define DOUBT_BOUNDS 8
#define UNBOUND_AFTER (250 * GSH_MILLISECOND)
#define PAUSE_MIN (50 * GSH_MICROSECOND)
#define PAUSE_MAX GSH_MILLISECOND
#define EXCUSED_PART 5 /* one part in so many */
#define EXCUSED_MOST (2 * GSH_SECOND)
#define HOST_TIME (5 * GSH_MICROSECOND) /* the host usually needs at most this long for a launch */
#define REBASE (10 * (int64_t)GSH_SECOND) /* the driver's float milliseconds are too coarse beyond this */

/*
 * The variables below belong to the thread that has the reaper lock. A base is an event of known time, from which the others
 * of its context are measured. It is taken from a slot whose event is complete, so that no event is recorded only for it.
 */
static struct base {
	CUcontext context;
	CUevent event;
	int64_t at; /* CLOCK_MONOTONIC ns */
} bases[CONTEXTS];

/* The time of the last event of each chain. */
static struct chain_end {
	uint64_t chain;
	int64_t at;           /* ns */
	uint64_t recorded_at; /* by the host, CLOCK_MONOTONIC ns */
} chain_ends[CHAINS];

/* How much of the time beyond the usual may still be excused: at first nothing, since a process could otherwise save it up under a server. */
static struct excuses {
	uint64_t room, at; /* ns; time of the last measurement, ns */
	bool paced;        /* whether the process paced itself then */
} excuses[GSHARE_VGPU_MAX];

static const char forgotten; /* its address is the sample of launches whose key was forgotten */
static uint64_t doubted_at; /* when all costs were last made unknown, ns */
static struct gsh_union unions[GSHARE_VGPU_MAX]; /* the intervals for which each vGPU was charged */
static double overlap[GSHARE_VGPU_MAX]; /* moving average over samples: the part of a stream's work during which other streams work */
static _Thread_local CUcontext entered_context; /* of the helper thread, while it reaps */
static _Thread_local bool helper_thread; /* whether the calling thread is the helper */

static atomic_bool reaping;      /* the reaper lock; never held while the application's code runs */
static atomic_bool helper_ended; /* the helper must not reap any more */

/* Takes the reaper lock if it is free. */
static bool reaper_try_lock(void) { return !atomic_exchange(&reaping, true); }
static void reaper_unlock(void) { atomic_store(&reaping, false); }

/*
 * Waits for the lock by polling, as it is held for microseconds. Returns false after a second: then a thread may have been ended in
 * the middle of the driver's code and have left it locked.
 */
static bool reaper_lock(void) {
	for (uint64_t from = gsh_now(); !reaper_try_lock(); gsh_sleep(20 * GSH_MICROSECOND))
		if (gsh_now() - from > GSH_SECOND) return false;
	return true;
}

void gsh_reap_from_helper(void) { helper_thread = true; }

void gsh_reap_end_helper(void) {
	atomic_store(&helper_ended, true);
	for (int i = 0; i < 1000; i++, gsh_sleep(100 * GSH_MICROSECOND)) {
		if (!reaper_try_lock()) continue;
		reaper_unlock();
		return;
	}
}

/* Makes a context current on the helper thread; application threads keep their own. */
static void enter_context(CUcontext c) {
	if (helper_thread && entered_context != c && CALL(cuCtxSetCurrent, c) == CUDA_SUCCESS) entered_context = c;
}

/* Undoes enter_context. */
static void leave_context(void) {
	if (entered_context) CALL(cuCtxSetCurrent, NULL);
	entered_context = NULL;
}

/* Returns the base of a context, else an unused one, else the first one for replacement. */
static struct base *base_of(CUcontext c) {
	struct base *unused = NULL;
	for (int i = 0; i < CONTEXTS; i++) {
		if (bases[i].context == c) return &bases[i];
		if (!bases[i].context) unused = &bases[i];
	}
	return unused ? unused : &bases[0];
}

/* Makes the slot's event the base, unless another thread refers to it; the slot's next user creates a new one. */
static void rebase(struct base *b, struct gsh_slot *slot, int64_t at) {
	CUevent event = gsh_slot_take_event(slot);
	if (!event) return;
	if (b->event) CALL(cuEventDestroy_v2, b->event);
	*b = (struct base){slot->context, event, at};
}

/* Stores the time at which the device completed the event; false if the driver does not return it. */
static bool event_time(struct gsh_slot *slot, int64_t *at) {
	struct base *b = base_of(slot->context);
	if (b->context != slot->context) {
		*at = (int64_t)gsh_now();
		rebase(b, slot, *at);
		return true;
	}
	float ms;
	if (CALL(cuEventElapsedTime, &ms, b->event, slot->event) != CUDA_SUCCESS) return false;
	*at = b->at + (int64_t)((double)ms * 1e6);
	if (*at - b->at > REBASE) rebase(b, slot, *at);
	return true;
}

/*
 * Without a server, the kernels of neighbours may take the SMs at any time, and a launch that waits for them seems to take longer. What it takes
 * beyond the usual is excused, but no more than EXCUSED_MOST at once and a part of the time on average: it may as well have become longer.
 * Returns how much is excused.
 */
static uint64_t excuse(struct gsh_vgpu *v, uint64_t took, uint64_t usual) {
	struct excuses *e = &excuses[v->number];
	uint64_t now = gsh_now(), excused = took > usual ? took - usual : 0;
	bool paced = atomic_load(&gsh_self_paced);
	e->room = paced && e->paced ? e->room + (now - e->at) / EXCUSED_PART : 0;
	e->at = now;
	e->paced = paced;
	if (e->room > EXCUSED_MOST) e->room = EXCUSED_MOST;
	if (excused > e->room) excused = e->room;
	e->room -= excused;
	atomic_fetch_add(&v->excused, excused);
	return excused;
}

/* Charges an interval in which a stream was busy throughout. Returns the ns that no other stream's interval covered. */
static uint64_t charge_interval(struct gsh_vgpu *v, int64_t start, int64_t end) {
	uint64_t added = gsh_union_add(&unions[v->number], start, end);
	atomic_fetch_add(&v->busy, added);
	return added;
}

/* Charges work that was done at some time in an interval, less the part that usually overlaps with other streams. */
static void charge_within(struct gsh_vgpu *v, int64_t start, int64_t end, uint64_t work) {
	uint64_t own = (uint64_t)((double)work * (1 - overlap[v->number]));
	atomic_fetch_add(&v->busy, gsh_union_fill(&unions[v->number], start, end, own));
}

/* Charges work as an interval that ends now. */
static void charge_until_now(struct gsh_vgpu *v, uint64_t work) {
	int64_t now = (int64_t)gsh_now();
	charge_interval(v, now - (int64_t)work, now);
}

/*
 * Returns the part of the time between a sample's two events in which the device only waited for the launch: on an idle stream, the
 * time that the host took to make it. Without this an empty kernel seems to take 5 us instead of 2, and gets as many more events.
 * How much of that time the host needed before the device could begin is unknown: a launch may return long after the device began,
 * and the device may meanwhile have worked on what was launched before the first event. So the result is at most HOST_TIME and at
 * most half of the time between the events: however a program delays its launches, no kernel seems to take less than half of its
 * time, and none seems to take no time.
 */
static uint64_t waited_for_host(const struct gsh_slot *slot, const struct chain_end *before, uint64_t took) {
	uint64_t returned = slot->batch.returned_at, most = took / 2 < HOST_TIME ? took / 2 : HOST_TIME;
	if (slot->busy || returned <= before->recorded_at) return 0;
	return returned - before->recorded_at < most ? returned - before->recorded_at : most;
}

/* Updates the cost of a function and the overlap of streams from a sample, which is one launch between two events of its own. */
static void learn(const struct gsh_slot *slot, const struct chain_end *before, uint64_t took, uint64_t added) {
	const struct gsh_batch *b = &slot->batch;
	uint64_t most = took - waited_for_host(slot, before, took);
	if (b->sample != &forgotten) gsh_cost_learn(b->sample, added < most ? added : most, most, gsh_blocks_metered(b->vgpu));
	double *part = &overlap[b->vgpu->number];
	if (took) *part += (1 - (double)added / (double)took - *part) / 16;
}

/*
 * Makes all costs unknown if a batch took far longer than expected, by more than DOUBT_BOUNDS times the work that may be
 * unfinished. Perhaps one of its functions has become longer: it is not known which, and at the old estimates the stream would get
 * as far ahead again after waiting for its tokens. Or the batch waited for kernels of other processes: compared to that, measuring
 * anew costs little. A batch launched before the last doubt does not count, as it was estimated from the same costs.
 */
static void doubt_costs(const struct gsh_slot *slot, uint64_t took) {
	const struct gsh_batch *b = &slot->batch;
	if (took < b->work + DOUBT_BOUNDS * gsh_run_ahead_bound(b->vgpu) || slot->recorded_at < doubted_at) return;
	doubted_at = gsh_now();
	gsh_costs_doubt();
}

/*
 * Charges a batch whose event was completed at `end`. If the stream was never idle between its two events, all time between
 * them is charged. Otherwise the gap contains host time, and the estimate bounds what is charged. Where in the gap the work
 * was done is not known: the stream may have waited for SMs that others used, and the event may have been recorded long
 * after the work. So it is placed where no other stream was seen to work.
 */
static void charge_batch(struct gsh_slot *slot, int64_t end) {
	const struct gsh_batch *b = &slot->batch;
	struct chain_end *chain = &chain_ends[b->chain % CHAINS];
	bool known = chain->chain == b->chain;
	int64_t start = known ? chain->at : end - (int64_t)b->work;
	if (start > end) start = end;
	if (b->sample && known) {
		uint64_t added = charge_interval(b->vgpu, start, end), excused = excuse(b->vgpu, added, gsh_cost_usual(b->sample));
		learn(slot, chain, (uint64_t)(end - start) - excused, added - excused);
	} else if (b->launches && slot->busy && known) {
		uint64_t excused = excuse(b->vgpu, charge_interval(b->vgpu, start, end), b->unknown ? UINT64_MAX : b->work);
		doubt_costs(slot, (uint64_t)(end - start) - excused);
	} else if (b->launches) {
		charge_within(b->vgpu, start, end, b->work);
	}
	chain->chain = b->chain;
	chain->at = end;
	chain->recorded_at = slot->recorded_at;
}

/* Lists the open slots in the order in which their events were recorded. Returns how many there are. */
static int open_slots(struct gsh_slot **list) {
	int n = 0;
	for (int i = 0; i < GSH_EVENT_SLOTS; i++) {
		if (!gsh_slot_open(&gsh_slots[i])) continue;
		int k = n++;
		for (; k > 0 && list[k - 1]->number > gsh_slots[i].number; k--) list[k] = list[k - 1];
		list[k] = &gsh_slots[i];
	}
	return n;
}

/* Reports whether an earlier event of the same chain is in the list; then this one is not complete either. */
static bool follows_any(struct gsh_slot **list, int n, struct gsh_slot *slot) {
	for (int i = 0; i < n; i++)
		if (list[i]->batch.chain == slot->batch.chain) return true;
	return false;
}

/* Charges and retires a slot if its event is complete, or at its estimate if its context is broken; else returns false. */
static bool reap_slot(struct gsh_slot *slot) {
	int64_t at;
	enter_context(slot->context);
	CUresult r = CALL(cuEventQuery, slot->event);
	if (r == CUDA_ERROR_NOT_READY) return false;
	if (r == CUDA_SUCCESS && event_time(slot, &at))
		charge_batch(slot, at);
	else
		charge_until_now(slot->batch.vgpu, slot->batch.work);
	gsh_slot_retire(slot);
	return true;
}

uint32_t gsh_reap(void) {
	if (!gsh_events_open() || !reaper_try_lock()) return gsh_events_open();
	if (helper_thread && atomic_load(&helper_ended)) {
		reaper_unlock();
		return gsh_events_open();
	}
	struct gsh_slot *list[GSH_EVENT_SLOTS];
	int mode = gsh_capture_relax(), pending = 0, n = open_slots(list);
	for (int i = 0; i < n; i++)
		if (follows_any(list, pending, list[i]) || !reap_slot(list[i])) list[pending++] = list[i];
	gsh_capture_restore(mode);
	leave_context();
	reaper_unlock();
	return gsh_events_open();
}

uint64_t gsh_event_record(const struct gsh_batch *b) {
	struct gsh_slot *slot = gsh_slot_acquire(b->context, true);
	if (!slot) slot = gsh_slot_acquire(b->context, false);
	if (!slot && gsh_reap() < GSH_EVENT_SLOTS) slot = gsh_slot_acquire(b->context, false);
	return slot ? gsh_slot_record(slot, b) : 0;
}

/* Returns the slot with the oldest open event of a vGPU that counts for its bound, with a reference that the caller drops; or NULL. */
static struct gsh_slot *oldest_slot(const struct gsh_vgpu *v) {
	struct gsh_slot *oldest = NULL;
	for (int i = 0; i < GSH_EVENT_SLOTS; i++) {
		struct gsh_slot *slot = &gsh_slots[i];
		if (!gsh_slot_open(slot) || !gsh_slot_ref(slot)) continue;
		if (slot->batch.vgpu == v && atomic_load(&slot->bounded) &&
		    (!oldest || atomic_load(&slot->number) < atomic_load(&oldest->number))) {
			if (oldest) gsh_slot_unref(oldest);
			oldest = slot;
		} else {
			gsh_slot_unref(slot);
		}
	}
	return oldest;
}

/* Returns n, but at least min and at most max. */
static uint64_t clamp(uint64_t n, uint64_t min, uint64_t max) { return n < min ? min : n > max ? max : n; }

uint64_t gsh_reap_pause(struct gsh_vgpu *v) {
	gsh_reap();
	struct gsh_slot *slot = oldest_slot(v);
	if (!slot) return 0;
	uint64_t now = gsh_now(), age = now > slot->recorded_at ? now - slot->recorded_at : 0, work = slot->batch.unknown ? 0 : slot->batch.work;
	uint32_t beside = atomic_load(&v->unbounded_events);
	if (age > UNBOUND_AFTER << clamp(beside, 0, 10)) gsh_slot_unbound(slot);
	gsh_slot_unref(slot);
	return age < work ? clamp(work - age, PAUSE_MIN, PAUSE_MAX) : clamp((age - work) / 4, PAUSE_MIN, PAUSE_MAX);
}

void gsh_charge_estimate(struct gsh_vgpu *v, uint64_t work) {
	if (work >= GSH_COST_UNKNOWN || !work) return;
	if (!reaper_lock()) return;
	charge_until_now(v, work);
	reaper_unlock();
}

/* The time may include waiting for kernels of other processes. */
void gsh_charge_watched(struct gsh_vgpu *v, const void *key, uint64_t ns) {
	if (!ns || !reaper_lock()) return;
	gsh_cost_learn(key, ns, ns, true);
	charge_until_now(v, ns);
	reaper_unlock();
}

/* Charges a slot at its estimate and destroys its event. */
static void give_up_slot(struct gsh_slot *slot) {
	if (gsh_slot_open(slot)) {
		charge_until_now(slot->batch.vgpu, slot->batch.work);
		gsh_slot_retire(slot);
	}
	if (slot->event) CALL(cuEventDestroy_v2, slot->event);
	slot->event = NULL;
	slot->context = NULL;
}

/* Charges all events of a context and destroys them. The caller has the lock, which is released. */
static void give_up_context(CUcontext c) {
	for (int i = 0; i < GSH_EVENT_SLOTS; i++)
		if (gsh_slots[i].context == c) give_up_slot(&gsh_slots[i]);
	struct base *b = base_of(c);
	if (b->context == c) {
		CALL(cuEventDestroy_v2, b->event);
		*b = (struct base){0};
	}
	reaper_unlock();
}

void gsh_reap_context(CUcontext c) {
	int cancel = gsh_cancel_disable();
	if (c && (gsh_reap(), reaper_lock())) give_up_context(c);
	gsh_cancel_restore(cancel);
}

void gsh_reap_forget(const void *key) {
	int cancel = gsh_cancel_disable();
	bool locked = reaper_lock();
	for (int i = 0; locked && i < GSH_EVENT_SLOTS; i++)
		if (gsh_slot_open(&gsh_slots[i]) && gsh_slots[i].batch.sample == key) gsh_slots[i].batch.sample = &forgotten;
	gsh_cost_forget(key);
	if (locked) reaper_unlock();
	gsh_cancel_restore(cancel);
}

void gsh_reap_after_fork(void) {
	gsh_events_after_fork();
	atomic_store(&helper_ended, false);
	reaper_unlock();
}
