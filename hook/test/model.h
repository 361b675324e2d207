/*
 * A model of a device inside the test program: the driver functions that the hook calls are those of the model, and time is a
 * clock that the test advances. Kernels of one stream run one after the other, streams in parallel. At every millisecond of
 * the clock there is a round of the helper.
 */
#ifndef GSHARE_MODEL_H
#define GSHARE_MODEL_H

#include "../src/account.h"

/* A kernel, used as CUfunction. */
struct model_kernel {
	uint64_t duration, per_block; /* ns */
};

#define MODEL_STREAMS 16
/* A stream of the model. */
struct model_stream {
	uint64_t end; /* ns at which its last kernel ends */
	int capturing;
};
extern struct model_stream model_streams[MODEL_STREAMS];

void model_start(uint64_t run_ahead); /* resets the model and the hook */
void model_advance(uint64_t ns);         /* lets host time pass */
void model_launch(struct model_kernel *k, int stream); /* advances 5 us and launches 4 thread blocks */
void model_launch_blocks(struct model_kernel *k, int stream, unsigned blocks); /* the same with any number of thread blocks */
uint64_t model_unfinished(void); /* ns of work launched and not completed, over all streams */
uint64_t model_busy(void);       /* ns during which at least one kernel ran */
CUstream model_handle(int stream); /* returns the handle of a stream */

extern uint64_t model_max_unfinished;      /* the most unfinished work at a launch, ns, without that launch */
extern int model_captured_records;     /* events recorded in a capturing stream */
extern int model_stale_event_calls;     /* calls with a destroyed event */
extern CUresult model_launch_result; /* of every launch */
extern int model_record_fails;       /* no event can be recorded */
extern uint64_t model_before_launch, model_after_launch; /* host time that a launch takes before the device can begin, and after that, ns */
extern int model_width;            /* kernels that the SMs run in parallel */
extern int model_events;          /* created and not destroyed */
extern int model_blocking_events; /* created with CU_EVENT_BLOCKING_SYNC */
extern void (*model_on_bound_wait)(void), (*model_on_token_wait)(void); /* called while the hook waits for the bound of unfinished work, and for a token */

#endif
