/* Measured time, the bound of unfinished work, and captures, against the model device. */
#include "../src/gate.h"
#include "../src/reap.h"
#include "../src/platform.h"
#include "check.h"
#include "model.h"

#define RUN_AHEAD (4 * GSH_MILLISECOND)

static uint64_t settled(void) { return atomic_load(&gsh_vgpus[0].busy); }

static void finish(void) {
	cuCtxSynchronize();
	model_pass(5 * GSH_MILLISECOND);
	CHECK_EQUAL(gsh_events_open(), 0);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].open), 0);
	CHECK_EQUAL(model_dead_events, 0);
	CHECK_EQUAL(model_bad_records, 0);
}

static void check_settled(double tolerance) {
	finish();
	double got = (double)settled(), want = (double)model_busy();
	if (got < want * (1 - tolerance) || got > want * (1 + tolerance)) {
		printf("  settled %.0f of %.0f ns\n", got, want);
		CHECK(!"within tolerance");
	}
}

TEST(busy_device_is_measured) {
	struct model_kernel k = {20 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 20000; i++) model_launch(&k, 1);
	check_settled(0.01);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].launches), 20000);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].blocks), 80000);
}

/* One short kernel a millisecond: the time between is not the device's. */
TEST(sparse_launches_are_not_overcharged) {
	struct model_kernel k = {10 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 2000; i++) {
		model_launch(&k, 1);
		model_pass(GSH_MILLISECOND);
	}
	check_settled(0.02);
}

/* Bursts within a millisecond, then a pause: batches with gaps in them. */
TEST(bursts) {
	struct model_kernel k = {3 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 500; i++) {
		for (int b = 0; b < 30; b++) model_launch(&k, 1);
		model_pass(7 * GSH_MILLISECOND);
	}
	check_settled(0.05);
}

TEST(streams_overlap) {
	struct model_kernel k[3] = {{30 * GSH_MICROSECOND}, {70 * GSH_MICROSECOND}, {25 * GSH_MICROSECOND}};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 9000; i++) model_launch(&k[i % 3], 1 + i % 3);
	check_settled(0.05);
}

static void in_turn(struct model_kernel *k, int wide, int streams) {
	model_start(GSH_MILLISECOND);
	model_wide = wide;
	for (int i = 0; i < 12000; i++) model_launch(k, 1 + i % streams);
	finish();
}

/*
 * FG-73: streams in turn, of which as many as the SMs hold run side by side. A stream that waits for them is not idle, and
 * host and device are in turns the slower. The first time shows the hook how the streams overlap.
 */
TEST(streams_share_the_sms) {
	static const uint64_t durations[] = {5, 20, 50, 100, 200, 400};
	for (int c = 0; c < 6 * 9; c++) {
		struct model_kernel k = {durations[c % 6] * GSH_MICROSECOND};
		int wide = 1 << c / 6 % 3, streams = wide << c / 18;
		in_turn(&k, wide, streams);
		in_turn(&k, wide, streams);
		check_settled(0.03);
	}
}

/* Several streams get a kernel each, then rest: what ran side by side is counted once, and the rest is not work. */
TEST(parallel_bursts) {
	static const uint64_t durations[] = {3, 10, 100, 200, 400};
	for (int c = 0; c < 5 * 3; c++) {
		struct model_kernel k = {durations[c % 5] * GSH_MICROSECOND};
		model_start(GSH_MILLISECOND);
		for (int i = 0; i < 2000; i++) {
			for (int s = 0; s < 1 << c / 5; s++) model_launch(&k, 1 + s);
			model_pass(k.duration + 200 * GSH_MICROSECOND);
		}
		check_settled(0.05);
	}
}

TEST(many_functions) {
	static struct model_kernel k[100];
	uint64_t random = 3;
	model_start(RUN_AHEAD);
	for (int i = 0; i < 100; i++) k[i].duration = (1 + check_random(&random) % 200) * GSH_MICROSECOND;
	for (int i = 0; i < 20000; i++) model_launch(&k[check_random(&random) % 100], 1);
	check_settled(0.03);
}

/* FG-73: what a synchronising call waits for is measured before it returns, without the helper. */
TEST(synchronising_settles) {
	struct model_kernel k = {50 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 5; i++) cuLaunchKernel((CUfunction)&k, 1, 1, 1, 1, 1, 1, 0, model_handle(1), NULL, NULL);
	cuStreamSynchronize(model_handle(1));
	CHECK(settled() >= 249 * GSH_MICROSECOND && settled() <= 251 * GSH_MICROSECOND);
	finish();
}

static uint64_t worst_of(uint64_t duration, uint64_t run_ahead, int streams) {
	struct model_kernel k = {duration};
	model_start(run_ahead);
	for (int i = 0; i < 3000; i++) model_launch(&k, 1 + i % streams);
	uint64_t worst = model_worst;
	finish();
	return worst;
}

/* Unfinished work stays under the bound, and one kernel may come on top. */
TEST(run_ahead_is_bounded) {
	static const uint64_t durations[] = {2, 10, 50, 300, 1000, 3000, 20000};
	for (int i = 0; i < 7; i++) {
		uint64_t d = durations[i] * GSH_MICROSECOND, worst = worst_of(d, RUN_AHEAD, 1);
		if (worst > RUN_AHEAD + d) printf("  kernels of %llu ns: %llu ns\n", (unsigned long long)d, (unsigned long long)worst);
		CHECK(worst <= RUN_AHEAD + d);
	}
}

/* The same loop without a bound goes far beyond: the check above can fail. */
TEST(without_bound_it_runs_ahead) { CHECK(worst_of(GSH_MILLISECOND, 0, 1) > 10 * RUN_AHEAD); }

static int flips, rests;
static void flip(uint32_t state) {
	atomic_store(&gsh_vgpus[0].server->state, state);
	atomic_fetch_add(&gsh_vgpus[0].server->generation, 1);
}
static void pause_meanwhile(void) { flips++, flip(GSHARE_PAUSE); }
static void run_again(void) { rests++, flip(GSHARE_RUN); }

/* A token that ends while a launch waits for the bound is noticed before the launch. */
TEST(token_ends_during_the_wait) {
	struct model_kernel k = {3 * GSH_MILLISECOND};
	model_start(RUN_AHEAD);
	flips = rests = 0;
	model_on_event_wait = pause_meanwhile;
	model_on_rest = run_again;
	for (int i = 0; i < 50; i++) {
		model_launch(&k, 1);
		CHECK_EQUAL(atomic_load(&gsh_vgpus[0].server->state), GSHARE_RUN);
	}
	model_on_event_wait = model_on_rest = NULL;
	CHECK(flips > 10 && rests == flips);
	finish();
}

TEST(run_ahead_with_streams) {
	static const uint64_t durations[] = {2, 10, 50, 100, 300, 1000, 3000};
	for (int i = 0; i < 7; i++)
		for (int streams = 2; streams <= 15; streams++) {
			uint64_t d = durations[i] * GSH_MICROSECOND, worst = worst_of(d, RUN_AHEAD, streams);
			CHECK(worst <= RUN_AHEAD + d);
		}
}

/* A graph is one launch, and its cost is learnt. */
TEST(graphs_are_charged) {
	struct model_kernel graph = {2 * GSH_MILLISECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 300; i++) {
		model_pass(5 * GSH_MICROSECOND);
		cuGraphLaunch((CUgraphExec)&graph, model_handle(1));
	}
	CHECK(model_worst <= RUN_AHEAD + graph.duration);
	check_settled(0.02);
}

TEST(capturing_streams_are_left_alone) {
	struct model_kernel k = {10 * GSH_MICROSECOND};
	CUgraph g;
	model_start(RUN_AHEAD);
	for (int round = 0; round < 20; round++) {
		cuStreamBeginCapture_v2(model_handle(2), 0);
		for (int i = 0; i < 200; i++) {
			model_launch(&k, 2);
			model_launch(&k, 1);
		}
		cuStreamEndCapture(model_handle(2), &g);
		CHECK_EQUAL(atomic_load(&gsh_captures), 0);
	}
	check_settled(0.05);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].launches), 20 * 200); /* those of the other stream */
}

/* A capture that began on a way we do not see: the stream itself is asked before anything is recorded. */
TEST(unseen_captures) {
	struct model_kernel k = {10 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 100; i++) model_launch(&k, 1);
	model_streams[1].capturing = 1;
	for (int i = 0; i < 1000; i++) model_launch(&k, 1);
	model_streams[1].capturing = 0;
	CHECK_EQUAL(model_bad_records, 0);
}

TEST(failed_launches_teach_nothing) {
	struct model_kernel k = {10 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	model_launch_answer = 719;
	for (int i = 0; i < 10; i++) model_launch(&k, 1);
	CHECK(gsh_cost_of(&k) >= GSH_COST_UNKNOWN);
	CHECK(settled() < 100 * GSH_MICROSECOND);
}

/* No event is touched after its context ended; none is left. */
TEST(context_end) {
	struct model_kernel k = {100 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 100; i++) model_launch(&k, 1);
	cuCtxDestroy_v2((CUcontext)0x1000);
	CHECK_EQUAL(gsh_events_open(), 0);
	CHECK_EQUAL(model_events, 0);
	model_pass(10 * GSH_MILLISECOND);
	CHECK_EQUAL(model_dead_events, 0);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].open), 0);
}

/* The float of the driver's clock is too coarse after minutes; a new base is taken every 10 s. */
TEST(long_runs_stay_exact) {
	struct model_kernel k = {100 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 600; i++) {
		for (int b = 0; b < 20; b++) model_launch(&k, 1);
		model_pass(GSH_SECOND);
	}
	check_settled(0.02);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(busy_device_is_measured),
						  T(sparse_launches_are_not_overcharged),
						  T(bursts),
						  T(streams_overlap),
						  T(streams_share_the_sms),
						  T(parallel_bursts),
						  T(many_functions),
						  T(synchronising_settles),
						  T(run_ahead_is_bounded),
						  T(without_bound_it_runs_ahead),
						  T(token_ends_during_the_wait),
						  T(run_ahead_with_streams),
						  T(graphs_are_charged),
						  T(capturing_streams_are_left_alone),
						  T(unseen_captures),
						  T(failed_launches_teach_nothing),
						  T(context_end),
						  T(long_runs_stay_exact),
						  {0}};
	return check_run(tests, argc, argv);
}
