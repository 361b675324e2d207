/*
 * The wrappers of launches, copies and synchronising calls, generated from symbols.def, but for one. Each launch has two functions: the
 * exported one is the fast path and otherwise calls slow_<name>, which tries the other ways of the stream's set first.
 */
#define _GNU_SOURCE
#include <string.h>

#include "copy.h"
#include "gate.h"

/* On the fast path the real function is entered by a jump, with the arguments as the caller put them. */
#define SLOW_LAUNCH(name, twin, parameters, arguments, key, stream, size)                                               \
	__attribute__((noinline)) CUresult slow_##name parameters {                                                     \
		NEED(name);                                                                                             \
		struct gsh_stream_state *st = gsh_enter_set(gsh_stream_handle(stream, twin), key);                      \
		if (st) {                                                                                               \
			st->blocks += size;                                                                             \
			return real arguments;                                                                          \
		}                                                                                                       \
		st = gsh_enter_slow(gsh_stream_handle(stream, twin), key, size);                                        \
		if (!st) return CUDA_ERROR_DEVICE_UNAVAILABLE;                                                          \
		CUresult r = real arguments;                                                                            \
		gsh_leave(st, r);                                                                                       \
		return r;                                                                                               \
	}
#define LAUNCH_WRAPPER(name, twin, parameters, arguments, key, stream, size)                                            \
	static SLOW_LAUNCH(name, twin, parameters, arguments, gsh_kernel_key(key, size), stream, size)                  \
	GSH_EXPORT CUresult name parameters {                                                                           \
		struct gsh_stream_state *st = gsh_enter_fast(gsh_stream_handle(stream, twin), gsh_kernel_key(key, size)); \
		name##_fn real = REAL(name);                                                                            \
		if (unlikely(!st || !real)) return slow_##name arguments;                                               \
		st->blocks += size;                                                                                     \
		return real arguments;                                                                                  \
	}

#if defined(__x86_64__)
/*
 * The launch of a kernel has eleven arguments, of which five are on the stack. If each were a parameter, the compiler would
 * load and store it again before the jump. As one structure, which has the same layout on the stack (System V ABI: eight
 * bytes each), they are not touched.
 */
struct stacked {
	uint64_t bz, shared;
	CUstream s;
	void **params, **extra;
};
typedef CUresult (*kernel_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, struct stacked);

#define KERNEL_WRAPPER(name, twin, parameters, arguments, key, stream, size)                                            \
	CUresult slow_##name parameters;                                                                                \
	SLOW_LAUNCH(name, twin, parameters, arguments, gsh_kernel_key(key, size), stream, size)                         \
	extern CUresult slow_stacked_##name(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, struct stacked) \
		__asm__("slow_" #name);                                                                                 \
	CUresult stacked_##name(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, struct stacked) __asm__(#name); \
	GSH_EXPORT CUresult stacked_##name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, \
					   struct stacked rest) {                                                       \
		uint64_t blocks = (uint64_t)gx * gy * gz;                                                               \
		struct gsh_stream_state *st = gsh_enter_fast(gsh_stream_handle(rest.s, twin), gsh_kernel_key(f, blocks)); \
		kernel_fn real = (kernel_fn)(void *)REAL(name);                                                         \
		if (unlikely(!st || !real)) return slow_stacked_##name(f, gx, gy, gz, bx, by, rest);                    \
		st->blocks += blocks;                                                                                   \
		return real(f, gx, gy, gz, bx, by, rest);                                                               \
	}
#else
#define KERNEL_WRAPPER LAUNCH_WRAPPER
#endif

/* A copy that is not gated, since it has no bytes or is one between host and device, is not counted either. */
#define COPY_WRAPPER(name, twin, parameters, arguments, kind, bytes, stream)                                            \
	static SLOW_LAUNCH(name, twin, parameters, arguments, gsh_copy_key(kind, bytes), stream, gsh_copy_blocks(bytes)) \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		const void *key = gsh_copy_key(kind, bytes);                                                            \
		if (unlikely(!key)) return real arguments;                                                              \
		struct gsh_stream_state *st = gsh_enter_fast(gsh_stream_handle(stream, twin), key);                     \
		if (unlikely(!st)) return slow_##name arguments;                                                        \
		st->blocks += gsh_copy_blocks(bytes);                                                                   \
		return real arguments;                                                                                  \
	}

/* A copy that may wait for its end always takes the slow path: the events of its own cost little beside it. */
#define BLOCKING_WRAPPER(name, twin, parameters, arguments, kind, bytes, stream)                                        \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		const void *key = gsh_copy_key(kind, bytes);                                                            \
		CUstream on = gsh_stream_handle(stream, twin);                                                          \
		gsh_sync_before(on);                                                                                    \
		struct gsh_stream_state *st = key ? gsh_enter_slow(on, key, gsh_copy_blocks(bytes)) : NULL;             \
		CUresult r = real arguments;                                                                            \
		if (st) gsh_leave(st, r);                                                                               \
		gsh_sync_after(on, r);                                                                                  \
		return r;                                                                                               \
	}

#define SYNC_WRAPPER(name, twin, parameters, arguments, stream, done)                                                   \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		gsh_sync_before(gsh_stream_handle(stream, twin));                                                       \
		CUresult r = real arguments;                                                                            \
		if (done) gsh_sync_after(stream, r);                                                                    \
		return r;                                                                                               \
	}

/* Enters the launch of one device's kernel on the slow path. Returns NULL if it is refused. */
static struct gsh_stream_state *enter_one(const CUDA_LAUNCH_PARAMS *p) {
	uint64_t blocks = (uint64_t)p->gridDimX * p->gridDimY * p->gridDimZ;
	return gsh_enter_slow(gsh_stream_handle(p->hStream, false), gsh_kernel_key(p->function, blocks), blocks);
}

/*
 * Each device's kernel waits for its own token and is charged to its own stream. What was entered before one that is refused counts, as
 * launches that fail do. The driver gets the copy that was entered.
 */
GSH_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned n, unsigned flags) {
	NEED(cuLaunchCooperativeKernelMultiDevice);
	CUDA_LAUNCH_PARAMS own[GSHARE_VGPU_MAX];
	struct gsh_stream_state *st[GSHARE_VGPU_MAX];
	CUresult r = CUDA_ERROR_DEVICE_UNAVAILABLE;
	unsigned entered = 0;
	if (!list || !n) return real(list, n, flags);
	if (n > GSHARE_VGPU_MAX) return CUDA_ERROR_INVALID_VALUE; /* each has to be on a device of its own */
	memcpy(own, list, n * sizeof own[0]);
	while (entered < n && (st[entered] = enter_one(&own[entered]))) entered++;
	if (entered == n) r = real(own, n, flags);
	while (entered > 0) gsh_leave(st[--entered], r);
	return r;
}

#define LAUNCHES_WRAPPER(...)
#define GRAPH_WRAPPER(...)
#define MEMORY_WRAPPER(...)
#define QUERY_WRAPPER(...)
#define LIFECYCLE_WRAPPER(...)

#define CU(kind, by, name, base, since, ...) kind##_WRAPPER(name, false, __VA_ARGS__)
#define CUP(kind, by, name, ending, base, since, ...)                                                                       \
	kind##_WRAPPER(name, false, __VA_ARGS__) kind##_WRAPPER(name##_##ending, true, __VA_ARGS__)
#define NVML(...)
#define USE(...)
#include "symbols.def"
