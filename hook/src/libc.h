/* Functions of the C library, found in its symbol table because the hook itself exports dlsym and dlvsym. */
#ifndef GSHARE_LIBC_H
#define GSHARE_LIBC_H

/*
 * Returns the address of the function of that name in the loaded C library, or NULL. Ignores symbol versions and the
 * hook's own exports. Any thread; takes no lock. Slow, so never on the fast path.
 */
void *gsh_libc_symbol(const char *name);

typedef void *(*gsh_dlsym_fn)(void *, const char *);
typedef void *(*gsh_dlvsym_fn)(void *, const char *, const char *);

/* The C library's own dlsym and dlvsym; NULL until gsh_find_dlsym succeeds. dlsym.S jumps through them. */
extern void *gsh_dlsym, *gsh_dlvsym;

/* Sets gsh_dlsym and gsh_dlvsym. Takes no lock of its own: two threads that call it at once write the same values. */
void gsh_find_dlsym(void);

#endif
