/*
 * storm THREADS LAUNCHES: threads that launch on streams of their own and on their default stream, allocate and free.
 * Prints "ok" if every call succeeded.
 */
#include "../fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *library;
static int launches;
static CUcontext context;
static CUfunction kernel;

#define REAL(name, type) ((type)dlsym(library, name))
typedef CUresult (*launch_t)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);

static struct start {
	int number, place; /* place: connection, opened before the other threads release the clock */
} starts[64];

/* One thread of launches and allocations. */
static void *thread(void *start)
{
	const struct start *own = start;
	REAL("fakesim_adopt", void (*)(int))(own->place);
	CUstream stream;
	CUdeviceptr memory;
	CUresult bad = REAL("cuCtxSetCurrent", CUresult (*)(CUcontext))(context);
	bad |= REAL("cuStreamCreate", CUresult (*)(CUstream *, unsigned))(&stream, 1);
	launch_t launch = REAL(own->number % 2 ? "cuLaunchKernel_ptsz" : "cuLaunchKernel", launch_t);
	for (int i = 0; i < launches; i++) {
		bad |= launch(kernel, 1, 1, 1, 1, 1, 1, 0, i % 3 ? stream : NULL, NULL, NULL);
		if (i % 100 == 0) {
			bad |= REAL("cuMemAlloc_v2", CUresult (*)(CUdeviceptr *, size_t))(&memory, 4096);
			bad |= REAL("cuMemFree_v2", CUresult (*)(CUdeviceptr))(memory);
			bad |= REAL("cuStreamSynchronize", CUresult (*)(CUstream))(stream);
		}
	}
	bad |= REAL("cuCtxSynchronize", CUresult (*)(void))();
	return (void *)(intptr_t)bad;
}

int main(int count, char **arguments)
{
	int threads = count > 1 ? atoi(arguments[1]) : 8;
	launches = count > 2 ? atoi(arguments[2]) : 1000;
	pthread_t all[64];
	CUmodule module;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	CUresult bad = REAL("cuInit", CUresult (*)(unsigned))(0);
	bad |= REAL("cuDevicePrimaryCtxRetain", CUresult (*)(CUcontext *, CUdevice))(&context, 0);
	bad |= REAL("cuCtxSetCurrent", CUresult (*)(CUcontext))(context);
	bad |= REAL("cuModuleLoadData", CUresult (*)(CUmodule *, const void *))(&module, "");
	bad |= REAL("cuModuleGetFunction", CUresult (*)(CUfunction *, CUmodule, const char *))(&kernel, module, "spin_ns10000_sm50_blocks1");
	for (int i = 0; i < threads && i < 64; i++) {
		starts[i] = (struct start){i, REAL("fakesim_open", int (*)(void))()};
		pthread_create(&all[i], NULL, thread, &starts[i]);
	}
	REAL("fakesim_leave", void (*)(void))(); /* pthread_join does not release the virtual clock */
	for (int i = 0; i < threads && i < 64; i++) {
		void *result;
		pthread_join(all[i], &result);
		bad |= (CUresult)(intptr_t)result;
	}
	puts(bad ? "failed" : "ok");
	return bad != 0;
}
