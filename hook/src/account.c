/* Pages and sums. The memory part follows "reserve, call, commit or cancel": no lock is held across a driver call. */
#define _GNU_SOURCE
#include "account.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "room.h"

/* As large as the largest page of the machines we run on: each mapping needs an address of its own. */
#define SPAN 65536

static _Alignas(SPAN) unsigned char area[GSHARE_VGPU_MAX][3][SPAN];

struct gsh_vgpu gsh_vgpus[GSHARE_VGPU_MAX];
_Atomic uint32_t gsh_vgpu_count, gsh_mode = GSHARE_MODE_MEMORY, gsh_epoch = 1, gsh_captures;
_Atomic bool gsh_alone;

/* Guards the step from one set of pages to the next; held for a few instructions. */
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

void gsh_pages_local(void) {
	for (int i = 0; i < GSHARE_VGPU_MAX; i++) {
		mmap(area[i], sizeof area[i], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		struct gsh_vgpu *v = &gsh_vgpus[i];
		v->server = (void *)area[i][0];
		v->container = (void *)area[i][1];
		v->client = (void *)area[i][2];
		v->number = i;
		atomic_store(&v->server->state, GSHARE_RUN);
	}
}

static bool right_page(const void *page) {
	const struct gshare_server_page *p = page; /* all three begin alike */
	return p->magic == GSHARE_PAGE_MAGIC && p->major == GSHARE_WIRE_MAJOR;
}

/* A file that is short, or could become so, would end the process with a SIGBUS. */
static bool lasting(int fd) {
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & F_SEAL_SHRINK) && lseek(fd, 0, SEEK_END) >= GSHARE_PAGE_SIZE; /* fstat is newer than our baseline */
}

static bool good_page(int fd, int protection) {
	void *trial = lasting(fd) ? mmap(NULL, GSHARE_PAGE_SIZE, protection, MAP_SHARED, fd, 0) : MAP_FAILED;
	if (trial == MAP_FAILED) return false;
	bool good = right_page(trial);
	munmap(trial, GSHARE_PAGE_SIZE);
	return good;
}

bool gsh_pages_good(const int fds[3]) {
	return good_page(fds[0], PROT_READ) && good_page(fds[1], PROT_READ | PROT_WRITE) && good_page(fds[2], PROT_READ | PROT_WRITE);
}

static int lay_over(void *address, int fd, int protection) {
	void *at = mmap(address, GSHARE_PAGE_SIZE, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	return at == MAP_FAILED ? -errno : 0;
}

/*
 * Whoever ends a session, the server at a hang-up or we at a reconnect, takes the client page's sum by exchange with 0
 * and subtracts it from the container page; so it is subtracted once. Then what we hold is added to the new pages.
 */
int gsh_pages_map(struct gsh_vgpu *v, const int fds[3]) {
	pthread_mutex_lock(&memory_lock);
	atomic_fetch_sub(&v->container->memory, atomic_exchange(&v->client->memory, 0));
	int r = lay_over(v->server, fds[0], PROT_READ);
	if (!r) r = lay_over(v->container, fds[1], PROT_READ | PROT_WRITE);
	if (!r) r = lay_over(v->client, fds[2], PROT_READ | PROT_WRITE);
	atomic_fetch_add(&v->container->memory, atomic_load(&v->memory));
	atomic_store(&v->client->memory, atomic_load(&v->memory));
	pthread_mutex_unlock(&memory_lock);
	gsh_publish(v);
	return r;
}

/* Work leaves `open` after it was added to `busy`: read in this order and shown in the other, none is in neither. */
void gsh_publish(struct gsh_vgpu *v) {
	uint64_t open = gsh_rooms(v) + atomic_load(&v->open);
	atomic_store_explicit(&v->client->launches, atomic_load(&v->launches), memory_order_relaxed);
	atomic_store_explicit(&v->client->blocks, atomic_load(&v->blocks), memory_order_relaxed);
	atomic_store_explicit(&v->client->busy, atomic_load(&v->busy), memory_order_relaxed);
	atomic_store_explicit(&v->client->open, open, memory_order_release);
	atomic_store_explicit(&v->client->captures, atomic_load(&gsh_captures), memory_order_relaxed);
	atomic_store_explicit(&v->client->waiting_since, atomic_load(&v->waiting_since), memory_order_relaxed);
	atomic_store_explicit(&v->client->waiting, atomic_load(&v->waiting), memory_order_relaxed);
}

static void add(struct gsh_vgpu *v, uint64_t bytes) {
	atomic_fetch_add(&v->client->memory, bytes);
	atomic_fetch_add(&v->memory, bytes);
}

/* After the server took our sum and before the reconnect the difference may be below 0 for a moment. */
uint64_t gsh_container_memory(const struct gsh_vgpu *v) {
	int64_t used = (int64_t)atomic_load(&v->container->memory);
	return used < 0 ? 0 : (uint64_t)used;
}

/* Compare-and-add: of two processes at the limit one gets the last byte. */
static bool take(struct gsh_vgpu *v, uint64_t bytes) {
	uint64_t limit = atomic_load(&v->server->memory_limit), used = atomic_load(&v->container->memory);
	do {
		uint64_t now = (int64_t)used < 0 ? 0 : used;
		if (now > limit || bytes > limit - now) return false;
	} while (!atomic_compare_exchange_weak(&v->container->memory, &used, used + bytes));
	return true;
}

bool gsh_reserve(struct gsh_vgpu *v, uint64_t bytes) {
	if (atomic_load(&v->server->state) == GSHARE_OFF) {
		gsh_charge(v, bytes);
		return true;
	}
	pthread_mutex_lock(&memory_lock);
	bool got = take(v, bytes);
	if (got) add(v, bytes);
	pthread_mutex_unlock(&memory_lock);
	return got;
}

void gsh_charge(struct gsh_vgpu *v, uint64_t bytes) {
	pthread_mutex_lock(&memory_lock);
	atomic_fetch_add(&v->container->memory, bytes);
	add(v, bytes);
	pthread_mutex_unlock(&memory_lock);
}

void gsh_release(struct gsh_vgpu *v, uint64_t bytes) { gsh_charge(v, -bytes); }

void gsh_count_uncovered(void) {
	if (gsh_vgpus[0].client) atomic_fetch_add(&gsh_vgpus[0].client->uncovered, 1);
}

void gsh_account_fork(void) {
	pthread_mutex_init(&memory_lock, NULL);
	gsh_pages_local();
	for (int i = 0; i < GSHARE_VGPU_MAX; i++) {
		struct gsh_vgpu *v = &gsh_vgpus[i];
		atomic_store(&v->launches, 0);
		atomic_store(&v->blocks, 0);
		atomic_store(&v->busy, 0);
		atomic_store(&v->open, 0);
		atomic_store(&v->rooms, 0);
		atomic_store(&v->memory, 0);
		atomic_store(&v->waiting, 0);
	}
	atomic_store(&gsh_captures, 0);
}
