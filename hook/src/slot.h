/* The slots that marks live in; private to mark.c and settle.c. */
#ifndef GSHARE_SLOT_H
#define GSHARE_SLOT_H

#include "mark.h"

#define GSH_MARKS 256

/*
 * A slot's word is its state and how many threads hold its event for a question. HELD: being recorded. DONE: settled,
 * and free when nobody asks any more. TAKEN: reached, and its event has become a base. No lock: a launching thread must not make a system call because the helper is at the slots too.
 */
enum gsh_slot_state { FREE, HELD, OPEN, DONE, TAKEN }; /* DONE is OPEN with one bit more */
#define GSH_ASKER 256u /* one thread that asks, in the word above the state */

struct gsh_slot {
	_Atomic uint32_t word;
	_Atomic uint64_t number; /* of the mark, while OPEN */
	CUevent event;           /* stays with the slot, of context */
	CUcontext context;
	struct gsh_batch batch;
	bool busy; /* the mark before was not reached when this was recorded: the stream never idled between */
};

extern struct gsh_slot gsh_slots[GSH_MARKS];

static inline bool gsh_slot_move(struct gsh_slot *m, uint32_t from, uint32_t to) {
	return atomic_compare_exchange_strong(&m->word, &from, to);
}
static inline bool gsh_slot_open(struct gsh_slot *m) { return (atomic_load(&m->word) & (GSH_ASKER - 1)) == OPEN; }

/* Keeps an open mark's event from being taken or used again; false if the mark is not open any more. */
bool gsh_slot_ask(struct gsh_slot *m);
void gsh_slot_asked(struct gsh_slot *m);

/* One thread settles at a time. */
bool gsh_settler_try(void);
void gsh_settler_take(void);
void gsh_settler_end(void);

/* The settler's: ends a mark; its event is kept for the next one of the context. */
void gsh_slot_retire(struct gsh_slot *m);

/* The settler's: takes the event of a reached mark away, so that nobody else asks for it; NULL if somebody does. */
CUevent gsh_slot_steal(struct gsh_slot *m);

#endif
