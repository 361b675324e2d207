/*
 * requests: what test/gpu/workloads.py does with PyTorch, for the dry run of the GPU lane. It prints the same output.
 *
 *   requests serve LAUNCHES KERNEL SECONDS RATE   requests of LAUNCHES launches, one after another or RATE a second on average
 *   requests launch COUNT KERNEL                  prints the host's time for a launch
 *   requests count COUNT KERNEL                   COUNT launches, then waits for the end of its standard input
 *   requests allocate                             allocates pieces of 64 MiB until that fails
 */
#include "../fake.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

enum { KEPT = 1 << 20 }; /* requests whose latency is kept */

static CUfunction kernel;
static double took[KEPT]; /* seconds */

/* Exits with a message unless the call succeeded. */
static void must(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "requests: %s: %d\n", what, result);
		exit(1);
	}
}
#define MUST(call) must(call, #call)

/* Returns the seconds of CLOCK_MONOTONIC. */
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Sleeps until a time. */
static void pause_until(double then)
{
	double left = then - now();
	if (left > 0)
		nanosleep(&(struct timespec){(time_t)left, (long)(1e9 * (left - (double)(time_t)left))}, NULL);
}

static void launch(long count)
{
	for (long i = 0; i < count; i++)
		MUST(cuLaunchKernel(kernel, 64, 1, 1, 128, 1, 1, 0, NULL, NULL, NULL));
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Serves requests and prints their rate and latency. */
static void serve(long launches, double seconds, double rate)
{
	double start = now(), due = start;
	long done = 0;
	unsigned short seed[3] = {1, 2, 3};
	while (now() - start < seconds) {
		if (rate > 0)
			pause_until(due -= log(1 - erand48(seed)) / rate);
		double from = rate > 0 ? due : now();
		launch(launches);
		MUST(cuCtxSynchronize());
		took[done++ % KEPT] = now() - from;
	}
	double lasted = now() - start;
	size_t n = (size_t)(done < KEPT ? done : KEPT);
	qsort(took, n, sizeof *took, ascending);
	printf("{\"requests\": %ld, \"rate\": %g, \"p50_ms\": %g, \"p95_ms\": %g}\n", done, (double)done / lasted,
	       1e3 * took[n / 2], 1e3 * took[n * 95 / 100]);
}

static void allocate(void)
{
	size_t free_bytes, total;
	CUdeviceptr memory;
	long pieces = 0;
	MUST(cuMemGetInfo_v2(&free_bytes, &total));
	while (cuMemAlloc_v2(&memory, 64 << 20) == CUDA_SUCCESS)
		pieces++;
	printf("{\"allocated_mib\": %ld, \"free_mib\": %zu, \"total_mib\": %zu}\n", 64 * pieces, free_bytes >> 20, total >> 20);
}

int main(int n, char **a)
{
	CUcontext context;
	CUmodule module;
	if (n < 2)
		return 2;
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, ""));
	if (n > 3)
		MUST(cuModuleGetFunction(&kernel, module, a[3]));
	if (strcmp(a[1], "serve") == 0 && n == 6) {
		serve(atol(a[2]), atof(a[4]), atof(a[5]));
	} else if (strcmp(a[1], "launch") == 0 && n == 4) {
		double start = now();
		launch(atol(a[2]));
		printf("{\"ns_per_launch\": %g}\n", 1e9 * (now() - start) / (double)atol(a[2]));
	} else if (strcmp(a[1], "count") == 0 && n == 4) {
		launch(atol(a[2]));
		MUST(cuCtxSynchronize());
		printf("{\"launches\": %ld}\n", atol(a[2]));
		fflush(stdout);
		while (getchar() != EOF)
			;
	} else if (strcmp(a[1], "allocate") == 0) {
		allocate();
	} else {
		return 2;
	}
	return 0;
}
