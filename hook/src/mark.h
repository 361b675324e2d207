/*
 * Marks: timing events behind batches of launches, settled later (FG-73). A mark is recorded by the launching thread in
 * the stream that the launch names, never elsewhere: a handle that the application passes now is valid now, and a stream
 * that captures is never touched. Whoever comes by settles: the helper, a synchronising call, a thread at its bound.
 */
#ifndef GSHARE_MARK_H
#define GSHARE_MARK_H

#include "account.h"

struct gsh_batch {
	struct gsh_vgpu *vgpu;
	CUcontext context;
	CUstream stream;
	uint64_t chain;     /* the mark before in the same stream has the same */
	uint64_t last;      /* number of that mark; 0: this one begins a chain and measures nothing */
	uint64_t launches;  /* since then */
	uint64_t work;      /* ns, estimated */
	const void *sample; /* what was launched, if it was one thing once, right behind the mark before */
};

/* Records a mark behind the batch. Returns its number, or 0 if none could be recorded: the batch is then estimated. */
uint64_t gsh_mark(const struct gsh_batch *batch);

/* Counts a batch that no mark can measure: at its estimate, ending now. */
void gsh_settle_estimate(struct gsh_vgpu *v, uint64_t work);

/* The calling thread is the helper: it has no context of its own and takes that of each mark. */
void gsh_settle_from_helper(void);

/* Settles all marks that are complete. Returns how many are still open. */
uint32_t gsh_settle(void);

/* Waits for the oldest open mark of a vGPU and settles. Returns false if there is none. */
bool gsh_settle_oldest(struct gsh_vgpu *v);

/* Gives up all marks of a context that is about to end. */
void gsh_marks_context_gone(CUcontext c);

uint32_t gsh_marks_open(void);
void gsh_marks_fork(void); /* in the child */

/*
 * Around every call with an event: while another thread captures, it is legal only in the relaxed mode. Always, not only
 * while a capture is known: one may begin between the look and the call.
 */
int gsh_relax(void);
void gsh_relax_end(int mode);

#endif
