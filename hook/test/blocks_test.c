/* Launches with a server whose tokens are thread blocks (Dilu), on the fake driver. Runs under the hook. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define TOKENS 6400
#define BATCH (TOKENS / 16)

static struct server server = {.memory_limit = 1 << 30, .run_ahead = 10000000, .tokens = TOKENS};
static CUfunction kernel;

/* The latest session, its pages, and the block tokens that were taken and that are left. */
static struct server_session *session(void) { return &server.session[server.sessions - 1]; }
static struct gshare_server_page *page(void) { return session()->server[0]; }
static struct gshare_client_page *client(void) { return session()->client[0]; }
static uint64_t taken(void) { return server.container[0]->taken; }
static int64_t left(void) { return (int64_t)(page()->credit - taken()); }

/* Issues block tokens and wakes waiters. */
static void grant(uint64_t blocks) {
	page()->credit += blocks;
	page()->wake++;
	syscall(SYS_futex, &page()->wake, FUTEX_WAKE, 1 << 20, NULL, NULL, 0);
}

/* Sets how many block tokens are left. */
static void set_left(uint64_t blocks) { grant(taken() + blocks - page()->credit); }

/* Launches a kernel of so many thread blocks. */
static CUresult launch(unsigned blocks, CUstream s) { return cuLaunchKernel(kernel, blocks, 1, 1, 32, 1, 1, 0, s, NULL, NULL); }

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits up to a minute for a condition and returns whether it held. */
static int eventually(int (*holds)(void)) {
	int held = holds();
	for (uint64_t end = now() + 60000000000ull; !held && now() < end; held = holds()) usleep(1000);
	return held;
}
static int one_waits(void) { return client()->waiting == 1; }

/* A thread that launches into a stream of its own and destroys it, which returns all unused tokens. */
struct job {
	unsigned blocks, launches;
	_Atomic unsigned done;
	pthread_t thread;
};
static void *work(void *arg) {
	struct job *j = arg;
	CUcontext c;
	CUstream s;
	cuDevicePrimaryCtxRetain(&c, 0);
	cuCtxSetCurrent(c);
	cuStreamCreate(&s, 1);
	for (unsigned i = 0; i < j->launches; i++, j->done++) launch(j->blocks, s);
	cuStreamSynchronize(s);
	cuStreamDestroy_v2(s);
	return NULL;
}
static void start(struct job *j) { pthread_create(&j->thread, NULL, work, j); }

/* Launches pass while tokens are left; then the thread waits and requests a token once. */
TEST(launches_wait_for_block_tokens) {
	struct job j = {.blocks = 10, .launches = 12};
	int needs = session()->needs;
	set_left(100);
	start(&j);
	CHECK(eventually(one_waits));
	for (int i = 0; i < 5000 && session()->needs == needs; i++) usleep(1000);
	usleep(50000);
	CHECK_EQUAL(j.done, 10);
	CHECK_EQUAL(left(), 0);
	CHECK_EQUAL(session()->needs, needs + 1);
	grant(20);
	pthread_join(j.thread, NULL);
	CHECK_EQUAL(left(), 0);
}

/* No token is requested while the server's deadline for the next ones is in the future. */
TEST(expected_tokens_are_not_requested) {
	struct job j = {.blocks = 10, .launches = 1};
	int needs = session()->needs;
	set_left(0);
	page()->deadline = UINT64_MAX;
	start(&j);
	CHECK(eventually(one_waits));
	usleep(30000);
	CHECK_EQUAL(session()->needs, needs);
	page()->deadline = 0; /* the server is idle */
	for (int i = 0; i < 5000 && session()->needs == needs; i++) usleep(1000);
	CHECK_EQUAL(session()->needs, needs + 1);
	grant(10);
	pthread_join(j.thread, NULL);
}

/* A kernel larger than what is left goes into debt (D21), which later tokens pay. */
TEST(large_kernel_goes_into_debt) {
	struct job large = {.blocks = 1000, .launches = 1}, small = {.blocks = 1, .launches = 1};
	set_left(1);
	start(&large);
	pthread_join(large.thread, NULL);
	CHECK_EQUAL(left(), -999);
	start(&small);
	CHECK(eventually(one_waits));
	grant(999);
	usleep(20000);
	CHECK_EQUAL(small.done, 0);
	grant(1);
	pthread_join(small.thread, NULL);
	CHECK_EQUAL(left(), 0);
}

/* A batch is at most a sixteenth of a tick's tokens, and unused ones are returned. */
TEST(batch_is_bounded_and_returned) {
	CUstream s;
	uint64_t before = taken(), launched = 0, most = 0;
	set_left(1000000);
	cuStreamCreate(&s, 1);
	for (; launched < 7 * 5000; launched += 7) {
		CHECK_EQUAL(launch(7, s), CUDA_SUCCESS);
		uint64_t held = taken() - before - launched - 7;
		if (held > most) most = held;
	}
	CHECK(most > 0 && most <= BATCH);
	cuStreamSynchronize(s);
	cuStreamDestroy_v2(s);
	CHECK_EQUAL(taken() - before, launched);
	CHECK(client()->blocks >= launched);
}

static void *launch_and_end(void *c) {
	cuCtxSetCurrent(c);
	for (int i = 0; i < 20; i++) launch(7, NULL);
	return NULL;
}

/* A thread that ends returns its unused tokens, although it has not synchronised. */
TEST(ended_thread_returns_its_tokens) {
	CUcontext c;
	pthread_t t;
	cuCtxGetCurrent(&c);
	uint64_t before = taken();
	set_left(1000000);
	pthread_create(&t, NULL, launch_and_end, c);
	pthread_join(t, NULL);
	CHECK_EQUAL(taken() - before, 20 * 7);
}

#define THREADS 6
/* Threads with kernels of different sizes: tokens are neither lost nor counted twice, and each thread owes at most a batch. */
TEST(threads_share_one_credit) {
	struct job jobs[THREADS] = {{0}};
	uint64_t want = 0, before = taken();
	set_left(0);
	for (unsigned i = 0; i < THREADS; i++) {
		jobs[i].blocks = 1 + 37 * i * i, jobs[i].launches = 3000 / (1 + i);
		want += (uint64_t)jobs[i].blocks * jobs[i].launches;
		start(&jobs[i]);
	}
	for (uint64_t granted = 0; granted < want; granted += TOKENS) {
		int64_t debt = -left();
		CHECK(debt <= THREADS * (BATCH > 926 ? BATCH : 926));
		grant(TOKENS);
		usleep(2000);
	}
	for (int i = 0; i < THREADS; i++) pthread_join(jobs[i].thread, NULL);
	CHECK_EQUAL(taken() - before, want);
}

/* A graph takes the blocks of all its kernels (D22). */
TEST(graphs_count_their_blocks) {
	CUstream s;
	CUgraph g;
	CUgraphExec e;
	set_left(100000);
	cuStreamCreate(&s, 1);
	CHECK_EQUAL(cuStreamBeginCapture_v2(s, 0), CUDA_SUCCESS);
	for (unsigned i = 1; i <= 4; i++) CHECK_EQUAL(launch(i, s), CUDA_SUCCESS);
	CHECK_EQUAL(cuStreamEndCapture(s, &g), CUDA_SUCCESS);
	CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, g, 0), CUDA_SUCCESS);
	uint64_t before = taken();
	for (int i = 0; i < 50; i++) CHECK_EQUAL(cuGraphLaunch(e, s), CUDA_SUCCESS);
	cuStreamSynchronize(s);
	cuStreamDestroy_v2(s);
	CHECK_EQUAL(taken() - before, 50 * (1 + 2 + 3 + 4));
}

/* Returns the blocks that 10 launches of a graph take, of one. */
static uint64_t blocks_of(CUgraphExec e) {
	CUstream s;
	cuStreamCreate(&s, 1);
	uint64_t before = taken();
	for (int i = 0; i < 10; i++) CHECK_EQUAL(cuGraphLaunch(e, s), CUDA_SUCCESS);
	cuStreamSynchronize(s);
	cuStreamDestroy_v2(s);
	CHECK_EQUAL((taken() - before) % 10, 0);
	return (taken() - before) / 10;
}

/* Captures a kernel of so many thread blocks, and another one of 1. */
static CUgraph captured(unsigned blocks) {
	CUstream s;
	CUgraph g = NULL;
	cuStreamCreate(&s, 1);
	CHECK_EQUAL(cuStreamBeginCapture_v2(s, 0), CUDA_SUCCESS);
	CHECK_EQUAL(launch(blocks, s), CUDA_SUCCESS);
	CHECK_EQUAL(launch(1, s), CUDA_SUCCESS);
	CHECK_EQUAL(cuStreamEndCapture(s, &g), CUDA_SUCCESS);
	cuStreamDestroy_v2(s);
	return g;
}

/* The kernels of an executable graph may be replaced by larger ones. */
TEST(changed_graphs_count_their_blocks) {
	CUgraph g = captured(4), parent, larger = captured(30);
	CUgraphNode nodes[2], child;
	CUgraphExec e;
	size_t n = 2;
	CUDA_KERNEL_NODE_PARAMS p = {.func = kernel, .gridDimX = 100, .gridDimY = 2, .gridDimZ = 1};
	CUgraphNodeParams any = {.type = 0, .kernel = p};
	set_left(1000000);
	CHECK_EQUAL(cuGraphGetNodes(g, nodes, &n), CUDA_SUCCESS);
	CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, g, 0), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 5);
	CHECK_EQUAL(cuGraphExecKernelNodeSetParams_v2(e, nodes[0], &p), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 201);
	p.gridDimX = 10;
	CHECK_EQUAL(cuGraphExecKernelNodeSetParams(e, nodes[0], (CUDA_KERNEL_NODE_PARAMS_v1 *)&p), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 21);
	CHECK_EQUAL(cuGraphExecNodeSetParams(e, nodes[1], &any), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 220);
	CHECK_EQUAL(cuGraphExecUpdate_v2(e, larger, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 31);
	CHECK_EQUAL(cuGraphExecUpdate(e, g, NULL, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 5);
	cuGraphExecDestroy(e);
	cuGraphCreate(&parent, 0);
	cuGraphAddChildGraphNode(&child, parent, NULL, 0, g);
	CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, parent, 0), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 5);
	for (int i = 0; i < 3; i++) CHECK_EQUAL(cuGraphExecChildGraphNodeSetParams(e, child, larger), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 36); /* what it had stays counted, once */
	any = (CUgraphNodeParams){.type = 4, .graph.graph = g};
	CHECK_EQUAL(cuGraphExecNodeSetParams(e, child, &any), CUDA_SUCCESS);
	CHECK_EQUAL(blocks_of(e), 10);
	cuGraphExecDestroy(e);
}

/* More graphs and functions than the table of costs has entries. */
TEST(forgotten_graphs_count_their_blocks) {
	enum { GRAPHS = 20000 };
	static CUgraphExec e[GRAPHS];
	CUgraph g = captured(4);
	set_left(1000000);
	for (int i = 0; i < GRAPHS; i++) CHECK_EQUAL(cuGraphInstantiateWithFlags(&e[i], g, 0), CUDA_SUCCESS);
	for (int i = 0; i < GRAPHS; i += 5000) CHECK_EQUAL(blocks_of(e[i]), 5);
	for (int i = 0; i < 3; i++) cuGraphExecDestroy(e[i]);
}

/* A cycle lasts from the first launch to the end of a wait; querying an event is not a wait. */
TEST(cycles_are_published) {
	CUstream s;
	CUevent e;
	set_left(100000);
	cuStreamCreate(&s, 1);
	launch(1, s);
	cuStreamSynchronize(s);
	uint64_t ended = client()->cycles;
	CHECK_EQUAL(client()->cycle_start, 0);
	for (int i = 0; i < 3 * GSHARE_CYCLES; i++) {
		CHECK_EQUAL(launch(1, s), CUDA_SUCCESS);
		uint64_t start = client()->cycle_start;
		CHECK(start > 0);
		CHECK_EQUAL(launch(1, s), CUDA_SUCCESS);
		CHECK_EQUAL(cuEventCreate(&e, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuEventRecord(e, s), CUDA_SUCCESS);
		while (cuEventQuery(e) != CUDA_SUCCESS) continue;
		CHECK_EQUAL(client()->cycle_start, start);
		CHECK_EQUAL(cuStreamSynchronize(s), CUDA_SUCCESS);
		CHECK_EQUAL(client()->cycle_start, 0);
		CHECK_EQUAL(client()->cycles, ended + (uint64_t)i + 1);
		CHECK(client()->cycle_times[(ended + (uint64_t)i) % GSHARE_CYCLES] > 0);
		cuEventDestroy_v2(e);
	}
	cuStreamDestroy_v2(s);
}

/* Reports whether a launch takes a token: one that is self-paced takes none. */
static int obeys_server(void) {
	struct job j = {.blocks = 1, .launches = 1};
	set_left(10);
	start(&j);
	pthread_join(j.thread, NULL);
	return left() == 9;
}

/* Waits until a launch goes on though it gets no tokens. If it does not, it is made to: the heartbeat expires. */
static int goes_on(struct job *j) {
	for (int i = 0; i < 60000 && !j->done; i++) usleep(1000);
	int went_on = j->done == 1;
	if (!went_on) {
		server.heartbeats = 0;
		usleep(100000); /* one that has begun is written */
		page()->heartbeat = server_now();
	}
	pthread_join(j->thread, NULL);
	return went_on;
}

/* A server that issues no tokens by its deadline: launches are self-paced, though its heartbeat has not expired, and it is obeyed again. */
TEST(server_hangs) {
	struct job j = {.blocks = 10, .launches = 1};
	set_left(0);
	page()->deadline = server_now() + 5000000;
	uint64_t from = now();
	start(&j);
	CHECK(goes_on(&j));
	CHECK(now() - from > 200000000ull);
	CHECK_EQUAL(left(), 0); /* no tokens are taken without a server */
	page()->deadline = 0;
	CHECK(eventually(obeys_server));
	launches_wait_for_block_tokens();
}

/* A server that ends: a waiting launch is self-paced, and the tokens of the next server are taken again. */
TEST(server_restart_restores_the_session) {
	struct job j = {.blocks = 10, .launches = 1};
	set_left(0);
	start(&j);
	CHECK(eventually(one_waits));
	int before = server.sessions;
	server_stop(&server);
	CHECK(goes_on(&j));
	server_start(&server);
	for (int i = 0; i < 5000 && server.sessions == before; i++) usleep(1000);
	CHECK(eventually(obeys_server)); /* once the helper has checked the new pages */
	launches_wait_for_block_tokens();
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(launches_wait_for_block_tokens), T(expected_tokens_are_not_requested),
						  T(large_kernel_goes_into_debt), T(batch_is_bounded_and_returned), T(ended_thread_returns_its_tokens),
						  T(threads_share_one_credit), T(graphs_count_their_blocks), T(changed_graphs_count_their_blocks), T(forgotten_graphs_count_their_blocks), T(cycles_are_published), T(server_hangs),
						  T(server_restart_restores_the_session), {0}};
	server_start(&server);
	kernel = driver_start("spin_ns1000_sm100_blocks1");
	if (!kernel || server.sessions != 1) return printf("no session with the token server\n"), 1;
	return check_run(tests, argc, argv);
}
