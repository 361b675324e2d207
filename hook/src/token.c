#include "token.h"

#include "blocks.h"
#include "client.h"
#include "peers.h"
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

/* For each vGPU, twice the number of the window for which a turn was last decided, plus 1 if that window is this process's turn. */
static _Atomic uint64_t turns[GSHARE_VGPU_MAX];

/*
 * Returns the present time on the clock by which windows are counted when there is no server. It is the same in all
 * processes of a container, and differs between containers.
 */
static uint64_t container_time(const struct gsh_vgpu *v) { return gsh_server_now() + window_of(v) + gsh_peers_number() % window_of(v); }

/*
 * Reports whether a window is this process's turn. The processes that launch on the vGPU have one window each, in the
 * order of their slots. A process that begins to launch waits for the next window, by which all of them know that it is
 * there.
 */
static bool is_own_turn(uint32_t vgpu, uint64_t window) {
	uint32_t before;
	if (gsh_account_barred()) return false;
	bool begins = gsh_peers_activate(vgpu, window) == window;
	uint32_t others = gsh_peers_active(vgpu, &before);
	return others == 0 || (!begins && window % (others + 1) == before);
}

/* Reports whether a process without a server may launch: in the guaranteed part of the windows that are its turn. */
static bool self_paced_permits(const struct gsh_vgpu *v) {
	uint64_t length = window_of(v), now = container_time(v), window = now / length, turn = atomic_load(&turns[v->number]);
	if (turn / 2 != window) {
		uint64_t decided = 2 * window + is_own_turn(v->number, window);
		if (atomic_compare_exchange_strong(&turns[v->number], &turn, decided)) turn = decided;
	}
	return turn % 2 && now % length < length / 1000 * atomic_load(&v->server->guaranteed);
}

/* Reports whether no thread has asked for a turn since the window before this one, and none waits. */
static bool is_idle(const struct gsh_vgpu *v) {
	return !atomic_load(&v->waiting) && atomic_load(&turns[v->number]) / 2 + 1 < container_time(v) / window_of(v);
}

void gsh_token_retire(void) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (!atomic_load(&gsh_self_paced) || is_idle(&gsh_vgpus[i])) gsh_peers_deactivate(i);
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
	uint64_t left = window_of(v) - container_time(v) % window_of(v);
	if (!atomic_load(&gsh_self_paced))
		gsh_wait_word(&v->server->wake, seen, POLL_INTERVAL);
	else
		gsh_sleep(left < POLL_INTERVAL ? left : POLL_INTERVAL);
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
