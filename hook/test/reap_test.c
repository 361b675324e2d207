/* Measured time, the bound of unfinished work, and captures, against the model device. */
#include "../src/gate.h"
#include "../src/reap.h"
#include "../src/platform.h"
#include "check.h"
#include "model.h"

#define RUN_AHEAD (4 * GSH_MILLISECOND)

/* Returns the ns that the vGPU was charged. */
static uint64_t charged_ns(void) { return atomic_load(&gsh_vgpus[0].busy); }

/* Waits for all work and checks that no event is left. */
static void finish(void) {
	cuCtxSynchronize();
	model_advance(5 * GSH_MILLISECOND);
	CHECK_EQUAL(gsh_events_open(), 0);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].open), 0);
	CHECK_EQUAL(model_stale_event_calls, 0);
	CHECK_EQUAL(model_captured_records, 0);
	CHECK_EQUAL(model_blocking_events, 0);
}

/* Checks that the charged time is that of the model, within a tolerance. */
static void check_charged(double tolerance) {
	finish();
	double got = (double)charged_ns(), want = (double)model_busy();
	if (got < want * (1 - tolerance) || got > want * (1 + tolerance)) {
		printf("  charged %.0f of %.0f ns\n", got, want);
		CHECK(!"within tolerance");
	}
}

TEST(busy_device_is_measured) {
	struct model_kernel k = {20 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 20000; i++) model_launch(&k, 1);
	check_charged(0.01);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].launches), 20000);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].blocks), 80000);
}

/* One short kernel a millisecond: the idle time in between is not charged. */
TEST(sparse_launches_are_not_overcharged) {
	struct model_kernel k = {10 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 2000; i++) {
		model_launch(&k, 1);
		model_advance(GSH_MILLISECOND);
	}
	check_charged(0.02);
}

/* Bursts within a millisecond, then a pause: the batches contain idle time. */
TEST(bursts_are_measured) {
	struct model_kernel k = {3 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 500; i++) {
		for (int b = 0; b < 30; b++) model_launch(&k, 1);
		model_advance(7 * GSH_MILLISECOND);
	}
	check_charged(0.05);
}

/* Bursts of launches, each of which takes the host time before the device can begin and after that. */
static void launch_slowly(uint64_t duration, uint64_t before, uint64_t after) {
	struct model_kernel k = {duration};
	model_start(RUN_AHEAD);
	model_before_launch = before, model_after_launch = after;
	for (int i = 0; i < 500; i++) {
		for (int b = 0; b < 100; b++) model_launch(&k, 1);
		model_advance(7 * GSH_MILLISECOND);
	}
}

/* While the host makes a launch the device waits for it, which is not charged. */
TEST(host_time_of_launches_is_not_charged) {
	launch_slowly(2 * GSH_MICROSECOND, 3 * GSH_MICROSECOND, 0);
	check_charged(0.3);
}

/* A launch that returns when the device has long begun makes no kernel seem to take less than half of its time. */
TEST(slow_launches_hide_no_kernels) {
	static const uint64_t durations[] = {1, 2, 3, 5, 10, 20, 50};
	for (int c = 0; c < 7; c++) {
		launch_slowly(durations[c] * GSH_MICROSECOND, 0, durations[c] * GSH_MICROSECOND);
		check_charged(0.51);
	}
}

TEST(overlapping_streams_are_counted_once) {
	struct model_kernel k[3] = {{30 * GSH_MICROSECOND}, {70 * GSH_MICROSECOND}, {25 * GSH_MICROSECOND}};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 9000; i++) model_launch(&k[i % 3], 1 + i % 3);
	check_charged(0.05);
}

/* Launches into several streams in turn, of which `wide` run in parallel. */
static void launch_in_turn(struct model_kernel *k, int wide, int streams) {
	model_start(GSH_MILLISECOND);
	model_width = wide;
	for (int i = 0; i < 12000; i++) model_launch(k, 1 + i % streams);
	finish();
}

/*
 * Launches into several streams in turn, of which only some run in parallel. A stream that waits for SMs is not idle,
 * and either the host or the device is the slower. In the first round the hook learns how the streams overlap.
 */
TEST(streams_share_the_sms) {
	static const uint64_t durations[] = {5, 20, 50, 100, 200, 400};
	for (int c = 0; c < 6 * 9; c++) {
		struct model_kernel k = {durations[c % 6] * GSH_MICROSECOND};
		int wide = 1 << c / 6 % 3, streams = wide << c / 18;
		launch_in_turn(&k, wide, streams);
		launch_in_turn(&k, wide, streams);
		check_charged(0.03);
	}
}

/* A kernel in each of several streams, then a pause: time in parallel is charged once, the pause is not charged. */
TEST(parallel_bursts_are_counted_once) {
	static const uint64_t durations[] = {3, 10, 100, 200, 400};
	for (int c = 0; c < 5 * 3; c++) {
		struct model_kernel k = {durations[c % 5] * GSH_MICROSECOND};
		model_start(GSH_MILLISECOND);
		for (int i = 0; i < 2000; i++) {
			for (int s = 0; s < 1 << c / 5; s++) model_launch(&k, 1 + s);
			model_advance(k.duration + 200 * GSH_MICROSECOND);
		}
		check_charged(0.05);
	}
}

TEST(many_functions_are_measured) {
	static struct model_kernel k[100];
	uint64_t random = 3;
	model_start(RUN_AHEAD);
	for (int i = 0; i < 100; i++) k[i].duration = (1 + check_random(&random) % 200) * GSH_MICROSECOND;
	for (int i = 0; i < 20000; i++) model_launch(&k[check_random(&random) % 100], 1);
	check_charged(0.03);
}

/* A network launches one function for many small layers and a large one: the large one does not make the small ones seem long. */
TEST(sizes_of_a_function_are_measured_apart) {
	struct model_kernel k = {5 * GSH_MICROSECOND, 50};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 20000; i++) model_launch_blocks(&k, 1, i % 10 ? 20 : 2000);
	check_charged(0.02);
	uint64_t small = gsh_cost_of(gsh_kernel_key(&k, 20)), large = gsh_cost_of(gsh_kernel_key(&k, 2000));
	CHECK(small > 5 * GSH_MICROSECOND && small < 7 * GSH_MICROSECOND);
	CHECK(large > 100 * GSH_MICROSECOND && large < 110 * GSH_MICROSECOND);
}

/* The driver may give a new graph the address of one that was destroyed. */
TEST(graph_at_a_used_address_has_its_own_blocks) {
	int graph;
	model_start(RUN_AHEAD);
	gsh_cost_add_graph(&graph, 1);
	gsh_cost_forget(&graph);
	gsh_cost_add_graph(&graph, 1000);
	CHECK_EQUAL(atomic_load(&gsh_cost_find(&graph)->blocks), 1000);
}

/* The ways to change what an executable graph runs. */
static CUresult change_graph(CUgraphExec e, int how) {
	CUgraphNodeParams any = {0};
	switch (how) {
	case 0: return cuGraphExecUpdate(e, NULL, NULL, NULL);
	case 1: return cuGraphExecUpdate_v2(e, NULL, NULL);
	case 2: return cuGraphExecKernelNodeSetParams(e, NULL, NULL);
	case 3: return cuGraphExecKernelNodeSetParams_v2(e, NULL, NULL);
	case 4: return cuGraphExecChildGraphNodeSetParams(e, NULL, NULL);
	case 5: return cuGraphExecNodeSetParams(e, NULL, &any);
	case 6: return cuGraphExecMemcpyNodeSetParams(e, NULL, NULL, NULL);
	case 7: return cuGraphExecMemsetNodeSetParams(e, NULL, NULL, NULL);
	case 8: return cuGraphNodeSetEnabled(e, NULL, 1);
	default: return CUDA_ERROR_NOT_FOUND;
	}
}

/* A graph whose kernels were replaced by longer ones is measured before further launches follow. */
TEST(a_changed_graph_is_measured_anew) {
	int how = 0;
	for (;; how++) {
		struct model_kernel k = {20 * GSH_MICROSECOND};
		CUgraphExec e = (CUgraphExec)&k;
		model_start(RUN_AHEAD);
		for (int i = 0; i < 300; i++) model_advance(5 * GSH_MICROSECOND), cuGraphLaunch(e, model_handle(1));
		k.duration = 50 * GSH_MILLISECOND;
		if (change_graph(e, how) != CUDA_SUCCESS) break;
		model_max_unfinished = 0;
		for (int i = 0; i < 20; i++) model_advance(5 * GSH_MICROSECOND), cuGraphLaunch(e, model_handle(1));
		CHECK(model_max_unfinished < 60 * GSH_MILLISECOND);
		finish();
	}
	CHECK_EQUAL(how, 9);
}

/* A launch that was made before the change, and is measured after it, is charged and says nothing about the new kernels. */
TEST(a_launch_before_a_change_says_nothing) {
	struct model_kernel k = {2 * GSH_MILLISECOND};
	model_start(RUN_AHEAD);
	cuGraphLaunch((CUgraphExec)&k, model_handle(1));
	cuGraphExecUpdate_v2((CUgraphExec)&k, NULL, NULL);
	check_charged(0.01);
	CHECK(gsh_cost_of(&k) == GSH_COST_UNKNOWN);
}

/* Launches a function that is short whenever an epoch begins and long right after, and lets the host wait for it in two ways. */
static void hide_long_kernels(bool by_call) {
	struct model_kernel k = {0};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 1000; i++) {
		k.duration = 5 * GSH_MICROSECOND;
		model_launch(&k, 1);
		k.duration = 5 * GSH_MILLISECOND;
		model_launch(&k, 1);
		if (by_call)
			cuStreamSynchronize(model_handle(1));
		else
			model_advance(5 * GSH_MILLISECOND);
		model_advance(GSH_MILLISECOND);
	}
	check_charged(0.1);
}
TEST(long_kernels_are_not_hidden_by_short_ones) { hide_long_kernels(false); }
TEST(long_kernels_behind_short_ones_are_measured) { hide_long_kernels(true); }

/*
 * A function that becomes long right after it was measured runs as far ahead as its estimate allows, once: its batch shows that
 * the estimate is wrong, and the next launches wait until one of them was measured.
 */
TEST(a_late_batch_makes_estimates_doubtful) {
	struct model_kernel k = {20 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 300; i++) model_launch(&k, 1);
	k.duration = 50 * GSH_MILLISECOND;
	for (int burst = 0; burst < 2; burst++) {
		model_max_unfinished = 0;
		for (int i = 0; i < 20; i++) model_launch(&k, 1);
		if (burst == 0) CHECK(model_max_unfinished > 500 * GSH_MILLISECOND);
		if (burst == 1) CHECK(model_max_unfinished < 101 * GSH_MILLISECOND);
		cuStreamSynchronize(model_handle(1));
	}
	check_charged(0.01);
}

/* The work that a synchronising call waits for is charged before it returns, without the helper. */
TEST(sync_charges_completed_work) {
	struct model_kernel k = {50 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 5; i++) cuLaunchKernel((CUfunction)&k, 1, 1, 1, 1, 1, 1, 0, model_handle(1), NULL, NULL);
	cuStreamSynchronize(model_handle(1));
	CHECK(charged_ns() >= 249 * GSH_MICROSECOND && charged_ns() <= 251 * GSH_MICROSECOND);
	finish();
}

/* Returns the most unfinished work of a loop of launches. */
static uint64_t max_unfinished(uint64_t duration, uint64_t run_ahead, int streams) {
	struct model_kernel k = {duration};
	model_start(run_ahead);
	for (int i = 0; i < 3000; i++) model_launch(&k, 1 + i % streams);
	uint64_t most = model_max_unfinished;
	finish();
	return most;
}

/* Unfinished work stays within the bound plus one kernel. */
TEST(run_ahead_is_bounded) {
	static const uint64_t durations[] = {2, 10, 50, 300, 1000, 3000, 20000};
	for (int i = 0; i < 7; i++) {
		uint64_t d = durations[i] * GSH_MICROSECOND, most = max_unfinished(d, RUN_AHEAD, 1);
		if (most > RUN_AHEAD + d) printf("  kernels of %llu ns: %llu ns\n", (unsigned long long)d, (unsigned long long)most);
		CHECK(most <= RUN_AHEAD + d);
	}
}

/* Without a bound the same loop exceeds it by far, so the check above can fail. */
TEST(run_ahead_without_bound_is_larger) { CHECK(max_unfinished(GSH_MILLISECOND, 0, 1) > 10 * RUN_AHEAD); }

static int pauses, waits;
/* Sets the state on the server page. */
static void set_state(uint32_t state) {
	atomic_store(&gsh_vgpus[0].server->state, state);
	atomic_fetch_add(&gsh_vgpus[0].server->generation, 1);
}
static void pause_during_wait(void) {
	if (atomic_load(&gsh_vgpus[0].server->state) == GSHARE_RUN) pauses++, set_state(GSHARE_PAUSE);
}
static void resume_during_wait(void) { waits++, set_state(GSHARE_RUN); }

/* A token that ends while a launch waits for the bound is noticed before the launch. */
TEST(token_end_during_wait_is_noticed) {
	struct model_kernel k = {3 * GSH_MILLISECOND};
	model_start(RUN_AHEAD);
	pauses = waits = 0;
	model_on_bound_wait = pause_during_wait;
	model_on_token_wait = resume_during_wait;
	for (int i = 0; i < 50; i++) {
		model_launch(&k, 1);
		CHECK_EQUAL(atomic_load(&gsh_vgpus[0].server->state), GSHARE_RUN);
	}
	model_on_bound_wait = model_on_token_wait = NULL;
	CHECK(pauses > 10 && waits == pauses);
	finish();
}

TEST(run_ahead_is_bounded_with_streams) {
	static const uint64_t durations[] = {2, 10, 50, 100, 300, 1000, 3000};
	for (int i = 0; i < 7; i++)
		for (int streams = 2; streams <= 15; streams++) {
			uint64_t d = durations[i] * GSH_MICROSECOND, most = max_unfinished(d, RUN_AHEAD, streams);
			CHECK(most <= RUN_AHEAD + d);
		}
}

/* A graph is one launch, whose cost is measured. */
TEST(graphs_are_measured) {
	struct model_kernel graph = {2 * GSH_MILLISECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 300; i++) {
		model_advance(5 * GSH_MICROSECOND);
		cuGraphLaunch((CUgraphExec)&graph, model_handle(1));
	}
	CHECK(model_max_unfinished <= RUN_AHEAD + graph.duration);
	check_charged(0.02);
}

TEST(capturing_streams_get_no_events) {
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
	check_charged(0.05);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].launches), 20 * 200); /* those of the stream that does not capture */
}

/* A capture that began by a call that is not wrapped: the driver is asked before an event is recorded. */
TEST(unobserved_captures_get_no_events) {
	struct model_kernel k = {10 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 100; i++) model_launch(&k, 1);
	model_streams[1].capturing = 1;
	for (int i = 0; i < 1000; i++) model_launch(&k, 1);
	model_streams[1].capturing = 0;
	CHECK_EQUAL(model_captured_records, 0);
}

TEST(failed_launches_are_not_measured) {
	struct model_kernel k = {10 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	model_launch_result = 719;
	for (int i = 0; i < 10; i++) model_launch(&k, 1);
	CHECK(gsh_cost_of(gsh_kernel_key(&k, 4)) >= GSH_COST_UNKNOWN);
	CHECK(charged_ns() < 100 * GSH_MICROSECOND);
}

/* Launches that no event can measure are charged: the first by the time until its stream is idle, the next ones by that. */
TEST(launches_without_events_are_charged) {
	struct model_kernel k = {10 * GSH_MILLISECOND};
	model_start(RUN_AHEAD);
	model_record_fails = 1;
	for (int i = 0; i < 20; i++) {
		model_launch(&k, 1);
		cuStreamSynchronize(model_handle(1));
	}
	model_record_fails = 0;
	check_charged(0.1);
}

/* No event is used after its context ended; none is left. */
TEST(context_end_destroys_events) {
	struct model_kernel k = {100 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 100; i++) model_launch(&k, 1);
	cuCtxDestroy_v2((CUcontext)0x1000);
	CHECK_EQUAL(gsh_events_open(), 0);
	CHECK_EQUAL(model_events, 0);
	model_advance(10 * GSH_MILLISECOND);
	CHECK_EQUAL(model_stale_event_calls, 0);
	CHECK_EQUAL(atomic_load(&gsh_vgpus[0].open), 0);
}

/* The driver's float milliseconds are too coarse after minutes, so a new base event is taken every 10 s. */
TEST(long_runs_stay_exact) {
	struct model_kernel k = {100 * GSH_MICROSECOND};
	model_start(RUN_AHEAD);
	for (int i = 0; i < 600; i++) {
		for (int b = 0; b < 20; b++) model_launch(&k, 1);
		model_advance(GSH_SECOND);
	}
	check_charged(0.02);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(busy_device_is_measured),
						  T(sparse_launches_are_not_overcharged),
						  T(bursts_are_measured),
						  T(host_time_of_launches_is_not_charged),
						  T(slow_launches_hide_no_kernels),
						  T(overlapping_streams_are_counted_once),
						  T(streams_share_the_sms),
						  T(parallel_bursts_are_counted_once),
						  T(many_functions_are_measured),
						  T(sizes_of_a_function_are_measured_apart),
						  T(graph_at_a_used_address_has_its_own_blocks), T(a_changed_graph_is_measured_anew), T(a_launch_before_a_change_says_nothing),
						  T(long_kernels_are_not_hidden_by_short_ones),
						  T(long_kernels_behind_short_ones_are_measured),
						  T(a_late_batch_makes_estimates_doubtful),
						  T(sync_charges_completed_work),
						  T(run_ahead_is_bounded),
						  T(run_ahead_without_bound_is_larger),
						  T(token_end_during_wait_is_noticed),
						  T(run_ahead_is_bounded_with_streams),
						  T(graphs_are_measured),
						  T(capturing_streams_get_no_events),
						  T(unobserved_captures_get_no_events),
						  T(failed_launches_are_not_measured),
						  T(launches_without_events_are_charged),
						  T(context_end_destroys_events),
						  T(long_runs_stay_exact),
						  {0}};
	return check_run(tests, argc, argv);
}
