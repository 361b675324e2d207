/* Pacing without a token server, against the model device. */
#include <fcntl.h>
#include <unistd.h>

#include "../src/pace.h"
#include "../src/peers.h"
#include "../src/platform.h"
#include "check.h"
#include "model.h"

#define STEP (100 * GSH_MICROSECOND)
#define WINDOW (100 * GSH_MILLISECOND)

static struct gsh_vgpu *const vgpu = &gsh_vgpus[0];

/* Begins with a process that is alone in its container, and served by a server. */
static void begin(uint32_t guaranteed) {
	model_start(4 * GSH_MILLISECOND);
	atomic_store(&vgpu->server->window, WINDOW);
	atomic_store(&vgpu->server->part_start, WINDOW); /* the part begins with each window of the clock */
	atomic_store(&vgpu->server->guaranteed, guaranteed);
}

/* Ends the service. */
static void pace(void) {
	gsh_pace_begin();
	atomic_store(&gsh_self_paced, true);
}

/* Launches a kernel and waits for it. */
static void launch_and_wait(struct model_kernel *k) {
	model_launch(k, 1);
	cuStreamSynchronize(model_handle(1));
	model_advance(STEP);
}

/*
 * A process whose host is slow uses less than its part while it may launch, and has saved next to nothing. Outside of its part it then
 * launches next to nothing, however little of what it has left it uses there.
 */
TEST(only_what_was_lost_is_used_later) {
	static const struct {
		const char *name;
		uint32_t within, outside; /* use of the SMs while it may launch, per mille */
	} tests[] = {{"always busy", 1000, 1000}, {"slow host", 600, 600}, {"slower host later", 800, 50}, {"slower host at first", 600, 1000}};
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
		begin(300);
		pace();
		uint64_t from = gsh_now(), launching = 0, outside = 0, used = 0;
		for (uint64_t step = 0; step < 10 * GSH_SECOND / STEP; step++, model_advance(STEP)) {
			if (step % 100 == 0) { /* 3 us look like a neighbour's */
				atomic_fetch_add(&vgpu->busy, 3 * GSH_MICROSECOND);
				atomic_fetch_add(&vgpu->excused, 3 * GSH_MICROSECOND);
			}
			bool late = gsh_server_now() % WINDOW > WINDOW * 3 / 10;
			if (!gsh_pace_permits(vgpu)) continue;
			uint64_t work = STEP / 1000 * (late ? tests[i].outside : tests[i].within);
			atomic_fetch_add(&vgpu->busy, work);
			launching += STEP;
			outside += late ? STEP : 0;
			used += work;
		}
		double all = (double)(gsh_now() - from);
		printf("  %s: launches in %.3f of the time, %.3f of it outside, uses %.3f\n", tests[i].name, (double)launching / all,
		       (double)outside / all, (double)used / all);
		CHECK((double)launching < 0.32 * all);
		CHECK((double)used < 0.31 * all);
		CHECK((double)launching > 0.28 * all);
	}
}

/*
 * What a launch takes beyond the usual is excused for a fifth of the time since the process paces itself, with the launch's own, and for 2 s
 * at most.
 */
TEST(excuses_are_earned) {
	static const struct {
		uint64_t served, paced, longer, least, most; /* ms */
	} tests[] = {{1, 0, 1000, 200, 205},        {20000, 0, 1000, 200, 205}, {1, 1000, 1000, 400, 405},
		     {20000, 1000, 1000, 400, 405}, {1, 4000, 500, 490, 500},   {1, 20000, 5000, 1990, 2000}};
	for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
		struct model_kernel k = {2 * GSH_MILLISECOND}; /* too long for a budget: each one is measured */
		begin(1000);
		for (uint64_t from = gsh_now(); gsh_now() - from < tests[i].served * GSH_MILLISECOND;) launch_and_wait(&k);
		pace();
		for (int n = 0; n < 3; n++) launch_and_wait(&k);
		for (uint64_t from = gsh_now(); gsh_now() - from < tests[i].paced * GSH_MILLISECOND;) launch_and_wait(&k);
		uint64_t before = atomic_load(&vgpu->excused);
		k.duration += tests[i].longer * GSH_MILLISECOND;
		launch_and_wait(&k);
		uint64_t excused = (atomic_load(&vgpu->excused) - before) / GSH_MILLISECOND;
		printf("  served for %lu ms, paced for %lu ms: %lu ms of %lu are excused\n", (unsigned long)tests[i].served,
		       (unsigned long)tests[i].paced, (unsigned long)excused, (unsigned long)tests[i].longer);
		CHECK(excused >= tests[i].least && excused <= tests[i].most);
	}
}

int main(int argc, char **argv) {
	char directory[] = "/tmp/pace_testXXXXXX", file[64];
	if (!mkdtemp(directory)) return 1;
	snprintf(file, sizeof file, "%s/processes-1", directory);
	close(open(file, O_CREAT | O_RDONLY | O_CLOEXEC, 0600));
	model_start(GSH_MILLISECOND); /* it looks for a directory of its own first */
	gsh_peers_init(directory);
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(only_what_was_lost_is_used_later), T(excuses_are_earned), {0}};
	int failed = check_run(tests, argc, argv);
	unlink(file);
	rmdir(directory);
	return failed;
}
