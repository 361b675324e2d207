/* Contexts and the variables of modules and libraries, of which each context has its own. */
#ifndef GSHARE_MODULE_H
#define GSHARE_MODULE_H

#include "reserve.h"

/*
 * Reserves what the variables of all libraries take in a new context on a device. Returns CUDA_SUCCESS, or the error with which the
 * context has to be refused: beyond the limit, or on a device without a share. Starts the hook if that has not been done.
 */
CUresult gsh_context_begin(struct gsh_reservation *h, CUdevice d);

/* Enters the new context in the ledger, or releases the reservation if r is an error. Returns r. */
CUresult gsh_context_commit(struct gsh_reservation *h, CUresult r, CUcontext c);

#endif
