/* The memory that images of modules declare, and the decompression of LZ4. */
#define _GNU_SOURCE
#include <unistd.h>

#include "check.h"
#include "image.h"

#include "../src/image.h"
#include "../src/log.h"
#include "../src/lz4.h"

static uint64_t ptx(const char *text) { return gsh_ptx_bytes(text, strlen(text)); }

TEST(ptx_declares_variables) {
	static const struct {
		const char *text;
		uint64_t bytes;
	} declarations[] = {
		{"", 0},
		{".version 8.0\n.target sm_90\n.address_size 64\n", 0},
		{".global .align 4 .b8 a[32212254720];", 30ull << 30},
		{".visible .global .align 4 .u32 a;\n.weak .global .f64 b[3][5] ;", 4 + 15 * 8},
		{".global .align 16 .v4 .f32 a[10];", 160},
		{".global .f16x2 a[8];", 32},
		{".global .b128 a[2];", 32},
		{".global .texref t;", 16},
		{".global .attribute(.managed) .align 4 .b8 a[100];", 100},
		{".global.align 4.b8 a[7];", 7},
		{".global .b8 a[0x10], b[0b11], c[017], d[5U];", 16 + 3 + 15 + 5},
		{".global .align 1 .b8 s[6] = {104, 101, 108, 108, 111, 0}, t[2] = {1, 2};", 8},
		{".global .align 4 .u32 s[] = {1, 2, 3};", 12},
		{".global .u64 p = generic(a), q;", 16},
		{".extern .global .align 4 .b8 a[1000];\n.global .b8 b[5];", 5},
		{".const .align 4 .b8 c[100]; .shared .b8 s[100];", 0},
		{"// .global .b8 a[100];\n/* .global .b8 b[100]; */", 0},
		{".entry k(.param .u64 .ptr .global .align 8 p, .param .u32 n) { ld.global.u32 %r1, [%rd1]; st.global.b8 [%rd2], 4; ret; }", 0},
		{".entry k() { ld.volatile.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1]; }\n.global .b8 after[9];", 9},
		{".global .b8 a[1 << 40];", UINT64_MAX},
		{".global .b8 a[4294967296][4294967296][16];", UINT64_MAX},
		{".global .b8 a[99999999999999999999];", UINT64_MAX},
		{".global .b8 a[18446744073709551600]; .global .b8 b[17];", UINT64_MAX},
		{".global .b8 a[", UINT64_MAX},
		{".global .b8 a[5", UINT64_MAX},
		{".global", 0},
		{".global .b8 a[3] = {1, 2", 3},
	};
	for (size_t i = 0; i < sizeof declarations / sizeof declarations[0]; i++) {
		int failures = check_failures;
		CHECK_EQUAL(ptx(declarations[i].text), declarations[i].bytes);
		if (failures != check_failures) printf("  %s\n", declarations[i].text);
	}
}

TEST(cubins_and_fat_binaries_declare_variables) {
	struct cubin c = cubin(12345), broken = c;
	struct fat f = fat(777), other = f;
	struct registered r = registered(&f);
	CHECK_EQUAL(gsh_image_bytes(&c, 9), 12345);
	CHECK_EQUAL(gsh_image_bytes(&f, 9), 777);
	CHECK_EQUAL(gsh_image_bytes(&r, 9), 777);
	CHECK_EQUAL(gsh_image_bytes(&f, 0), 777);
	CHECK_EQUAL(gsh_image_bytes(&f, 8), 0); /* for another device */
	CHECK_EQUAL(gsh_image_bytes(NULL, 9), 0);
	CHECK_EQUAL(gsh_image_bytes("", 9), 0);
	CHECK_EQUAL(gsh_image_bytes("\x7f" "E", 9), 0);
	broken.file.e_shentsize = 1;
	CHECK_EQUAL(gsh_image_bytes(&broken, 9), UINT64_MAX);
	other.cubin.file.e_shoff = 1 << 20;
	CHECK_EQUAL(gsh_image_bytes(&other, 9), UINT64_MAX);
	other = f;
	other.cubin.sections[2].sh_name = 1 << 20;
	CHECK_EQUAL(gsh_image_bytes(&other, 9), 0);
	other = f;
	other.entry.kind = 64; /* code that is neither a cubin nor PTX */
	other.cubin.file.e_ident[0] = 'x';
	CHECK_EQUAL(gsh_image_bytes(&other, 9), 0);
	other = f;
	other.entry.size = 1 << 20;
	CHECK_EQUAL(gsh_image_bytes(&other, 9), 0); /* the driver finds no entry either */
}

/* The header of a section has 32 bits of a variable's size, its symbol has all. */
TEST(symbols_have_the_size_of_large_variables) {
	struct {
		struct cubin cubin;
		Elf64_Sym symbols[3];
	} c = {cubin(4096), {{0}, {.st_shndx = 2, .st_value = 4096, .st_size = 30ull << 30}, {.st_shndx = SHN_COMMON, .st_size = 100}}};
	c.cubin.sections[0] = (Elf64_Shdr){.sh_type = SHT_SYMTAB, .sh_offset = sizeof c.cubin, .sh_size = sizeof c.symbols};
	CHECK_EQUAL(gsh_image_bytes(&c, 9), (30ull << 30) + 4096 + 100);
	c.symbols[1].st_size = UINT64_MAX;
	CHECK_EQUAL(gsh_image_bytes(&c, 9), UINT64_MAX);
}

/* Compresses to literals only. Returns the length. */
static size_t store(unsigned char *to, const void *from, size_t length) {
	size_t n = 0, left = length - 15;
	to[n++] = 15 << 4;
	for (; left >= 255; left -= 255) to[n++] = 255;
	to[n++] = (unsigned char)left;
	memcpy(to + n, from, length);
	return n + length;
}

TEST(compressed_entries_are_read) {
	struct {
		struct fat_header head;
		struct fat_entry entry;
		unsigned char contents[1024];
	} f = {.head = {0xba55ed50, 1, 16, sizeof f - sizeof f.head},
	       .entry = {.kind = 2, .header = sizeof f.entry, .size = sizeof f.contents, .arch = 90, .flags = 0x2011, .decompressed = sizeof(struct cubin)}};
	struct cubin c = cubin(4242);
	f.entry.compressed = (uint32_t)store(f.contents, &c, sizeof c);
	CHECK_EQUAL(gsh_image_bytes(&f, 9), 4242);
	f.entry.compressed--;
	CHECK_EQUAL(gsh_image_bytes(&f, 9), 0); /* not in a format that the hook knows */
	f.entry.flags = 0x8011;
	CHECK_EQUAL(gsh_image_bytes(&f, 9), 0);
}

/* Returns how many lines a file has. */
static int lines(const char *file) {
	FILE *f = fopen(file, "r");
	int n = 0, c;
	while (f && (c = fgetc(f)) != EOF) n += c == '\n';
	if (f) fclose(f);
	return n;
}

TEST(unreadable_modules_are_logged_once) {
	char file[] = "/tmp/image_test.XXXXXX";
	struct fat f = fat(1);
	close(mkstemp(file));
	setenv("GSHARE_LOG", file, 1);
	gsh_log_open();
	f.entry.flags = 0x8011;
	for (int i = 0; i < 3; i++) CHECK_EQUAL(gsh_image_bytes(&f, 9), 0);
	CHECK_EQUAL(lines(file), 1);
	unlink(file);
}

TEST(lz4_is_decompressed) {
	static const unsigned char block[] = {0x35, 'a', 'b', 'c', 3, 0, 0x20, 'x', 'y'}, run[] = {0x1f, 'a', 1, 0, 200, 0x10, 'b'};
	unsigned char to[300];
	CHECK(gsh_lz4_decompress(block, sizeof block, to, 14) && !memcmp(to, "abcabcabcabcxy", 14));
	CHECK(gsh_lz4_decompress(run, sizeof run, to, 1 + 15 + 200 + 4 + 1) && to[219] == 'a' && to[220] == 'b');
	CHECK(!gsh_lz4_decompress(block, sizeof block, to, 13));
	CHECK(!gsh_lz4_decompress(block, sizeof block, to, 15));
	for (size_t n = 0; n < sizeof block; n++) CHECK(!gsh_lz4_decompress(block, n, to, 14));
	CHECK(!gsh_lz4_decompress((const unsigned char[]){0x10, 'a', 2, 0, 0}, 5, to, 5)); /* from before the output */
	CHECK(!gsh_lz4_decompress((const unsigned char[]){0x10, 'a', 0, 0, 0}, 5, to, 5));
}

/* No bytes make the readers fail, or read beyond the end (under the address sanitizer). */
TEST(random_images_are_survived) {
	static const char *const words[] = {".global ", ".b8 ", "a", "[", "]", "9", " ", ",", ";", "=", "{", "}", "(", ")", ".align ", ".v4 ", "/*", "*/", "//", ".extern ", "\n", ".attribute"};
	uint64_t random = 5;
	for (int i = 0; i < 20000; i++) {
		char text[200] = "";
		for (int n = (int)(check_random(&random) % 20); n > 0; n--) strcat(text, words[check_random(&random) % (sizeof words / sizeof words[0])]);
		size_t length = strlen(text);
		char *exact = malloc(length + !length);
		memcpy(exact, text, length);
		gsh_ptx_bytes(exact, length);
		free(exact);
		struct fat f = fat(1);
		for (int n = 0; n < 3; n++) ((unsigned char *)&f)[16 + check_random(&random) % (sizeof f - 16)] = (unsigned char)check_random(&random);
		gsh_image_bytes(&f, 9);
	}
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(unreadable_modules_are_logged_once), T(ptx_declares_variables), T(cubins_and_fat_binaries_declare_variables),
						  T(symbols_have_the_size_of_large_variables), T(compressed_entries_are_read), T(lz4_is_decompressed), T(random_images_are_survived), {0}};
	return check_run(tests, argc, argv);
}
