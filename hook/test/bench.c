/*
 * What a launch costs: bench RUNS prints the median of RUNS runs of a million launches, ns each, for each way to launch.
 * Compare with and without the hook. bench count launches a million times between two marks in a system call trace.
 */
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define LAUNCHES 1000000

static CUfunction kernel;
static CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
static CUstream streams[4];

/* Processor time of this thread: other programs on the machine disturb it less. */
static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void plain(void) {
	for (int i = 0; i < LAUNCHES; i++) driver_launch(kernel, NULL);
}
static void extended(void) {
	for (int i = 0; i < LAUNCHES; i++) cuLaunchKernelEx(&config, kernel, NULL, NULL);
}
static void four_streams(void) {
	for (int i = 0; i < LAUNCHES; i++) driver_launch(kernel, streams[i & 3]);
}

static int by_value(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

static double median(void (*run)(void), int runs) {
	double took[101];
	for (int i = 0; i < runs; i++) {
		double from = now();
		run();
		took[i] = (now() - from) / LAUNCHES;
		cuCtxSynchronize();
	}
	qsort(took, (size_t)runs, sizeof took[0], by_value);
	return took[runs / 2];
}

/* The marks are system calls that nothing else makes. */
static int count(void) {
	for (int i = 0; i < 100; i++) driver_launch(kernel, NULL);
	usleep(20000);
	driver_launch(kernel, NULL);
	syncfs(-1);
	plain();
	syncfs(-2);
	return 0;
}

int main(int argc, char **argv) {
	static struct server server = {.memory_limit = 1 << 30, .run_ahead = 10000000};
	server_start(&server);
	if (!(kernel = driver_start("spin_ns1000_sm100_blocks1"))) return 1;
	for (int i = 0; i < 4; i++) cuStreamCreate(&streams[i], 1);
	if (argc > 1 && !strcmp(argv[1], "count")) return count();
	int runs = argc > 1 ? atoi(argv[1]) : 15;
	if (runs < 1 || runs > 101) return 2;
	plain();
	printf("sessions %d plain %.2f extended %.2f streams %.2f\n", server.sessions, median(plain, runs), median(extended, runs),
	       median(four_streams, runs));
	return 0;
}
