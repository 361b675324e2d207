#define _GNU_SOURCE
#include "start.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "client.h"
#include "gate.h"
#include "ledger.h"
#include "log.h"
#include "mark.h"
#include "place.h"
#include "platform.h"
#include "policy.h"
#include "slot.h"

enum { NOT, STARTING, STARTED };
static _Atomic uint32_t progress;

/* Runs before the driver's own end, which was registered earlier: after it the helper may not touch the driver. */
static void stop(void) {
	for (int i = 0; i < 1000 && !gsh_settler_try(); i++) gsh_sleep(100 * GSH_MICROSECOND);
	gsh_client_bye();
}

static atomic_bool forked; /* from a process that had started, and has not called cuInit since */

/* CUDA does not survive a fork; the child begins anew if it ever calls cuInit with success. */
static void in_child(void) {
	atomic_store(&forked, true);
	gsh_account_fork();
	gsh_marks_fork();
	gsh_ledger_fork();
	gsh_client_fork();
	gsh_helper_fork();
	gsh_tracks_fork();
	gsh_place_forget();
	atomic_store(&progress, NOT);
}

/* Without a directory there is nobody to wait for. */
static bool reach_server(void) {
	int r = gsh_client_connect();
	for (uint64_t waited = 0; (r == -ECONNREFUSED || r == -ETIMEDOUT || r == -EPIPE || r == -EAGAIN) && waited < 2 * GSH_SECOND;
	     waited += 50 * GSH_MILLISECOND) {
		gsh_sleep(50 * GSH_MILLISECOND);
		r = gsh_client_connect();
	}
	gsh_log("token server: %d", r);
	return r == 0;
}

static void without_server(void) {
	uint32_t vgpus = gsh_policy_read(gsh_directory());
	gsh_log("no token server; %u vGPUs by policy", vgpus);
	atomic_store(&gsh_vgpu_count, vgpus ? vgpus : 1); /* one with no memory: fail closed */
	atomic_store(&gsh_mode, vgpus ? GSHARE_MODE_TIME : GSHARE_MODE_MEMORY);
	atomic_store(&gsh_alone, true);
}

static void start(void) {
	static atomic_bool once;
	gsh_log_open();
	gsh_pages_local();
	bool connected = reach_server();
	if (!connected) without_server();
	gsh_devices_find();
	if (!atomic_exchange(&once, true)) { /* a forked child has these from its parent */
		pthread_atfork(NULL, NULL, in_child);
		atexit(stop);
	}
	gsh_helper_start(connected);
}

void gsh_start(void) {
	uint32_t seen = atomic_load_explicit(&progress, memory_order_acquire);
	if (likely(seen == STARTED) || atomic_load(&forked)) return;
	seen = NOT;
	if (atomic_compare_exchange_strong(&progress, &seen, STARTING)) {
		start();
		atomic_store_explicit(&progress, STARTED, memory_order_release);
		gsh_wake_word(&progress);
	}
	while ((seen = atomic_load(&progress)) == STARTING) gsh_wait_word(&progress, seen, 10 * GSH_MILLISECOND);
	if (seen == NOT) gsh_start(); /* it was only a view */
}

void gsh_start_views(void) {
	uint32_t seen = NOT;
	if (atomic_load(&gsh_vgpu_count) || !atomic_compare_exchange_strong(&progress, &seen, STARTING)) return;
	gsh_pages_local();
	atomic_store(&gsh_vgpu_count, gsh_policy_read(gsh_directory()));
	atomic_store(&progress, NOT);
	gsh_wake_word(&progress);
}

GSH_EXPORT CUresult cuInit(unsigned flags) {
	NEED(cuInit);
	CUresult r = real(flags);
	if (r != CUDA_SUCCESS) return r;
	atomic_store(&forked, false);
	gsh_start();
	return r;
}
