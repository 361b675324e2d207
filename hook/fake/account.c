/*
 * The memory of a process is free again when the process has ended, in whatever way, and no other process has its descriptors of the driver,
 * as a forked one has: as with the real driver, which frees what belongs to a descriptor when the last copy of it is closed. The descriptor is
 * here that of a lock. The table is guarded by another lock on the file, and within the process by a mutex.
 *
 * A PID says nothing in another PID namespace, such as a container's. Processes are told apart by both, and whether one of another namespace has
 * ended is known by its lock alone.
 */
#define _GNU_SOURCE
#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
/* Excludes this process's other threads, which the file lock does not. */
static pthread_mutex_t threads = PTHREAD_MUTEX_INITIALIZER;
static struct account_use *table; /* NULL: no file */
static struct account_shared *shared; /* follows the table; numbers begin with 1 */
static int file;
static struct account_process self; /* but for the PID, which a fork changes */

#define GUARD 0                /* byte of the file that is locked while the table is used */
#define DRIVER(i) (1 << 20 | (i)) /* byte that the process of entry i keeps locked */

uint64_t account_namespace(void)
{
	struct stat status;
	return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

/* Returns this process. */
static struct account_process me(void) { return (struct account_process){getpid(), self.space}; }

static int same(struct account_process a, struct account_process b) { return a.pid == b.pid && a.space == b.space; }

/* Maps the file. Called once. */
static void load(void)
{
	const size_t size = ACCOUNT_PROCESSES * sizeof *table + ACCOUNT_SHARED * sizeof *shared;
	const char *name = getenv("FAKE_CUDA_SHARED");
	if (!name)
		return;
	file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	if (file < 0 || ftruncate(file, (off_t)size) != 0)
		abort();
	table = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (table == MAP_FAILED)
		abort();
	shared = (void *)(table + ACCOUNT_PROCESSES);
	self.space = account_namespace();
	for (int i = 0; i < ACCOUNT_PROCESSES; i++)
		if (same(table[i].process, me()))
			memset(&table[i], 0, sizeof table[i]); /* of the program that has executed this one */
}

/* Locks or unlocks the table, as fcntl. */
static void lock(short type)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = GUARD, .l_len = 1};
	while (fcntl(file, F_SETLKW, &l) != 0 && errno == EINTR)
		;
}

/* Reports whether a process has an entry. */
static int listed(struct account_process p)
{
	for (int i = 0; i < ACCOUNT_PROCESSES; i++)
		if (same(table[i].process, p))
			return 1;
	return 0;
}

/* Reports whether a process has ended, or may have: nothing but its lock tells it of one of another namespace. */
static int gone(struct account_process p)
{
	return p.pid && (p.space != self.space || (kill(p.pid, 0) != 0 && errno == ESRCH));
}

/* Reports whether the process of an entry has ended, and its descriptor is closed in all processes. */
static int freed(int i)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = DRIVER(i), .l_len = 1};
	return gone(table[i].process) && fcntl(file, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK;
}

/* Removes processes that have ended from an entry of shared memory. */
static void clean(struct account_shared *s)
{
	if (gone(s->owner) && !listed(s->owner))
		s->owner.pid = 0;
	for (int i = 0; i < ACCOUNT_HOLDERS; i++) {
		struct account_process p = s->holders[i].process;
		if (gone(p) && (p.space == self.space || !listed(p)))
			memset(&s->holders[i], 0, sizeof s->holders[i]);
	}
}

/* Locks the table and removes processes that have ended. Returns 0 without a file. */
static int enter(void)
{
	pthread_once(&once, load);
	if (!table)
		return 0;
	pthread_mutex_lock(&threads);
	lock(F_WRLCK);
	for (int i = 0; i < ACCOUNT_PROCESSES; i++)
		if (freed(i))
			memset(&table[i], 0, sizeof table[i]);
	for (int i = 0; i < ACCOUNT_SHARED; i++)
		clean(&shared[i]);
	return 1;
}

/* Unlocks the table. */
static void leave(void)
{
	lock(F_UNLCK);
	pthread_mutex_unlock(&threads);
}

/* Returns this process's entry, a new one at first; the table is locked. */
static struct account_use *own(void)
{
	struct account_use *empty = NULL;
	for (int i = 0; i < ACCOUNT_PROCESSES; i++) {
		if (same(table[i].process, me()))
			return &table[i];
		if (!table[i].process.pid && !empty)
			empty = &table[i];
	}
	struct flock l = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = DRIVER(empty - table), .l_len = 1};
	if (!empty || fcntl(open(getenv("FAKE_CUDA_SHARED"), O_RDONLY | O_CLOEXEC), F_OFD_SETLK, &l) != 0)
		abort();
	empty->process = me();
	return empty;
}

/* Reports whether some process has opened shared memory. */
static int held(const struct account_shared *s)
{
	for (int i = 0; i < ACCOUNT_HOLDERS; i++)
		if (s->holders[i].count)
			return 1;
	return 0;
}

/* Returns the memory of all processes, and what has outlived its owner; the table is locked. */
static uint64_t sum(int device)
{
	uint64_t all = 0;
	for (int i = 0; i < ACCOUNT_PROCESSES; i++)
		all += table[i].bytes[device];
	for (int i = 0; i < ACCOUNT_SHARED; i++)
		if (shared[i].device == device && !shared[i].owner.pid && held(&shared[i]))
			all += shared[i].bytes;
	return all;
}

int account_add(int device, uint64_t bytes, uint64_t capacity)
{
	if (!enter())
		return 1;
	uint64_t all = sum(device);
	int fits = bytes <= capacity && all <= capacity - bytes;
	if (fits)
		own()->bytes[device] += bytes;
	leave();
	return fits;
}

void account_subtract(int device, uint64_t bytes)
{
	if (!enter())
		return;
	own()->bytes[device] -= bytes;
	leave();
}

int account_list(struct account_use to[ACCOUNT_PROCESSES])
{
	int found = 0;
	if (!enter())
		return -1;
	for (int i = 0; i < ACCOUNT_PROCESSES; i++)
		if (table[i].process.pid && table[i].process.space == self.space)
			to[found++] = table[i];
	leave();
	return found;
}

uint64_t account_used(int device, uint64_t mine)
{
	if (!enter())
		return mine;
	uint64_t all = sum(device);
	leave();
	return all;
}

uint64_t account_share(int device, uint64_t bytes)
{
	if (!enter())
		return 0;
	int i = 0;
	while (i < ACCOUNT_SHARED && (shared[i].owner.pid || held(&shared[i])))
		i++;
	if (i == ACCOUNT_SHARED)
		abort();
	shared[i] = (struct account_shared){.owner = me(), .device = device, .bytes = bytes};
	leave();
	return (uint64_t)i + 1;
}

/* Changes how often this process has opened an entry. */
static void change(uint64_t number, int by)
{
	if (!number || !enter())
		return;
	struct account_shared *s = &shared[number - 1];
	int i = 0;
	own(); /* with the lock by which others see that it lives */
	while (i < ACCOUNT_HOLDERS && !same(s->holders[i].process, me()))
		i++;
	for (int k = 0; k < ACCOUNT_HOLDERS && i == ACCOUNT_HOLDERS; k++)
		if (!s->holders[k].process.pid)
			i = k;
	if (i == ACCOUNT_HOLDERS)
		abort();
	s->holders[i].process = me();
	s->holders[i].count += by;
	leave();
}

void account_open(uint64_t number) { change(number, 1); }
void account_close(uint64_t number) { change(number, -1); }

void account_disown(uint64_t number)
{
	if (!number || !enter())
		return;
	shared[number - 1].owner.pid = 0;
	leave();
}
