/* The wrappers of launches and of synchronising calls, from the list. */
#define _GNU_SOURCE
#include "gate.h"

/* On the fast path the real function is entered by a jump: arguments stay where the caller put them. */
#define SLOW_LAUNCH(name, twin, parameters, arguments, key, stream, size)                                               \
	__attribute__((noinline)) CUresult slow_##name parameters {                                                     \
		NEED(name);                                                                                             \
		struct gsh_track *k = gsh_enter_again(gsh_stream(stream, twin), key);                                   \
		if (k) {                                                                                                \
			k->blocks += size;                                                                              \
			return real arguments;                                                                          \
		}                                                                                                       \
		k = gsh_enter_slow(gsh_stream(stream, twin), key, size);                                                \
		CUresult r = real arguments;                                                                            \
		gsh_leave(k, r);                                                                                        \
		return r;                                                                                               \
	}
#define LAUNCH_WRAPPER(name, twin, parameters, arguments, key, stream, size)                                            \
	static SLOW_LAUNCH(name, twin, parameters, arguments, key, stream, size)                                        \
	GSH_EXPORT CUresult name parameters {                                                                           \
		struct gsh_track *k = gsh_enter_fast(gsh_stream(stream, twin), key);                                    \
		name##_fn real = REAL(name);                                                                            \
		if (unlikely(!k || !real)) return slow_##name arguments;                                                \
		k->blocks += size;                                                                                      \
		return real arguments;                                                                                  \
	}

#if defined(__x86_64__)
/*
 * A kernel's launch has eleven arguments, of which five lie on the stack. Named one by one the compiler would take each of
 * them up and put it back before the jump. As one structure, which lies on the stack in the same way (System V ABI: each in
 * eight bytes), they stay where they are.
 */
struct stacked {
	uint64_t bz, shared;
	CUstream s;
	void **params, **extra;
};
typedef CUresult (*kernel_fn)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, struct stacked);

#define KERNEL_WRAPPER(name, twin, parameters, arguments, key, stream, size)                                            \
	CUresult slow_##name parameters;                                                                                \
	SLOW_LAUNCH(name, twin, parameters, arguments, key, stream, size)                                               \
	extern CUresult slow_stacked_##name(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, struct stacked)    \
		__asm__("slow_" #name);                                                                                 \
	CUresult stacked_##name(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, struct stacked) __asm__(#name); \
	GSH_EXPORT CUresult stacked_##name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,    \
					   struct stacked rest) {                                                       \
		struct gsh_track *k = gsh_enter_fast(gsh_stream(rest.s, twin), f);                                      \
		kernel_fn real = (kernel_fn)(void *)REAL(name);                                                         \
		if (unlikely(!k || !real)) return slow_stacked_##name(f, gx, gy, gz, bx, by, rest);                     \
		k->blocks += (uint64_t)gx * gy * gz;                                                                    \
		return real(f, gx, gy, gz, bx, by, rest);                                                               \
	}
#else
#define KERNEL_WRAPPER LAUNCH_WRAPPER
#endif

#define SYNC_WRAPPER(name, twin, parameters, arguments, stream, done)                                                   \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		gsh_sync_before(gsh_stream(stream, twin));                                                              \
		CUresult r = real arguments;                                                                            \
		if (done) gsh_sync_after(stream, r);                                                                    \
		return r;                                                                                               \
	}

#define GRAPH_WRAPPER(...)
#define MEMORY_WRAPPER(...)
#define VIEW_WRAPPER(...)
#define LIFE_WRAPPER(...)

#define CU(kind, name, base, since, ...) kind##_WRAPPER(name, false, __VA_ARGS__)
#define CUP(kind, name, ending, base, since, ...)                                                                       \
	kind##_WRAPPER(name, false, __VA_ARGS__) kind##_WRAPPER(name##_##ending, true, __VA_ARGS__)
#define NVML(...)
#define USE(...)
#include "symbols.def"
