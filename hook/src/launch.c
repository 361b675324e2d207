/* The wrappers of launches and of synchronising calls, from the list. */
#define _GNU_SOURCE
#include "gate.h"

/* On the fast path the real function is entered by a jump: arguments stay where the caller put them. */
#define LAUNCH_WRAPPER(name, twin, parameters, arguments, key, stream, blocks)                                          \
	static __attribute__((noinline)) CUresult slow_##name parameters {                                              \
		NEED(name);                                                                                             \
		struct gsh_track *k = gsh_enter_slow(gsh_stream(stream, twin), key, blocks);                            \
		CUresult r = real arguments;                                                                            \
		gsh_leave(k, r);                                                                                        \
		return r;                                                                                               \
	}                                                                                                               \
	GSH_EXPORT CUresult name parameters {                                                                           \
		name##_fn real = REAL(name);                                                                            \
		if (likely(gsh_enter_fast(gsh_stream(stream, twin), key, blocks) && real)) return real arguments;       \
		return slow_##name arguments;                                                                           \
	}

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
