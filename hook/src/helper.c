/*
 * The helper thread: settles marks every millisecond while there is work, watches the server's heartbeat, reconnects.
 * It never touches a stream, and asks events only in the relaxed capture mode, so it cannot disturb a capture.
 */
#define _GNU_SOURCE
#include "client.h"
#include "log.h"
#include "mark.h"
#include "platform.h"
#include "start.h"

#define ACTIVE_FOR (100 * GSH_MILLISECOND) /* after the last work */
#define BUSY_ROUND GSH_MILLISECOND
#define IDLE_ROUND (100 * GSH_MILLISECOND)
#define LEASE (3 * GSH_SECOND) /* without a heartbeat */
#define LATE (250 * GSH_MILLISECOND)  /* behind the time for which blocks were promised */
#define RETRY_FIRST (50 * GSH_MILLISECOND)
#define RETRY_LAST (250 * GSH_MILLISECOND)

static _Atomic uint32_t word;
static atomic_bool idle, activity;
static bool connected;
static uint64_t last_active, retry_at, retry_after;

void gsh_helper_poke(void) {
	if (!atomic_load_explicit(&activity, memory_order_relaxed)) atomic_store(&activity, true);
	if (!atomic_load(&idle) || !atomic_exchange(&idle, false)) return;
	atomic_fetch_add(&word, 1);
	gsh_wake_word(&word);
}

static void publish_all(uint64_t now, bool launched) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++) {
		gsh_publish(&gsh_vgpus[i]);
		if (launched) atomic_store(&gsh_vgpus[i].client->last_launch, now);
	}
}

static void set_alone(bool alone) {
	if (atomic_exchange(&gsh_alone, alone) == alone) return;
	atomic_fetch_add(&gsh_epoch, 1);
	gsh_log(alone ? "the token server is silent: own pace" : "the token server is back");
}

static void reconnect(uint64_t now) {
	if (now < retry_at) return;
	connected = gsh_client_connect() == 0;
	if (connected) gsh_devices_find();
	retry_after = connected ? 0 : retry_after ? 2 * retry_after : RETRY_FIRST;
	if (retry_after > RETRY_LAST) retry_after = RETRY_LAST;
	retry_at = gsh_now() + retry_after + (gsh_client_salt() ^ now) % (retry_after / 4 + 1);
	if (connected) atomic_fetch_add(&gsh_epoch, 1);
}

/* Without a server nobody ends the last token, so its deadline does; before the first one there is none. */
static bool token_over(uint64_t now) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (atomic_load(&gsh_vgpus[i].server->deadline) > now) return false;
	return true;
}

/* A server that hangs renews no blocks, and all would wait for its lease to end. */
static bool blocks_late(uint64_t now) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++) {
		const struct gshare_server_page *p = gsh_vgpus[i].server;
		uint64_t due = atomic_load(&p->deadline);
		if (atomic_load(&p->unit) == GSHARE_UNIT_BLOCKS && due && due < now && now - due > LATE) return true;
	}
	return false;
}

/* The clocks of a heartbeat and ours are the same, so a stopped server is noticed even while its socket stands. */
static void watch_server(uint64_t now) {
	if (connected) connected = gsh_client_alive();
	if (!connected) reconnect(now);
	uint64_t beat = atomic_load(&gsh_vgpus[0].server->heartbeat);
	set_alone(beat + LEASE < now || blocks_late(now) || (!connected && token_over(now)));
}

/* True while there is work. */
static bool round_once(void) {
	bool launched = atomic_exchange(&activity, false);
	uint32_t open = gsh_settle();
	uint64_t now = gsh_now();
	if (launched || open) last_active = now;
	publish_all(now, launched);
	watch_server(now);
	atomic_fetch_add(&gsh_epoch, 1);
	return now - last_active < ACTIVE_FOR;
}

/* A launch between the last look and the sleep is seen by one of the two. */
static void *helper(void *unused) {
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CALL(cuThreadExchangeStreamCaptureMode, &mode);
	gsh_settle_from_helper();
	for (;;) {
		uint32_t seen = atomic_load(&word);
		bool active = round_once();
		atomic_store(&idle, !active);
		if (!active && atomic_load(&activity)) continue;
		uint64_t wait = active ? BUSY_ROUND : !connected && retry_after < IDLE_ROUND ? retry_after : IDLE_ROUND;
		gsh_wait_word(&word, seen, wait ? wait : BUSY_ROUND);
	}
	return unused;
}

int gsh_helper_start(bool reached) {
	connected = reached;
	return gsh_thread_start(helper);
}

void gsh_helper_fork(void) {
	atomic_store(&idle, false);
	atomic_store(&activity, false);
	connected = false;
	last_active = retry_at = retry_after = 0;
}
