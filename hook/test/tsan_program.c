/* A program that is built with the thread sanitizer: launches in four threads, each into a stream of its own, with memory. */
#include <pthread.h>
#include <stdio.h>

#include "driver.h"

static CUfunction kernel;
static CUcontext context;
static _Atomic int launched;

static void *launch(void *unused) {
	CUdeviceptr p;
	CUstream s;
	if (cuCtxSetCurrent(context) || cuStreamCreate(&s, 1)) return unused;
	for (int i = 0; i < 10000; i++) launched += driver_launch(kernel, s) == CUDA_SUCCESS;
	if (cuMemAlloc_v2(&p, 1 << 20) || cuMemFree_v2(p)) launched = -1;
	cuCtxSynchronize();
	return unused;
}

int main(void) {
	pthread_t threads[4];
	kernel = driver_start("spin_ns1000_sm100_blocks1");
	if (!kernel || cuDevicePrimaryCtxRetain(&context, 0)) return 1;
	for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, launch, NULL);
	for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
	return printf("launched %d\n", launched) < 0;
}
