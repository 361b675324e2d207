/*
 * The protocol between the fake driver and the device simulation: one SEQPACKET connection for each thread, one request at a
 * time. The Go half is node/gpu/simulation/wire.go. Little endian, no padding.
 */
#ifndef GSHARE_FAKE_WIRE_H
#define GSHARE_FAKE_WIRE_H

#include <stdint.h>

/* Requests; each also carries the work that was collected before. */
enum fakesim_op {
	SIM_HELLO = 1,       /* a: the process's limit, per-mille of the SMs; b: 1 if its MPS client priority is below normal;
				reply: the simulation's number */
	SIM_FLUSH = 2,       /* only submits work */
	SIM_SLEEP = 3,       /* until time a */
	SIM_WAIT_WORD = 4,   /* until time a, or until the number of wake-ups is not b */
	SIM_WAIT_STREAM = 5, /* a: stream */
	SIM_WAIT_DEVICE = 6, /* a: device */
	SIM_WAIT_EVENT = 7,  /* a: event */
	SIM_QUERY_STREAM = 8,
	SIM_QUERY_EVENT = 9,
	SIM_WAKE = 11,     /* all threads that wait for a word check it again */
	SIM_ANNOUNCE = 10, /* no reply; the clock stops until the token server has handled a frame */
};

/* Kinds of work. */
enum fakesim_kind {
	SIM_KERNEL = 1, /* of width 0: a copy between host and device */
	SIM_RECORD = 2, /* an event at the end of the stream */
	SIM_AFTER = 3,  /* the stream waits for the event */
};

/* A request. */
struct fakesim_request {
	uint32_t op, works; /* works: how many struct fakesim_work follow */
	uint64_t batch;     /* number of batches of work of this process, including this one */
	uint64_t at;        /* the thread's time, ns; 0 on the real clock */
	uint64_t a, b;
};

/* One piece of work; times in ns, width in per-mille of the SMs. The waves of a kernel's blocks run one after another. */
struct fakesim_work {
	uint32_t kind, device;
	uint64_t stream, at, duration, event;
	uint32_t width, waves;
};

/* A reply, with the time and the number of wake-ups so far. */
struct fakesim_reply {
	uint64_t now, wakes;
	uint64_t value;  /* time of an event, ns */
	uint32_t status; /* 0 done, 1 not ready, 2 timeout */
	uint32_t is_virtual;
};

_Static_assert(sizeof(struct fakesim_request) == 40, "request");
_Static_assert(sizeof(struct fakesim_work) == 48, "work");
_Static_assert(sizeof(struct fakesim_reply) == 32, "reply");

#define SIM_WORKS_MAX 512

#endif
