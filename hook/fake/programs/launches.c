/*
 * launches: the host's time for a launch by the driver's interface, on the fake driver and on a real one.
 *
 *   launches COUNT   says that it is ready and, after a line of its input, launches a kernel that does nothing in groups of 500 with a
 *                    synchronisation behind each, of which only the launches are timed. Prints the ns of a launch: the median of the groups'
 *                    means; then of launches that are timed one by one the median, and the percentage of the time that is of launches
 *                    of thrice the median or more
 *   launches calls   prints the ns of the driver's functions that a hook calls beside launches
 */
#include "lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuCtxSynchronize(void);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuEventCreate(CUevent *, unsigned);
CUresult cuEventRecord(CUevent, CUstream);
CUresult cuEventQuery(CUevent);
CUresult cuEventElapsedTime(float *, CUevent, CUevent);
CUresult cuStreamIsCapturing(CUstream, int *);
CUresult cuThreadExchangeStreamCaptureMode(int *);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

enum { GROUP = 500, GROUPS = 2000 };

#define KERNEL "spin_ns1000_sm1_blocks64" /* the fake driver reads what it does from its name */
static const char module_text[] = ".version 6.0\n.target sm_70\n.address_size 64\n.visible .entry " KERNEL "()\n{\n\tret;\n}\n";

/* Returns the ns of CLOCK_MONOTONIC. */
static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static CUfunction kernel;

static void launch(void)
{
	MUST(cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
}

static double median(double *list, long n)
{
	qsort(list, (size_t)n, sizeof *list, ascending);
	return list[n / 2];
}

static void print_launches(long groups)
{
	static double means[GROUPS], each[GROUP * GROUPS];
	printf("{\"ready\": true}\n");
	wait_for_line();
	for (long g = -1; g < groups; g++) { /* the first group warms up */
		double since = now();
		for (int i = 0; i < GROUP; i++)
			launch();
		if (g >= 0)
			means[g] = (now() - since) / GROUP;
		MUST(cuCtxSynchronize());
	}
	for (long i = 0; i < GROUP * groups; i++) {
		double since = now();
		launch();
		each[i] = now() - since;
		if (i % GROUP == GROUP - 1)
			MUST(cuCtxSynchronize());
	}
	double p50 = median(each, GROUP * groups), all = 0, slow = 0;
	for (long i = 0; i < GROUP * groups; i++) {
		all += each[i];
		slow += each[i] >= 3 * p50 ? each[i] : 0;
	}
	printf("{\"ns_per_launch\": %g, \"one_by_one_p50_ns\": %g, \"p99_ns\": %g, \"slow_percent\": %g}\n", median(means, groups), p50,
	       each[GROUP * groups * 99 / 100], 100 * slow / all);
}

/* Prints the median ns of a call, of 1,000, with a launch before each. */
#define PRINT_CALL(name, call) \
	do { \
		for (int i = 0; i < 1000; i++) { \
			launch(); \
			double since = now(); \
			(void)(call); \
			took[i] = now() - since; \
			if (i % 100 == 99) \
				MUST(cuCtxSynchronize()); \
		} \
		printf("\"%s\": %g, ", name, median(took, 1000)); \
	} while (0)

static void print_calls(void)
{
	static double took[1000];
	CUevent before, after;
	float ms;
	int capturing, mode = 0;
	MUST(cuEventCreate(&before, 1));
	MUST(cuEventCreate(&after, 1));
	MUST(cuEventRecord(before, NULL));
	printf("{");
	PRINT_CALL("launch", cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	PRINT_CALL("cuEventRecord", cuEventRecord(after, NULL));
	PRINT_CALL("launch after cuEventRecord", (MUST(cuEventRecord(after, NULL)), since = now(), cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL)));
	PRINT_CALL("cuEventQuery, pending", (MUST(cuEventRecord(after, NULL)), since = now(), cuEventQuery(after)));
	PRINT_CALL("cuEventQuery, complete", cuEventQuery(before));
	MUST(cuCtxSynchronize());
	PRINT_CALL("cuEventElapsedTime", cuEventElapsedTime(&ms, before, after));
	PRINT_CALL("cuStreamIsCapturing", cuStreamIsCapturing(NULL, &capturing));
	PRINT_CALL("cuThreadExchangeStreamCaptureMode", cuThreadExchangeStreamCaptureMode(&mode));
	for (int i = 0; i < 1000; i++) {
		MUST(cuEventRecord(before, NULL));
		launch();
		MUST(cuEventRecord(after, NULL));
		MUST(cuCtxSynchronize());
		MUST(cuEventElapsedTime(&ms, before, after));
		took[i] = 1e6 * (double)ms;
	}
	printf("\"kernel between events\": %g}\n", median(took, 1000));
}

int main(int n, char **a)
{
	CUcontext context;
	CUmodule module;
	long groups = n == 2 ? atol(a[1]) / GROUP : 0;
	if (n != 2 || groups > GROUPS || (groups < 1 && strcmp(a[1], "calls") != 0))
		return 2;
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, module_text));
	MUST(cuModuleGetFunction(&kernel, module, KERNEL));
	if (groups > 0)
		print_launches(groups);
	else
		print_calls();
	return 0;
}
