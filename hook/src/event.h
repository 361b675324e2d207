/*
 * Timing events behind batches of launches (FG-73). A launching thread records an event in the stream that the launch names,
 * never in another: the handle that the application passes now is valid now, and a capturing stream is never touched.
 * Completed events are charged by whichever thread reaps, see reap.h. Events stay in the slots of a fixed table, which has no
 * lock: a launching thread must not make a system call because another one is at the table.
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
	uint64_t chain;      /* the same as that of the event before in the same stream */
	uint64_t last_event; /* number of that event; 0: this one begins a chain and measures nothing */
	uint64_t launches;   /* between the two */
	uint64_t work;       /* ns, estimated */
	bool unknown;        /* a launch whose cost is unknown: work is only a bound for others */
	const void *sample;  /* the function or graph that was launched, if it was one launch right behind the event before */
	uint64_t returned_at; /* when the driver had taken a sample's launch, CLOCK_MONOTONIC ns */
};

/*
 * The state of a slot, in the low byte of its word: free; being recorded; open, that is recorded and not reaped; done, that
 * is reaped and free as soon as nobody refers to it; taken, that is its event has been moved to another owner. The upper
 * bytes count the threads that refer to the slot's event, each GSH_SLOT_REF.
 */
enum gsh_slot_state { SLOT_FREE, SLOT_RECORDING, SLOT_OPEN, SLOT_DONE, SLOT_TAKEN }; /* done is open with one bit more */
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
	bool busy; /* the event before was not complete when this one was recorded: the stream was never idle in between */
};

/* The table of events of all vGPUs and contexts. */
extern struct gsh_slot gsh_slots[GSH_EVENT_SLOTS];

/* Changes a slot's word from one value to another; false if it has a different one. */
static inline bool gsh_slot_move(struct gsh_slot *slot, uint32_t from, uint32_t to) {
	return atomic_compare_exchange_strong(&slot->word, &from, to);
}

/* Reports whether a slot has a recorded event that has not been reaped. */
static inline bool gsh_slot_open(struct gsh_slot *slot) { return (atomic_load(&slot->word) & (GSH_SLOT_REF - 1)) == SLOT_OPEN; }

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
 * Put the calling thread's capture mode to relaxed around calls with an event, which are otherwise illegal while another
 * thread captures. Always, and not only while a capture is known: one may begin between the check and the call.
 */
int gsh_capture_relax(void);
void gsh_capture_restore(int mode);

#endif
