/*
 * dlsym and cuGetProcAddress. The real look-up is made first, with the caller's own arguments; if what it returns is a
 * driver function that we wrap, the caller gets the wrapper of exactly that symbol. So the driver chooses the version,
 * and a name that merely looks like one of ours (cudnnCreate) or means another library (a driver that looks up cuInit in
 * its own parts) is left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#include "account.h"
#include "route.h"
#include "symbols.h"

void *gsh_dlsym, *gsh_dlvsym;
extern void *gsh_entry_dlsym(void *, const char *), *gsh_entry_dlvsym(void *, const char *, const char *);

void gsh_find_dlsym(void) {
	if (__atomic_load_n(&gsh_dlvsym, __ATOMIC_ACQUIRE)) return;
	__atomic_store_n(&gsh_dlsym, gsh_libc_symbol("dlsym"), __ATOMIC_RELEASE);
	__atomic_store_n(&gsh_dlvsym, gsh_libc_symbol("dlvsym"), __ATOMIC_RELEASE);
}

static void *look_up(void *handle, const char *name, const char *version) {
	if (version) return ((gsh_dlvsym_fn)gsh_dlvsym)(handle, name, version);
	return ((gsh_dlsym_fn)gsh_dlsym)(handle, name);
}

static const struct gsh_answer pass = {NULL, 0};

static struct gsh_answer mine(void *value) { return (struct gsh_answer){value, 1}; }

/*
 * RTLD_DEFAULT and RTLD_NEXT find our own exports or other interposers first. The answer is our wrapper if the driver is
 * loaded and has the function; else what comes after us in the search order, which is nothing: we invent no function.
 */
static struct gsh_answer global(int i, const char *name) {
	if (atomic_load_explicit(&gsh_real[i], memory_order_relaxed)) return mine(gsh_entries[i].wrapper);
	return mine(look_up(RTLD_NEXT, name, NULL));
}

static struct gsh_answer from_library(void *handle, const char *name, const char *version) {
	void *found = look_up(handle, name, version);
	int i = found ? gsh_find_address(found) : -1;
	return i < 0 ? pass : mine(gsh_entries[i].wrapper);
}

/* A handle of the C library gives its dlsym; answering with it would be a way around us. */
static struct gsh_answer own_entry(void *handle, const char *name, const char *version) {
	void *found = look_up(handle, name, version);
	if (found == gsh_dlsym) return mine((void *)gsh_entry_dlsym);
	if (found == gsh_dlvsym) return mine((void *)gsh_entry_dlvsym);
	return pass;
}

struct gsh_answer gsh_route(void *handle, const char *name, const char *version) {
	gsh_find_dlsym();
	if (!name || !gsh_dlsym || !gsh_dlvsym) return pass;
	if (!strcmp(name, "dlsym") || !strcmp(name, "dlvsym")) return own_entry(handle, name, version);
	if (strncmp(name, "cu", 2) && strncmp(name, "nvml", 4)) return pass;
	int i = gsh_find_name(name);
	if (i < 0) return pass;
	gsh_resolve(false);
	if (!version && (handle == RTLD_DEFAULT || handle == RTLD_NEXT)) return global(i, name);
	return from_library(handle, name, version);
}

/* The newest entry for this request; -1 also where one name has several signatures, since guessing would be wrong. */
static int by_request(const char *name, int version, unsigned long long flags) {
	bool twin = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	int found = -1, plain = -1, versions = 0;
	for (int i = 0; i < GSH_SYMBOLS; i++) {
		const struct gsh_entry *e = &gsh_entries[i];
		if (!e->base || strcmp(e->base, name) || e->since > version || !atomic_load(&gsh_real[i])) continue;
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

/* Whether the driver exports exactly this address: then it is a version that we do not know, and its signature neither. */
static bool exported(const void *address) {
	dladdr_fn ask = (dladdr_fn)gsh_libc_symbol("dladdr");
	Dl_info info;
	return ask && ask(address, &info) && info.dli_sname && info.dli_saddr == address;
}

static void substitute(const char *name, void **function, int version, unsigned long long flags) {
	if (!name || !function || !*function) return;
	int i = gsh_find_address(*function);
	if (i < 0 && !exported(*function)) i = by_request(name, version, flags);
	if (i >= 0) *function = gsh_entries[i].wrapper;
	for (int k = 0; i < 0 && k < GSH_SYMBOLS; k++)
		if (gsh_entries[k].base && gsh_entries[k].kind != SYNC && !strcmp(gsh_entries[k].base, name)) {
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
