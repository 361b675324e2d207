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

uint64_t fake_image_globals(const void *image)
{
	const unsigned char *bytes = image;
	struct { uint32_t magic; uint16_t version, header; uint64_t size; } fat;
	if (!image)
		return 0;
	if (memcmp(bytes, "\x7f" "ELF", 4) == 0)
		return of_cubin(bytes);
	if (memcmp(bytes, "\xb1\x43\x62\x46", 4) == 0) /* what nvcc registers: magic, version, address */
		return fake_image_globals(*(void *const *)(bytes + 8));
	if (memcmp(bytes, "\x50\xed\x55\xba", 4) != 0)
		return of_ptx((const char *)bytes);
	memcpy(&fat, bytes, sizeof fat);
	const struct entry *first = (const void *)(bytes + fat.header); /* the others are for other devices */
	return fat.size ? fake_image_globals((const char *)first + first->header_size) : 0;
}
