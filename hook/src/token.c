#include "token.h"

#include "client.h"
#include "credit.h"
#include "platform.h"

#define LOOK_AGAIN (10 * GSH_MILLISECOND) /* two ticks: a lost wake-up costs no more */
#define WINDOW (100 * GSH_MILLISECOND)

bool gsh_token_off(const struct gsh_vgpu *v) {
	uint32_t mode = atomic_load_explicit(&gsh_mode, memory_order_relaxed);
	return mode == GSHARE_MODE_OFF || mode == GSHARE_MODE_MEMORY ||
	       atomic_load_explicit(&v->server->state, memory_order_relaxed) == GSHARE_OFF;
}

static uint64_t window_of(const struct gsh_vgpu *v) {
	uint64_t window = atomic_load(&v->server->window);
	return window ? window : WINDOW;
}

/* Processes without a server must not all run in the same part of the window: each begins at its own point. */
static uint64_t phase(const struct gsh_vgpu *v) {
	uint64_t window = window_of(v);
	return (gsh_now() + gsh_client_salt() % window) % window;
}

/* Without a server the guaranteed share of each window, and no more: bounded fail-open. */
static bool own_pace(const struct gsh_vgpu *v) {
	return phase(v) < window_of(v) / 1000 * atomic_load(&v->server->guaranteed);
}

bool gsh_token_allows(const struct gsh_vgpu *v) {
	if (atomic_load_explicit(&gsh_mode, memory_order_relaxed) == GSHARE_MODE_OBSERVE) return true;
	uint32_t state = atomic_load(&v->server->state);
	if (state == GSHARE_OFF) return true;
	if (atomic_load_explicit(&gsh_alone, memory_order_relaxed)) return own_pace(v);
	return state == GSHARE_RUN && (!gsh_credit_counts(v) || gsh_credit_left(v) > 0);
}

static void wait_once(const struct gsh_vgpu *v, uint32_t seen) {
	uint64_t left = window_of(v) - phase(v);
	if (!atomic_load(&gsh_alone))
		gsh_wait_word(&v->server->wake, seen, LOOK_AGAIN);
	else
		gsh_sleep(left < LOOK_AGAIN ? left : LOOK_AGAIN);
}

/* The word is read before the question, so a change in between ends the wait at once. */
void gsh_token_wait(struct gsh_vgpu *v) {
	if (atomic_fetch_add(&v->waiting, 1) == 0) atomic_store(&v->waiting_since, gsh_now());
	gsh_publish(v);
	bool asked = false;
	for (;;) {
		uint32_t seen = atomic_load(&v->server->wake);
		if (gsh_token_allows(v)) break;
		if (!asked && !gsh_credit_coming(v)) asked = gsh_client_need(v);
		wait_once(v, seen);
	}
	atomic_fetch_sub(&v->waiting, 1);
	gsh_publish(v);
}
