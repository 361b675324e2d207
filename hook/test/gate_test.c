/* Launches with a token server, on the fake driver. Runs under the hook. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define MIB (1ull << 20)
#define MS 1000000ull

void fakecuda_at_return(void (*call)(void));

static struct server server = {.memory_limit = 1024 * MIB, .vgpus = 2};
static CUfunction kernel;

/* The latest session, and its client page for the first vGPU. */
static struct server_session *session(void) { return &server.session[server.sessions - 1]; }
static struct gshare_client_page *client(void) { return session()->client[0]; }

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Waits up to 5 s for a condition, and counts a failure if it never held. The condition may act, so it is not asked again once it held. */
static void eventually(int *condition_failures, int (*holds)(void)) {
	int held = holds();
	for (int i = 0; i < 5000 && !held; i++) {
		usleep(1000);
		held = holds();
	}
	*condition_failures += !held;
}

static _Atomic int launched; /* launches of start_launch that returned */
static void *launch_once(void *device) {
	CUcontext c;
	cuDevicePrimaryCtxRetain(&c, (int)(intptr_t)device);
	cuCtxSetCurrent(c);
	driver_launch(kernel, NULL);
	launched++;
	return NULL;
}

/* Starts a thread that launches once on a device. */
static pthread_t start_launch(int device) {
	pthread_t t;
	launched = 0;
	pthread_create(&t, NULL, launch_once, (void *)(intptr_t)device);
	return t;
}

static int one_waits(void) { return client()->waiting == 1; }
static int none_waits(void) { return client()->waiting == 0; }
static int needs_before;
static int one_needs(void) { return session()->needs == needs_before + 1; }

/* PAUSE holds a launch, one token is requested, RUN releases it. */
TEST(pause_holds_launches_until_run) {
	needs_before = session()->needs;
	server_state(session(), GSHARE_PAUSE);
	pthread_t t = start_launch(0);
	eventually(&check_failures, one_waits);
	CHECK(client()->waiting_since > 0);
	eventually(&check_failures, one_needs);
	usleep(60000);
	CHECK_EQUAL(launched, 0);
	CHECK(one_needs());
	server_state(session(), GSHARE_RUN);
	pthread_join(t, NULL);
	CHECK_EQUAL(launched, 1);
	eventually(&check_failures, none_waits);
	CHECK(one_needs());
}

TEST(drain_holds_launches) {
	server_state(session(), GSHARE_DRAIN);
	pthread_t t = start_launch(0);
	eventually(&check_failures, one_waits);
	usleep(30000);
	CHECK_EQUAL(launched, 0);
	server_state(session(), GSHARE_OFF); /* the kill switch passes everything */
	pthread_join(t, NULL);
	CHECK_EQUAL(launched, 1);
	server_state(session(), GSHARE_RUN);
}

/* While one device is paused, launches on the other pass. */
TEST(devices_are_gated_separately) {
	struct gshare_server_page *p = session()->server[1];
	p->state = GSHARE_PAUSE;
	p->generation++;
	pthread_join(start_launch(0), NULL);
	CHECK_EQUAL(launched, 1);
	pthread_t t = start_launch(1);
	usleep(40000);
	CHECK_EQUAL(launched, 0);
	server_state(session(), GSHARE_RUN);
	pthread_join(t, NULL);
	CHECK_EQUAL(launched, 1);
}

/* A state change without a wake-up is noticed after two ticks, 10 ms: on a machine that may stand still, once of several times. */
TEST(lost_wake_up_delays_briefly) {
	uint64_t took = UINT64_MAX;
	for (int i = 0; i < 10 && took >= 200 * MS; i++) {
		server_state(session(), GSHARE_PAUSE);
		pthread_t t = start_launch(0);
		eventually(&check_failures, one_waits);
		uint64_t from = now();
		session()->server[0]->state = GSHARE_RUN;
		pthread_join(t, NULL);
		took = now() - from;
		server_state(session(), GSHARE_RUN);
	}
	CHECK(took < 200 * MS);
}

#define STORM 50000
/* Thread: launches in two streams. */
static void *storm(void *unused) {
	CUcontext c;
	CUstream s;
	cuDevicePrimaryCtxRetain(&c, 0);
	cuCtxSetCurrent(c);
	cuStreamCreate(&s, 1);
	for (int i = 0; i < STORM; i++) driver_launch(kernel, i % 3 ? s : NULL);
	cuStreamSynchronize(s);
	cuCtxSynchronize();
	cuStreamDestroy_v2(s);
	return unused;
}

static int nothing_open(void) { return client()->open == 0; }
static int nothing_open_there(void) { return session()->client[1]->open == 0; }

/*
 * Waits until the helper has published that the last calls have ended, after cuCtxSynchronize: until nothing changes for a quarter of a second. What
 * is read first may be from before the calls, if the machine stands still just then.
 */
static void await_published(void) {
	uint64_t seen;
	do {
		seen = client()->launches;
		usleep(250000);
	} while (client()->launches != seen);
	eventually(&check_failures, nothing_open);
}

static uint64_t want_launches;
static int all_counted(void) { return client()->launches == want_launches && client()->open == 0; }

/* The launches of all threads are counted while the server changes its state. */
TEST(every_launch_is_counted_once) {
	pthread_t t[4];
	cuCtxSynchronize();
	await_published();
	uint64_t before = client()->launches;
	for (int i = 0; i < 4; i++) pthread_create(&t[i], NULL, storm, NULL);
	for (int i = 0; i < 40; i++) {
		server_state(session(), i % 2 ? GSHARE_RUN : GSHARE_PAUSE);
		usleep(1000);
	}
	for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
	want_launches = before + 4 * STORM;
	eventually(&check_failures, all_counted);
	CHECK_EQUAL(client()->launches, want_launches);
}

static void *launch_and_end(void *c) {
	cuCtxSetCurrent(c);
	for (int i = 0; i < 20; i++) driver_launch(kernel, NULL);
	return NULL;
}

/* A thread that ends leaves no launches uncounted, although it has not synchronised. */
TEST(launches_of_an_ended_thread_are_counted) {
	CUcontext c;
	pthread_t t;
	cuCtxGetCurrent(&c);
	cuCtxSynchronize();
	await_published();
	want_launches = client()->launches + 20;
	pthread_create(&t, NULL, launch_and_end, c);
	pthread_join(t, NULL);
	cuCtxSynchronize();
	eventually(&check_failures, all_counted);
	CHECK_EQUAL(client()->launches, want_launches);
}

/* Ends the calling thread within the driver's launch, as pthread_cancel does. */
static void end_in_driver(void) { pthread_exit(NULL); }

static void *launch_and_end_in_driver(void *c) {
	cuCtxSetCurrent(c);
	fakecuda_at_return(end_in_driver);
	cuLaunchCooperativeKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL);
	return NULL;
}

/* A thread that is cancelled in the driver's launch leaves no work open. */
TEST(launch_of_a_cancelled_thread_is_not_open) {
	CUcontext c;
	pthread_t t;
	cuCtxGetCurrent(&c);
	cuCtxSynchronize();
	await_published();
	want_launches = client()->launches + 1;
	pthread_create(&t, NULL, launch_and_end_in_driver, c);
	pthread_join(t, NULL);
	cuCtxSynchronize();
	eventually(&check_failures, all_counted);
	CHECK_EQUAL(client()->open, 0);
}

/* The memory and events of a green context live as long as the primary context that it retains. */
TEST(green_context_ends_with_the_primary) {
	static const int retained[] = {0, 1}; /* whether the program retains the primary context too */
	CUcontext before, c, primary;
	CUgreenCtx g;
	CUdeviceptr p;
	cuCtxGetCurrent(&before);
	CHECK_EQUAL(cuDevicePrimaryCtxReset_v2(1), CUDA_SUCCESS);
	uint64_t held = server.container[1]->memory;
	for (int i = 0; i < 2; i++) {
		CHECK_EQUAL(cuGreenCtxCreate(&g, NULL, 1, 1), CUDA_SUCCESS);
		if (retained[i]) CHECK_EQUAL(cuDevicePrimaryCtxRetain(&primary, 1), CUDA_SUCCESS);
		CHECK_EQUAL(cuCtxFromGreenCtx(&c, g), CUDA_SUCCESS);
		CHECK_EQUAL(cuCtxSetCurrent(c), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemAlloc_v2(&p, 64 * MIB), CUDA_SUCCESS);
		CHECK_EQUAL(driver_launch(kernel, NULL), CUDA_SUCCESS);
		CHECK_EQUAL(cuGreenCtxDestroy(g), CUDA_SUCCESS);
		CHECK_EQUAL(server.container[1]->memory, held + (retained[i] ? 64 * MIB : 0));
		if (retained[i]) CHECK_EQUAL(cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
		CHECK_EQUAL(server.container[1]->memory, held);
		cuCtxSetCurrent(before);
	}
	eventually(&check_failures, nothing_open_there);
}

/* So does its memory where a reset has ended the primary context before. */
TEST(green_context_ends_after_a_reset) {
	CUcontext before, c;
	CUgreenCtx g;
	CUdeviceptr p;
	cuCtxGetCurrent(&before);
	CHECK_EQUAL(cuDevicePrimaryCtxReset_v2(1), CUDA_SUCCESS);
	uint64_t held = server.container[1]->memory;
	CHECK_EQUAL(cuGreenCtxCreate(&g, NULL, 1, 1), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxFromGreenCtx(&c, g), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSetCurrent(c), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 64 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuDevicePrimaryCtxReset_v2(1), CUDA_SUCCESS);
	CHECK_EQUAL(cuGreenCtxDestroy(g), CUDA_SUCCESS);
	CHECK_EQUAL(server.container[1]->memory, held);
	cuCtxSetCurrent(before);
}

static int no_captures(void) { return client()->captures == 0; }
static _Atomic int stop;
/* Thread: launches into a stream until it is stopped. */
static void *launch_on(void *stream) {
	CUcontext c;
	cuDevicePrimaryCtxRetain(&c, 0);
	cuCtxSetCurrent(c);
	for (stop = 0; !stop;) driver_launch(kernel, stream);
	return NULL;
}

static struct gshare_client_page *other_client(void) { return session()->client[1]; }

/* A launch on several devices counts, and waits, on each of them. */
TEST(cooperative_launches_are_charged_to_each_device) {
	CUDA_LAUNCH_PARAMS list[2] = {{.function = kernel, .gridDimX = 2, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1},
				      {.function = kernel, .gridDimX = 3, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1}};
	CUcontext c[2];
	for (int d = 1; d >= 0; d--) {
		cuDevicePrimaryCtxRetain(&c[d], d), cuCtxSetCurrent(c[d]);
		CHECK_EQUAL(cuStreamCreate(&list[d].hStream, 1), CUDA_SUCCESS);
	}
	await_published();
	uint64_t before[2] = {client()->blocks, other_client()->blocks}, launches[2] = {client()->launches, other_client()->launches};
	for (int i = 0; i < 50; i++) CHECK_EQUAL(cuLaunchCooperativeKernelMultiDevice(list, 2, 0), CUDA_SUCCESS);
	for (int d = 0; d < 2; d++) cuStreamSynchronize(list[d].hStream);
	await_published();
	CHECK_EQUAL(client()->launches - launches[0], 50);
	CHECK_EQUAL(other_client()->launches - launches[1], 50);
	CHECK_EQUAL(client()->blocks - before[0], 100);
	CHECK_EQUAL(other_client()->blocks - before[1], 150);
	CHECK_EQUAL(cuLaunchCooperativeKernelMultiDevice(list, 65, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuLaunchCooperativeKernelMultiDevice(NULL, 2, 0), CUDA_ERROR_INVALID_VALUE);
	for (int d = 0; d < 2; d++) cuStreamDestroy_v2(list[d].hStream);
}

/* A capture in the strictest mode succeeds while the helper polls events and another thread launches. */
TEST(capture_is_not_disturbed) {
	CUstream s, other;
	CUgraph g = NULL;
	CUgraphExec e;
	pthread_t t;
	cuStreamCreate(&s, 1);
	cuStreamCreate(&other, 1);
	for (int i = 0; i < 200; i++) driver_launch(kernel, s);
	pthread_create(&t, NULL, launch_on, other);
	for (int round = 0; round < 20; round++) {
		int failures = 0;
		failures += cuStreamBeginCapture_v2(s, 0) != CUDA_SUCCESS;
		for (int i = 0; i < 100; i++) failures += driver_launch(kernel, s) != CUDA_SUCCESS;
		usleep(3000);
		failures += cuStreamEndCapture(s, &g) != CUDA_SUCCESS || !g;
		CHECK_EQUAL(failures, 0);
		if (failures) break;
		size_t nodes = 0;
		CHECK_EQUAL(cuGraphGetNodes(g, NULL, &nodes), CUDA_SUCCESS);
		CHECK_EQUAL(nodes, 100); /* the hook's events are not among them */
		CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, g, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphLaunch(e, s), CUDA_SUCCESS);
		cuGraphExecDestroy(e);
		cuGraphDestroy(g);
	}
	stop = 1;
	pthread_join(t, NULL);
	cuStreamSynchronize(s);
	eventually(&check_failures, no_captures);
	cuStreamDestroy_v2(s);
}

/* Captures that the functions begin and end whose stream 0 is the calling thread's own. */
TEST(capture_by_per_thread_functions) {
	CUstream streams[2] = {NULL, NULL};
	CHECK_EQUAL(cuStreamCreate(&streams[1], 1), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++) {
		CUgraph g = NULL;
		CHECK_EQUAL(i / 2 ? cuStreamBeginCapture_ptsz(streams[i % 2]) : cuStreamBeginCapture_v2_ptsz(streams[i % 2], 2), CUDA_SUCCESS);
		CHECK_EQUAL(cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, streams[i % 2], NULL, NULL), CUDA_SUCCESS);
		CHECK_EQUAL(cuStreamEndCapture_ptsz(streams[i % 2], &g), CUDA_SUCCESS);
		CHECK(g != NULL);
	}
	eventually(&check_failures, no_captures);
	cuStreamDestroy_v2(streams[1]);
}

/* A capture passes at PAUSE, since it runs nothing. */
TEST(paused_capture_passes) {
	CUstream s;
	CUgraph g;
	cuStreamCreate(&s, 1);
	server_state(session(), GSHARE_PAUSE);
	CHECK_EQUAL(cuStreamBeginCapture_v2(s, 0), CUDA_SUCCESS);
	for (int i = 0; i < 100; i++) driver_launch(kernel, s);
	CHECK_EQUAL(cuMemsetD8Async((CUdeviceptr)1 << 40, 0, 4096, s), CUDA_SUCCESS);
	CHECK_EQUAL(cuStreamEndCapture(s, &g), CUDA_SUCCESS);
	CHECK_EQUAL(client()->waiting, 0);
	server_state(session(), GSHARE_RUN);
	cuGraphDestroy(g);
	cuStreamDestroy_v2(s);
}

#define TO ((CUdeviceptr)1 << 40)
static CUDA_MEMCPY2D rows = {.srcMemoryType = 2, .dstMemoryType = 2, .WidthInBytes = 64, .Height = 64};
static CUDA_MEMCPY3D layers = {.srcMemoryType = 2, .dstMemoryType = 2, .WidthInBytes = 64, .Height = 64, .Depth = 2};
static size_t sizes[2] = {4096, 4096};
static CUdeviceptr list[2] = {TO, TO};
static CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};

/* Every function that runs on the device besides kernels, and its twin. */
#define COPIES(X)                                                                                                       \
	X(cuMemsetD8_v2(TO, 0, 4096)) X(cuMemsetD16_v2(TO, 0, 4096)) X(cuMemsetD32_v2(TO, 0, 4096))                     \
	X(cuMemsetD2D8_v2(TO, 64, 0, 64, 64)) X(cuMemsetD2D16_v2(TO, 128, 0, 64, 64)) X(cuMemsetD2D32_v2(TO, 256, 0, 64, 64)) \
	X(cuMemsetD8Async(TO, 0, 4096, NULL)) X(cuMemsetD16Async(TO, 0, 4096, NULL)) X(cuMemsetD32Async(TO, 0, 4096, NULL)) \
	X(cuMemsetD2D8Async(TO, 64, 0, 64, 64, NULL)) X(cuMemsetD2D16Async(TO, 128, 0, 64, 64, NULL))                   \
	X(cuMemsetD2D32Async(TO, 256, 0, 64, 64, NULL)) X(cuMemcpyDtoD_v2(TO, TO, 4096))                                \
	X(cuMemcpyDtoDAsync_v2(TO, TO, 4096, NULL)) X(cuMemcpyDtoA_v2(NULL, 0, TO, 4096)) X(cuMemcpyAtoD_v2(TO, NULL, 0, 4096)) \
	X(cuMemcpyAtoA_v2(NULL, 0, NULL, 0, 4096)) X(cuMemcpy(TO, TO, 4096)) X(cuMemcpyAsync(TO, TO, 4096, NULL))       \
	X(cuMemcpy2D_v2(&rows)) X(cuMemcpy2DUnaligned_v2(&rows)) X(cuMemcpy2DAsync_v2(&rows, NULL)) X(cuMemcpy3D_v2(&layers)) \
	X(cuMemcpy3DAsync_v2(&layers, NULL)) X(cuMemcpyPeer(TO, NULL, TO, NULL, 4096)) X(cuMemcpyPeerAsync(TO, NULL, TO, NULL, 4096, NULL)) \
	X(cuMemcpy3DPeer(&layers)) X(cuMemcpy3DPeerAsync(&layers, NULL))                                                \
	X(cuMemcpyBatchAsync(list, list, sizes, 2, NULL, NULL, 0, NULL, NULL)) X(cuMemcpyBatchAsync_v2(list, list, sizes, 2, NULL, NULL, 0, NULL)) \
	X(cuMemcpy3DBatchAsync(2, NULL, NULL, 0, NULL)) X(cuMemcpy3DBatchAsync_v2(2, NULL, 0, NULL))                    \
	X(cuMemPrefetchAsync(TO, 4096, 0, NULL)) X(cuMemPrefetchAsync_v2(TO, 4096, location, 0, NULL))                  \
	X(cuMemPrefetchBatchAsync(list, sizes, 2, &location, NULL, 1, 0, NULL)) X(cuMemDiscardBatchAsync(list, sizes, 2, 0, NULL)) \
	X(cuMemDiscardAndPrefetchBatchAsync(list, sizes, 2, &location, NULL, 1, 0, NULL)) X(cuMemBatchDecompressAsync(NULL, 2, 0, NULL, NULL)) \
	X(cuMemsetD8_v2_ptds(TO, 0, 4096)) X(cuMemsetD8Async_ptsz(TO, 0, 4096, NULL)) X(cuMemcpyDtoDAsync_v2_ptsz(TO, TO, 4096, NULL)) \
	X(cuMemcpy_ptds(TO, TO, 4096))

/* Makes the nth of these calls. Returns -1 if there are not so many. */
static CUresult copy(int n) {
#define CALL_NTH(call) if (!n--) return call;
	COPIES(CALL_NTH)
	return -1;
}

/* Thread: makes one of these calls. */
static void *copy_once(void *number) {
	CUcontext c;
	cuDevicePrimaryCtxRetain(&c, 0);
	cuCtxSetCurrent(c);
	launched = copy((int)(intptr_t)number) == CUDA_SUCCESS ? 1 : -1;
	return NULL;
}

static int calls; /* of COPIES */

/* PAUSE holds each of these calls, and RUN releases it. */
TEST(copies_wait_for_a_token) {
#define COUNT_CALL(call) calls++;
	COPIES(COUNT_CALL)
	CHECK_EQUAL(copy(calls), -1);
	for (int i = 0, before = check_failures; i < calls && check_failures == before; i++) {
		pthread_t t;
		server_state(session(), GSHARE_PAUSE);
		launched = 0;
		pthread_create(&t, NULL, copy_once, (void *)(intptr_t)i);
		eventually(&check_failures, one_waits);
		CHECK_EQUAL(launched, 0);
		server_state(session(), GSHARE_RUN);
		pthread_join(t, NULL);
		CHECK_EQUAL(launched, 1);
		eventually(&check_failures, none_waits);
		if (check_failures != before) printf("  call %d of COPIES\n", i);
	}
}

/* Copies are counted like launches, those of no bytes and those between host and device not at all. */
TEST(copies_are_counted) {
	CUDA_MEMCPY2D up = rows;
	CUDA_MEMCPY3D down = layers;
	up.srcMemoryType = down.dstMemoryType = CU_MEMORYTYPE_HOST;
	cuCtxSynchronize();
	await_published();
	want_launches = client()->launches + 3000;
	for (int i = 0; i < 1000; i++) {
		CHECK_EQUAL(cuMemsetD32Async(TO, 0, 4096u << i % 8, NULL), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemcpyDtoD_v2(TO, TO, 4096), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemcpy(TO, TO, 4096), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemsetD8_v2(TO, 0, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemcpyHtoD_v2(TO, &want_launches, 8), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemcpy2DAsync_v2(&up, NULL), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemcpy3D_v2(&down), CUDA_SUCCESS);
	}
	cuCtxSynchronize();
	eventually(&check_failures, all_counted);
	CHECK_EQUAL(client()->launches, want_launches);
}

/* Copies between host and device need no token. */
TEST(host_copies_pass) {
	CUDA_MEMCPY2D up = rows;
	up.srcMemoryType = CU_MEMORYTYPE_HOST;
	server_state(session(), GSHARE_PAUSE);
	CHECK_EQUAL(cuMemcpyHtoD_v2(TO, &up, 8), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemcpyDtoH_v2(&up, TO, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemcpy2D_v2(&up), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemcpy2DAsync_v2(&up, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(client()->waiting, 0);
	server_state(session(), GSHARE_RUN);
}

/* The process cannot make the server's page writable. */
TEST(server_page_is_sealed) {
	char line[512];
	int seen = 0;
	unsigned long from, to;
	FILE *maps = fopen("/proc/self/maps", "r");
	while (maps && fgets(line, sizeof line, maps)) {
		if (!strstr(line, "r--s") || !strstr(line, "memfd:page") || sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
		seen++;
		CHECK(mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) < 0 && (errno == EACCES || errno == EPERM));
	}
	if (maps) fclose(maps);
	CHECK_EQUAL(seen, 2);
}

/* A forked child that does not use CUDA changes no sums, and its end does not end the parent's session. */
TEST(fork_after_start) {
	CUdeviceptr p;
	int status = 0;
	cuMemAlloc_v2(&p, 10 * MIB);
	cuCtxSynchronize();
	await_published();
	uint64_t before = server.container[0]->memory, launches = client()->launches;
	pid_t child = fork();
	if (!child) {
		for (int i = 0; i < 1000; i++) driver_launch(kernel, NULL); /* whatever the driver returns in a child */
		cuMemFree_v2(p);
		_exit(7);
	}
	waitpid(child, &status, 0);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	CHECK_EQUAL(session()->connected, 1);
	CHECK_EQUAL(server.container[0]->memory, before);
	CHECK_EQUAL(client()->launches, launches);
	cuMemFree_v2(p);
}

static int again(void) { return server.sessions >= 2 && session()->snapshots >= 1; }
static int launched_once(void) { return launched == 1; }

/* Reports whether launches wait at PAUSE; a process that paces itself waits at most for its turn, the next window. */
static int obeys_server(void) {
	server_state(session(), GSHARE_PAUSE);
	pthread_t t = start_launch(0);
	for (int i = 0; i < 5000 && !one_waits() && !launched; i++) usleep(1000);
	for (int i = 0; i < 200 && !launched; i++) usleep(1000); /* two windows */
	int waits = one_waits();
	server_state(session(), GSHARE_RUN);
	pthread_join(t, NULL);
	return waits;
}

/* A server without heartbeats is obeyed for 3 s, then launches are self-paced; with heartbeats it is obeyed again. */
TEST(server_hangs) {
	server_state(session(), GSHARE_PAUSE);
	pthread_t t = start_launch(0);
	eventually(&check_failures, one_waits);
	server.heartbeats = 0;
	usleep(100000); /* one that has begun is written */
	session()->server[0]->heartbeat = server_now();
	uint64_t from = now();
	eventually(&check_failures, launched_once);
	CHECK(now() - from > 2000 * MS);
	pthread_join(t, NULL);
	server.heartbeats = 1;
	eventually(&check_failures, obeys_server);
}

/*
 * A server that is killed while a thread waits: at the last token's deadline the thread goes on within the guaranteed share.
 * A new server gets a snapshot of what the process holds.
 */
TEST(server_restart_restores_the_session) {
	CUdeviceptr p, q;
	CHECK_EQUAL(cuMemAlloc_v2(&p, 100 * MIB), CUDA_SUCCESS);
	uint64_t held = client()->memory;
	server_state(session(), GSHARE_PAUSE);
	pthread_t t = start_launch(0);
	eventually(&check_failures, one_waits);
	server_stop(&server);
	eventually(&check_failures, launched_once);
	session()->server[0]->heartbeat = server_now(); /* if it still waits, it goes on as if the server hung */
	pthread_join(t, NULL);
	CHECK_EQUAL(cuMemAlloc_v2(&q, 10 * MIB), CUDA_SUCCESS); /* without a server */
	server_start(&server);
	eventually(&check_failures, again);
	CHECK_EQUAL(session()->snapshot_memory, held + 10 * MIB);
	CHECK_EQUAL(server.container[0]->memory, held + 10 * MIB);
	CHECK_EQUAL(client()->memory, held + 10 * MIB);
	CHECK_EQUAL(cuMemFree_v2(q), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQUAL(server.container[0]->memory, held - 100 * MIB);
	eventually(&check_failures, obeys_server); /* a round of the helper later */
	pause_holds_launches_until_run();
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(pause_holds_launches_until_run), T(drain_holds_launches), T(devices_are_gated_separately),
						  T(lost_wake_up_delays_briefly), T(every_launch_is_counted_once), T(launches_of_an_ended_thread_are_counted),
						  T(launch_of_a_cancelled_thread_is_not_open), T(green_context_ends_with_the_primary),
						  T(green_context_ends_after_a_reset),
						  T(cooperative_launches_are_charged_to_each_device), T(capture_is_not_disturbed), T(capture_by_per_thread_functions),
						  T(paused_capture_passes), T(copies_wait_for_a_token), T(copies_are_counted),
						  T(host_copies_pass), T(server_page_is_sealed), T(fork_after_start), T(server_hangs),
						  T(server_restart_restores_the_session), {0}};
	if (!getenv("FAKE_CUDA_DEVICES")) { /* the driver reads it when it is loaded */
		setenv("FAKE_CUDA_DEVICES", "2", 1);
		execv("/proc/self/exe", argv);
	}
	server_start(&server);
	kernel = driver_start("spin_ns1000_sm100_blocks1");
	if (!kernel || server.sessions != 1) return printf("no session with the token server\n"), 1;
	return check_run(tests, argc, argv);
}
