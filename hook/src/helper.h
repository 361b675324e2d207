/*
 * The helper thread, one in each process: reaps events every millisecond while there is work, checks the server's heartbeat
 * and reconnects. It never uses a stream, and uses events only in the relaxed capture mode, so it cannot disturb a capture.
 */
#ifndef GSHARE_HELPER_H
#define GSHARE_HELPER_H

#include <stdbool.h>

/* Starts the helper thread. connected: whether the process is connected to a server. Returns 0 or a negative errno. */
int gsh_helper_start(bool connected);

/* Wakes the helper if it is idle: there is work to reap. Called on the slow path of a launch; a system call only if idle. */
void gsh_helper_wake(void);

/*
 * Ends the helper's use of the driver. Runs at exit, before the driver's own handler. What the application calls later, in
 * its own exit handlers, is still held and charged by the calling threads.
 */
void gsh_helper_stop(void);

/* Resets the helper's state in a forked child, which has no such thread. */
void gsh_helper_after_fork(void);

#endif
