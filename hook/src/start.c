#define _GNU_SOURCE
#include "start.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "capturing.h"
#include "client.h"
#include "device.h"
#include "gate.h"
#include "helper.h"
#include "ledger.h"
#include "log.h"
#include "peers.h"
#include "platform.h"
#include "policy.h"
#include "pool.h"
#include "reap.h"
#include "stream.h"

/* How far the hook has started; a futex word on which other threads wait. */
enum { NOT_STARTED, STARTING, STARTED };
static _Atomic uint32_t progress;

static atomic_bool forked; /* this process was forked from one that had started, and has not called cuInit since */

bool gsh_driver_lost(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

/* Runs in a forked child. CUDA does not work there, so all state is reset; a successful cuInit starts the hook again. */
static void after_fork(void) {
	atomic_store(&forked, true);
	gsh_account_after_fork();
	gsh_reap_after_fork();
	gsh_ledger_after_fork();
	gsh_pools_after_fork();
	gsh_client_after_fork();
	gsh_helper_after_fork();
	gsh_streams_after_fork();
	gsh_capturing_after_fork();
	gsh_current_invalidate();
	atomic_store(&progress, NOT_STARTED);
}

/* Connects to the server. Retries while the server may be starting, but not if its directory is missing. */
static bool connect_to_server(void) {
	uint64_t deadline = gsh_now() + 2 * GSH_SECOND; /* a server that accepts and does not answer takes a second of it each time */
	int r = gsh_client_connect();
	while ((r == -ECONNREFUSED || r == -ETIMEDOUT || r == -EPIPE || r == -EAGAIN) && gsh_now() < deadline) {
		gsh_sleep(50 * GSH_MILLISECOND);
		r = gsh_client_connect();
	}
	if (r)
		gsh_log("failed to connect to token server: errno %d", -r);
	else
		gsh_log("connected to token server");
	return r == 0;
}

/* Enforces the policy file. */
static void use_policy_file(void) {
	uint32_t vgpus = gsh_policy_read(gsh_directory());
	gsh_log("enforcing policy file: %u vGPUs", vgpus);
	atomic_store(&gsh_vgpu_count, vgpus ? vgpus : 1); /* without a policy one vGPU that has no memory: fail closed */
	atomic_store(&gsh_mode, vgpus ? GSHARE_MODE_TIME : GSHARE_MODE_MEMORY);
	if (vgpus && gsh_account_barred()) gsh_log("no memory and no launches until the token server accepts this process");
}

/* Sets up the pages with the limits of the policy file, if there is one, for queries. */
static void read_limits(void) {
	gsh_pages_init();
	atomic_store(&gsh_vgpu_count, gsh_policy_read(gsh_directory()));
}

/* The steps of gsh_start, on the one thread that makes them. */
static void start(void) {
	static atomic_bool once;
	gsh_log_open();
	if (!atomic_load(&gsh_vgpu_count)) read_limits(); /* else gsh_start_queries has, and other threads read the limits */
	gsh_peers_init(gsh_directory());
	bool connected = connect_to_server();
	gsh_account_pace(!connected);
	if (!connected) use_policy_file();
	gsh_devices_map();
	if (!atomic_exchange(&once, true)) { /* a forked child has these from its parent */
		pthread_atfork(NULL, NULL, after_fork);
		gsh_gate_watch_threads();
		atexit(gsh_helper_stop); /* runs before the driver's own handler, which was registered earlier */
	}
	int r = gsh_helper_start(connected);
	if (r) gsh_log("failed to start helper thread: errno %d", -r);
}

void gsh_start(void) {
	uint32_t seen = atomic_load_explicit(&progress, memory_order_acquire);
	if (likely(seen == STARTED) || atomic_load(&forked)) return;
	seen = NOT_STARTED;
	if (atomic_compare_exchange_strong(&progress, &seen, STARTING)) {
		start();
		atomic_store_explicit(&progress, STARTED, memory_order_release);
		gsh_wake_word(&progress);
	}
	while ((seen = atomic_load(&progress)) == STARTING) gsh_wait_word(&progress, seen, 10 * GSH_MILLISECOND);
	if (seen == NOT_STARTED) gsh_start(); /* another thread had only set up queries */
}

/*
 * A start on another thread reads the policy file at once. Without one it takes up to some seconds until the server has said what the
 * limits are. A child process that was forked meanwhile does not wait for ever.
 */
void gsh_start_queries(void) {
	uint32_t seen = NOT_STARTED;
	if (atomic_load(&gsh_vgpu_count)) return;
	if (!atomic_compare_exchange_strong(&progress, &seen, STARTING)) {
		for (int i = 0; i < 500 && atomic_load(&progress) == STARTING && !atomic_load(&gsh_vgpu_count); i++)
			gsh_wait_word(&progress, STARTING, 10 * GSH_MILLISECOND);
		return;
	}
	read_limits();
	atomic_store(&progress, NOT_STARTED);
	gsh_wake_word(&progress);
}

/*
 * Says once why the driver's functions cannot be looked up: the program has found the driver, so memory is short. The variables of the hook, of some
 * MiB, are part of what RLIMIT_DATA limits.
 */
static CUresult no_driver(void) {
	static atomic_flag said = ATOMIC_FLAG_INIT;
	struct rlimit data = {0};
	if (atomic_flag_test_and_set(&said)) return CUDA_ERROR_OUT_OF_MEMORY;
	getrlimit(RLIMIT_DATA, &data);
	gsh_log_open();
	gsh_log_loudly("failed to look up the driver's functions: no memory; the limit of data (ulimit -d) is %llu KiB", (unsigned long long)data.rlim_cur / 1024);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

GSH_EXPORT CUresult cuInit(unsigned flags) {
	gsh_resolve(true);
	cuInit_fn real = REAL(cuInit);
	if (!real) return no_driver();
	CUresult r = real(flags);
	if (r != CUDA_SUCCESS) return r;
	atomic_store(&forked, false);
	gsh_start();
	gsh_devices_map(); /* again: before cuInit the driver has no devices */
	return atomic_load(&gsh_refused) ? CUDA_ERROR_MPS_MAX_CLIENTS_REACHED : r;
}
