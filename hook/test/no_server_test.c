/* Without a token server: the limits of the policy file in GSHARE_DIR, or no memory at all. Runs under the hook. */
#define _GNU_SOURCE
#include <time.h>

#include "check.h"
#include "driver.h"

#define MIB (1ull << 20)
static CUfunction kernel;

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* No server and no policy: no memory. Copies pass, before any launch too. */
TEST(fails_closed) {
	CUdeviceptr p = 0;
	CHECK_EQUAL(cuMemcpyHtoD_v2((CUdeviceptr)1 << 40, &p, sizeof p), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemsetD8_v2((CUdeviceptr)1 << 40, 0, 4096), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemcpy((CUdeviceptr)1 << 40, (CUdeviceptr)2 << 40, 4096), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(driver_launch(kernel, NULL), CUDA_SUCCESS);
}

TEST(policy_limits_memory) {
	CUdeviceptr p, q;
	size_t left, total;
	CHECK_EQUAL(cuMemAlloc_v2(&p, 60 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&q, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
	CHECK_EQUAL(total, 100 * MIB);
	CHECK_EQUAL(left, 40 * MIB);
	cuMemFree_v2(p);
}

/* Returns which part of a second this thread has a processor if it needs one all the time. */
static double processor(void) {
	struct timespec used;
	uint64_t begin = now(), end = begin, before;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	before = (uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec;
	while (end - begin < 1000000000u) end = now();
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
	return (double)((uint64_t)used.tv_sec * 1000000000u + (uint64_t)used.tv_nsec - before) / (double)(end - begin);
}

/*
 * quota 300: launches pass in three tenths of the time. Beside other programs it is less, as only time on a processor counts. Longer than two windows
 * the hook never waits: the machine did.
 */
TEST(policy_paces_launches) {
	double has = processor();
	uint64_t running = 0, all = 0, last = now(), end = last + 60000000000ull;
	while (all < 2000000000u && last < end) {
		driver_launch(kernel, NULL);
		uint64_t t = now();
		if (t - last < 2000000) running += t - last;
		if (t - last < 200000000) all += t - last;
		last = t;
	}
	CHECK(all >= 2000000000u);
	double part = (double)running / (double)all;
	printf("  launches passed in %.3f of the time, with a processor for %.3f of it\n", part, has);
	CHECK(part > 0.05 * has && part < 0.4);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test closed[] = {T(fails_closed), {0}};
	static const struct check_test policy[] = {T(policy_limits_memory), T(policy_paces_launches), {0}};
	uint64_t from = now();
	kernel = driver_start("spin_ns1000_sm100_blocks1");
	if (!kernel || now() - from > 60000000000ull) return printf("the hook did not start within a minute\n"), 1;
	return check_run(getenv("POLICY") ? policy : closed, argc, argv);
}
