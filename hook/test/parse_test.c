/* Frames and policy lines: what comes from outside. */
#include "../src/frame.h"
#include "../src/policy.h"
#include "check.h"

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

TEST(welcome_is_read) {
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

TEST(bad_welcomes_are_refused) {
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

/* Every shortened frame is refused, and changed bytes never lead outside (the sanitizers look). */
TEST(damaged_welcomes) {
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

TEST(policy_lines) {
	static const struct {
		const char *line;
		bool good;
	} cases[] = {
		{"vgpu 0 GPU-1 memory 1024 quota 500 sm 300", true},
		{"vgpu 0 GPU-1 memory 1024 quota 500 sm 300 ", true},
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
		CHECK_EQUAL(gsh_policy_parse(cases[i].line, &p), cases[i].good);
		if (cases[i].good) CHECK_EQUAL(p.memory, 1024);
	}
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {{"welcome_is_read", welcome_is_read},
						  {"bad_welcomes_are_refused", bad_welcomes_are_refused},
						  {"damaged_welcomes", damaged_welcomes},
						  {"policy_lines", policy_lines},
						  {0}};
	return check_run(tests, argc, argv);
}
