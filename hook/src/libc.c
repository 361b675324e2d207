/*
 * Looks functions up in the symbol table of the loaded C library. dlsym(RTLD_NEXT, "dlsym") would find the hook's own
 * export, __libc_dlsym is gone since glibc 2.34, and dlvsym needs a version node that differs by machine and release.
 * dlopen and pthread_create are found the same way, so that the hook imports no version of them newer than glibc 2.17.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libc.h"
#include "text.h"

void *gsh_dlsym, *gsh_dlvsym;

/* The parts of a loaded library's dynamic section that a symbol lookup needs. */
struct tables {
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;
};

/* Returns the tables of a loaded library; a table that it lacks is NULL. */
static struct tables find_tables(const struct link_map *library) {
	struct tables t = {0};
	for (const ElfW(Dyn) *d = library->l_ld; d->d_tag != DT_NULL; d++) {
		/* glibc relocates these addresses in place; a value below the base has not been */
		ElfW(Addr) at = d->d_un.d_ptr >= library->l_addr ? d->d_un.d_ptr : d->d_un.d_ptr + library->l_addr;
		if (d->d_tag == DT_SYMTAB) t.symbols = (const void *)at;
		if (d->d_tag == DT_STRTAB) t.strings = (const void *)at;
		if (d->d_tag == DT_GNU_HASH) t.gnu_hash = (const void *)at;
	}
	return t;
}

/*
 * Returns the defined symbol of that name, or NULL. The GNU hash table groups symbols by bucket; a chain ends at the entry
 * with its lowest bit set.
 */
static const ElfW(Sym) * find_symbol(struct tables t, const char *name) {
	uint32_t buckets = t.gnu_hash[0], first = t.gnu_hash[1], bloom = t.gnu_hash[2];
	const uint32_t *bucket = t.gnu_hash + 4 + bloom * (sizeof(ElfW(Addr)) / 4), *chain = bucket + buckets;
	uint32_t hash = 5381;
	for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
	for (uint32_t i = bucket[hash % buckets]; i >= first; i++) {
		if ((chain[i - first] | 1) == (hash | 1) && gsh_equal(t.strings + t.symbols[i].st_name, name)) return &t.symbols[i];
		if (chain[i - first] & 1) break;
	}
	return NULL;
}

/* Reports whether a file is part of the C library, which was several files before glibc 2.34. */
static bool is_libc(const char *path) {
	const char *file = path;
	for (const char *c = path; *c; c++)
		if (*c == '/') file = c + 1;
	return gsh_begins(file, "libc.so.") || gsh_begins(file, "libdl.so.") || gsh_begins(file, "libpthread.so.");
}

/*
 * Reads the loader's list of libraries as debuggers do. dl_iterate_phdr would take the loader's lock, and the runtime of the thread
 * sanitizer, which looks functions up by dlsym before it is set up, replaces it. The C library is loaded with the program and
 * never unloaded, and later libraries are appended to the list; so what is read here does not change.
 */
void *gsh_libc_symbol(const char *name) {
	for (const struct link_map *library = _r_debug.r_map; library; library = library->l_next) {
		if (!library->l_name || !is_libc(library->l_name)) continue;
		struct tables t = find_tables(library);
		const ElfW(Sym) *symbol = t.symbols && t.strings && t.gnu_hash ? find_symbol(t, name) : NULL;
		if (symbol && symbol->st_shndx != SHN_UNDEF) return (void *)(library->l_addr + symbol->st_value);
	}
	return NULL;
}

void gsh_find_dlsym(void) {
	if (__atomic_load_n(&gsh_dlvsym, __ATOMIC_ACQUIRE)) return;
	__atomic_store_n(&gsh_dlsym, gsh_libc_symbol("dlsym"), __ATOMIC_RELEASE);
	__atomic_store_n(&gsh_dlvsym, gsh_libc_symbol("dlvsym"), __ATOMIC_RELEASE);
}
