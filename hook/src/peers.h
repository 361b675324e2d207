/*
 * What the processes of a container know of each other without a token server: read locks on ranges of the file "processes-1" in the
 * container's directory. The file is empty and never written. The kernel keeps the locks and drops those of a process that ends, so
 * there is no record that a process could forge or leave behind. A process that takes wrong locks, or none, lies to its own container
 * only.
 *
 *   SERVED   one byte, locked by every process that the server serves. While it is locked, a process without a server has nothing.
 *   UNSERVED a byte for each process that the server does not serve, which the server counts
 *   PRESENT  a byte for each process, which gives it a slot of its own
 *   ACTIVE   a byte for each process and vGPU, locked while the process launches without a server
 *   OWING    a byte for each process and vGPU, locked while the process owes time without a server
 *   MEMORY   a range for each process and vGPU, as long as the memory that it holds without a server
 *
 * All functions may be called by any thread; they take a lock of their own and never wait for another process.
 */
#ifndef GSHARE_PEERS_H
#define GSHARE_PEERS_H

#include <stdbool.h>
#include <stdint.h>

/* Sets the directory of the file. Called at the start. */
void gsh_peers_init(const char *directory);

/* Reports whether the file can be opened and locked. Takes the locks again if the application has closed the file's descriptor. */
bool gsh_peers_usable(void);

/* States whether the server serves this process. */
void gsh_peers_serve(bool served);

/* Reports whether the server serves another process of the container. */
bool gsh_peers_served(void);

/* States how many bytes of a vGPU this process holds. Returns false, with nothing changed, if it cannot be stated. */
bool gsh_peers_hold(uint32_t vgpu, uint64_t bytes);

/*
 * Returns how many bytes of a vGPU the other processes without a server hold; UINT64_MAX if that cannot be read. Returns 0 to a
 * process that sees no file or may not open it, such as processes of other users under gshare run.
 */
uint64_t gsh_peers_memory(uint32_t vgpu);

/*
 * States that this process launches on a vGPU from the given window on; the number of a window is above 0. Returns the window from
 * which it has launched already, if it has.
 */
uint64_t gsh_peers_activate(uint32_t vgpu, uint64_t window);

/* States that this process no longer launches on a vGPU. */
void gsh_peers_deactivate(uint32_t vgpu);

/* Returns how many other processes launch on a vGPU without a server, and stores in *before how many of them come before this one. */
uint32_t gsh_peers_active(uint32_t vgpu, uint32_t *before);

/* States whether this process owes time on a vGPU. */
void gsh_peers_owe(uint32_t vgpu, bool owes);

/* Returns how many other processes owe time on a vGPU, and stores in *before how many of them come before this one. */
uint32_t gsh_peers_owing(uint32_t vgpu, uint32_t *before);

/* Returns a number that is the same in all processes of the container, and differs between containers. */
uint64_t gsh_peers_number(void);

/* Closes the child's copy of the file, which would keep the parent's locks alive, and forgets the locks. */
void gsh_peers_after_fork(void);

#endif
