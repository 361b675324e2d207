/*
 * Replaces dlsym.S where dlsym is not exported: in test programs, and under sanitizers, whose runtimes look up their own
 * functions before instrumented code may run.
 */
#include <stddef.h>

void *gsh_entry_dlsym(void *handle, const char *name);
void *gsh_entry_dlvsym(void *handle, const char *name, const char *version);

void *gsh_entry_dlsym(void *handle, const char *name) { return (void)handle, (void)name, NULL; }
void *gsh_entry_dlvsym(void *handle, const char *name, const char *version) {
	return (void)version, gsh_entry_dlsym(handle, name);
}
