#define _GNU_SOURCE
#include "mark.h"

#include "platform.h"
#include "slot.h"

struct gsh_slot gsh_slots[GSH_MARKS];
static _Atomic uint64_t numbers;
static _Atomic uint32_t open_marks;

uint32_t gsh_marks_open(void) { return atomic_load(&open_marks); }

int gsh_relax(void) {
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (CALL(cuThreadExchangeStreamCaptureMode, &mode) != CUDA_SUCCESS) return CU_STREAM_CAPTURE_MODE_RELAXED;
	return mode;
}

void gsh_relax_end(int mode) {
	if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) CALL(cuThreadExchangeStreamCaptureMode, &mode);
}

/* Each thread begins at a place of its own, so that it finds the slots again that have its events, and few others. */
static struct gsh_slot *take_slot(CUcontext c, bool with_event) {
	static _Atomic uint32_t threads;
	static _Thread_local uint32_t first;
	if (!first) first = 16 * (atomic_fetch_add(&threads, 1) % (GSH_MARKS / 16)) + 1;
	for (uint32_t i = 0; i < GSH_MARKS; i++) {
		struct gsh_slot *m = &gsh_slots[(first + i) % GSH_MARKS];
		if (atomic_load_explicit(&m->word, memory_order_relaxed) != FREE || !gsh_slot_move(m, FREE, HELD)) continue;
		if (!with_event || (m->event && m->context == c)) return m;
		atomic_store(&m->word, FREE);
	}
	return NULL;
}

static bool own_event(struct gsh_slot *m, CUcontext c) {
	if (m->event && m->context == c) return true;
	if (m->event) CALL(cuEventDestroy_v2, m->event);
	m->event = NULL;
	m->context = c;
	return CALL(cuEventCreate, &m->event, CU_EVENT_BLOCKING_SYNC) == CUDA_SUCCESS && m->event;
}

bool gsh_slot_ask(struct gsh_slot *m) {
	uint32_t word = atomic_load(&m->word);
	while ((word & (GSH_ASKER - 1)) == OPEN)
		if (atomic_compare_exchange_weak(&m->word, &word, word + GSH_ASKER)) return true;
	return false;
}

void gsh_slot_asked(struct gsh_slot *m) {
	atomic_fetch_sub(&m->word, GSH_ASKER);
	gsh_slot_move(m, DONE, FREE);
}

/* Whether the device has not yet come to this mark. A number says where its mark lies. */
static bool pending(uint64_t number) {
	struct gsh_slot *m = &gsh_slots[number % GSH_MARKS];
	if (!number || !gsh_slot_ask(m)) return false;
	bool waits = atomic_load(&m->number) == number && CALL(cuEventQuery, m->event) == CUDA_ERROR_NOT_READY;
	gsh_slot_asked(m);
	return waits;
}

static bool record(struct gsh_slot *m, const struct gsh_batch *b) {
	int capturing = 0;
	if (CALL(cuStreamIsCapturing, b->stream, &capturing) != CUDA_SUCCESS || capturing) return false;
	if (!own_event(m, b->context)) return false;
	m->batch = *b;
	m->busy = b->launches && pending(b->last);
	return CALL(cuEventRecord, m->event, b->stream) == CUDA_SUCCESS;
}

static uint64_t put(struct gsh_slot *m, bool recorded) {
	uint64_t number = 0;
	if (recorded) {
		atomic_fetch_add(&m->batch.vgpu->open, m->batch.work);
		atomic_fetch_add(&open_marks, 1);
		number = (atomic_fetch_add(&numbers, 1) + 1) * GSH_MARKS + (uint64_t)(m - gsh_slots);
		atomic_store(&m->number, number);
	}
	atomic_store(&m->word, recorded ? OPEN : FREE);
	return number;
}

uint64_t gsh_mark(const struct gsh_batch *b) {
	struct gsh_slot *m = take_slot(b->context, true);
	if (!m) m = take_slot(b->context, false);
	if (!m && gsh_settle() < GSH_MARKS) m = take_slot(b->context, false);
	if (!m) return 0;
	int mode = gsh_relax();
	uint64_t number = put(m, record(m, b));
	gsh_relax_end(mode);
	return number;
}

void gsh_slot_retire(struct gsh_slot *m) {
	atomic_fetch_sub(&m->batch.vgpu->open, m->batch.work);
	atomic_fetch_sub(&open_marks, 1);
	if (gsh_slot_move(m, TAKEN, FREE)) return;
	atomic_fetch_or(&m->word, DONE);
	gsh_slot_move(m, DONE, FREE);
}

CUevent gsh_slot_steal(struct gsh_slot *m) {
	if (!gsh_slot_move(m, OPEN, TAKEN)) return NULL;
	CUevent event = m->event;
	m->event = NULL;
	return event;
}

static struct gsh_slot *oldest(const struct gsh_vgpu *v) {
	struct gsh_slot *first = NULL;
	for (int i = 0; i < GSH_MARKS; i++) {
		struct gsh_slot *m = &gsh_slots[i];
		if (!gsh_slot_ask(m)) continue;
		if (m->batch.vgpu == v && (!first || atomic_load(&m->number) < atomic_load(&first->number))) {
			if (first) gsh_slot_asked(first);
			first = m;
		} else {
			gsh_slot_asked(m);
		}
	}
	return first;
}

bool gsh_settle_oldest(struct gsh_vgpu *v) {
	struct gsh_slot *m = oldest(v);
	if (!m) return false;
	int mode = gsh_relax();
	CALL(cuEventSynchronize, m->event);
	gsh_relax_end(mode);
	gsh_slot_asked(m);
	gsh_settle();
	return true;
}

void gsh_marks_fork(void) {
	for (int i = 0; i < GSH_MARKS; i++) gsh_slots[i] = (struct gsh_slot){0};
	gsh_settler_end();
	atomic_store(&open_marks, 0);
}
