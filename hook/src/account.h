/*
 * The shares of this process: the pages that it has in common with the token server, and its own sums of work and memory.
 * A page always stays at the same address, first as anonymous memory, then with the server's page mapped over it, so that
 * no thread ever holds a stale pointer.
 */
#ifndef GSHARE_ACCOUNT_H
#define GSHARE_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../include/gshare_wire.h"
#include "file.h"
#include "symbols.h"

/* One vGPU of the container. */
struct gsh_vgpu {
	struct gshare_server_page *server; /* read-only once it is the server's */
	struct gshare_container_page *container;
	struct gshare_client_page *client;
	struct gsh_file container_page; /* tells after a reconnect whether the container page is still the same */
	uint32_t number; /* index in WELCOME */
	uint32_t index;  /* device ordinal in the container */
	char uuid[GSHARE_UUID_SIZE];
	/* sums of this process, copied to the client page by gsh_publish */
	_Atomic uint64_t launches, blocks, busy, open; /* busy: ns measured; open: ns estimated, launched and not yet measured */
	_Atomic uint64_t excused;                      /* ns of `busy` in which the process probably waited for neighbours, without a server */
	_Atomic uint64_t unbounded;                    /* ns estimated, of open work that gsh_slot_unbound has taken out of `open` */
	_Atomic uint32_t unbounded_events;             /* the events behind that work */
	_Atomic uint32_t unknown_events;               /* open events of launches whose cost is unknown */
	_Atomic uint64_t budgets, streams;             /* packed words, see budget.c */
	_Atomic uint64_t memory, imported;             /* bytes; changed under the memory lock */
	_Atomic uint32_t waiting;                      /* threads that wait for a token */
	_Atomic uint64_t waiting_since;                /* time of the server's clock at which the first of them began */
};

extern struct gsh_vgpu gsh_vgpus[GSHARE_VGPU_MAX]; /* in the order of WELCOME or of the policy file */
extern _Atomic uint32_t gsh_vgpu_count;            /* how many of them the process has */
extern _Atomic uint32_t gsh_mode;     /* enum gshare_mode */
extern _Atomic uint32_t gsh_epoch;    /* changes when every thread should take the slow path once */
/*
 * Returns the present time on the clock of the server, which in a time namespace differs from that of this process. How much is learned from
 * heartbeats, to within the time that one takes to be seen; before the first session the clocks count as the same.
 */
uint64_t gsh_server_now(void);

/* Compares a heartbeat that has just changed with the time of this process. `first`: it is the first of a session. */
void gsh_server_clock_learn(uint64_t heartbeat, bool first);

extern _Atomic bool gsh_self_paced;   /* no server: share the guaranteed part of each window with the container's other processes */
extern _Atomic bool gsh_refused;      /* the server gives this process no session */
extern _Atomic uint32_t gsh_captures; /* number of this process's streams that capture */

/* Maps anonymous pages for every vGPU. Called at the start, and in a forked child, which must not write its parent's pages. */
void gsh_pages_init(void);

/* Reports whether the descriptors are a vGPU's server, container and client page, and sealed against shrinking. */
bool gsh_pages_valid(const int fds[3]);

/*
 * Maps the server's pages over the present ones and carries the process's memory over to them. Returns 0 or a negative errno.
 * Called by the thread that connects; waits for the memory lock.
 */
int gsh_pages_map(struct gsh_vgpu *v, const int fds[3]);

/*
 * Switches between the server's limits and the limits that the container's processes enforce together without one (peers.h). A
 * process states what it holds before it says that no server serves it, and withdraws the statement only after it says that one
 * does, so that other processes never miss its memory.
 */
void gsh_account_pace(bool self_paced);

/*
 * Reports whether a process without a server may have neither memory nor launches: because the server refuses it, because the
 * server serves other processes of the container, or because the process cannot know what the others hold.
 */
bool gsh_account_barred(void);

/* Copies this process's sums to the client page. Any thread; atomics only. */
void gsh_publish(struct gsh_vgpu *v);

/* Returns the estimated ns of work that all streams of the process may launch before their next events (budget.c). */
uint64_t gsh_budgets_held(const struct gsh_vgpu *v);

/*
 * Adds bytes to what the process and its container hold. Returns false, with nothing added, if the container's limit would
 * be exceeded. 0 bytes, for a call that is expected to use only what is reserved, are granted up to a little above the limit, since
 * the driver rounds up what it reserves. Any thread, before the driver allocates.
 */
bool gsh_memory_reserve(struct gsh_vgpu *v, uint64_t bytes);

/* Adds bytes without regard to the limit, for memory that is allocated already. */
void gsh_memory_charge(struct gsh_vgpu *v, uint64_t bytes);

/* Subtracts freed bytes from what the process and its container hold. */
void gsh_memory_release(struct gsh_vgpu *v, uint64_t bytes);

/*
 * Takes up to `bytes` from the container's allowance for memory of the model store. Returns how many it took: none without a
 * server, since only the server's page tells what other processes have taken.
 */
uint64_t gsh_import_take(struct gsh_vgpu *v, uint64_t bytes);

/* Gives bytes of the allowance back. */
void gsh_import_give(struct gsh_vgpu *v, uint64_t bytes);

/* Returns the bytes that all processes of the container hold. */
uint64_t gsh_memory_used(const struct gsh_vgpu *v);

/* Increments the client page's count of lookups of driver functions that the hook should wrap but does not. */
void gsh_count_uncovered(void);

/* Resets pages, counters and memory sums in a forked child. */
void gsh_account_after_fork(void);

#endif
