/*
 * What the fake driver says to the device simulation: one SEQPACKET connection for each thread, one request at a time. The
 * Go half is test/fake/gpu/wire.go. Little endian, no padding.
 */
#ifndef GSHARE_FAKE_WIRE_H
#define GSHARE_FAKE_WIRE_H

#include <stdint.h>

enum fakesim_op {
	SIM_HELLO = 1,       /* a: cap of the process, per-mille of the SMs */
	SIM_FLUSH = 2,       /* nothing but the work that comes along */
	SIM_SLEEP = 3,       /* until a */
	SIM_WAIT_WORD = 4,   /* until a, or until the count of wakes is not b */
	SIM_WAIT_STREAM = 5, /* a: stream */
	SIM_WAIT_DEVICE = 6, /* a: device */
	SIM_WAIT_EVENT = 7,  /* a: event */
	SIM_QUERY_STREAM = 8,
	SIM_QUERY_EVENT = 9,
	SIM_WAKE = 11,     /* whoever waits for a word looks again */
	SIM_ANNOUNCE = 10, /* no reply: a frame is on its way to the token server */
};

enum fakesim_kind {
	SIM_KERNEL = 1,
	SIM_RECORD = 2, /* an event at the end of the stream */
	SIM_AFTER = 3,  /* the stream waits for the event */
};

struct fakesim_request {
	uint32_t op, works; /* as many struct fakesim_work follow */
	uint64_t batch;     /* batches of work of this process so far, with this one */
	uint64_t at;        /* the thread's time; 0 on the real clock */
	uint64_t a, b;
};

struct fakesim_work {
	uint32_t kind, device;
	uint64_t stream, at, duration, event;
	uint32_t width, pad;
};

struct fakesim_reply {
	uint64_t now, wakes;
	uint64_t value;  /* time of an event */
	uint32_t status; /* 0 done, 1 not ready, 2 timeout */
	uint32_t is_virtual;
};

_Static_assert(sizeof(struct fakesim_request) == 40, "request");
_Static_assert(sizeof(struct fakesim_work) == 48, "work");
_Static_assert(sizeof(struct fakesim_reply) == 32, "reply");

#define SIM_WORKS_MAX 512

#endif
