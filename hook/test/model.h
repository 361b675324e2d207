/*
 * A device as a model inside the test program: the hook's real functions point here, and its platform is a clock that the
 * test owns. Kernels of one stream run one behind the other, streams side by side. A millisecond of the clock is also a
 * round of the helper.
 */
#ifndef GSHARE_MODEL_H
#define GSHARE_MODEL_H

#include "../src/account.h"

struct model_kernel {
	uint64_t duration; /* ns */
};

#define MODEL_STREAMS 16
struct model_stream {
	uint64_t end; /* of its last work */
	int capturing;
};
extern struct model_stream model_streams[MODEL_STREAMS];

void model_start(uint64_t run_ahead); /* also forgets all before */
void model_pass(uint64_t ns);         /* host time */
void model_launch(struct model_kernel *k, int stream);
uint64_t model_unfinished(void); /* work launched and not done, ns, of all streams */
uint64_t model_busy(void);       /* union over streams of the time that kernels ran */
CUstream model_handle(int stream);

extern uint64_t model_worst;      /* largest unfinished work right after a launch, less that launch */
extern int model_bad_records;     /* events recorded in a capturing stream */
extern int model_dead_events;     /* calls with an event that was destroyed */
extern CUresult model_launch_answer;
extern int model_wide;            /* kernels that the SMs hold side by side */
extern int model_events;          /* alive */
extern void (*model_on_event_wait)(void), (*model_on_rest)(void); /* what happens meanwhile */

#endif
