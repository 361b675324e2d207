/* From symbols.def: an index, a type and a place for each real function, and how to reach it. */
#ifndef GSHARE_SYMBOLS_H
#define GSHARE_SYMBOLS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "../include/gshare_cuda.h"

#define GSH_EXPORT __attribute__((visibility("default")))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum gsh_kind { KERNEL, LAUNCH, GRAPH, MEMORY, VIEW, SYNC, LIFE, INTERNAL };

enum gsh_symbol {
#define CU(kind, name, ...) I_##name,
#define CUP(kind, name, twin, ...) I_##name, I_##name##_##twin,
#define NVML(kind, name, ...) I_##name,
#define USE(name, ...) I_##name,
#include "symbols.def"
#undef CU
#undef CUP
#undef NVML
#undef USE
	GSH_SYMBOLS
};

#define CU(kind, name, base, since, parameters, ...)                                                                    \
	typedef CUresult(*name##_fn) parameters;                                                                        \
	CUresult name parameters;
#define CUP(kind, name, twin, base, since, parameters, ...)                                                             \
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

struct gsh_entry {
	enum gsh_kind kind;
	const char *name, *base; /* base: as cuGetProcAddress knows it; NULL for NVML and internal ones */
	int since;               /* first cudaVersion with this ABI */
	bool twin;               /* stream 0 is the calling thread's */
	void *wrapper;           /* NULL for internal ones */
};

extern const struct gsh_entry gsh_entries[GSH_SYMBOLS];

/* Addresses of the real functions; NULL until resolved, and for those that the installed driver lacks. */
extern _Atomic(void *) gsh_real[GSH_SYMBOLS];

/*
 * Finds the real functions once their libraries are loaded. Cheap when done. Takes no lock, since look-ups come from
 * constructors and under the loader's lock: two threads at once write the same values. With load set it loads libcuda if
 * nobody has.
 */
void gsh_resolve(bool load);

/* The real function, typed; NULL if there is none. */
#define REAL(name) ((name##_fn)atomic_load_explicit(&gsh_real[I_##name], memory_order_relaxed))

/* The real function in a wrapper: resolves at first use and gives up with an error that the driver itself would give. */
#define NEED(name) NEED_OR(CUDA_ERROR_NOT_FOUND, name)
#define NEED_OR(error, name)                                                                                                \
	name##_fn real = REAL(name);                                                                                    \
	if (unlikely(!real)) {                                                                                          \
		gsh_resolve(true);                                                                                      \
		if (!(real = REAL(name)))                                                                               \
			return error;                                                                                   \
	}

/* Calls a real function from inside the hook; an error if the driver lacks it. */
#define CALL(name, ...) (REAL(name) ? REAL(name)(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND)

/* The index of the wrapped function at this address, or -1. */
int gsh_find_address(const void *address);

/* The index of the wrapped function of this exact name, or -1. */
int gsh_find_name(const char *name);

/* Own look-up in the C library, independent of version nodes and of our exported dlsym. */
void *gsh_libc_symbol(const char *name);

#endif
