/*
 * The driver's real functions, generated from symbols.def: for each an index I_<name>, a type <name>_fn and an entry in
 * gsh_real; and the macros with which wrappers call them.
 */
#ifndef GSHARE_SYMBOLS_H
#define GSHARE_SYMBOLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../include/gshare_cuda.h"

#define GSH_EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* What a wrapped function does; INTERNAL ones are called by the hook and not wrapped. */
enum gsh_kind { KERNEL, LAUNCH, LAUNCHES, COPY, BLOCKING, GRAPH, MEMORY, QUERY, SYNC, LIFECYCLE, INTERNAL };

/* The index of each real function. */
enum gsh_symbol {
#define CU(kind, by, name, ...) I_##name,
#define CUP(kind, by, name, twin, ...) I_##name, I_##name##_##twin,
#define NVML(kind, name, ...) I_##name,
#define USE(name, ...) I_##name,
#include "symbols.def"
#undef CU
#undef CUP
#undef NVML
#undef USE
	GSH_SYMBOLS
};

/*
 * What decides which context, device and vGPU a function uses: the calling thread's current context; the stream, for which that is only a
 * default stream's; the device, pool, context, address, graph, event or handle that it names; nothing; or something that cuda.h does not say.
 */
enum gsh_by {
	BY_THREAD, BY_STREAM, BY_DEVICE, BY_POOL, BY_CONTEXT, BY_POINTER, BY_GRAPH, BY_EVENT, BY_HANDLE, BY_NOTHING, BY_UNSAID,
	/* BY_<name> of each wrapped function: the column of symbols.def */
#define CU(kind, by, name, ...) BY_##name = BY_##by,
#define CUP(kind, by, name, ...) BY_##name = BY_##by,
#define NVML(...)
#define USE(...)
#include "symbols.def"
#undef CU
#undef CUP
#undef NVML
#undef USE
};

#define CU(kind, by, name, base, since, parameters, ...)                                                                    \
	typedef CUresult(*name##_fn) parameters;                                                                        \
	CUresult name parameters;
#define CUP(kind, by, name, twin, base, since, parameters, ...)                                                             \
	typedef CUresult(*name##_fn) parameters;                                                                        \
	typedef CUresult(*name##_##twin##_fn) parameters;                                                               \
	CUresult name parameters;                                                                                       \
	CUresult name##_##twin parameters;
#define NVML(kind, name, parameters, ...)                                                                               \
	typedef nvmlReturn_t(*name##_fn) parameters;                                                                    \
	nvmlReturn_t name parameters;
#define USE(name, parameters) typedef CUresult(*name##_fn) parameters;
#include "symbols.def"
#undef CU
#undef CUP
#undef NVML
#undef USE

/* The addresses of the real functions; NULL until resolved, and where the installed driver lacks the function. */
extern _Atomic(void *) gsh_real[GSH_SYMBOLS];

/*
 * Looks up the real functions once their libraries are loaded; costs two loads when that is done. Loads libcuda itself if
 * load is set and nobody has. Any thread. Takes no lock, since lookups come from constructors and under the loader's lock:
 * two threads that call it at once write the same values.
 */
void gsh_resolve(bool load);

/* Returns the real function, typed; NULL if there is none. One load, so it may be used on the fast path. */
#define REAL(name) ((name##_fn)atomic_load_explicit(&gsh_real[I_##name], memory_order_relaxed))

/*
 * Declares `real`, the real function of a wrapper, and looks it up at first use. Where the driver lacks it, the wrapper
 * returns the error that the driver would return.
 */
#define NEED(name) NEED_OR(CUDA_ERROR_NOT_FOUND, name)
#define NEED_OR(error, name)                                                                                            \
	name##_fn real = REAL(name);                                                                                    \
	if (unlikely(!real)) {                                                                                          \
		gsh_resolve(true);                                                                                      \
		if (!(real = REAL(name)))                                                                               \
			return error;                                                                                   \
	}

/* Calls a real function from inside the hook; CUDA_ERROR_NOT_FOUND if the driver lacks it. */
#define CALL(name, ...) (REAL(name) ? REAL(name)(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND)

#endif
