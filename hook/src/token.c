#include "token.h"

#include "blocks.h"
#include "client.h"
#include "platform.h"

#define POLL_INTERVAL (10 * GSH_MILLISECOND)   /* two ticks: the most that a lost wake-up costs */
#define DEFAULT_WINDOW (100 * GSH_MILLISECOND) /* until the server's page states one */

bool gsh_token_disabled(const struct gsh_vgpu *v) {
	uint32_t mode = atomic_load_explicit(&gsh_mode, memory_order_relaxed);
	return mode == GSHARE_MODE_OFF || mode == GSHARE_MODE_MEMORY ||
	       atomic_load_explicit(&v->server->state, memory_order_relaxed) == GSHARE_OFF;
}

/* Returns the ns of the vGPU's window. */
static uint64_t window_of(const struct gsh_vgpu *v) {
	uint64_t window = atomic_load(&v->server->window);
	return window ? window : DEFAULT_WINDOW;
}

/* Returns the ns since the window began. Without a server each process has its windows begin at another time. */
static uint64_t window_phase(const struct gsh_vgpu *v) {
	uint64_t window = window_of(v);
	return (gsh_now() + gsh_client_jitter() % window) % window;
}

/* Reports whether a process without a server may launch: in the guaranteed part of each window, and no longer. */
static bool self_paced_permits(const struct gsh_vgpu *v) {
	return window_phase(v) < window_of(v) / 1000 * atomic_load(&v->server->guaranteed);
}

bool gsh_token_permits(const struct gsh_vgpu *v) {
	if (atomic_load_explicit(&gsh_mode, memory_order_relaxed) == GSHARE_MODE_OBSERVE) return true;
	uint32_t state = atomic_load(&v->server->state);
	if (state == GSHARE_OFF) return true;
	if (atomic_load_explicit(&gsh_self_paced, memory_order_relaxed)) return self_paced_permits(v);
	return state == GSHARE_RUN && (!gsh_blocks_metered(v) || gsh_blocks_left(v) > 0);
}

/* Waits once: for the server's wake word to differ from `seen`, or without a server for the next window. */
static void wait_once(const struct gsh_vgpu *v, uint32_t seen) {
	uint64_t left = window_of(v) - window_phase(v);
	if (!atomic_load(&gsh_self_paced))
		gsh_wait_word(&v->server->wake, seen, POLL_INTERVAL);
	else
		gsh_sleep(left < POLL_INTERVAL ? left : POLL_INTERVAL);
}

/* The wake word is read before the token, so a change in between ends the wait at once. */
void gsh_token_wait(struct gsh_vgpu *v) {
	if (atomic_fetch_add(&v->waiting, 1) == 0) atomic_store(&v->waiting_since, gsh_now());
	gsh_publish(v);
	bool requested = false;
	for (;;) {
		uint32_t seen = atomic_load(&v->server->wake);
		if (gsh_token_permits(v)) break;
		if (!requested && !gsh_blocks_expected(v)) requested = gsh_client_request_token(v);
		wait_once(v, seen);
	}
	atomic_fetch_sub(&v->waiting, 1);
	gsh_publish(v);
}
