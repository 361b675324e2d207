/* Pages and sums. No lock is held across a driver call: memory is reserved, then allocated, then committed or released. */
#define _GNU_SOURCE
#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "peers.h"
#include "platform.h"

/* Bytes between two pages: the largest page size of the supported machines, since each mapping begins at a page. */
#define SPAN 65536

/*
 * How far a container may be above its limit and still use what is reserved. The driver rounds up what it reserves: by less than a
 * piece of 32 MiB of a pool, and of a device's memory for graphs.
 */
#define SLACK (64ull << 20)

/* The addresses at which the server, container and client page of each vGPU are mapped. */
static _Alignas(SPAN) unsigned char area[GSHARE_VGPU_MAX][3][SPAN];

struct gsh_vgpu gsh_vgpus[GSHARE_VGPU_MAX];
_Atomic uint32_t gsh_vgpu_count, gsh_mode = GSHARE_MODE_MEMORY, gsh_epoch = 1, gsh_captures;
_Atomic bool gsh_self_paced, gsh_refused;

/* Guards the change from one set of pages to the next; held for a few instructions. */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static _Atomic int64_t server_ahead; /* ns by which the server's clock is at least ahead of this process's */

uint64_t gsh_server_now(void) { return gsh_now() + (uint64_t)atomic_load(&server_ahead); }

/* A heartbeat is seen after it was written, so the largest difference is the best. */
void gsh_server_clock_learn(uint64_t heartbeat, bool first) {
	int64_t ahead = (int64_t)(heartbeat - gsh_now());
	if (first || ahead > atomic_load(&server_ahead)) atomic_store(&server_ahead, ahead);
}

void gsh_pages_init(void) {
	for (int i = 0; i < GSHARE_VGPU_MAX; i++) {
		mmap(area[i], sizeof area[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		struct gsh_vgpu *v = &gsh_vgpus[i];
		v->server = (void *)area[i][0];
		v->container = (void *)area[i][1];
		v->client = (void *)area[i][2];
		v->number = i;
		v->container_page = (struct gsh_file){-1, 0, 0};
		atomic_store(&v->server->state, GSHARE_RUN);
	}
}

/* Reports whether a page begins with the header that all three kinds have in common. */
static bool header_valid(const void *page) {
	const struct gshare_server_page *p = page;
	return p->magic == GSHARE_PAGE_MAGIC && p->major == GSHARE_WIRE_MAJOR;
}

/* Reports whether a file is large enough and sealed against shrinking; any other could end the process with a SIGBUS. */
static bool size_is_sealed(int fd) {
	int seals = fcntl(fd, F_GET_SEALS);
	/* lseek, since fstat needs a glibc newer than 2.17 */
	return seals >= 0 && (seals & F_SEAL_SHRINK) && lseek(fd, 0, SEEK_END) >= GSHARE_PAGE_SIZE;
}

/* Reports whether a descriptor is a page that can be mapped with this protection. */
static bool page_valid(int fd, int protection) {
	void *trial = size_is_sealed(fd) ? mmap(NULL, GSHARE_PAGE_SIZE, protection, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (trial == MAP_FAILED) return false;
	bool valid = header_valid(trial);
	munmap(trial, GSHARE_PAGE_SIZE);
	return valid;
}

bool gsh_pages_valid(const int fds[3]) {
	return page_valid(fds[0], PROT_READ) && page_valid(fds[1], PROT_READ | PROT_WRITE) && page_valid(fds[2], PROT_READ | PROT_WRITE);
}

/*
 * Maps a page over the one at this address. Returns 0 or a negative errno. Makes the system call directly: the thread sanitizer
 * treats a call of mmap as a write, which would race with other threads' reads of the page.
 */
static int map_fixed(void *address, int fd, int protection) {
	return syscall(SYS_mmap, address, GSHARE_PAGE_SIZE, protection, MAP_SHARED | MAP_FIXED, fd, 0) == -1 ? -errno : 0;
}

/*
 * When a process reconnects, the memory that it holds moves from its old client page to its new one. If the container page is still
 * the same, its sum already includes that memory. Otherwise the page is another server's, and the memory is added to its sum; the
 * old container page stays unchanged for the processes that still use it.
 */
int gsh_pages_map(struct gsh_vgpu *v, const int fds[3]) {
	struct gsh_file container = gsh_file_of(fds[1]);
	pthread_mutex_lock(&memory_lock);
	bool same = container.fd >= 0 && container.inode == v->container_page.inode && container.device == v->container_page.device;
	uint64_t counted = same ? atomic_exchange(&v->client->memory, 0) : 0;
	uint64_t imported = same ? atomic_exchange(&v->client->imported, 0) : 0;
	atomic_store(&v->client->open, 0); /* the new page reports it */
	int r = map_fixed(v->container, fds[1], PROT_READ | PROT_WRITE);
	if (!r) r = map_fixed(v->client, fds[2], PROT_READ | PROT_WRITE);
	if (!r) r = map_fixed(v->server, fds[0], PROT_READ); /* last: its limit must not be compared with the sum on another server's container page */
	v->container_page = container;
	if (v->number == 0) gsh_server_clock_learn(atomic_load(&v->server->heartbeat), true);
	atomic_fetch_add(&v->container->memory, atomic_load(&v->memory) - counted);
	atomic_store(&v->client->memory, atomic_load(&v->memory));
	atomic_fetch_add(&v->container->imported, atomic_load(&v->imported) - imported);
	atomic_store(&v->client->imported, atomic_load(&v->imported));
	pthread_mutex_unlock(&memory_lock);
	gsh_publish(v);
	return r;
}

/* Returns the sum of this epoch's budgets, or of the previous epoch's while no thread has taken a budget in this one. */
uint64_t gsh_budgets_held(const struct gsh_vgpu *v) {
	uint64_t budgets = atomic_load(&v->budgets);
	return atomic_load(&gsh_epoch) - (uint32_t)(budgets >> 32) <= 1 ? (uint32_t)budgets : 0;
}

/* Work is added to `busy` before it leaves `open`. So `open` is read first and stored last, and no work is missing from both. */
void gsh_publish(struct gsh_vgpu *v) {
	uint64_t open = gsh_budgets_held(v) + atomic_load(&v->open) + atomic_load(&v->unbounded);
	if (atomic_load(&v->unknown_events)) open += atomic_load(&v->server->run_ahead); /* more than the bound, as for a long kernel */
	atomic_store_explicit(&v->client->launches, atomic_load(&v->launches), memory_order_relaxed);
	atomic_store_explicit(&v->client->blocks, atomic_load(&v->blocks), memory_order_relaxed);
	atomic_store_explicit(&v->client->busy, atomic_load(&v->busy), memory_order_relaxed);
	atomic_store_explicit(&v->client->open, open, memory_order_release);
	atomic_store_explicit(&v->client->captures, atomic_load(&gsh_captures), memory_order_relaxed);
	atomic_store_explicit(&v->client->waiting_since, atomic_load(&v->waiting_since), memory_order_relaxed);
	atomic_store_explicit(&v->client->waiting, atomic_load(&v->waiting), memory_order_relaxed);
	atomic_store_explicit(&v->client->self_paced, atomic_load(&gsh_self_paced), memory_order_relaxed);
}

bool gsh_account_barred(void) { return atomic_load(&gsh_refused) || !gsh_peers_usable() || gsh_peers_served(); }

void gsh_account_pace(bool self_paced) {
	pthread_mutex_lock(&memory_lock);
	if (!self_paced) gsh_peers_serve(true);
	for (uint32_t i = 0; i < GSHARE_VGPU_MAX; i++) gsh_peers_hold(i, self_paced ? atomic_load(&gsh_vgpus[i].memory) : 0);
	if (self_paced) gsh_peers_serve(false);
	atomic_store(&gsh_self_paced, self_paced);
	pthread_mutex_unlock(&memory_lock);
}

/* Adds bytes to the process's part. The caller holds the memory lock. */
static void add_own(struct gsh_vgpu *v, uint64_t bytes) {
	atomic_fetch_add(&v->client->memory, bytes);
	uint64_t held = atomic_fetch_add(&v->memory, bytes) + bytes;
	if (atomic_load(&gsh_self_paced)) gsh_peers_hold(v->number, held);
}

/* Returns the sum, or UINT64_MAX if it overflows. */
static uint64_t bounded_sum(uint64_t a, uint64_t b) { return a > UINT64_MAX - b ? UINT64_MAX : a + b; }

/* Reads a container page's sum, which may be below 0 for a moment. */
static uint64_t container_memory(uint64_t sum) { return (int64_t)sum < 0 ? 0 : sum; }

/*
 * Memory of processes without a session counts even if this process has one: after a restart of the server, some may be unable to
 * reconnect.
 */
uint64_t gsh_memory_used(const struct gsh_vgpu *v) {
	uint64_t used = container_memory(atomic_load(&v->container->memory)), unserved = gsh_peers_memory(v->number);
	if (!atomic_load(&gsh_self_paced)) return bounded_sum(used, unserved);
	uint64_t also = bounded_sum(atomic_load(&v->memory), unserved);
	return used > also ? used : also;
}

/*
 * Reports whether this process may hold `bytes` more beside the container's other processes without a server. Each process first
 * states what it wants to hold and then reads what the others have stated. So two processes that reach the limit at once never
 * exceed it together, but both may be refused. A process that gets a server meanwhile says so before it withdraws what it has
 * stated. The caller withdraws it if the memory is refused.
 */
static bool fits_without_server(struct gsh_vgpu *v, uint64_t bytes) {
	uint64_t limit = atomic_load(&v->server->memory_limit), own = atomic_load(&v->memory);
	if (own > limit || bytes > limit - own || !gsh_peers_hold(v->number, own + bytes)) return false;
	return gsh_peers_memory(v->number) <= limit - own - bytes && !gsh_account_barred();
}

/*
 * Adds bytes to the container's sum if they fit beside `others`. Uses compare-and-swap: of two processes that compete for the last
 * bytes, only one gets them.
 */
static bool add_within_limit(struct gsh_vgpu *v, uint64_t bytes, uint64_t others) {
	uint64_t limit = atomic_load(&v->server->memory_limit), used = atomic_load(&v->container->memory);
	do {
		uint64_t now = bounded_sum(container_memory(used), others);
		if (now > limit || bytes > limit - now) return false;
	} while (!atomic_compare_exchange_weak(&v->container->memory, &used, used + bytes));
	return true;
}

bool gsh_memory_reserve(struct gsh_vgpu *v, uint64_t bytes) {
	if (atomic_load(&v->server->state) == GSHARE_OFF) {
		gsh_memory_charge(v, bytes);
		return true;
	}
	/* Nothing more is an estimate: the driver may be unable to reuse what it has reserved. So this too ends, a little above the limit. */
	if (!bytes) {
		if (gsh_memory_used(v) > bounded_sum(atomic_load(&v->server->memory_limit), SLACK)) return false;
		return !atomic_load(&gsh_self_paced) || !gsh_account_barred();
	}
	pthread_mutex_lock(&memory_lock);
	bool fits = atomic_load(&gsh_self_paced) ? fits_without_server(v, bytes) && add_within_limit(v, bytes, 0)
	                                         : add_within_limit(v, bytes, gsh_peers_memory(v->number));
	if (fits)
		add_own(v, bytes);
	else if (atomic_load(&gsh_self_paced))
		gsh_peers_hold(v->number, atomic_load(&v->memory));
	pthread_mutex_unlock(&memory_lock);
	return fits;
}

void gsh_memory_charge(struct gsh_vgpu *v, uint64_t bytes) {
	pthread_mutex_lock(&memory_lock);
	atomic_fetch_add(&v->container->memory, bytes);
	add_own(v, bytes);
	pthread_mutex_unlock(&memory_lock);
}

void gsh_memory_release(struct gsh_vgpu *v, uint64_t bytes) { gsh_memory_charge(v, -bytes); }

/* Adds bytes to what the process and its container use of the allowance. The caller holds the memory lock. */
static void add_imported(struct gsh_vgpu *v, uint64_t bytes) {
	atomic_fetch_add(&v->client->imported, bytes);
	atomic_fetch_add(&v->imported, bytes);
}

/* Uses compare-and-swap, like add_within_limit. */
uint64_t gsh_import_take(struct gsh_vgpu *v, uint64_t bytes) {
	uint64_t taken = 0;
	pthread_mutex_lock(&memory_lock);
	if (!atomic_load(&gsh_self_paced)) {
		uint64_t allowance = atomic_load(&v->server->import_allowance), used = atomic_load(&v->container->imported);
		do {
			uint64_t now = container_memory(used), left = now < allowance ? allowance - now : 0;
			taken = bytes < left ? bytes : left;
		} while (!atomic_compare_exchange_weak(&v->container->imported, &used, used + taken));
		add_imported(v, taken);
	}
	pthread_mutex_unlock(&memory_lock);
	return taken;
}

void gsh_import_give(struct gsh_vgpu *v, uint64_t bytes) {
	pthread_mutex_lock(&memory_lock);
	atomic_fetch_sub(&v->container->imported, bytes);
	add_imported(v, -bytes);
	pthread_mutex_unlock(&memory_lock);
}

void gsh_count_uncovered(void) {
	if (gsh_vgpus[0].client) atomic_fetch_add(&gsh_vgpus[0].client->uncovered, 1);
}

/*
 * Moves the parent's client page to an address that the child never uses. The child inherits the parent's descriptors of the
 * driver, which keep the parent's memory alive after the parent has ended, so the server must see that the page is still in use
 * (gshare_wire.h).
 */
static void keep_parents_page(const struct gsh_vgpu *v) {
	void *place = mmap(NULL, GSHARE_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (place == MAP_FAILED) return;
	mremap((void *)v->client, GSHARE_PAGE_SIZE, GSHARE_PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
}

void gsh_account_after_fork(void) {
	pthread_mutex_init(&memory_lock, NULL);
	for (int i = 0; i < GSHARE_VGPU_MAX; i++)
		if (gsh_vgpus[i].container_page.fd >= 0) keep_parents_page(&gsh_vgpus[i]);
	gsh_pages_init();
	atomic_store(&gsh_vgpu_count, 0); /* queries read the policy again */
	for (int i = 0; i < GSHARE_VGPU_MAX; i++) {
		struct gsh_vgpu *v = &gsh_vgpus[i];
		atomic_store(&v->launches, 0);
		atomic_store(&v->blocks, 0);
		atomic_store(&v->busy, 0);
		atomic_store(&v->excused, 0);
		atomic_store(&v->open, 0);
		atomic_store(&v->unbounded, 0);
		atomic_store(&v->unbounded_events, 0);
		atomic_store(&v->unknown_events, 0);
		atomic_store(&v->budgets, 0);
		atomic_store(&v->memory, 0);
		atomic_store(&v->imported, 0);
		atomic_store(&v->waiting, 0);
	}
	atomic_store(&gsh_captures, 0);
	gsh_peers_after_fork();
}
