/*
 * The overhead of the hook: bench PAIRS prints, for several ways to launch, the median ns of the driver's function and of the
 * one that dlsym returns, called in turns, and the median of the pairs' differences. Without the hook both are the same.
 * bench PAIRS blocks does the same with block tokens. bench count launches a million times between two system calls that
 * identify the section in a trace.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "../src/libc.h"
#include "check.h"
#include "driver.h"
#include "server.h"

#define LAUNCHES 100000
#define LONG_LAUNCHES 400
#define PAIRS_MAX 1001

static CUfunction kernel;
static CUlaunchConfig config = {1, 1, 1, 32, 1, 1, 0, NULL, NULL, 0};
static CUstream streams[4];
static int spins; /* turns of a loop of 5 us */

/* Returns this thread's processor time in ns, which other programs disturb less than wall time. */
static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void spin(int n) {
	for (volatile int i = 0; i < n; i++) continue;
}

/* Each returns the mean ns of one launch with the function f. */
static double plain(void *f) {
	double from = now();
	for (int i = 0; i < LAUNCHES; i++) ((cuLaunchKernel_fn)f)(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
	return (now() - from) / LAUNCHES;
}
static double extended(void *f) {
	double from = now();
	for (int i = 0; i < LAUNCHES; i++) ((cuLaunchKernelEx_fn)f)(&config, kernel, NULL, NULL);
	return (now() - from) / LAUNCHES;
}
static double four_streams(void *f) {
	double from = now();
	for (int i = 0; i < LAUNCHES; i++) ((cuLaunchKernel_fn)f)(kernel, 1, 1, 1, 32, 1, 1, 0, streams[i & 3], NULL, NULL);
	return (now() - from) / LAUNCHES;
}
static double memsets(void *f) {
	double from = now();
	for (int i = 0; i < LAUNCHES; i++) ((cuMemsetD8Async_fn)f)(1, 0, 4096, NULL);
	return (now() - from) / LAUNCHES;
}
static double wall(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/*
 * With a pause between launches, as where a driver takes microseconds: the mean time in the call alone, with cold caches and
 * events, without calls during which another program had the processor.
 */
static double every_five_microseconds(void *f) {
	double sum = 0;
	int n = 0;
	for (int i = 0; i < LONG_LAUNCHES; i++) {
		double from = wall();
		((cuLaunchKernel_fn)f)(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
		double took = wall() - from;
		if (took < 20000) sum += took, n++;
		spin(spins);
	}
	return sum / n;
}

static int by_value(const void *a, const void *b) { return *(const double *)a < *(const double *)b ? -1 : 1; }

static double median(double *values, int n) {
	qsort(values, (size_t)n, sizeof *values, by_value);
	return values[n / 2];
}

/* Prints the medians of one way to launch and returns that of the differences. */
static double compare(const char *way, double (*run)(void *), const char *name, int pairs) {
	static double driver[PAIRS_MAX], given[PAIRS_MAX], added[PAIRS_MAX];
	void *(*real_dlsym)(void *, const char *) = (void *(*)(void *, const char *))gsh_libc_symbol("dlsym");
	void *library = dlopen("libcuda.so.1", RTLD_LAZY), *real = real_dlsym(library, name), *ours = dlsym(library, name);
	run(real), run(ours);
	for (int i = 0; i < pairs; i++) {
		driver[i] = run(real);
		given[i] = run(ours);
		added[i] = given[i] - driver[i];
		if (i % 16 == 0) cuCtxSynchronize();
	}
	double d = median(driver, pairs), g = median(given, pairs), a = median(added, pairs);
	printf("%-9s driver %6.2f given %6.2f added %6.2f ns\n", way, d, g, a);
	return a;
}

/* syncfs with an invalid descriptor marks the section, since no other code calls it. */
static int count(void) {
	for (int i = 0; i < 100; i++) driver_launch(kernel, NULL);
	usleep(20000);
	driver_launch(kernel, NULL);
	syncfs(-1);
	for (int i = 0; i < 1000000; i++) driver_launch(kernel, NULL);
	syncfs(-2);
	return 0;
}

/* Measures how many turns of a loop take 5 us. */
static void calibrate(void) {
	double best = 1e18;
	for (int i = 0; i < 20; i++) {
		double from = now();
		spin(100000);
		double took = now() - from;
		if (took < best) best = took;
	}
	spins = (int)(5e8 / best);
}

int main(int argc, char **argv) {
	static struct server server = {.memory_limit = 1 << 30, .run_ahead = 10000000};
	if (argc > 2 && !strcmp(argv[2], "blocks")) server.tokens = 1ull << 40;
	server_start(&server);
	if (!(kernel = driver_start("spin_ns1000_sm100_blocks1"))) return 1;
	for (int i = 0; i < 4; i++) cuStreamCreate(&streams[i], 1);
	if (argc > 1 && !strcmp(argv[1], "count")) return count();
	int pairs = argc > 1 ? atoi(argv[1]) : 101;
	if (pairs < 1 || pairs > PAIRS_MAX) return 2;
	calibrate();
	printf("sessions %d\n", server.sessions);
	compare("plain", plain, "cuLaunchKernel", pairs);
	compare("extended", extended, "cuLaunchKernelEx", pairs);
	compare("streams", four_streams, "cuLaunchKernel", pairs);
	compare("memsets", memsets, "cuMemsetD8Async", pairs);
	double added = compare("each 5 us", every_five_microseconds, "cuLaunchKernel", pairs);
	printf("throughput of a loop with a launch each 5 us: %+.3f %%\n", -added / 50);
	return 0;
}
