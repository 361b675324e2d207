/* The beginning and the helper thread. */
#ifndef GSHARE_START_H
#define GSHARE_START_H

#include <stdbool.h>

/*
 * Starts the hook in this process: pages, server or policy, helper. After the driver's first successful cuInit; later calls
 * cost one load. Waits at most 2 s for the server.
 */
void gsh_start(void);

/* For a process that uses only NVML: the limits of the policy file, no server. */
void gsh_start_views(void);

/* From a launch: there is work, so the helper should look every millisecond. */
void gsh_helper_poke(void);

/* The helper thread's part (helper.c). connected: whether start reached the server. */
int gsh_helper_start(bool connected);
void gsh_helper_fork(void);

#endif
