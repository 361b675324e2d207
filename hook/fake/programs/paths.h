/* What `linked` and `opened` do with the driver's functions, however they found them. */
#ifndef GSHARE_FAKE_PATHS_H
#define GSHARE_FAKE_PATHS_H

#include "../fake.h"

#include <stdio.h>
#include <string.h>

struct driver {
	CUresult (*init)(unsigned);
	CUresult (*retain)(CUcontext *, CUdevice);
	CUresult (*set)(CUcontext);
	CUresult (*load)(CUmodule *, const void *);
	CUresult (*get)(CUfunction *, CUmodule, const char *);
	CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
	CUresult (*synchronise)(void);
	CUresult (*allocate)(CUdeviceptr *, size_t);
	CUresult (*release)(CUdeviceptr);
	CUresult (*info)(size_t *, size_t *);
};

/* Launches, allocates, and prints "ok <free> <total>". Returns an exit code. */
static int use(const struct driver *d)
{
	CUcontext context;
	CUmodule module;
	CUfunction kernel;
	CUdeviceptr memory;
	size_t left = 0, total = 0;
	const char *failed = NULL;
#define TRY(call)                                                                                                       \
	if (!failed && (call) != CUDA_SUCCESS)                                                                          \
		failed = #call
	TRY(d->init(0));
	TRY(d->retain(&context, 0));
	TRY(d->set(context));
	TRY(d->load(&module, ""));
	TRY(d->get(&kernel, module, "spin_ns1000_sm100_blocks1"));
	for (int i = 0; i < 100; i++)
		TRY(d->launch(kernel, 2, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	TRY(d->synchronise());
	TRY(d->allocate(&memory, 64 << 20));
	TRY(d->info(&left, &total));
	TRY(d->release(memory));
#undef TRY
	if (failed) {
		printf("failed %s\n", failed);
		return 1;
	}
	printf("ok %zu %zu\n", left, total);
	return 0;
}

#endif
