/*
 * What this process knows of its shares: the pages it has in common with the token server, its own sums, and which
 * device is which vGPU. A page is always mapped at the same address: an anonymous one of our own until the server's is
 * laid over it, so that no thread ever holds a stale pointer.
 */
#ifndef GSHARE_ACCOUNT_H
#define GSHARE_ACCOUNT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../include/gshare_wire.h"
#include "symbols.h"

struct gsh_vgpu {
	struct gshare_server_page *server; /* read-only once it is the server's */
	struct gshare_container_page *container;
	struct gshare_client_page *client;
	uint32_t number; /* index in WELCOME */
	uint32_t index;  /* device ordinal in the container */
	char uuid[GSHARE_UUID_SIZE];
	/* this process's sums; the client page shows them */
	_Atomic uint64_t launches, blocks, busy, open;
	_Atomic uint64_t rooms, streams; /* see room.c */
	_Atomic uint64_t memory; /* changed under the memory lock */
	_Atomic uint32_t waiting;
	_Atomic uint64_t waiting_since;
};

extern struct gsh_vgpu gsh_vgpus[GSHARE_VGPU_MAX];
extern _Atomic uint32_t gsh_vgpu_count;
extern _Atomic uint32_t gsh_mode;     /* enum gshare_mode */
extern _Atomic uint32_t gsh_epoch;    /* changes when every thread should take the slow path once */
extern _Atomic bool gsh_alone;        /* the server is lost: pace ourselves */
extern _Atomic uint32_t gsh_captures; /* streams of this process that capture */

/* Gives every vGPU pages of our own; also in a forked child, which must not write its parent's. */
void gsh_pages_local(void);

/* Whether these three are a vGPU's pages and will stay so. */
bool gsh_pages_good(const int fds[3]);

/* Lays the server's pages over ours, and carries our memory over. Returns 0 or a negative errno. */
int gsh_pages_map(struct gsh_vgpu *v, const int fds[3]);

/* Shows this process's sums on the client page. */
void gsh_publish(struct gsh_vgpu *v);

/* The vGPU that a device is, or NULL: a device that is not ours, where memory is refused and launches pass. */
struct gsh_vgpu *gsh_vgpu_of_device(CUdevice d);
struct gsh_vgpu *gsh_vgpu_of_uuid(const char *uuid);
void gsh_devices_find(void); /* fills the table behind gsh_vgpu_of_device */

/* The calling thread's context and its vGPU; either may be NULL. Cached until the thread changes its context. */
struct gsh_place {
	CUcontext context;
	CUdevice device;
	struct gsh_vgpu *vgpu;
};
struct gsh_place gsh_here(void);

/* Memory of one vGPU, in bytes. Reserve asks the limit of the whole container; charge does not ask (it has happened). */
bool gsh_reserve(struct gsh_vgpu *v, uint64_t bytes);
void gsh_charge(struct gsh_vgpu *v, uint64_t bytes);
void gsh_release(struct gsh_vgpu *v, uint64_t bytes);
uint64_t gsh_container_memory(const struct gsh_vgpu *v);

void gsh_count_uncovered(void);
void gsh_account_fork(void); /* in the child */

#endif
