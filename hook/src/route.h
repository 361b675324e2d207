/* Who gets a wrapper: decided by the address that the real look-up returns, not by the name alone. */
#ifndef GSHARE_ROUTE_H
#define GSHARE_ROUTE_H

#include <stdint.h>

struct gsh_answer {
	void *value;
	uint64_t mine; /* 0: go on in the real function with the caller's own return address */
};

/* Called by the assembly behind dlsym and dlvsym (version is NULL for dlsym). */
struct gsh_answer gsh_route(void *handle, const char *name, const char *version);

typedef void *(*gsh_dlsym_fn)(void *, const char *);
typedef void *(*gsh_dlvsym_fn)(void *, const char *, const char *);

/* The C library's own; set by the first gsh_route. */
extern void *gsh_dlsym, *gsh_dlvsym;

/* Finds the two above. */
void gsh_find_dlsym(void);

#endif
