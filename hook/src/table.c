/* The routing table, and finding the real functions that it names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "route.h"
#include "symbols.h"

const struct gsh_entry gsh_entries[GSH_SYMBOLS] = {
#define CU(kind, name, base, since, ...) {kind, #name, base, since, false, (void *)name},
#define CUP(kind, name, twin, base, since, ...)                                                                         \
	{kind, #name, base, since, false, (void *)name}, {kind, #name "_" #twin, base, since, true, (void *)name##_##twin},
#define NVML(kind, name, ...) {kind, #name, NULL, 0, false, (void *)name},
#define USE(name, ...) {INTERNAL, #name, NULL, 0, false, NULL},
#include "symbols.def"
#undef CU
#undef CUP
#undef NVML
#undef USE
};

_Atomic(void *) gsh_real[GSH_SYMBOLS];

typedef void *(*dlopen_fn)(const char *, int);

static void *library(const char *file, bool load) {
	dlopen_fn open = (dlopen_fn)gsh_libc_symbol("dlopen");
	void *handle = open ? open(file, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	return !handle && open && load ? open(file, RTLD_LAZY) : handle;
}

/* The handle is kept open: the library must not go away under the addresses. */
static bool resolve_from(const char *file, bool load, bool nvml) {
	gsh_find_dlsym();
	void *handle = gsh_dlsym ? library(file, load) : NULL;
	if (!handle) return false;
	for (int i = 0; i < GSH_SYMBOLS; i++) {
		if (nvml != !strncmp(gsh_entries[i].name, "nvml", 4)) continue;
		void *real = ((gsh_dlsym_fn)gsh_dlsym)(handle, gsh_entries[i].name);
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

int gsh_find_address(const void *address) {
	for (int i = 0; i < GSH_SYMBOLS; i++)
		if (gsh_entries[i].wrapper && atomic_load_explicit(&gsh_real[i], memory_order_relaxed) == address) return i;
	return -1;
}

int gsh_find_name(const char *name) {
	for (int i = 0; i < GSH_SYMBOLS; i++)
		if (gsh_entries[i].wrapper && !strcmp(gsh_entries[i].name, name)) return i;
	return -1;
}
