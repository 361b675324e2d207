#define _GNU_SOURCE
#include "peers.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../include/gshare_wire.h"
#include "cancel.h"
#include "file.h"
#include "platform.h"

#define UNIT 512          /* bytes of memory for each byte of a lock */
#define SLOTS GSHARE_UNSERVED_LENGTH
#define QUERIES 65536     /* the kernel reports one lock at a time; a container with more locks than this gets no memory */

/* Offsets in the file. */
#define SERVED 0
#define PRESENT(slot) ((int64_t)1 << 32 | (slot))
#define ACTIVE(vgpu, slot) ((int64_t)(2 + (vgpu)) << 32 | (slot))
#define OWING(vgpu, slot) ((int64_t)(32 + (vgpu)) << 32 | (slot))
#define UNSERVED(slot) (GSHARE_UNSERVED_START + (slot))
#define MEMORY_OF_SLOT ((int64_t)1 << 33)
#define MEMORY(vgpu, slot) ((int64_t)1 << 62 | (int64_t)(vgpu) << 53 | (int64_t)(slot) * MEMORY_OF_SLOT)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static char path[4096];
static struct gsh_file file = {-1, 0, 0};
static uint32_t slot; /* of this process while the file is open */
static bool absent; /* this process sees no file, or may not open it */
/* What this process has stated. If the application closes the descriptor, its locks are taken again on the next use. */
static bool known, served; /* known: `served` has been stated */
static uint64_t active[GSHARE_VGPU_MAX]; /* the window since which this process launches; 0: it does not */
static bool owes[GSHARE_VGPU_MAX];
static int64_t held[GSHARE_VGPU_MAX];    /* units */

/* Locks or unlocks a range for this process. Returns whether that was possible. */
static bool set(short type, int64_t start, int64_t length) {
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
	return !length || !syscall(SYS_fcntl, file.fd, F_OFD_SETLK, &l);
}

/* Stores the first range in [from, end) that another process has locked. Returns 1, 0 if there is none, and -1 if it cannot be read. */
static int first(int64_t from, int64_t end, int64_t *start, int64_t *stop) {
	int found = 0;
	for (int n = 0; from < end; n++) {
		struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = end - from};
		if (n == QUERIES || syscall(SYS_fcntl, file.fd, F_OFD_GETLK, &l)) return -1;
		if (l.l_type == F_UNLCK) break;
		found = 1;
		*start = l.l_start > from ? l.l_start : from;
		*stop = l.l_len && l.l_start + l.l_len < end ? l.l_start + l.l_len : end;
		end = *start; /* the kernel may return any lock of the range; look for an earlier one */
	}
	return found;
}

/* Takes a slot that no other process has. If two processes try the same slot at once, both take another one. */
static bool take_slot(void) {
	uint64_t seed = gsh_now() ^ (uint64_t)getpid() << 32;
	int64_t start, stop;
	for (int n = 0; n < 100; n++) {
		seed = (seed + (uint64_t)n + 1) * 0x9e3779b97f4a7c15ull;
		slot = (uint32_t)((seed >> 40) % SLOTS);
		if (!set(F_RDLCK, PRESENT(slot), 1)) return false;
		if (first(PRESENT(slot), PRESENT(slot) + 1, &start, &stop) == 0) return true;
		set(F_UNLCK, PRESENT(slot), 1);
	}
	return false;
}

/* Locks everything that this process has stated. */
static bool restate(void) {
	bool all = !known || set(F_RDLCK, served ? SERVED : UNSERVED(slot), 1);
	for (uint32_t v = 0; v < GSHARE_VGPU_MAX; v++) {
		all = all && set(F_RDLCK, MEMORY(v, slot), held[v]);
		all = all && (!active[v] || set(F_RDLCK, ACTIVE(v, slot), 1));
		all = all && (!owes[v] || set(F_RDLCK, OWING(v, slot), 1));
	}
	return all;
}

/* Opens the file and takes this process's locks. Returns whether that was possible. */
static bool reopen(void) {
	int fd = path[0] ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
	absent = !path[0] || (fd < 0 && (errno == EACCES || errno == ENOENT || errno == ENOTDIR));
	if (fd >= 0 && fd <= 2) { /* where it would be the application's output */
		int above = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		close(fd);
		fd = above;
	}
	file = gsh_file_of(fd);
	if (file.fd >= 0 && take_slot() && restate()) return true;
	gsh_file_close(&file);
	return false;
}

/* Opens the file unless it is open. Returns whether it is. */
static bool ensure_open(void) {
	if (gsh_file_valid(&file)) return true;
	int cancel = gsh_cancel_disable();
	bool open = reopen();
	gsh_cancel_restore(cancel);
	return open;
}

void gsh_peers_init(const char *directory) {
	pthread_mutex_lock(&lock);
	if (snprintf(path, sizeof path, "%s/processes-1", directory) >= (int)sizeof path) path[0] = 0;
	pthread_mutex_unlock(&lock);
}

bool gsh_peers_usable(void) {
	pthread_mutex_lock(&lock);
	bool usable = ensure_open();
	pthread_mutex_unlock(&lock);
	return usable;
}

void gsh_peers_serve(bool now) {
	pthread_mutex_lock(&lock);
	served = now;
	known = true;
	if (ensure_open()) {
		set(F_RDLCK, now ? SERVED : UNSERVED(slot), 1);
		set(F_UNLCK, now ? UNSERVED(slot) : SERVED, 1);
	}
	pthread_mutex_unlock(&lock);
}

bool gsh_peers_served(void) {
	int64_t start, stop;
	pthread_mutex_lock(&lock);
	bool others = !ensure_open() || first(SERVED, SERVED + 1, &start, &stop) != 0;
	pthread_mutex_unlock(&lock);
	return others;
}

/* Sets the length of this process's range of a vGPU. */
static bool set_held(uint32_t vgpu, int64_t units) {
	int64_t old = held[vgpu], end = MEMORY(vgpu, slot) + old;
	if (units < 0 || units >= MEMORY_OF_SLOT) return false;
	if (units > old && !set(F_RDLCK, end, units - old)) return false;
	if (units < old) set(F_UNLCK, end - (old - units), old - units);
	held[vgpu] = units;
	return true;
}

bool gsh_peers_hold(uint32_t vgpu, uint64_t bytes) {
	pthread_mutex_lock(&lock);
	bool stated = ensure_open() && set_held(vgpu, (int64_t)(bytes / UNIT + (bytes % UNIT != 0)));
	pthread_mutex_unlock(&lock);
	return stated;
}

uint64_t gsh_peers_memory(uint32_t vgpu) {
	int64_t from = MEMORY(vgpu, 0), end = MEMORY(vgpu + 1, 0), start, stop, units = 0;
	int found = -1;
	pthread_mutex_lock(&lock);
	bool open = ensure_open();
	if (!open && absent) found = 0;
	for (int n = open ? 0 : QUERIES; n < QUERIES && (found = first(from, end, &start, &stop)) > 0; n++) {
		units += stop - start;
		from = stop;
	}
	pthread_mutex_unlock(&lock);
	return found ? UINT64_MAX : (uint64_t)units * UNIT;
}

uint64_t gsh_peers_activate(uint32_t vgpu, uint64_t window) {
	pthread_mutex_lock(&lock);
	if (!active[vgpu] && ensure_open() && set(F_RDLCK, ACTIVE(vgpu, slot), 1)) active[vgpu] = window;
	uint64_t since = active[vgpu] ? active[vgpu] : window;
	pthread_mutex_unlock(&lock);
	return since;
}

void gsh_peers_deactivate(uint32_t vgpu) {
	pthread_mutex_lock(&lock);
	if (active[vgpu] && ensure_open()) set(F_UNLCK, ACTIVE(vgpu, slot), 1);
	active[vgpu] = 0;
	pthread_mutex_unlock(&lock);
}

/* Returns how many bytes of a range others have locked, and stores in *before how many of them come before the byte of this process's slot. */
static uint32_t others_in(int64_t from, uint32_t *before) {
	int64_t at = from, start, stop;
	uint32_t others = 0;
	*before = 0;
	pthread_mutex_lock(&lock);
	for (; others < QUERIES && ensure_open() && first(at, from + SLOTS, &start, &stop) > 0; others++) {
		*before += start < from + slot;
		at = stop;
	}
	pthread_mutex_unlock(&lock);
	return others;
}

uint32_t gsh_peers_active(uint32_t vgpu, uint32_t *before) { return others_in(ACTIVE(vgpu, 0), before); }

void gsh_peers_owe(uint32_t vgpu, bool now) {
	pthread_mutex_lock(&lock);
	if (owes[vgpu] != now && ensure_open()) set(now ? F_RDLCK : F_UNLCK, OWING(vgpu, slot), 1);
	owes[vgpu] = now;
	pthread_mutex_unlock(&lock);
}

uint32_t gsh_peers_owing(uint32_t vgpu, uint32_t *before) { return others_in(OWING(vgpu, 0), before); }

uint64_t gsh_peers_number(void) {
	pthread_mutex_lock(&lock);
	uint64_t number = ensure_open() ? file.inode * 0x9e3779b97f4a7c15ull >> 20 : 0;
	pthread_mutex_unlock(&lock);
	return number;
}

void gsh_peers_after_fork(void) {
	pthread_mutex_init(&lock, NULL);
	gsh_file_close(&file);
	known = served = false;
	for (uint32_t v = 0; v < GSHARE_VGPU_MAX; v++) active[v] = 0, owes[v] = false, held[v] = 0;
}
