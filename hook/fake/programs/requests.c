/*
 * requests: what test/gpu/workloads.py does with PyTorch, for the dry run of the GPU lane. It prints the same output.
 *
 *   requests serve LAUNCHES KERNEL SECONDS RATE   says that it is ready, and after a line of its input: requests of LAUNCHES launches, one after
 *                                                 another or RATE a second on average
 *   requests count COUNT KERNEL                   COUNT launches, and after a line of its input ten times as many
 *   requests allocate                             allocates pieces of 64 MiB until that fails, then waits for the end of its input
 *   requests hold MIB KERNEL                      holds memory, prints its process id, and for each line of its input that all is unchanged
 */
#include "lane.h"

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
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

enum { KEPT = 1 << 20 }; /* requests whose latency is kept */

static CUfunction kernel;
static double took[KEPT]; /* seconds */

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

/* Serves requests and prints their rate and latency. */
static void serve(long launches, double seconds, double rate)
{
	printf("{\"ready\": true}\n");
	wait_for_line();
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
	wait_for_line();
}

static void hold(size_t bytes)
{
	unsigned char value = 0;
	CUdeviceptr memory;
	MUST(cuMemAlloc_v2(&memory, bytes));
	MUST(cuMemsetD8_v2(memory, 7, bytes));
	printf("{\"pid\": %d}\n", (int)getpid());
	for (wait_for_line(); !feof(stdin); wait_for_line()) {
		MUST(cuMemcpyDtoH_v2(&value, memory + bytes - 1, 1));
		printf("{\"unchanged\": %s}\n", value == 7 ? "true" : "false");
	}
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
	} else if (strcmp(a[1], "count") == 0 && n == 4) {
		for (long done = 0, more = atol(a[2]); done < 11 * atol(a[2]); more = 10 * atol(a[2])) {
			launch(more);
			MUST(cuCtxSynchronize());
			printf("{\"launches\": %ld}\n", done += more);
			wait_for_line();
		}
	} else if (strcmp(a[1], "allocate") == 0) {
		allocate();
	} else if (strcmp(a[1], "hold") == 0 && n == 4) {
		hold((size_t)atol(a[2]) << 20);
	} else {
		return 2;
	}
	return 0;
}
