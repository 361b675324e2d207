/* From completed marks to device time: intervals on the device's own clock, merged over streams. */
#define _GNU_SOURCE
#include <string.h>

#include "cost.h"
#include "interval.h"
#include "platform.h"
#include "slot.h"

#define CONTEXTS 16
#define CHAINS 256
#define REBASE (10 * (int64_t)GSH_SECOND) /* the float milliseconds of the driver lose microseconds beyond this */

/*
 * All of this belongs to whoever is settling. A base is an event of known time; others are measured from it. It is a mark
 * that was reached, so no event is recorded only for it.
 */
static struct base {
	CUcontext context;
	CUevent event;
	int64_t at; /* ns */
} bases[CONTEXTS];
static struct {
	uint64_t chain;
	int64_t at;
} ends[CHAINS]; /* where each chain's last settled mark lies */
static struct gsh_union unions[GSHARE_VGPU_MAX];
static double covered[GSHARE_VGPU_MAX]; /* moving average of samples: the part of a stream's work beside which others work */
static _Thread_local CUcontext thread_context; /* of the helper, which has none of its own */
static _Thread_local bool helper_thread;

static atomic_bool settling;
bool gsh_settler_try(void) { return !atomic_exchange(&settling, true); }
void gsh_settler_end(void) { atomic_store(&settling, false); }
void gsh_settler_take(void) {
	while (!gsh_settler_try()) gsh_sleep(20 * GSH_MICROSECOND);
}

void gsh_settle_from_helper(void) { helper_thread = true; }

static void enter_context(CUcontext c) {
	if (helper_thread && thread_context != c && CALL(cuCtxSetCurrent, c) == CUDA_SUCCESS) thread_context = c;
}

static void leave_context(void) {
	if (thread_context) CALL(cuCtxSetCurrent, NULL);
	thread_context = NULL;
}

static struct base *base_of(CUcontext c) {
	struct base *unused = NULL;
	for (int i = 0; i < CONTEXTS; i++) {
		if (bases[i].context == c) return &bases[i];
		if (!bases[i].context) unused = &bases[i];
	}
	return unused ? unused : &bases[0];
}

/* The slot's event becomes the base, unless somebody waits for it; the slot will get a new one. */
static void rebase(struct base *b, struct gsh_slot *m, int64_t at) {
	CUevent event = gsh_slot_steal(m);
	if (!event) return;
	if (b->event) CALL(cuEventDestroy_v2, b->event);
	*b = (struct base){m->context, event, at};
}

/* When the device reached the mark; false if the driver does not say. */
static bool time_of(struct gsh_slot *m, int64_t *at) {
	struct base *b = base_of(m->context);
	if (b->context != m->context) {
		*at = (int64_t)gsh_now();
		rebase(b, m, *at);
		return true;
	}
	float ms;
	if (CALL(cuEventElapsedTime, &ms, b->event, m->event) != CUDA_SUCCESS) return false;
	*at = b->at + (int64_t)((double)ms * 1e6);
	if (*at - b->at > REBASE) rebase(b, m, *at);
	return true;
}

/* The stream had work all the time. Returns what others had not covered. */
static uint64_t add_busy(struct gsh_vgpu *v, int64_t start, int64_t end) {
	uint64_t added = gsh_union_add(&unions[v->number], start, end);
	atomic_fetch_add(&v->busy, added);
	return added;
}

/* It had so much work at some time, of which its part beside others is theirs. */
static void add_work(struct gsh_vgpu *v, int64_t start, int64_t end, uint64_t work) {
	uint64_t own = (uint64_t)((double)work * (1 - covered[v->number]));
	atomic_fetch_add(&v->busy, gsh_union_fill(&unions[v->number], start, end, own));
}

static void add_estimate(struct gsh_vgpu *v, uint64_t work) {
	int64_t now = (int64_t)gsh_now();
	add_busy(v, now - (int64_t)work, now);
}

/* A launch between two marks of its own measures its function, and how far streams overlap. */
static void learn(const struct gsh_batch *b, uint64_t took, uint64_t added) {
	gsh_cost_learn(b->sample, took);
	double *part = &covered[b->vgpu->number];
	if (took) *part += (1 - (double)added / (double)took - *part) / 16;
}

/*
 * If the stream never idled between two marks, all time between them was ours. Otherwise the gap holds host time too, and
 * the estimate bounds it; where in the gap the work was is not known: a stream may have waited for SMs that others held, and
 * a mark may have come long after the work. So it is looked for where no other stream has been seen.
 */
static void account(struct gsh_slot *m, int64_t end) {
	const struct gsh_batch *b = &m->batch;
	typeof(ends[0]) *chain = &ends[b->chain % CHAINS];
	bool known = chain->chain == b->chain;
	int64_t start = known ? chain->at : end - (int64_t)b->work;
	if (start > end) start = end;
	if (b->sample && known)
		learn(b, (uint64_t)(end - start), add_busy(b->vgpu, start, end));
	else if (b->launches && m->busy && known)
		add_busy(b->vgpu, start, end);
	else if (b->launches)
		add_work(b->vgpu, start, end, b->work);
	chain->chain = b->chain;
	chain->at = end;
}

/* Marks in the order of recording; those of a stream behind one that is not reached need no question. */
static int in_order(struct gsh_slot **list) {
	int n = 0;
	for (int i = 0; i < GSH_MARKS; i++) {
		if (!gsh_slot_open(&gsh_slots[i])) continue;
		int k = n++;
		for (; k > 0 && list[k - 1]->number > gsh_slots[i].number; k--) list[k] = list[k - 1];
		list[k] = &gsh_slots[i];
	}
	return n;
}

static bool behind(struct gsh_slot **list, int n, struct gsh_slot *m) {
	for (int i = 0; i < n; i++)
		if (list[i]->batch.chain == m->batch.chain) return true;
	return false;
}

static bool reached(struct gsh_slot *m) {
	int64_t at;
	enter_context(m->context);
	CUresult r = CALL(cuEventQuery, m->event);
	if (r == CUDA_ERROR_NOT_READY) return false;
	if (r == CUDA_SUCCESS && time_of(m, &at))
		account(m, at);
	else /* a broken context: count the estimate */
		add_estimate(m->batch.vgpu, m->batch.work);
	gsh_slot_retire(m);
	return true;
}

uint32_t gsh_settle(void) {
	if (!gsh_marks_open() || !gsh_settler_try()) return gsh_marks_open();
	struct gsh_slot *list[GSH_MARKS];
	int mode = gsh_relax(), waiting = 0, n = in_order(list);
	for (int i = 0; i < n; i++)
		if (behind(list, waiting, list[i]) || !reached(list[i])) list[waiting++] = list[i];
	gsh_relax_end(mode);
	leave_context();
	gsh_settler_end();
	return gsh_marks_open();
}

void gsh_settle_estimate(struct gsh_vgpu *v, uint64_t work) {
	if (work >= GSH_UNKNOWN || !work) return;
	gsh_settler_take();
	add_estimate(v, work);
	gsh_settler_end();
}

static void give_up(struct gsh_slot *m) {
	if (gsh_slot_open(m)) {
		add_estimate(m->batch.vgpu, m->batch.work);
		gsh_slot_retire(m);
	}
	if (m->event) CALL(cuEventDestroy_v2, m->event);
	m->event = NULL;
	m->context = NULL;
}

void gsh_marks_context_gone(CUcontext c) {
	if (!c) return;
	gsh_settle();
	gsh_settler_take();
	for (int i = 0; i < GSH_MARKS; i++)
		if (gsh_slots[i].context == c) give_up(&gsh_slots[i]);
	struct base *b = base_of(c);
	if (b->context == c) {
		CALL(cuEventDestroy_v2, b->event);
		*b = (struct base){0};
	}
	gsh_settler_end();
}
