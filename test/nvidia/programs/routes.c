/*
 * routes: reads names from its input and passes them to the driver's cuGetProcAddress, directly and as a program under the hook does, for
 * every version up to the driver's and with every flag. For each result it prints a line at the first version that gives it: name, flags,
 * version, the exported function at the address, and the hook's result: "=" for the same address, or the name of a wrapper. "?" stands
 * for an address that no library exports.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../../../hook/src/libc.h"

typedef void *(*dlsym_fn)(void *, const char *);
typedef int (*ask_fn)(const char *, void **, int, unsigned long long, int *);

/* Returns the name exported at exactly this address, if it is in a library whose path contains the text. */
static const char *name_of(void *p, const char *library) {
	Dl_info i;
	return dladdr(p, &i) && i.dli_sname && i.dli_saddr == p && strstr(i.dli_fname, library) ? i.dli_sname : "?";
}

int main(void) {
	void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
	dlsym_fn real_dlsym = (dlsym_fn)gsh_libc_symbol("dlsym");
	if (!cuda || !real_dlsym) return fprintf(stderr, "%s\n", dlerror()), 1;
	ask_fn real = (ask_fn)real_dlsym(cuda, "cuGetProcAddress_v2"), hooked = (ask_fn)dlsym(cuda, "cuGetProcAddress_v2");
	int (*get_version)(int *) = (int (*)(int *))real_dlsym(cuda, "cuDriverGetVersion");
	int newest = 0;
	if (!real || !hooked || !get_version || get_version(&newest)) return fprintf(stderr, "the driver has no version\n"), 1;
	if (real == hooked) return fprintf(stderr, "the hook is not there\n"), 1;
	char name[256];
	long asked = 0;
	while (scanf("%255s", name) == 1)
		for (int flags = 0; flags <= 2; flags++) {
			void *last = NULL, *last_got = NULL;
			for (int version = 2000; version <= newest; version += version % 1000 == 90 ? 910 : 10, asked++) {
				void *want = NULL, *got = NULL;
				int status = -1, want_status = -1;
				int r = real(name, &want, version, flags, &want_status);
				if (hooked(name, &got, version, flags, &status) != r || status != want_status)
					return printf("%s %d %d: another result\n", name, flags, version), 1;
				if (r || !want || (want == last && got == last_got)) continue;
				last = want;
				last_got = got;
				printf("%s %d %d %s %s\n", name, flags, version, name_of(want, "libcuda"),
				       got == want ? "=" : name_of(got, "libgshare"));
			}
		}
	fprintf(stderr, "%d: %ld requests\n", newest, asked);
	return 0;
}
