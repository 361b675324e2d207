/*
 * Comparisons of names for lookups. They replace those of the C library, which the runtimes of sanitizers override: these
 * runtimes look functions up by dlsym, and so through the hook, before their own comparisons work.
 */
#ifndef GSHARE_TEXT_H
#define GSHARE_TEXT_H

#include <stdbool.h>

/* Reports whether a begins with b. */
static inline bool gsh_begins(const char *a, const char *b) {
	while (*b && *a == *b) a++, b++;
	return !*b;
}

/* Reports whether a and b are the same. */
static inline bool gsh_equal(const char *a, const char *b) {
	while (*a && *a == *b) a++, b++;
	return *a == *b;
}

#endif
