/* Initialises the hook in a process. */
#ifndef GSHARE_START_H
#define GSHARE_START_H

#include <stdbool.h>

/*
 * Sets up pages, server or policy, and the helper thread, once; later calls cost one load. Called after the driver's first
 * successful cuInit, and by wrappers that may be called before that. Waits at most 2 s for the server. Does nothing in a
 * forked child that has not called cuInit.
 */
void gsh_start(void);

/* Sets up the limits of the policy file, without a server, for a process that uses only NVML. While another thread starts the hook, waits until that has limits. */
void gsh_start_queries(void);

/* Reports whether this process was forked from one with the driver, which returns CUDA_ERROR_NOT_INITIALIZED here. */
bool gsh_driver_lost(void);

#endif
