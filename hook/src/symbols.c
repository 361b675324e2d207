#define _GNU_SOURCE
#include "symbols.h"

#include <dlfcn.h>
#include <string.h>

#include "libc.h"

_Atomic(void *) gsh_real[GSH_SYMBOLS];

/* The names of the real functions, in the order of enum gsh_symbol. */
static const char *const names[GSH_SYMBOLS] = {
#define CU(kind, by, name, ...) #name,
#define CUP(kind, by, name, twin, ...) #name, #name "_" #twin,
#define NVML(kind, name, ...) #name,
#define USE(name, ...) #name,
#include "symbols.def"
#undef CU
#undef CUP
#undef NVML
#undef USE
};

typedef void *(*dlopen_fn)(const char *, int);

/* Returns a handle of the library if it is loaded, or loads it if load is set; NULL otherwise. */
static void *open_library(const char *file, bool load) {
	dlopen_fn open = (dlopen_fn)gsh_libc_symbol("dlopen");
	void *handle = open ? open(file, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	return !handle && open && load ? open(file, RTLD_LAZY) : handle;
}

/* Looks up the real functions of one library. The handle stays open, so that the addresses remain valid. */
static bool resolve_from(const char *file, bool load, bool nvml) {
	gsh_find_dlsym();
	void *handle = gsh_dlsym ? open_library(file, load) : NULL;
	if (!handle) return false;
	for (int i = 0; i < GSH_SYMBOLS; i++) {
		if (nvml != !strncmp(names[i], "nvml", 4)) continue;
		void *real = ((gsh_dlsym_fn)gsh_dlsym)(handle, names[i]);
		atomic_store_explicit(&gsh_real[i], real, memory_order_relaxed);
	}
	return true;
}

void gsh_resolve(bool load) {
	static atomic_bool cuda, nvml;
	if (!atomic_load_explicit(&cuda, memory_order_acquire) && resolve_from("libcuda.so.1", load, false))
		atomic_store_explicit(&cuda, true, memory_order_release);
	if (!atomic_load_explicit(&nvml, memory_order_acquire) && resolve_from("libnvidia-ml.so.1", false, true))
		atomic_store_explicit(&nvml, true, memory_order_release);
}
