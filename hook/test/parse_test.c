/* Input from other processes: frames, pages_are_checked and policy lines. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../src/client.h"
#include "../src/frame.h"
#include "../src/policy.h"
#include "check.h"

/* Returns a WELCOME that states so many vGPUs and has so many TLVs. */
static struct gsh_frame welcome_of(uint32_t vgpus, uint32_t tlvs) {
	struct gshare_welcome fixed = {7, GSHARE_MODE_TIME, vgpus};
	struct gsh_frame f;
	gsh_frame_begin(&f, GSHARE_WELCOME, &fixed, sizeof fixed);
	for (uint32_t i = 0; i < tlvs; i++) {
		struct gshare_vgpu v = {"GPU-x", i, 0, 1 << 20};
		gsh_frame_tlv(&f, GSHARE_TLV_VGPU, &v, sizeof v);
	}
	return f;
}

TEST(welcome_is_parsed) {
	struct gsh_frame f = welcome_of(2, 2);
	struct gsh_welcome w;
	gsh_frame_tlv(&f, 999, "new", 3); /* unknown, not critical */
	gsh_frame_end(&f, 1, 42);
	CHECK(gsh_welcome_parse(f.bytes, f.length, &w));
	CHECK_EQUAL(w.session, 7);
	CHECK_EQUAL(w.generation, 42);
	CHECK_EQUAL(w.vgpus, 2);
	CHECK_EQUAL(w.vgpu[1].index, 1);
}

TEST(invalid_welcomes_are_refused) {
	struct gsh_welcome w;
	static const uint32_t counts[][2] = {{0, 0}, {1, 2}, {2, 1}, {GSHARE_VGPU_MAX + 1, 1}};
	for (int i = 0; i < 4; i++) {
		struct gsh_frame f = welcome_of(counts[i][0], counts[i][1]);
		gsh_frame_end(&f, 1, 1);
		CHECK(!gsh_welcome_parse(f.bytes, f.length, &w));
	}
	struct gsh_frame f = welcome_of(1, 1);
	gsh_frame_tlv(&f, GSHARE_TLV_CRITICAL | 5, "x", 1);
	gsh_frame_end(&f, 1, 1);
	CHECK(!gsh_welcome_parse(f.bytes, f.length, &w));
}

/* Every shortened frame is refused, and changed bytes cause no access out of bounds (checked by the sanitizers). */
TEST(damaged_welcomes_are_refused) {
	struct gsh_frame f = welcome_of(3, 3);
	struct gsh_welcome w;
	uint64_t random = 1;
	gsh_frame_end(&f, 1, 1);
	for (size_t n = 0; n < f.length; n++) CHECK(!gsh_welcome_parse(f.bytes, n, &w));
	for (int i = 0; i < 200000; i++) {
		struct gsh_frame g = f;
		for (int k = 0; k < 3; k++) g.bytes[check_random(&random) % g.length] = (unsigned char)check_random(&random);
		if (gsh_welcome_parse(g.bytes, g.length, &w)) CHECK(w.vgpus <= GSHARE_VGPU_MAX);
	}
}

TEST(policy_lines_are_checked) {
	static const struct {
		const char *line;
		bool valid;
	} cases[] = {
		{"vgpu 0 GPU-1 memory 1024 quota 500 sm 300", true},
		{"vgpu 0 GPU-1 memory 1024 quota 500 sm 300 ", false},
		{"vgpu 0 GPU-1 memory -1 quota 500 sm 300", false},
		{"vgpu 0 GPU-1 memory 99999999999999999999 quota 500 sm 300", false},
		{"vgpu 4294967296 GPU-1 memory 1024 quota 500 sm 300", false},
		{"vgpu 0 GPU-1 memory 01024 quota 500 sm 300", false},
		{"vgpu  0 GPU-1 memory 1024 quota 500 sm 300", false},
		{"vgpu 0 GPU-1 memory 1024 quota 500", false},
		{"vgpu 0 GPU-1 memory 1024 quota 1001 sm 300", false},
		{"vgpu 0 GPU-1 memory 1024 quota 500 sm 1001", false},
		{"vgpu x GPU-1 memory 1024 quota 500 sm 300", false},
		{"vgpu 0 GPU-1 memory 1024 quota 500 sm 300 more", false},
		{"", false},
		{"version 1", false},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct gsh_policy_line p;
		CHECK_EQUAL(gsh_policy_parse(cases[i].line, &p), cases[i].valid);
		if (cases[i].valid) CHECK_EQUAL(p.memory, 1024);
	}
}

/* Returns a page of this size with these seals. */
static int page(size_t size, int seals, uint32_t magic) {
	int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct gshare_server_page head = {.magic = magic, .major = GSHARE_WIRE_MAJOR};
	CHECK(!ftruncate(fd, (off_t)size) && pwrite(fd, &head, 8, 0) == 8 && !fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

/* A page that is short, or could shrink, would end the process; a client page has to be writable. */
TEST(pages_are_checked) {
	static const struct {
		size_t size;
		int seals;
		uint32_t magic;
		bool server, client; /* whether it is valid as such */
	} cases[] = {
		{GSHARE_PAGE_SIZE, F_SEAL_SHRINK | F_SEAL_GROW, GSHARE_PAGE_MAGIC, true, true},
		{GSHARE_PAGE_SIZE, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE, GSHARE_PAGE_MAGIC, true, false},
		{GSHARE_PAGE_SIZE, F_SEAL_GROW, GSHARE_PAGE_MAGIC, false, false},
		{GSHARE_PAGE_SIZE - 1, F_SEAL_SHRINK, GSHARE_PAGE_MAGIC, false, false},
		{8, F_SEAL_SHRINK, GSHARE_PAGE_MAGIC, false, false},
		{GSHARE_PAGE_SIZE, F_SEAL_SHRINK, 7, false, false},
	};
	int good = page(GSHARE_PAGE_SIZE, F_SEAL_SHRINK, GSHARE_PAGE_MAGIC);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		int fd = page(cases[i].size, cases[i].seals, cases[i].magic);
		CHECK_EQUAL(gsh_pages_valid((int[]){fd, good, good}), cases[i].server);
		CHECK_EQUAL(gsh_pages_valid((int[]){good, fd, good}), cases[i].client);
		CHECK_EQUAL(gsh_pages_valid((int[]){good, good, fd}), cases[i].client);
		close(fd);
	}
	CHECK(!gsh_pages_valid((int[]){good, good, -1}) && !gsh_pages_valid((int[]){good, good, 0}));
	close(good);
}

/* GSHARE_DIR is ignored where a policy is mounted. */
TEST(mounted_policy_takes_precedence) {
	char mounted[] = "/tmp/gshare-test-XXXXXX", policy[64];
	CHECK(mkdtemp(mounted) != NULL);
	snprintf(policy, sizeof policy, "%s/policy", mounted);
	CHECK(!strcmp(gsh_directory_choose(mounted, "/own"), "/own"));
	CHECK(!strcmp(gsh_directory_choose(mounted, NULL), mounted));
	fclose(fopen(policy, "w"));
	CHECK(!strcmp(gsh_directory_choose(mounted, "/own"), mounted));
	CHECK(!strcmp(gsh_directory_choose(mounted, ""), mounted));
	unlink(policy);
	rmdir(mounted);
}

/* The hook's own functions for bytes and strings (string.c), which are linked into this program. The calls are volatile, or gcc would compute them. */
TEST(strings_are_those_of_c) {
	static int (*volatile compare)(const char *, const char *, size_t) = strncmp;
	static int (*volatile compare_letters)(const char *, const char *) = strcasecmp;
	static int (*volatile compare_bytes)(const void *, const void *, size_t) = memcmp;
	static void *(*volatile move)(void *, const void *, size_t) = memmove;
	static size_t (*volatile length)(const char *, size_t) = strnlen;
	char up[] = "abcdef", down[] = "abcdef";
	move(up + 2, up, 4), move(down, down + 2, 4);
	CHECK(!compare(up, "ababcd", 7) && !compare(down, "cdefef", 7));
	CHECK(compare("a", "b", 1) < 0 && compare("b", "a", 1) > 0 && compare("a", "ab", 2) < 0 && compare("\xff", "a", 9) > 0);
	CHECK(!compare("ax", "ay", 1) && !compare("a", "b", 0));
	CHECK(!compare_letters("Gpu-AZ[", "gPU-az[") && compare_letters("a", "B") < 0 && compare_letters("@", "`"));
	CHECK(compare_bytes("a\0b", "a\0c", 3) < 0 && !compare_bytes("a\0b", "a\0c", 2));
	CHECK(length("abc", 9) == 3 && length("abc", 2) == 2);
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {{"welcome_is_parsed", welcome_is_parsed},
						  {"invalid_welcomes_are_refused", invalid_welcomes_are_refused},
						  {"damaged_welcomes_are_refused", damaged_welcomes_are_refused},
						  {"policy_lines_are_checked", policy_lines_are_checked},
						  {"pages_are_checked", pages_are_checked}, {"strings_are_those_of_c", strings_are_those_of_c},
						  {"mounted_policy_takes_precedence", mounted_policy_takes_precedence},
						  {0}};
	return check_run(tests, argc, argv);
}
