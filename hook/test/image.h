/* Images of modules for tests: the smallest ones with variables. */
#ifndef GSHARE_TEST_IMAGE_H
#define GSHARE_TEST_IMAGE_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>

/* A cubin with a section of variables. */
struct cubin {
	Elf64_Ehdr file;
	Elf64_Shdr sections[3];
	char names[32];
};
static inline struct cubin cubin(uint64_t bytes) {
	struct cubin c = {.names = "\0.shstrtab\0.nv.global"};
	c.file = (Elf64_Ehdr){.e_ident = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, 7}, .e_type = 2, .e_machine = 190,
			      .e_shoff = offsetof(struct cubin, sections), .e_ehsize = sizeof c.file, .e_shentsize = sizeof c.sections[0],
			      .e_shnum = 3, .e_shstrndx = 1};
	c.sections[1] = (Elf64_Shdr){.sh_name = 1, .sh_type = SHT_STRTAB, .sh_offset = offsetof(struct cubin, names), .sh_size = sizeof c.names};
	c.sections[2] = (Elf64_Shdr){.sh_name = 11, .sh_type = SHT_NOBITS, .sh_flags = SHF_ALLOC | SHF_WRITE, .sh_size = bytes};
	return c;
}

/* The headers of a fat binary and of one of its entries. */
struct fat_header {
	uint32_t magic;
	uint16_t version, header;
	uint64_t size;
};
struct fat_entry {
	uint16_t kind, version;
	uint32_t header;
	uint64_t size;
	uint32_t compressed, options;
	uint16_t minor, major;
	uint32_t arch, name, name_size;
	uint64_t flags, zero, decompressed;
};

/* A fat binary with one cubin for the fake's device. */
struct fat {
	struct fat_header head;
	struct fat_entry entry;
	struct cubin cubin;
};
static inline struct fat fat(uint64_t bytes) {
	struct fat f = {.head = {0xba55ed50, 1, 16, sizeof f - sizeof f.head},
			.entry = {.kind = 2, .version = 0x101, .header = sizeof f.entry, .size = sizeof f.cubin, .major = 1, .arch = 90, .flags = 0x11},
			.cubin = cubin(bytes)};
	return f;
}

/* What nvcc registers for a fat binary. */
struct registered {
	uint32_t magic, version;
	const void *fat, *more;
};
static inline struct registered registered(const void *f) { return (struct registered){0x466243b1, 1, f, NULL}; }

/* What nvcc registers for fat binaries that it has linked: an empty one, and a list of the others that NULL ends. */
static inline struct registered registered_parts(const struct fat_header *empty, const void *const *parts) {
	return (struct registered){0x466243b1, 2, empty, parts};
}

#endif
