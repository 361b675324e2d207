#define _GNU_SOURCE
#include "helper.h"

#include "client.h"
#include "device.h"
#include "log.h"
#include "pace.h"
#include "peers.h"
#include "platform.h"
#include "reap.h"

#define ACTIVE_TIME (100 * GSH_MILLISECOND) /* how long rounds stay short after the last work */
#define ACTIVE_ROUND GSH_MILLISECOND
#define IDLE_ROUND (100 * GSH_MILLISECOND)
#define ROUND_LONGEST (2 * IDLE_ROUND) /* of a thread that was not stopped */
#define HEARTBEAT_TIMEOUT (3 * GSH_SECOND)
#define BLOCKS_TIMEOUT (250 * GSH_MILLISECOND) /* after the deadline by which the server should have issued block tokens */
#define RETRY_FIRST (50 * GSH_MILLISECOND)
#define RETRY_LAST (250 * GSH_MILLISECOND)

static _Atomic uint32_t wake_word;  /* futex word, changed to wake an idle helper */
static atomic_bool idle, activity;  /* activity: a thread was on the slow path since the last round */
static atomic_bool stopped;         /* the process is exiting */
/* Used by the helper thread only, except at the start and in a forked child. */
static bool connected;
static uint64_t last_active, last_round, retry_at, retry_after; /* CLOCK_MONOTONIC ns; retry_after: ns */
static uint64_t heartbeat, silent; /* the server's latest, and for how many ns it has not changed */

void gsh_helper_wake(void) {
	if (!atomic_load_explicit(&activity, memory_order_relaxed)) atomic_store(&activity, true);
	if (!atomic_load(&idle) || !atomic_exchange(&idle, false)) return;
	atomic_fetch_add(&wake_word, 1);
	gsh_wake_word(&wake_word);
}

/* Publishes the sums of all vGPUs on their client pages. */
static void publish_all(bool launched) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++) {
		gsh_publish(&gsh_vgpus[i]);
		if (launched) atomic_store(&gsh_vgpus[i].client->last_launch, gsh_server_now());
	}
}

/* Switches between launching by the server's tokens and pacing by the process itself. */
static void set_self_paced(bool self_paced) {
	if (atomic_load(&gsh_self_paced) == self_paced) return;
	if (self_paced) gsh_pace_begin();
	gsh_account_pace(self_paced);
	atomic_fetch_add(&gsh_epoch, 1);
	gsh_log(self_paced ? "token server unresponsive, enforcing guaranteed share locally" : "token server responsive again");
}

/* Tries to connect, at most once every retry_after ns plus a random part of up to a quarter of that. */
static void reconnect(uint64_t now) {
	if (now < retry_at) return;
	connected = gsh_client_connect() == 0;
	if (connected) gsh_devices_map();
	retry_after = connected ? 0 : retry_after ? 2 * retry_after : RETRY_FIRST;
	if (retry_after > RETRY_LAST) retry_after = RETRY_LAST;
	retry_at = gsh_now() + retry_after + (gsh_client_jitter() ^ now) % (retry_after / 4 + 1);
	if (connected) atomic_fetch_add(&gsh_epoch, 1);
}

/* Reports whether all tokens are past their deadline, which is what ends them when there is no server to do so. */
static bool tokens_expired(void) {
	uint64_t now = gsh_server_now();
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (atomic_load(&gsh_vgpus[i].server->deadline) > now) return false;
	return true;
}

/* Reports whether block tokens are overdue. A server that hangs issues none, and it would take long to wait until its heartbeat expires. */
static bool blocks_overdue(void) {
	uint64_t now = gsh_server_now();
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++) {
		const struct gshare_server_page *p = gsh_vgpus[i].server;
		uint64_t deadline = atomic_load(&p->deadline);
		if (atomic_load(&p->unit) == GSHARE_UNIT_BLOCKS && deadline && deadline < now && now - deadline > BLOCKS_TIMEOUT) return true;
	}
	return false;
}

/*
 * Reports whether the heartbeat has not changed for HEARTBEAT_TIMEOUT of the time in which this thread ran. Its value is a time of the
 * server's clock, which may not be that of this process. The time in which this process was stopped says nothing about the server.
 */
static bool server_silent(uint64_t now) {
	uint64_t seen = atomic_load(&gsh_vgpus[0].server->heartbeat), passed = now - last_round;
	last_round = now;
	silent += passed < ROUND_LONGEST ? passed : ROUND_LONGEST;
	if (seen == heartbeat) return silent > HEARTBEAT_TIMEOUT;
	gsh_server_clock_learn(seen, false);
	heartbeat = seen;
	silent = 0;
	return false;
}

/* Detects a server that is gone or hangs. */
static void watch_server(uint64_t now) {
	if (connected) connected = gsh_client_alive();
	if (!connected && !atomic_load(&stopped)) reconnect(now);
	bool hangs = server_silent(now) || blocks_overdue();
	set_self_paced(hangs || (!connected && tokens_expired()));
}

/* One round of the helper. Returns whether there was work lately. */
static bool round_once(void) {
	bool launched = atomic_exchange(&activity, false);
	uint32_t open = gsh_reap();
	uint64_t now = gsh_now();
	if (launched || open) last_active = now;
	publish_all(launched);
	watch_server(now);
	gsh_pace_round();
	gsh_peers_usable(); /* takes its locks again if the application has closed all descriptors, which ends them */
	atomic_fetch_add(&gsh_epoch, 1);
	return now - last_active < ACTIVE_TIME;
}

/* Entry of the helper thread. A launch between a round and the wait is noticed by activity or by the changed wake word. */
static void *helper(void *unused) {
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	gsh_reap_from_helper();
	for (;;) {
		uint32_t seen = atomic_load(&wake_word);
		bool active = round_once();
		atomic_store(&idle, !active);
		if (!active && atomic_load(&activity)) continue;
		uint64_t wait = active ? ACTIVE_ROUND : !connected && retry_after < IDLE_ROUND ? retry_after : IDLE_ROUND;
		gsh_wait_word(&wake_word, seen, wait ? wait : ACTIVE_ROUND);
	}
	return unused;
}

void gsh_helper_stop(void) {
	atomic_store(&stopped, true);
	gsh_reap_end_helper();
}

int gsh_helper_start(bool reached) {
	connected = reached;
	return gsh_thread_start(helper);
}

void gsh_helper_after_fork(void) {
	gsh_pace_after_fork();
	atomic_store(&idle, false);
	atomic_store(&activity, false);
	atomic_store(&stopped, false);
	connected = false;
	last_active = last_round = retry_at = retry_after = heartbeat = silent = 0;
}
