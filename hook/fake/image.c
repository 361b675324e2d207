/* The variables of a module's image: a cubin, PTX, or a fat binary of them. */
#include "fake.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>

/* Returns the bytes of the sections of variables. */
static uint64_t of_cubin(const unsigned char *image)
{
	const Elf64_Ehdr *file = (const void *)image;
	const Elf64_Shdr *sections = (const void *)(image + file->e_shoff);
	const char *names = (const char *)image + sections[file->e_shstrndx].sh_offset;
	uint64_t sum = 0;
	for (int i = 0; i < file->e_shnum; i++)
		if (strncmp(names + sections[i].sh_name, ".nv.global", 10) == 0)
			sum += sections[i].sh_size;
	return sum;
}

/* Returns the bytes of the declarations `.global .b8 NAME[BYTES];`, which is how nvcc writes arrays; no others are read. */
static uint64_t of_ptx(const char *text)
{
	uint64_t sum = 0;
	for (const char *at = text; (at = strstr(at, ".global .")); at++) {
		unsigned long long bytes = 0;
		if (sscanf(at, ".global .align %*d .b8 %*[^[][%llu]", &bytes) == 1 || sscanf(at, ".global .b8 %*[^[][%llu]", &bytes) == 1)
			sum += bytes;
	}
	return sum;
}

/* An entry of a fat binary; its contents follow at header_size. */
struct entry {
	uint16_t kind, version;
	uint32_t header_size;
	uint64_t size;
};

/* Reports whether an image begins with four bytes, none of which is 0. It may be a shorter text. */
static int begins_with(const char *image, const char *magic) { return strncmp(image, magic, 4) == 0; }

/* What nvcc registers. Version 2 has a list of the fat binaries that are linked if the first one has nothing for the device. */
struct registered {
	uint32_t magic, version;
	const void *fat;
	const void *const *linked;
};

static uint64_t of_registered(const struct registered *r)
{
	uint64_t sum = fake_image_globals(r->fat);
	for (const void *const *part = r->version == 2 && !sum ? r->linked : NULL; part && *part; part++)
		sum += fake_image_globals(*part);
	return sum;
}

uint64_t fake_image_globals(const void *image)
{
	const unsigned char *bytes = image;
	struct { uint32_t magic; uint16_t version, header; uint64_t size; } fat;
	if (!image)
		return 0;
	if (begins_with(image, "\x7f" "ELF"))
		return of_cubin(bytes);
	if (begins_with(image, "\xb1\x43\x62\x46"))
		return of_registered(image);
	if (!begins_with(image, "\x50\xed\x55\xba"))
		return of_ptx((const char *)bytes);
	memcpy(&fat, bytes, sizeof fat);
	const struct entry *first = (const void *)(bytes + fat.header); /* the others are for other devices */
	return fat.size ? fake_image_globals((const char *)first + first->header_size) : 0;
}
