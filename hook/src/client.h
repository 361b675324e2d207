/* The conversation with the token server (FG-53, FG-54, FG-85). */
#ifndef GSHARE_CLIENT_H
#define GSHARE_CLIENT_H

#include "account.h"

/* Connects, introduces the process and takes the pages over. Returns 0 or a negative errno. The helper's, or the start's. */
int gsh_client_connect(void);

/* Looks for a hang-up or an error frame. Returns false once the connection has ended. */
bool gsh_client_alive(void);

/* Asks for a token. False if the frame could not be sent; then it is worth trying again. */
bool gsh_client_need(struct gsh_vgpu *v);

void gsh_client_bye(void);

/* A number of this process's own, to spread processes in time. */
uint64_t gsh_client_salt(void);

void gsh_client_fork(void); /* in the child */

/* The directory of the socket and the policy. */
const char *gsh_directory(void);

/*
 * Which it is: where a policy is mounted, what the environment says counts for nothing, as the tenant writes that (a
 * directory of his own would come with a policy and a server of his own). Elsewhere it is that of `gshare run`.
 */
const char *gsh_directory_of(const char *mounted, const char *own);

#endif
