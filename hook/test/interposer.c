/* A second interposing library: wraps cuInit and finds the next one by RTLD_NEXT. */
#define _GNU_SOURCE
#include <dlfcn.h>

__attribute__((visibility("default"))) int interposed;
__attribute__((visibility("default"))) int cuInit(unsigned flags);

int cuInit(unsigned flags) {
	int (*next)(unsigned) = 0;
	for (int i = 0; i < 3; i++) next = (int (*)(unsigned))dlsym(RTLD_NEXT, "cuInit"); /* repeated lookups return the same */
	interposed++;
	return next ? next(flags) : 4713;
}
