/* The model store of a vGPU's slice, which knows its own memory again. */
#ifndef GSHARE_STORE_OWN_H
#define GSHARE_STORE_OWN_H

#include "account.h"

/* What a descriptor of device memory is: of no store, of weights to read, or of weights that this process is storing. */
enum gsh_owned { GSH_OWNED_NOT, GSH_OWNED_READ, GSH_OWNED_WRITE };

/*
 * Asks the store whether a descriptor is of its memory. GSH_OWNED_NOT if the container may import none, the store does not answer, or the
 * kernel cannot tell: then the memory is charged as that of any other process.
 */
enum gsh_owned gsh_store_owned(const struct gsh_vgpu *v, int fd);

#endif
