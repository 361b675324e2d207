#define _GNU_SOURCE
#include "image.h"

#include <elf.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "log.h"
#include "lz4.h"
#include "text.h"

#define ELF_MAGIC 0x464c457fu
#define MOST (1ull << 30) /* bytes that an entry of a fat binary may have */

/* Reports whether an image begins with a 32-bit number, none of whose bytes is 0. Stops reading at the first byte that differs. */
static bool begins_with(const unsigned char *image, uint32_t magic) {
	int i = 0;
	while (i < 4 && image[i] == (unsigned char)(magic >> 8 * i)) i++;
	return i == 4;
}

/* A cubin. Its length is SIZE_MAX if it is not known. */
struct cubin {
	const unsigned char *at;
	size_t length;
	uint64_t table, sections; /* offset of the section headers, and their number */
	Elf64_Shdr names;
};

/* Reports whether the cubin has these bytes. */
static bool has(const struct cubin *c, uint64_t offset, uint64_t bytes) { return offset <= c->length && bytes <= c->length - offset; }

/* Returns a section header. */
static Elf64_Shdr section(const struct cubin *c, uint64_t i) {
	Elf64_Shdr s;
	memcpy(&s, c->at + c->table + i * sizeof s, sizeof s);
	return s;
}

/* Reads the headers of a cubin; false if they are invalid. */
static bool open_cubin(struct cubin *c, const unsigned char *image, size_t length) {
	Elf64_Ehdr file;
	*c = (struct cubin){.at = image, .length = length};
	if (!has(c, 0, sizeof file)) return false;
	memcpy(&file, image, sizeof file);
	c->table = file.e_shoff;
	if (file.e_ident[EI_CLASS] != ELFCLASS64 || file.e_shentsize != sizeof c->names || !c->table || !has(c, c->table, sizeof c->names))
		return false;
	Elf64_Shdr first = section(c, 0); /* has the numbers that are too large for the header */
	c->sections = file.e_shnum ? file.e_shnum : first.sh_size;
	uint64_t names = file.e_shstrndx == SHN_XINDEX ? first.sh_link : file.e_shstrndx;
	if (names >= c->sections || c->sections > (length - c->table) / sizeof first) return false;
	c->names = section(c, names);
	return has(c, c->names.sh_offset, c->names.sh_size);
}

/* Reports whether a section has variables: .nv.global or .nv.global.init. */
static bool has_variables(const struct cubin *c, const Elf64_Shdr *s) {
	static const char name[] = ".nv.global";
	if (s->sh_name >= c->names.sh_size || c->names.sh_size - s->sh_name < sizeof name) return false;
	return gsh_begins((const char *)c->at + c->names.sh_offset + s->sh_name, name);
}

/*
 * Returns the bytes of a section of variables, or those of all common variables for section SHN_COMMON. Adds up the
 * symbols: the size in a section's header has only 32 bits where the compiler has written more.
 */
static uint64_t bytes_by_symbols(const struct cubin *c, uint64_t index) {
	uint64_t bytes = 0, end;
	for (uint64_t i = 0; i < c->sections; i++) {
		Elf64_Shdr s = section(c, i);
		if (s.sh_type != SHT_SYMTAB) continue;
		if (!has(c, s.sh_offset, s.sh_size)) return UINT64_MAX;
		for (uint64_t at = 0; s.sh_size - at >= sizeof(Elf64_Sym); at += sizeof(Elf64_Sym)) {
			Elf64_Sym symbol;
			memcpy(&symbol, c->at + s.sh_offset + at, sizeof symbol);
			if (symbol.st_shndx != index) continue;
			if (__builtin_add_overflow(index == SHN_COMMON ? bytes : symbol.st_value, symbol.st_size, &end)) return UINT64_MAX;
			if (end > bytes) bytes = end;
		}
	}
	return bytes;
}

/* Returns the bytes of a cubin's variables. */
static uint64_t cubin_bytes(const unsigned char *image, size_t length) {
	struct cubin c;
	if (!open_cubin(&c, image, length)) return UINT64_MAX;
	uint64_t sum = bytes_by_symbols(&c, SHN_COMMON);
	for (uint64_t i = 0; i < c.sections; i++) {
		Elf64_Shdr s = section(&c, i);
		if (!has_variables(&c, &s)) continue;
		uint64_t bytes = bytes_by_symbols(&c, i);
		if (__builtin_add_overflow(sum, bytes > s.sh_size ? bytes : s.sh_size, &sum)) return UINT64_MAX;
	}
	return sum;
}

/*
 * Returns 0 as the size of contents in a format that the hook cannot read: a new format of nvcc must not make every program fail. Frameworks
 * have hundreds of such modules, so this is logged once.
 */
static uint64_t unreadable(void) {
	static atomic_bool logged;
	if (!atomic_exchange(&logged, true)) gsh_log("failed to read a module: its variables, and those of others like it, are not counted");
	return 0;
}

#define PTX 1u   /* kinds of the entries of a fat binary */
#define CUBIN 2u

/* Returns the bytes of an entry's contents. */
static uint64_t code_bytes(const unsigned char *image, size_t length, unsigned kind) {
	if (length >= 4 && begins_with(image, ELF_MAGIC)) return cubin_bytes(image, length);
	return kind == PTX ? gsh_ptx_bytes((const char *)image, strnlen((const char *)image, length)) : unreadable();
}

/* The header of a fat binary. */
struct fat {
	uint32_t magic;
	uint16_t version, header_size;
	uint64_t size; /* of all entries */
};
#define FAT_MAGIC 0xba55ed50u

/* The header of an entry of a fat binary; what follows at header_size is padded to size bytes. */
struct entry {
	uint16_t kind, version;
	uint32_t header_size;
	uint64_t size;
	uint32_t compressed_size, options;
	uint16_t minor, major;
	uint32_t arch, name, name_size;
	uint64_t flags, zero, decompressed_size;
};
#define LZ4 0x2000u  /* a flag */
#define ZSTD 0x8000u /* another one */

/* Returns the bytes of an entry's contents, which are compressed. */
static uint64_t compressed_bytes(const struct entry *e, const unsigned char *contents) {
	if (e->flags & ZSTD || !e->decompressed_size || e->decompressed_size > MOST || e->compressed_size > e->size) return unreadable();
	unsigned char *to = mmap(NULL, e->decompressed_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (to == MAP_FAILED) return UINT64_MAX;
	bool valid = gsh_lz4_decompress(contents, e->compressed_size, to, e->decompressed_size);
	uint64_t bytes = valid ? code_bytes(to, e->decompressed_size, e->kind) : unreadable();
	munmap(to, e->decompressed_size);
	return bytes;
}

/* Returns the bytes of the largest entry of a fat binary. Cubins of other architectures do not count. */
static uint64_t fat_bytes(const unsigned char *image, unsigned major) {
	struct fat f;
	struct entry e;
	uint64_t most = 0;
	memcpy(&f, image, sizeof f);
	const unsigned char *at = image + f.header_size;
	for (uint64_t left = f.size; left >= sizeof e; at += e.header_size + e.size, left -= e.header_size + e.size) {
		memcpy(&e, at, sizeof e);
		if (e.header_size < sizeof e || e.header_size > left || e.size > left - e.header_size) break;
		const unsigned char *contents = at + e.header_size;
		if (major && e.kind == CUBIN && e.arch / 10 != major) continue; /* the driver cannot select it */
		uint64_t bytes = e.flags & (LZ4 | ZSTD) ? compressed_bytes(&e, contents) : code_bytes(contents, e.size, e.kind);
		if (bytes > most) most = bytes;
	}
	return most;
}

/* What nvcc registers for a fat binary. */
struct registered {
	uint32_t magic, version;
	const unsigned char *fat;
	const unsigned char *const *more; /* LINKED: fat binaries that the driver links if it can select nothing from `fat`; NULL ends the list */
};
#define REGISTERED_MAGIC 0x466243b1u
#define LINKED 2u /* a version */

/* Returns the bytes of a fat binary, or of those that it is linked from, whichever are more. */
static uint64_t registered_bytes(const struct registered *r, unsigned major) {
	uint64_t bytes = r->fat && begins_with(r->fat, FAT_MAGIC) ? fat_bytes(r->fat, major) : 0, sum = 0;
	for (const unsigned char *const *part = r->version == LINKED ? r->more : NULL; part && *part; part++)
		if (begins_with(*part, FAT_MAGIC) && __builtin_add_overflow(sum, fat_bytes(*part, major), &sum)) return UINT64_MAX;
	return sum > bytes ? sum : bytes;
}

uint64_t gsh_image_bytes(const void *image, unsigned major) {
	const unsigned char *bytes = image;
	if (!bytes) return 0;
	if (begins_with(bytes, ELF_MAGIC)) return cubin_bytes(bytes, SIZE_MAX);
	if (begins_with(bytes, REGISTERED_MAGIC)) {
		struct registered r;
		memcpy(&r, bytes, sizeof r);
		return registered_bytes(&r, major);
	}
	return begins_with(bytes, FAT_MAGIC) ? fat_bytes(bytes, major) : gsh_ptx_bytes(image, strlen(image));
}
