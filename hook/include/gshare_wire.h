/*
 * The protocol between the hook and the token server: frames on a socket and pages of shared memory.
 *
 * The Go half is vgpu/api/tokenwire. The two share no code; golden frames in vgpu/api/tokenwire/testdata check that they
 * agree. Everything is little endian, and all padding is explicit.
 */
#ifndef GSHARE_WIRE_H
#define GSHARE_WIRE_H

#include <stdint.h>

#define GSHARE_WIRE_MAGIC 0x52485347u /* "GSHR" */
#define GSHARE_WIRE_MAJOR 1
#define GSHARE_WIRE_MINOR 3 /* 1: block tokens; 2: memory of the model store; 3: pacing without a server */
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
	GSHARE_HELLO = 1,    /* client: identifies the process; the first frame */
	GSHARE_WELCOME = 2,  /* server: session and pages; with 3 descriptors for each vGPU: server, container, client page */
	GSHARE_NEED = 3,     /* client: a thread waits for a token of this vGPU */
	GSHARE_BYE = 4,      /* client: the process exits; a client need not send it, as the server sees the process end */
	GSHARE_SNAPSHOT = 5, /* client, after a reconnect: what the process holds on a vGPU */
	GSHARE_ERROR = 6,    /* server: why it ends the connection */
};

/* How the hook gates and counts. */
enum gshare_mode {
	GSHARE_MODE_OFF = 0,     /* neither */
	GSHARE_MODE_OBSERVE = 1, /* count, do not gate */
	GSHARE_MODE_TIME = 2,    /* time tokens */
	GSHARE_MODE_BLOCKS = 3,  /* block tokens every tick */
	GSHARE_MODE_MEMORY = 4,  /* count and limit memory only */
};

struct gshare_hello {
	uint32_t hook_version;
	uint32_t pid; /* as the process sees itself; a hint */
	uint32_t driver_version;
	uint32_t capabilities; /* bits of enum gshare_capability */
	/* TLVs: GSHARE_TLV_SESSION after a reconnect, GSHARE_TLV_DEVICE for each visible device */
};

/* What the hook supports. */
enum gshare_capability {
	GSHARE_KNOWS_BLOCKS = 1, /* block tokens */
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
	uint64_t waiting_since; /* time of the server's clock; a hint */
};

/*
 * A client that reconnects gets new pages. It adds its memory to the container page and stores it on the client page before
 * it sends SNAPSHOT; the server transfers no memory of a running process.
 */
struct gshare_snapshot {
	uint32_t vgpu;
	uint32_t pad;
	uint64_t memory; /* bytes that this process holds */
	uint64_t busy;   /* ns of device time measured since the process started */
};

struct gshare_error {
	uint32_t code; /* an errno */
	uint32_t pad;
	/* TLV: GSHARE_TLV_TEXT */
};

/* A type-length-value follows the fixed part of a body. Unknown ones are ignored unless the critical bit is set. */
struct gshare_tlv {
	uint16_t type, length; /* length of the value; the next one follows directly, not aligned */
};

#define GSHARE_TLV_CRITICAL 0x8000u

enum gshare_tlv_type {
	GSHARE_TLV_SESSION = 1, /* u64: the session before the reconnect */
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

#define GSHARE_CYCLES 8 /* launch cycles on a client page */

/*
 * Times on pages are ns of the server's CLOCK_MONOTONIC. That of a client may have another zero, in a time namespace; it learns the difference
 * from the heartbeat.
 */
#define GSHARE_PAGE_SIZE 4096
#define GSHARE_PAGE_MAGIC 0x47505347u /* "GSPG" */

/* What a vGPU's launches may do. */
enum gshare_state {
	GSHARE_RUN = 1,   /* pass */
	GSHARE_PAUSE = 2, /* wait for a change of the wake word */
	GSHARE_DRAIN = 3, /* wait; the share is being removed */
	GSHARE_OFF = 4,   /* pass, not gated and not counted: the kill switch */
};

/*
 * Written by the server; the client maps it read-only from a sealed memfd. One for each process and vGPU, so that the server
 * decides which process of a container runs. Each group has cache lines of its own.
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
	_Atomic uint64_t deadline; /* ns at which the server will pause, or issue the next blocks; a hint */
	_Atomic uint64_t window;   /* ns */
	_Atomic uint64_t run_ahead; /* ns of unfinished work that may be queued on the device */
	_Atomic uint32_t unit;      /* enum gshare_unit */
	_Atomic uint32_t guaranteed; /* per-mille of every window that a process without a server may use */
	_Atomic uint64_t part_start; /* ns at which that part of one of the windows begins; 0: not stated. Since minor version 3 */
	uint64_t pad1;
	/* line 2: memory */
	_Atomic uint64_t memory_limit; /* bytes */
	_Atomic uint32_t policy;       /* bits of enum gshare_policy */
	uint32_t pad2;
	_Atomic uint64_t import_allowance; /* bytes of the model store's memory that the container may map beside its limit, since minor version 2 */
	uint32_t pad6[10];
	/* line 3: waiting */
	_Atomic uint32_t wake; /* futex word; changes when waiters should check again */
	uint32_t pad3;
	_Atomic uint64_t heartbeat; /* ns, written at regular intervals */
	uint64_t pad4[6];
	/* line 4, since minor version 1 */
	_Atomic uint64_t credit; /* thread blocks that the container may have taken in total; decreases when the server cuts a token */
	uint64_t pad5[7];
};

/* What tokens are counted in. */
enum gshare_unit {
	GSHARE_UNIT_TIME = 0,
	GSHARE_UNIT_BLOCKS = 1,
};

/* Rules for managed memory. */
enum gshare_policy {
	GSHARE_MANAGED_DENY = 1,   /* managed memory is refused */
	GSHARE_MANAGED_IGNORE = 2, /* managed memory is not counted; by default it is */
};

/*
 * Written by all processes of one container and by the server when one of them dies. One for each vGPU.
 *
 * memory is the sum of what the container's processes hold; the client page's memory is one process's part of it. A
 * process adds to the container page first and to its client page second. When a connection ends, the server waits until no process has the
 * client page mapped, and subtracts its memory from the container page. A hook that reconnects takes what it holds to the new client page, and
 * leaves 0 on the old one before it unmaps that; SNAPSHOT only reports it. A forked child keeps its parent's client page mapped until it ends
 * or executes a program. All sums are modulo 2^64: for a moment a sum may be below 0, so one with its highest bit set reads as 0.
 *
 * imported is the same for memory of the model store that is mapped within the allowance, which memory does not contain.
 */
struct gshare_container_page {
	uint32_t magic;
	uint16_t major, minor;
	uint32_t pad0[14];
	_Atomic uint64_t memory; /* bytes reserved by all processes */
	_Atomic uint64_t imported; /* bytes of the allowance that all processes use, since minor version 2 */
	uint64_t pad1[6];
	_Atomic uint64_t taken; /* thread blocks that all processes have taken in total; more may be taken while it is below credit */
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
	_Atomic uint64_t busy;        /* ns of device time, measured by events */
	_Atomic uint64_t open;        /* ns estimated, launched and not yet measured */
	_Atomic uint64_t last_launch; /* ns, updated by the helper thread */
	_Atomic uint32_t waiting;     /* threads that wait for a token */
	_Atomic uint32_t self_paced;  /* 1: it does not follow the server but paces itself, since minor version 3 */
	_Atomic uint64_t waiting_since; /* ns */
	uint64_t pad2;
	/* line 2: memory and counters */
	_Atomic uint64_t memory;    /* bytes that this process holds */
	_Atomic uint32_t captures;  /* streams capturing */
	_Atomic uint32_t uncovered; /* lookups of launch and memory functions that the hook does not wrap */
	_Atomic uint64_t refused;   /* allocations refused */
	_Atomic uint64_t imported;  /* bytes of the allowance that this process uses, since minor version 2 */
	uint64_t pad3[4];
	/* lines 3 and 4, since minor version 1: launch cycles, from the first launch until the host's next wait returns */
	_Atomic uint64_t cycles;      /* number of ended cycles */
	_Atomic uint64_t cycle_start; /* ns at the open cycle's first launch; 0: none is open */
	uint64_t pad4[6];
	_Atomic uint64_t cycle_times[GSHARE_CYCLES]; /* ns of the latest cycles; cycle n, from 0, at n % GSHARE_CYCLES */
};

/*
 * Bytes of the file "processes-1" in the container's directory, of which each process without a session locks one for reading. The server counts
 * them; other locks on the file are those of hook/src/peers.h.
 */
#define GSHARE_UNSERVED_START 0x1200000000ll
#define GSHARE_UNSERVED_LENGTH 0x100000ll

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
