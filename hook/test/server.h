/*
 * A token server for tests, a thread in the test program: takes sessions, hands out pages, counts frames. What it grants is
 * what the test writes on the pages.
 */
#ifndef GSHARE_TEST_SERVER_H
#define GSHARE_TEST_SERVER_H

#include <stdint.h>

#include "../include/gshare_wire.h"

#define SERVER_SESSIONS 64

struct server_session {
	struct gshare_server_page *server[GSHARE_VGPU_MAX];
	struct gshare_client_page *client[GSHARE_VGPU_MAX];
	struct gshare_container_page *container[GSHARE_VGPU_MAX];
	struct gshare_hello hello;
	_Atomic int connected, needs, byes, snapshots, fd;
	uint64_t snapshot_memory;
};

struct server {
	char directory[64];
	uint32_t vgpus, mode;
	uint64_t memory_limit, run_ahead;
	uint64_t tokens; /* blocks of a tick, and its credit to begin with; 0: tokens are time */
	uint32_t first_state;
	const char *uuid; /* of all its vGPUs; empty if NULL */
	_Atomic int beating; /* 0: the heartbeat stops */
	struct gshare_container_page *_Atomic container[GSHARE_VGPU_MAX];
	int container_fd[GSHARE_VGPU_MAX];
	struct server_session session[SERVER_SESSIONS];
	_Atomic int sessions, listener;
};

/* Starts in a fresh directory, or again in the one that s has; sets GSHARE_DIR. Fields of policy may be set before. */
void server_start(struct server *s);
void server_stop(struct server *s); /* closes all connections and the socket, as when it is killed */
void server_state(struct server_session *s, uint32_t state); /* on all vGPUs, and wakes */
void server_policy(const struct server *s, const char *lines);

#endif
