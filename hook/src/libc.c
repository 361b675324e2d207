/*
 * Looks functions up in the symbol table of the loaded C library. dlsym(RTLD_NEXT, "dlsym") would find the hook's own
 * export, __libc_dlsym is gone since glibc 2.34, and dlvsym needs a version node that differs by machine and release.
 * dlopen and pthread_create are found the same way, so that the hook imports no version of them newer than glibc 2.17.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>

#include "libc.h"

void *gsh_dlsym, *gsh_dlvsym;

/* The parts of a loaded library's dynamic section that a symbol lookup needs. */
struct tables {
	const ElfW(Sym) * symbols;
	const char *strings;
	const uint32_t *gnu_hash;
};

/* Returns the tables of the library with this dynamic section; a table that it lacks is NULL. */
static struct tables find_tables(const struct dl_phdr_info *info, const ElfW(Dyn) * d) {
	struct tables t = {0};
	for (; d->d_tag != DT_NULL; d++) {
		/* glibc relocates these addresses in place; a value below the base has not been */
		ElfW(Addr) at = d->d_un.d_ptr >= info->dlpi_addr ? d->d_un.d_ptr : d->d_un.d_ptr + info->dlpi_addr;
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
		if ((chain[i - first] | 1) == (hash | 1) && !strcmp(t.strings + t.symbols[i].st_name, name)) return &t.symbols[i];
		if (chain[i - first] & 1) break;
	}
	return NULL;
}

/* The name that is looked for, and its address once found. */
struct search {
	const char *name;
	void *found;
};

/* Callback of dl_iterate_phdr: searches one library if it is part of the C library. Returns non-zero to stop. */
static int look_in(struct dl_phdr_info *info, size_t size, void *arg) {
	(void)size;
	struct search *s = arg;
	const char *file = strrchr(info->dlpi_name, '/');
	file = file ? file + 1 : info->dlpi_name;
	if (strncmp(file, "libc.so.", 8) && strncmp(file, "libdl.so.", 9) && strncmp(file, "libpthread.so.", 14)) return 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		if (info->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
		struct tables t = find_tables(info, (const void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
		const ElfW(Sym) *symbol = t.symbols && t.strings && t.gnu_hash ? find_symbol(t, s->name) : NULL;
		if (symbol && symbol->st_shndx != SHN_UNDEF) s->found = (void *)(info->dlpi_addr + symbol->st_value);
	}
	return s->found != NULL;
}

void *gsh_libc_symbol(const char *name) {
	struct search s = {name, NULL};
	dl_iterate_phdr(look_in, &s);
	return s.found;
}

void gsh_find_dlsym(void) {
	if (__atomic_load_n(&gsh_dlvsym, __ATOMIC_ACQUIRE)) return;
	__atomic_store_n(&gsh_dlsym, gsh_libc_symbol("dlsym"), __ATOMIC_RELEASE);
	__atomic_store_n(&gsh_dlvsym, gsh_libc_symbol("dlvsym"), __ATOMIC_RELEASE);
}
