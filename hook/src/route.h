/* Decides which function a program gets when it looks one up: by the address that the real lookup returns. */
#ifndef GSHARE_ROUTE_H
#define GSHARE_ROUTE_H

#include <stdint.h>

/* The result of a lookup by name. */
struct gsh_lookup {
	void *value;
	uint64_t handled; /* 0: dlsym.S jumps to the real function, with the caller's own return address */
};

/* Returns what dlsym or dlvsym (version is not NULL) is to return. Called by dlsym.S on the thread that looks up. */
struct gsh_lookup gsh_route(void *handle, const char *name, const char *version);

#endif
