#include "pace.h"

#include <pthread.h>

#include "cost.h"
#include "peers.h"
#include "platform.h"

#define DEFAULT_WINDOW (100 * GSH_MILLISECOND) /* until the server's page states one */
#define POLL_INTERVAL (10 * GSH_MILLISECOND)
#define SAVED_WINDOWS 50 /* a process keeps so many parts of windows of what it lost to neighbours */
#define STUCK_AFTER (5 * GSH_SECOND) /* work that has been unfinished for so long may wait for work that was not launched yet */
#define IDLE_WINDOWS 10  /* after so many without work that is dropped */

/* What a process may still use of a vGPU. Guarded by the lock. */
static struct pace {
	uint64_t window;      /* number of the window that was counted last */
	uint64_t last_wanted; /* that of the last one in which the process had work */
	bool turn, alone;     /* the process may launch in that window; no other process has windows */
	bool owes;            /* as the other processes were told */
	int64_t left;         /* ns that it may use; negative: owed */
	int64_t lost, saved;  /* ns that it had no room to keep while it had work; those of them of which neighbours kept it */
	uint64_t progress;      /* when work ended last, or none was unfinished */
	uint64_t used, excused; /* ns that have been taken into account, of all since the process started */
} paces[GSHARE_VGPU_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Returns the ns of the vGPU's window. */
static uint64_t window_of(const struct gsh_vgpu *v) {
	uint64_t window = atomic_load(&v->server->window);
	return window ? window : DEFAULT_WINDOW;
}

/* Returns the ns that the container is guaranteed in each window. */
static uint64_t part_of(const struct gsh_vgpu *v) { return window_of(v) / 1000 * atomic_load(&v->server->guaranteed); }

/*
 * Returns the present time on the clock by which windows are counted when there is no server: one begins with each guaranteed part. It is the same
 * in all processes of a container. Where the server has not said when that part begins, it differs between containers.
 */
static uint64_t container_time(const struct gsh_vgpu *v) {
	uint64_t part = atomic_load(&v->server->part_start), length = window_of(v);
	return gsh_server_now() + length + (part ? length - part % length : gsh_peers_number() % length);
}

/* Reports whether the guaranteed part of the present window is over. */
static bool outside_part(const struct gsh_vgpu *v) { return container_time(v) % window_of(v) >= part_of(v); }

/* Reports whether launched work of the process is unfinished. */
static bool has_open(const struct gsh_vgpu *v) {
	return atomic_load(&v->open) || atomic_load(&v->unbounded) || atomic_load(&v->unknown_events);
}

/* Returns the ns that unfinished work will use, as far as is known: of unknown work, those since other work ended. */
static int64_t unfinished(const struct pace *p, const struct gsh_vgpu *v) {
	uint64_t open = gsh_budgets_held(v) + atomic_load(&v->open) + atomic_load(&v->unbounded), since = gsh_now() - p->progress;
	if (since > STUCK_AFTER) return 0;
	if (atomic_load(&v->unknown_events)) open += since;
	return (int64_t)(open < GSH_COST_UNKNOWN ? open : GSH_COST_UNKNOWN);
}

/*
 * Decides whether the process may launch in a window. The processes that launch on the vGPU have one window each, in the order of their slots; a
 * process that begins to launch waits for the next window, by which all of them know that it is there. While some owe, none may launch, and the
 * windows pay the debt of the first of them. Returns whether the window pays this process.
 */
static bool take_turn(struct pace *p, uint32_t vgpu, uint64_t window) {
	uint32_t before;
	p->turn = p->alone = false;
	if (gsh_account_barred()) return false;
	bool begins = gsh_peers_activate(vgpu, window) == window;
	uint32_t others = gsh_peers_active(vgpu, &before);
	p->alone = others == 0;
	p->turn = p->alone || (!begins && window % (others + 1) == before);
	if (p->alone) return true;
	uint32_t owing = gsh_peers_owing(vgpu, &before);
	p->turn = p->turn && !owing && !p->owes;
	return p->owes ? before == 0 : p->turn;
}

/* Counts the window that begins. Windows that passed unnoticed pay debts, too. */
static void count_window(struct pace *p, const struct gsh_vgpu *v, uint64_t window, bool wanted) {
	bool waited = p->last_wanted + 1 >= window, debtor = p->owes;
	uint64_t passed = window - p->window < SAVED_WINDOWS ? window - p->window : 1;
	int64_t part = (int64_t)part_of(v), most = waited && !p->saved ? 2 * part : part;
	if (p->last_wanted + IDLE_WINDOWS < window) p->lost = p->saved = 0;
	if (!waited && p->left > part) p->left = part;
	if (wanted) p->last_wanted = window;
	p->window = window;
	if (!take_turn(p, v->number, window)) return;
	p->left += debtor ? part * (int64_t)passed : part;
	if (p->left <= most) return;
	if (waited) p->lost += p->left - most;
	p->left = most;
}

/*
 * Deducts the work that was measured since the last call; outside of the guaranteed part of a window, first from what is saved. Time
 * for which neighbours kept the SMs is given back as far as the process lost it.
 * Small debts are paid by the process's own windows; of others, and of work of unknown length, the container's other processes are told.
 */
static void deduct(struct pace *p, const struct gsh_vgpu *v) {
	uint64_t busy = atomic_load(&v->busy), excused = atomic_load(&v->excused);
	int64_t part = (int64_t)part_of(v), back = (int64_t)(excused - p->excused);
	if (back > p->lost) back = p->lost;
	p->lost -= back;
	p->saved += back;
	if (p->saved > SAVED_WINDOWS * part) p->saved = SAVED_WINDOWS * part;
	if (busy != p->used + p->excused || !has_open(v)) p->progress = gsh_now();
	int64_t used = (int64_t)(busy - excused - p->used), paid = outside_part(v) && used > 0 ? used : 0;
	p->left -= used;
	p->used = busy - excused;
	p->excused = excused;
	if (paid < -p->left) paid = -p->left;
	if (paid > p->saved) paid = p->saved;
	p->left += paid;
	p->saved -= paid;
	p->owes = unfinished(p, v) - p->left - p->saved > part / 2 || atomic_load(&v->unknown_events);
	gsh_peers_owe(v->number, p->owes);
}

bool gsh_pace_permits(const struct gsh_vgpu *v) {
	struct pace *p = &paces[v->number];
	uint64_t window = container_time(v) / window_of(v);
	pthread_mutex_lock(&lock);
	if (p->window != window) count_window(p, v, window, true);
	deduct(p, v);
	p->last_wanted = window;
	int64_t open = unfinished(p, v);
	bool short_of = p->saved > open && p->left < (int64_t)part_of(v) / 4; /* it has used its part, and lost time before */
	bool permits = p->turn && (outside_part(v) ? short_of : p->left + p->saved > open);
	pthread_mutex_unlock(&lock);
	return permits;
}

uint64_t gsh_pace_pause(const struct gsh_vgpu *v) {
	uint64_t left = window_of(v) - container_time(v) % window_of(v), most = has_open(v) ? GSH_MILLISECOND : POLL_INTERVAL;
	return left < most ? left : most;
}

/* Forgets what was counted so far. */
static void reset(struct pace *p, const struct gsh_vgpu *v) {
	uint64_t excused = atomic_load(&v->excused);
	*p = (struct pace){.used = atomic_load(&v->busy) - excused, .excused = excused, .progress = gsh_now()};
}

void gsh_pace_begin(void) {
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < GSHARE_VGPU_MAX; i++) reset(&paces[i], &gsh_vgpus[i]);
	pthread_mutex_unlock(&lock);
}

/* Counts the window of a vGPU on which the process launches or owes, or gives up its turns there. */
static void pace(struct pace *p, const struct gsh_vgpu *v) {
	uint64_t window = container_time(v) / window_of(v);
	bool wanted = has_open(v) || atomic_load(&v->waiting);
	if (!p->window) return; /* it has not launched since it lost its server */
	deduct(p, v);
	if (p->window != window && (wanted || p->owes)) count_window(p, v, window, wanted);
	if (!wanted && !p->owes && p->last_wanted + 1 < window) gsh_peers_deactivate(v->number);
}

/* Gives up the turns of a process that a server serves. */
static void retire(uint32_t vgpu) {
	gsh_peers_owe(vgpu, false);
	gsh_peers_deactivate(vgpu);
}

void gsh_pace_round(void) {
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++) {
		if (atomic_load(&gsh_self_paced))
			pace(&paces[i], &gsh_vgpus[i]);
		else
			retire(i);
	}
	pthread_mutex_unlock(&lock);
}

void gsh_pace_after_fork(void) {
	pthread_mutex_init(&lock, NULL);
	for (uint32_t i = 0; i < GSHARE_VGPU_MAX; i++) paces[i] = (struct pace){0};
}
