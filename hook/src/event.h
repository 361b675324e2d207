/*
 * Timing events behind batches of launches. A launching thread records events only in the stream that its launch
 * names: the handle is known to be valid at that moment, and a capturing stream is never touched. Completed events are
 * charged by whichever thread reaps, see reap.h. Events stay in the slots of a fixed table without a lock, since a launching
 * thread must not make a system call because another thread is using the table.
 */
#ifndef GSHARE_EVENT_H
#define GSHARE_EVENT_H

#include "account.h"

#define GSH_EVENT_SLOTS 256

/* The launches of one thread into one stream between two events. */
struct gsh_batch {
	struct gsh_vgpu *vgpu;
	CUcontext context;
	CUstream stream;
	uint64_t chain;      /* the same as that of the previous event in the stream */
	uint64_t last_event; /* number of the previous event; 0: this event begins a chain and measures nothing */
	uint64_t launches;   /* between the two events */
	uint64_t work;       /* ns, estimated */
	bool unknown;        /* the batch is a launch of unknown cost; work is no estimate, but bounds other launches */
	const void *sample;  /* the function or graph, if the batch is one launch right behind the previous event */
	uint64_t returned_at; /* when the driver's call for a sample's launch returned, CLOCK_MONOTONIC ns */
};

/*
 * The state of a slot, in the low byte of its word. RECORDING: its event is being recorded. OPEN: recorded, not yet reaped.
 * DONE: reaped, and free as soon as no thread refers to it. TAKEN: its event has been moved to another owner. The upper
 * bytes count the threads that refer to the slot's event, in units of GSH_SLOT_REF.
 */
enum gsh_slot_state { SLOT_FREE, SLOT_RECORDING, SLOT_OPEN, SLOT_DONE, SLOT_TAKEN }; /* DONE is OPEN with one more bit set */
#define GSH_SLOT_REF 256u

/* An entry of the event table: one event and the batch of launches that it measures. */
struct gsh_slot {
	_Atomic uint32_t word;
	_Atomic uint64_t number; /* of the event, while the slot is open */
	CUevent event;           /* stays with the slot for the next batch of the same context */
	CUcontext context;
	struct gsh_batch batch;
	uint64_t recorded_at;    /* CLOCK_MONOTONIC ns */
	atomic_bool bounded;     /* the batch's work is part of the vGPU's `open` */
	bool busy; /* the previous event was not complete when this one was recorded: the stream was never idle in between */
};

/* The table of events of all vGPUs and contexts. */
extern struct gsh_slot gsh_slots[GSH_EVENT_SLOTS];

/* Changes a slot's word from one value to another; false if it has a different one. */
static inline bool gsh_slot_move(struct gsh_slot *slot, uint32_t from, uint32_t to) {
	return atomic_compare_exchange_strong(&slot->word, &from, to);
}

/* Reports whether a slot has a recorded event that has not been reaped. */
static inline bool gsh_slot_open(struct gsh_slot *slot) { return (atomic_load(&slot->word) & (GSH_SLOT_REF - 1)) == SLOT_OPEN; }

/* Creates an event in a context, which need not be current. Returns NULL if the driver creates none. */
CUevent gsh_event_create(CUcontext c, unsigned flags);

/* Acquires a free slot, with an event of this context if with_event is set. Returns NULL if there is none. */
struct gsh_slot *gsh_slot_acquire(CUcontext c, bool with_event);

/* Records an event behind the batch in an acquired slot. Returns its number, or 0 with the slot free again. */
uint64_t gsh_slot_record(struct gsh_slot *slot, const struct gsh_batch *batch);

/* Keeps the event of an open slot from being reused until gsh_slot_unref; false if the slot is not open any more. */
bool gsh_slot_ref(struct gsh_slot *slot);
void gsh_slot_unref(struct gsh_slot *slot);

/* Frees an open slot once nobody refers to it. Its event is reused in the same context. Called by the thread that reaps. */
void gsh_slot_retire(struct gsh_slot *slot);

/* Removes the work of an open slot from the unfinished work that bounds further launches. The caller refers to the slot. */
void gsh_slot_unbound(struct gsh_slot *slot);

/* Moves the event of an open slot to the caller; NULL if another thread refers to it. Called by the thread that reaps. */
CUevent gsh_slot_take_event(struct gsh_slot *slot);

/* Returns how many events are recorded and not reaped. Costs one load. */
uint32_t gsh_events_open(void);

/* Forgets all events in a forked child. */
void gsh_events_after_fork(void);

/*
 * Set the calling thread's capture mode to relaxed, and restore it, around calls that use an event: these are otherwise
 * illegal while another thread captures. Done always, not only while a capture is known, since one may begin between the
 * check and the call.
 */
int gsh_capture_relax(void);
void gsh_capture_restore(int mode);

#endif
