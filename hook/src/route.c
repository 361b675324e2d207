/*
 * dlsym, dlvsym and cuGetProcAddress. The real lookup is made first, with the caller's own arguments; if its result is a
 * wrapped driver function, the caller gets the wrapper of exactly that symbol. So the driver chooses the version, and a name
 * that only looks like a driver function (cudnnCreate) or belongs to another library is left alone.
 */
#define _GNU_SOURCE
#include "route.h"

#include <dlfcn.h>

#include "account.h"
#include "libc.h"
#include "symbols.h"
#include "text.h"

/* The hook's dlsym and dlvsym, in dlsym.S. */
extern void *gsh_entry_dlsym(void *, const char *), *gsh_entry_dlvsym(void *, const char *, const char *);

/* One function of symbols.def. */
struct entry {
	enum gsh_kind kind;
	const char *name, *base; /* base: the name that cuGetProcAddress takes; NULL for NVML and internal functions */
	int since;               /* first CUDA version with this ABI */
	bool twin;               /* stream 0 means the calling thread's own stream */
	void *wrapper;           /* NULL for internal functions */
};

/* All functions, in the order of enum gsh_symbol. */
static const struct entry entries[GSH_SYMBOLS] = {
#define CU(kind, by, name, base, since, ...) {kind, #name, base, since, false, (void *)name},
#define CUP(kind, by, name, twin, base, since, ...)                                                                         \
	{kind, #name, base, since, false, (void *)name}, {kind, #name "_" #twin, base, since, true, (void *)name##_##twin},
#define NVML(kind, name, ...) {kind, #name, NULL, 0, false, (void *)name},
#define USE(name, ...) {INTERNAL, #name, NULL, 0, false, NULL},
#include "symbols.def"
#undef CU
#undef CUP
#undef NVML
#undef USE
};

/* Returns the index of the wrapped function at this address, or -1. */
static int find_address(const void *address) {
	for (int i = 0; i < GSH_SYMBOLS; i++)
		if (entries[i].wrapper && atomic_load_explicit(&gsh_real[i], memory_order_relaxed) == address) return i;
	return -1;
}

/* Returns the index of the wrapped function of exactly this name, or -1. */
static int find_name(const char *name) {
	for (int i = 0; i < GSH_SYMBOLS; i++)
		if (entries[i].wrapper && gsh_equal(entries[i].name, name)) return i;
	return -1;
}

/* Calls the real dlsym, or the real dlvsym where a version is given. */
static void *look_up(void *handle, const char *name, const char *version) {
	if (version) return ((gsh_dlvsym_fn)gsh_dlvsym)(handle, name, version);
	return ((gsh_dlsym_fn)gsh_dlsym)(handle, name);
}

/* The result with which dlsym.S enters the real function in the caller's place. */
static const struct gsh_lookup pass_through = {NULL, 0};

/* Returns a result that dlsym.S hands to the caller. */
static struct gsh_lookup answer(void *value) { return (struct gsh_lookup){value, 1}; }

/*
 * Looks a wrapped name up in the global scope. RTLD_DEFAULT and RTLD_NEXT would find the hook's own exports or other
 * interposers first. Returns the wrapper if the driver is loaded and has the function; otherwise what follows the hook in
 * the search order, usually NULL: the hook never offers a function that the driver lacks.
 */
static struct gsh_lookup from_global_scope(int i, const char *name) {
	if (atomic_load_explicit(&gsh_real[i], memory_order_relaxed)) return answer(entries[i].wrapper);
	return answer(look_up(RTLD_NEXT, name, NULL));
}

/* Looks a name up in one library. Returns the wrapper if the result is a wrapped driver function. */
static struct gsh_lookup from_library(void *handle, const char *name, const char *version) {
	void *found = look_up(handle, name, version);
	int i = found ? find_address(found) : -1;
	return i < 0 ? pass_through : answer(entries[i].wrapper);
}

/* Looks up dlsym or dlvsym itself. The C library's own are replaced by the hook's, or a program could bypass the hook. */
static struct gsh_lookup dlsym_entry(void *handle, const char *name, const char *version) {
	void *found = look_up(handle, name, version);
	if (found == gsh_dlsym) return answer((void *)gsh_entry_dlsym);
	if (found == gsh_dlvsym) return answer((void *)gsh_entry_dlvsym);
	return pass_through;
}

struct gsh_lookup gsh_route(void *handle, const char *name, const char *version) {
	gsh_find_dlsym();
	if (!name || !gsh_dlsym || !gsh_dlvsym) return pass_through;
	if (gsh_equal(name, "dlsym") || gsh_equal(name, "dlvsym")) return dlsym_entry(handle, name, version);
	if (!gsh_begins(name, "cu") && !gsh_begins(name, "nvml")) return pass_through;
	int i = find_name(name);
	if (i < 0) return pass_through;
	gsh_resolve(false);
	if (!version && (handle == RTLD_DEFAULT || handle == RTLD_NEXT)) return from_global_scope(i, name);
	return from_library(handle, name, version);
}

/*
 * Returns the index of the newest wrapper for a request of cuGetProcAddress, or -1. Also -1 where one name has several
 * signatures, since the caller's signature is not known then.
 */
static int entry_for_request(const char *name, int version, unsigned long long flags) {
	bool twin = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	int found = -1, plain = -1, versions = 0;
	for (int i = 0; i < GSH_SYMBOLS; i++) {
		const struct entry *e = &entries[i];
		if (!e->base || !gsh_equal(e->base, name) || e->since > version || !atomic_load(&gsh_real[i])) continue;
		if (e->twin) {
			found = twin ? i : found;
		} else {
			plain = i;
			versions++;
		}
	}
	return versions != 1 ? -1 : found >= 0 ? found : plain;
}

typedef int (*dladdr_fn)(const void *, Dl_info *);

/*
 * Reports whether some library exports exactly this address. If so it is a version of the function that symbols.def does
 * not list, whose signature may differ.
 */
static bool is_exported(const void *address) {
	dladdr_fn find = (dladdr_fn)gsh_libc_symbol("dladdr");
	Dl_info info;
	return find && find(address, &info) && info.dli_sname && info.dli_saddr == address;
}

/* Replaces the result of cuGetProcAddress by its wrapper, or counts a launch or memory function that has none. */
static void substitute(const char *name, void **function, int version, unsigned long long flags) {
	if (!name || !function || !*function) return;
	int i = find_address(*function);
	if (i < 0 && !is_exported(*function)) i = entry_for_request(name, version, flags);
	if (i >= 0) *function = entries[i].wrapper;
	for (int k = 0; i < 0 && k < GSH_SYMBOLS; k++)
		if (entries[k].base && entries[k].kind != SYNC && gsh_equal(entries[k].base, name)) {
			gsh_count_uncovered();
			return;
		}
}

GSH_EXPORT CUresult cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
	NEED(cuGetProcAddress);
	CUresult r = real(name, function, version, flags);
	if (r == CUDA_SUCCESS) substitute(name, function, version, flags);
	return r;
}

GSH_EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags,
					int *status) {
	NEED(cuGetProcAddress_v2);
	CUresult r = real(name, function, version, flags, status);
	if (r == CUDA_SUCCESS) substitute(name, function, version, flags);
	return r;
}
