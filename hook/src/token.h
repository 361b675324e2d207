/* Whether a vGPU may launch now, and waiting until it may (FG-54, FG-79). */
#ifndef GSHARE_TOKEN_H
#define GSHARE_TOKEN_H

#include "account.h"

bool gsh_token_off(const struct gsh_vgpu *v);   /* nothing is gated or counted */
bool gsh_token_allows(const struct gsh_vgpu *v);
void gsh_token_wait(struct gsh_vgpu *v);

#endif
