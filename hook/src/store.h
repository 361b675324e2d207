/* The client of the model store of a vGPU's slice, which recognises its own memory. */
#ifndef GSHARE_STORE_OWN_H
#define GSHARE_STORE_OWN_H

#include "account.h"

/* What a descriptor of device memory refers to: no store's memory, weights to read, or weights that this process is storing. */
enum gsh_owned { GSH_OWNED_NOT, GSH_OWNED_READ, GSH_OWNED_WRITE };

/*
 * Asks the store whether a descriptor refers to the store's memory. Returns GSH_OWNED_NOT if the container may import
 * none, the store does not answer, or the kernel cannot tell: then the memory is charged like that of any other process.
 */
enum gsh_owned gsh_store_owned(const struct gsh_vgpu *v, int fd);

#endif
