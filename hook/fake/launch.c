/* Launches. Without a capture and a simulation a kernel is complete before its launch returns. */
#include "fake.h"
#include "wire.h"

#include <stdatomic.h>

CUresult fake_launch(struct stream *stream, struct function *function)
{
	if (!fake_simulated)
		return CUDA_SUCCESS;
	uint64_t duration = function->duration;
	if (function->changed && atomic_fetch_add(&function->launches, 1) % (function->after + function->changed) >= function->after)
		duration = function->other_duration;
	fake_sim_work(SIM_KERNEL, stream, duration, function->width, function->waves, 0);
	return CUDA_SUCCESS;
}

/* A launch into a capture or a simulation. */
static __attribute__((noinline)) CUresult launch_checked(CUfunction function, unsigned x, unsigned y, unsigned z, struct stream *stream)
{
	CUresult refused = fake_check_legacy(stream);
	if (refused)
		return refused;
	struct capture *capture = fake_capture(stream);
	struct kernel_params kernel = {.function = function, .grid = {x, y, z}, .block = {1, 1, 1}};
	if (capture && fake_capture_node(stream, &(struct graph_node){.type = NODE_KERNEL, .kernel = kernel}))
		return capture->invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
	CUresult result = fake_launch(stream, function);
	fake_spend(fake_host_launch);
	return result;
}

/* Checks the arguments and launches. Functions fit every stream: whether those of a module fit only its context's is not modelled. */
static inline CUresult launch(CUfunction function, unsigned x, unsigned y, unsigned z, CUstream handle)
{
	NEED_STREAM(stream, handle);
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!x || !y || !z)
		return CUDA_ERROR_INVALID_VALUE;
	return __builtin_expect(fake_checks, 0) ? launch_checked(function, x, y, z, stream) : CUDA_SUCCESS;
}

#define KERNEL                                                                                                          \
	CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, CUstream s

FN(cuLaunchKernel, , 4000, KERNEL, void **parameters, void **extra)
{
	ENTER(cuLaunchKernel);
	(void)bx, (void)by, (void)bz, (void)shared, (void)parameters, (void)extra;
	return launch(f, gx, gy, gz, s);
}
TWIN(cuLaunchKernel, , _ptsz, 7000, (KERNEL, void **p, void **e), (f, gx, gy, gz, bx, by, bz, shared, PER_THREAD(s), p, e))

FN(cuLaunchCooperativeKernel, , 9000, KERNEL, void **parameters)
{
	ENTER(cuLaunchCooperativeKernel);
	AT_RETURN();
	(void)bx, (void)by, (void)bz, (void)shared, (void)parameters;
	return launch(f, gx, gy, gz, s);
}
TWIN(cuLaunchCooperativeKernel, , _ptsz, 9000, (KERNEL, void **p), (f, gx, gy, gz, bx, by, bz, shared, PER_THREAD(s), p))

/* CUlaunchConfig. */
struct launch_config {
	unsigned gx, gy, gz, bx, by, bz, shared;
	CUstream stream;
	void *attributes;
	unsigned count;
};

FN(cuLaunchKernelEx, , 11060, const struct launch_config *c, CUfunction f, void **parameters, void **extra)
{
	ENTER(cuLaunchKernelEx);
	(void)parameters, (void)extra;
	return c ? launch(f, c->gx, c->gy, c->gz, c->stream) : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuLaunchKernelEx_ptsz(const struct launch_config *c, CUfunction f, void **parameters, void **extra);
static struct symbol symbol_cuLaunchKernelEx_ptsz SYMBOL = {
	"cuLaunchKernelEx", "cuLaunchKernelEx_ptsz", 11060, 1, (void *)cuLaunchKernelEx_ptsz, 0, 0, 0, 0};
CUresult cuLaunchKernelEx_ptsz(const struct launch_config *c, CUfunction f, void **parameters, void **extra)
{
	ENTER(cuLaunchKernelEx_ptsz);
	(void)parameters, (void)extra;
	return c ? launch(f, c->gx, c->gy, c->gz, PER_THREAD(c->stream)) : CUDA_ERROR_INVALID_VALUE;
}

/* CUDA_LAUNCH_PARAMS. */
struct cooperative {
	CUfunction function;
	unsigned gx, gy, gz, bx, by, bz, shared;
	CUstream stream;
	void **parameters;
};

FN(cuLaunchCooperativeKernelMultiDevice, , 9000, struct cooperative *list, unsigned count, unsigned flags)
{
	ENTER(cuLaunchCooperativeKernelMultiDevice);
	(void)flags;
	CUresult result = list ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count && !result; i++)
		result = launch(list[i].function, list[i].gx, list[i].gy, list[i].gz, list[i].stream);
	return result;
}

FN(cuLaunch, , 2000, CUfunction f) { ENTER(cuLaunch); return launch(f, 1, 1, 1, NULL); }
FN(cuLaunchGrid, , 2000, CUfunction f, int x, int y) { ENTER(cuLaunchGrid); return launch(f, (unsigned)x, (unsigned)y, 1, NULL); }
FN(cuLaunchGridAsync, , 2000, CUfunction f, int x, int y, CUstream s)
{
	ENTER(cuLaunchGridAsync);
	return launch(f, (unsigned)x, (unsigned)y, 1, s);
}

FN(cuLaunchHostFunc, , 10000, CUstream handle, void (*call)(void *), void *data)
{
	ENTER(cuLaunchHostFunc);
	NEED_STREAM(stream, handle);
	if (fake_capture_node(stream, &(struct graph_node){.type = NODE_HOST}))
		return CUDA_SUCCESS;
	if (fake_simulated)
		fake_sim_wait_stream(stream);
	call(data);
	return CUDA_SUCCESS;
}
TWIN(cuLaunchHostFunc, , _ptsz, 10000, (CUstream s, void (*c)(void *), void *d), (PER_THREAD(s), c, d))
