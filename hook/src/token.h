/* Whether a vGPU's token permits launches. Slow path only. */
#ifndef GSHARE_TOKEN_H
#define GSHARE_TOKEN_H

#include "account.h"

/* Reports whether launches are neither gated nor counted. */
bool gsh_token_disabled(const struct gsh_vgpu *v);

/* Reports whether a launch is permitted now. Does not wait; reads the clock only without a server. */
bool gsh_token_permits(const struct gsh_vgpu *v);

/* Blocks the launching thread until gsh_token_permits, and requests a token from the server once. */
void gsh_token_wait(struct gsh_vgpu *v);

#endif
