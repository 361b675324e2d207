/* The connection to the token server. */
#ifndef GSHARE_CLIENT_H
#define GSHARE_CLIENT_H

#include "account.h"

/*
 * Connects, sends HELLO and maps the pages of WELCOME. After a reconnect it also sends a SNAPSHOT for each vGPU. Returns 0 or a
 * negative errno; waits at most 1 s. Called at the start, then by the helper thread only. Sets gsh_refused if it reaches a server
 * that gives this process no session, because the container has as many as it may have, or whose answer the process is not
 * permitted to receive. gsh_refused stays set until a server gives a session, or there is none: not because one is slow to answer.
 */
int gsh_client_connect(void);

/* Checks for a hang-up or an error frame without waiting. Returns false once the connection has ended. Helper thread. */
bool gsh_client_alive(void);

/* Requests a token: sends NEED. Returns false if it could not be sent; the caller may try again. Any launching thread. */
bool gsh_client_request_token(struct gsh_vgpu *v);

/* Returns a number that differs between processes, so that their reconnects do not coincide. */
uint64_t gsh_client_jitter(void);

/* Closes the child's copy of the connection, which would keep the parent's session open. */
void gsh_client_after_fork(void);

/* Returns the directory of the socket and the policy file. */
const char *gsh_directory(void);

/*
 * Chooses the directory of the socket and the policy file: `mounted` if it has a policy file or if GSHARE_DIR (`own`) is not set,
 * else `own`. A tenant can set GSHARE_DIR to a directory with a policy and a server of their own, so it is used only where no
 * policy is mounted, as under `gshare run`.
 */
const char *gsh_directory_choose(const char *mounted, const char *own);

/*
 * Stores the path of the socket of a vGPU's model store (the vGPU by its index in WELCOME). In a container it is where the store is
 * mounted; where gsh_directory is another directory, it is in that one. Returns false if the path does not fit.
 */
bool gsh_store_path(char *path, size_t size, uint32_t vgpu);

#endif
