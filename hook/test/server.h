/*
 * A token server for tests, in threads of the test program: it accepts sessions, passes pages and counts frames. The test
 * writes on the pages what the server grants.
 */
#ifndef GSHARE_TEST_SERVER_H
#define GSHARE_TEST_SERVER_H

#include <stdint.h>

#include "../include/gshare_wire.h"

#define SERVER_SESSIONS 64

/* One session, with its pages and counts of frames. */
struct server_session {
	struct gshare_server_page *server[GSHARE_VGPU_MAX];
	struct gshare_client_page *client[GSHARE_VGPU_MAX];
	struct gshare_container_page *container[GSHARE_VGPU_MAX];
	struct gshare_hello hello;
	_Atomic int connected, needs, byes, snapshots, fd;
	uint64_t snapshot_memory;
};

/* The server. */
struct server {
	char directory[64];
	uint32_t vgpus, mode;
	uint64_t memory_limit, run_ahead, import_allowance;
	_Atomic uint32_t refuse; /* errno with which every connection is refused; 0: none is */
	_Atomic int silent; /* connections are accepted and kept, and nothing is said */
	_Atomic int unanswered; /* how many were */
	uint64_t tokens; /* block tokens of a tick, and of the first; 0: tokens are time */
	uint32_t first_state;
	const char *uuid; /* of all its vGPUs; empty if NULL */
	_Atomic int heartbeats; /* 0: no heartbeats, as if the server hung */
	struct gshare_container_page *_Atomic container[GSHARE_VGPU_MAX];
	int container_fd[GSHARE_VGPU_MAX];
	struct server_session session[SERVER_SESSIONS];
	_Atomic int sessions, listener;
};

/* Makes a directory in /tmp, with a path short enough for a socket, which is removed with its files when this process exits. */
void server_make_directory(char path[64]);
void server_remove_directories(void); /* now: for a process that ends by _exit */

/* Returns the time on the clock of the server, which is ahead of that of this process by the ns in SERVER_AHEAD, which may be negative. */
uint64_t server_now(void);

/* Starts in the directory that s has, or in a new one; sets GSHARE_DIR. The fields before may be set by the test. */
void server_start(struct server *s);
void server_stop(struct server *s); /* closes all connections and the socket, as when it is killed */
void server_state(struct server_session *s, uint32_t state); /* sets the state of all vGPUs and wakes waiters */

#endif
