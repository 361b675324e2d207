/*
 * Comparisons of names for lookups. Not those of the C library: the runtimes of sanitizers replace them, and look functions up by
 * dlsym, and so by the hook, before their replacements work.
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
