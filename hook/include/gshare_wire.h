/*
 * What the hook and the token server say to each other: frames on a socket and pages of shared memory.
 *
 * The Go half is vgpu/api/tokenwire; the two share bytes, not code, and golden frames in vgpu/api/tokenwire/testdata hold
 * them together. Everything is little endian and laid out by hand: no padding is left to a compiler.
 */
#ifndef GSHARE_WIRE_H
#define GSHARE_WIRE_H

#include <stdint.h>

#define GSHARE_WIRE_MAGIC 0x52485347u /* "GSHR" */
#define GSHARE_WIRE_MAJOR 1
#define GSHARE_WIRE_MINOR 1 /* 1: block tokens */
#define GSHARE_FRAME_MAX 4096 /* header and body; longer frames end the connection */
#define GSHARE_VGPU_MAX 16    /* of one container */
#define GSHARE_UUID_SIZE 48   /* with its zero byte */

/* One SEQPACKET message is one frame: this header and length bytes of body. */
struct gshare_header {
	uint32_t magic;
	uint16_t major, minor;
	uint16_t type, flags;
	uint32_t length;     /* of the body */
	uint64_t sequence;   /* counts the sender's frames, from 1 */
	uint64_t generation; /* of the server's run; 0 in HELLO */
};

enum gshare_type {
	GSHARE_HELLO = 1,    /* client: who I am; the first frame */
	GSHARE_WELCOME = 2,  /* server: session and pages; carries 3 descriptors for each vGPU: server, container, client page */
	GSHARE_NEED = 3,     /* client: this vGPU has work and waits for a token */
	GSHARE_BYE = 4,      /* client: ends in order */
	GSHARE_SNAPSHOT = 5, /* client, after a reconnect: what this process holds on a vGPU */
	GSHARE_ERROR = 6,    /* server: why the connection ends */
};

enum gshare_mode {
	GSHARE_MODE_OFF = 0,     /* pass everything through */
	GSHARE_MODE_OBSERVE = 1, /* count, gate nothing */
	GSHARE_MODE_TIME = 2,    /* time tokens */
	GSHARE_MODE_BLOCKS = 3,  /* block tokens every tick */
	GSHARE_MODE_MEMORY = 4,  /* account and limit memory only */
};

struct gshare_hello {
	uint32_t hook_version;
	uint32_t pid; /* as the process sees itself; a hint */
	uint32_t driver_version;
	uint32_t capabilities; /* bits of enum gshare_capability */
	/* TLVs: GSHARE_TLV_SESSION after a reconnect, GSHARE_TLV_DEVICE for each visible device */
};

enum gshare_capability {
	GSHARE_KNOWS_BLOCKS = 1, /* gates itself by block tokens */
};

struct gshare_welcome {
	uint64_t session;
	uint32_t mode;  /* enum gshare_mode */
	uint32_t vgpus; /* as many GSHARE_TLV_VGPU follow, in the order of the descriptors */
};

struct gshare_need {
	uint32_t vgpu; /* index in WELCOME */
	uint32_t pad;
	uint64_t want;          /* ns of GPU time, an estimate; 0 if unknown */
	uint64_t waiting_since; /* CLOCK_MONOTONIC ns; a hint */
};

/*
 * A client that reconnects gets new pages. Before it uses them it puts what it holds on them itself (container page:
 * memory added; client page: memory set), and only then sends SNAPSHOT; the server moves no memory for a living process.
 */
struct gshare_snapshot {
	uint32_t vgpu;
	uint32_t pad;
	uint64_t memory; /* bytes that this process holds */
	uint64_t busy;   /* ns settled since the process started */
};

struct gshare_error {
	uint32_t code; /* errno of the reason */
	uint32_t pad;
	/* TLV: GSHARE_TLV_TEXT */
};

/* A type-length-value follows the fixed part of a body. Unknown ones are ignored unless the critical bit is set. */
struct gshare_tlv {
	uint16_t type, length; /* of the value; the next one follows at once, not aligned */
};

#define GSHARE_TLV_CRITICAL 0x8000u

enum gshare_tlv_type {
	GSHARE_TLV_SESSION = 1, /* u64: session before the reconnect */
	GSHARE_TLV_DEVICE = 2,  /* text: UUID of a device that the process sees */
	GSHARE_TLV_TEXT = 3,    /* text for people */
	GSHARE_TLV_VGPU = 16,   /* struct gshare_vgpu */
};

struct gshare_vgpu {
	char uuid[GSHARE_UUID_SIZE]; /* of the device or MIG instance, zero-filled */
	uint32_t index;              /* device ordinal in the container */
	uint32_t flags;
	uint64_t memory_limit; /* bytes */
};

#define GSHARE_CYCLES 8 /* that a client page shows at a time */

#define GSHARE_PAGE_SIZE 4096
#define GSHARE_PAGE_MAGIC 0x47505347u /* "GSPG" */

enum gshare_state {
	GSHARE_RUN = 1,   /* launch */
	GSHARE_PAUSE = 2, /* wait on wake */
	GSHARE_DRAIN = 3, /* finish, start nothing; the share is going away */
	GSHARE_OFF = 4,   /* pass everything through: the kill switch */
};

/*
 * The server writes, the client maps it read-only from a sealed memfd. One for each process and vGPU, so that the server,
 * not the processes among themselves, decides which process of a container runs. Groups lie on cache lines of their own.
 */
struct gshare_server_page {
	/* line 0: read at every launch */
	uint32_t magic;
	uint16_t major, minor;
	_Atomic uint32_t generation; /* changes with state, credit or limits */
	_Atomic uint32_t state;      /* enum gshare_state */
	uint32_t pad0[12];
	/* line 1: the token */
	_Atomic uint64_t sequence; /* counts tokens */
	_Atomic uint64_t amount;   /* ns or blocks */
	_Atomic uint64_t deadline; /* CLOCK_MONOTONIC ns at which the server will pause, or give the next blocks; a hint */
	_Atomic uint64_t window;   /* ns */
	_Atomic uint64_t run_ahead; /* ns of unfinished work that may be queued on the device */
	_Atomic uint32_t unit;      /* enum gshare_unit */
	_Atomic uint32_t guaranteed; /* per-mille of every window, for pacing without a server */
	uint64_t pad1[2];
	/* line 2: memory */
	_Atomic uint64_t memory_limit; /* bytes */
	_Atomic uint32_t policy;       /* bits of enum gshare_policy */
	uint32_t pad2[13];
	/* line 3: waiting */
	_Atomic uint32_t wake; /* futex word; changes when waiters should look again */
	uint32_t pad3;
	_Atomic uint64_t heartbeat; /* CLOCK_MONOTONIC ns of the server's last sign of life */
	uint64_t pad4[6];
	/* line 4, since minor version 1 */
	_Atomic uint64_t credit; /* thread blocks that the container may have taken in all; falls where a token is cut */
	uint64_t pad5[7];
};

enum gshare_unit {
	GSHARE_UNIT_TIME = 0,
	GSHARE_UNIT_BLOCKS = 1,
};

enum gshare_policy {
	GSHARE_MANAGED_DENY = 1,   /* managed memory is refused */
	GSHARE_MANAGED_IGNORE = 2, /* managed memory is not counted; by default it is */
};

/*
 * Written by all processes of one container and by the server when one of them dies. One for each vGPU.
 *
 * memory is the sum of what the container's processes hold; the client page's memory is one process's part of it. A
 * process adds to the container page first and to its client page second. Whoever ends a session, the server at a hang-up or
 * the hook at a reconnect, takes the client page's memory by atomic exchange with 0 and subtracts the result from the
 * container page: so it is subtracted once, whoever comes first. After WELCOME the hook adds all that it holds to both new
 * pages itself; SNAPSHOT only tells the server of it. All this is modulo 2^64: between the two ends the difference may be
 * below 0 for a moment, so a sum with its highest bit set reads as 0.
 */
struct gshare_container_page {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t pad0[14];
	_Atomic uint64_t memory; /* bytes reserved by all processes */
	uint64_t pad1[7];
	_Atomic uint64_t taken; /* thread blocks that all processes have taken; they may take while it is below credit */
	uint64_t pad2[7];
};

/* Written by one process, read by the server as a hint. One for each process and vGPU. */
struct gshare_client_page {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t pad0[14];
	/* line 1: work */
	_Atomic uint64_t launches;
	_Atomic uint64_t blocks;
	_Atomic uint64_t busy;        /* ns of device time, settled by events */
	_Atomic uint64_t open;        /* ns estimated, launched but not settled */
	_Atomic uint64_t last_launch; /* CLOCK_MONOTONIC ns, updated by the helper thread */
	_Atomic uint32_t waiting;     /* threads that wait for a token */
	_Atomic uint32_t pad1;
	_Atomic uint64_t waiting_since; /* CLOCK_MONOTONIC ns */
	uint64_t pad2;
	/* line 2: memory and oddities */
	_Atomic uint64_t memory;    /* bytes that this process holds */
	_Atomic uint32_t captures;  /* streams capturing */
	_Atomic uint32_t uncovered; /* lookups of functions that the hook does not know */
	_Atomic uint64_t refused;   /* allocations refused */
	uint64_t pad3[5];
	/* lines 3 and 4, since minor version 1: launch cycles, from the first launch until the host's next wait returns */
	_Atomic uint64_t cycles;      /* that have ended */
	_Atomic uint64_t cycle_start; /* CLOCK_MONOTONIC ns of the open one's first launch; 0: none is open */
	uint64_t pad4[6];
	_Atomic uint64_t cycle_times[GSHARE_CYCLES]; /* ns of the latest; cycle n, from 0, at n % GSHARE_CYCLES */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct gshare_header) == 32, "header");
_Static_assert(sizeof(struct gshare_hello) == 16, "hello");
_Static_assert(sizeof(struct gshare_welcome) == 16, "welcome");
_Static_assert(sizeof(struct gshare_need) == 24, "need");
_Static_assert(sizeof(struct gshare_snapshot) == 24, "snapshot");
_Static_assert(sizeof(struct gshare_error) == 8, "error");
_Static_assert(sizeof(struct gshare_vgpu) == 64, "vgpu");
_Static_assert(sizeof(struct gshare_server_page) == 320, "server page");
_Static_assert(sizeof(struct gshare_container_page) == 192, "container page");
_Static_assert(sizeof(struct gshare_client_page) == 320, "client page");
#endif

#endif
