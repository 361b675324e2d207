#include "token.h"

#include "blocks.h"
#include "client.h"
#include "pace.h"
#include "platform.h"

#define POLL_INTERVAL (10 * GSH_MILLISECOND) /* two ticks: the most that a lost wake-up costs */

bool gsh_token_disabled(const struct gsh_vgpu *v) {
	uint32_t mode = atomic_load_explicit(&gsh_mode, memory_order_relaxed);
	return mode == GSHARE_MODE_OFF || mode == GSHARE_MODE_MEMORY ||
	       atomic_load_explicit(&v->server->state, memory_order_relaxed) == GSHARE_OFF;
}

bool gsh_token_permits(const struct gsh_vgpu *v) {
	if (atomic_load_explicit(&gsh_mode, memory_order_relaxed) == GSHARE_MODE_OBSERVE) return true;
	uint32_t state = atomic_load(&v->server->state);
	if (state == GSHARE_OFF) return true;
	if (atomic_load_explicit(&gsh_self_paced, memory_order_relaxed)) return gsh_pace_permits(v);
	return state == GSHARE_RUN && (!gsh_blocks_metered(v) || gsh_blocks_left(v) > 0);
}

/* Waits once: for the server's wake word to differ from `seen`, or without a server for what the process may use. */
static void wait_once(const struct gsh_vgpu *v, uint32_t seen) {
	if (!atomic_load(&gsh_self_paced))
		gsh_wait_word(&v->server->wake, seen, POLL_INTERVAL);
	else
		gsh_sleep(gsh_pace_pause(v));
}

/* The wake word is read before the token, so a change in between ends the wait at once. */
void gsh_token_wait(struct gsh_vgpu *v) {
	if (atomic_fetch_add(&v->waiting, 1) == 0) atomic_store(&v->waiting_since, gsh_server_now());
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
