#define _GNU_SOURCE
#include "event.h"

#include "device.h"
#include "platform.h"

struct gsh_slot gsh_slots[GSH_EVENT_SLOTS];
static _Atomic uint64_t numbers; /* events recorded so far */
static _Atomic uint32_t open_events;

uint32_t gsh_events_open(void) { return atomic_load(&open_events); }

int gsh_capture_relax(void) {
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	if (CALL(cuThreadExchangeStreamCaptureMode, &mode) != CUDA_SUCCESS) return CU_STREAM_CAPTURE_MODE_RELAXED;
	return mode;
}

void gsh_capture_restore(int mode) {
	if (mode != CU_STREAM_CAPTURE_MODE_RELAXED) CALL(cuThreadExchangeStreamCaptureMode, &mode);
}

/* Each thread begins its search at a different slot, so that it finds the slots that have its events, and few of other threads. */
struct gsh_slot *gsh_slot_acquire(CUcontext c, bool with_event) {
	static _Atomic uint32_t threads;
	static _Thread_local uint32_t first;
	if (!first) first = 16 * (atomic_fetch_add(&threads, 1) % (GSH_EVENT_SLOTS / 16)) + 1;
	for (uint32_t i = 0; i < GSH_EVENT_SLOTS; i++) {
		struct gsh_slot *slot = &gsh_slots[(first + i) % GSH_EVENT_SLOTS];
		bool is_free = atomic_load_explicit(&slot->word, memory_order_relaxed) == SLOT_FREE;
		if (!is_free || !gsh_slot_move(slot, SLOT_FREE, SLOT_RECORDING)) continue;
		if (!with_event || (slot->event && slot->context == c)) return slot;
		atomic_store(&slot->word, SLOT_FREE);
	}
	return NULL;
}

/* An event is one of the context that is current when it is created, and fits the streams of that context only. */
CUevent gsh_event_create(CUcontext c, unsigned flags) {
	CUevent e = NULL;
	CUcontext popped;
	bool other = gsh_target(BY_THREAD, 0).context != c;
	if (!c || (other && CALL(cuCtxPushCurrent_v2, c) != CUDA_SUCCESS)) return NULL;
	if (CALL(cuEventCreate, &e, flags) != CUDA_SUCCESS) e = NULL;
	if (other) CALL(cuCtxPopCurrent_v2, &popped);
	return e;
}

/*
 * Makes the slot's event one of this context. Returns false if the driver creates none. The event is only queried: with
 * CU_EVENT_BLOCKING_SYNC the device would have to interrupt the host for each, thousands of times a second.
 */
static bool ensure_event(struct gsh_slot *slot, CUcontext c) {
	if (slot->event && slot->context == c) return true;
	if (slot->event) CALL(cuEventDestroy_v2, slot->event);
	slot->event = gsh_event_create(c, CU_EVENT_DEFAULT);
	slot->context = c;
	return slot->event != NULL;
}

bool gsh_slot_ref(struct gsh_slot *slot) {
	uint32_t word = atomic_load(&slot->word);
	while ((word & (GSH_SLOT_REF - 1)) == SLOT_OPEN)
		if (atomic_compare_exchange_weak(&slot->word, &word, word + GSH_SLOT_REF)) return true;
	return false;
}

void gsh_slot_unref(struct gsh_slot *slot) {
	atomic_fetch_sub(&slot->word, GSH_SLOT_REF);
	gsh_slot_move(slot, SLOT_DONE, SLOT_FREE);
}

/* Reports whether the device has not yet completed the event of this number, whose slot is the number modulo GSH_EVENT_SLOTS. */
static bool is_pending(uint64_t number) {
	struct gsh_slot *slot = &gsh_slots[number % GSH_EVENT_SLOTS];
	if (!number || !gsh_slot_ref(slot)) return false;
	bool pending = atomic_load(&slot->number) == number && CALL(cuEventQuery, slot->event) == CUDA_ERROR_NOT_READY;
	gsh_slot_unref(slot);
	return pending;
}

/* Records the slot's event behind the batch, unless the stream captures: there it would become a node of the graph. */
static bool record(struct gsh_slot *slot, const struct gsh_batch *b) {
	int capturing = 0;
	if (CALL(cuStreamIsCapturing, b->stream, &capturing) != CUDA_SUCCESS || capturing) return false;
	if (!ensure_event(slot, b->context)) return false;
	slot->batch = *b;
	slot->busy = b->launches && is_pending(b->last_event);
	return CALL(cuEventRecord, slot->event, b->stream) == CUDA_SUCCESS;
}

uint64_t gsh_slot_record(struct gsh_slot *slot, const struct gsh_batch *b) {
	uint64_t number = 0;
	int mode = gsh_capture_relax();
	bool recorded = record(slot, b);
	if (recorded) {
		slot->recorded_at = gsh_now();
		atomic_fetch_add(&slot->batch.vgpu->open, slot->batch.work);
		if (b->unknown) atomic_fetch_add(&slot->batch.vgpu->unknown_events, 1);
		atomic_store(&slot->bounded, true);
		atomic_fetch_add(&open_events, 1);
		number = (atomic_fetch_add(&numbers, 1) + 1) * GSH_EVENT_SLOTS + (uint64_t)(slot - gsh_slots);
		atomic_store(&slot->number, number);
	}
	atomic_store(&slot->word, recorded ? SLOT_OPEN : SLOT_FREE);
	gsh_capture_restore(mode);
	return number;
}

void gsh_slot_unbound(struct gsh_slot *slot) {
	struct gsh_vgpu *v = slot->batch.vgpu;
	if (!atomic_exchange(&slot->bounded, false)) return;
	atomic_fetch_add(&v->unbounded, slot->batch.work);
	atomic_fetch_add(&v->unbounded_events, 1);
	atomic_fetch_sub(&v->open, slot->batch.work);
}

void gsh_slot_retire(struct gsh_slot *slot) {
	struct gsh_vgpu *v = slot->batch.vgpu;
	bool bounded = atomic_exchange(&slot->bounded, false);
	if (slot->batch.unknown) atomic_fetch_sub(&v->unknown_events, 1);
	atomic_fetch_sub(bounded ? &v->open : &v->unbounded, slot->batch.work);
	if (!bounded) atomic_fetch_sub(&v->unbounded_events, 1);
	atomic_fetch_sub(&open_events, 1);
	if (gsh_slot_move(slot, SLOT_TAKEN, SLOT_FREE)) return;
	atomic_fetch_or(&slot->word, SLOT_DONE);
	gsh_slot_move(slot, SLOT_DONE, SLOT_FREE);
}

CUevent gsh_slot_take_event(struct gsh_slot *slot) {
	if (!gsh_slot_move(slot, SLOT_OPEN, SLOT_TAKEN)) return NULL;
	CUevent event = slot->event;
	slot->event = NULL;
	return event;
}

void gsh_events_after_fork(void) {
	for (int i = 0; i < GSH_EVENT_SLOTS; i++) gsh_slots[i] = (struct gsh_slot){0};
	atomic_store(&open_events, 0);
}
