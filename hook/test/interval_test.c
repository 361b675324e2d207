#include "../src/interval.h"
#include "check.h"

#define SPAN 400

/* Compared with a bit for every nanosecond, with intervals slightly out of order, as streams complete. */
TEST(union_equals_bits) {
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct gsh_union u = {0};
		unsigned char bits[SPAN] = {0};
		uint64_t random = seed, sum = 0, covered = 0;
		for (int i = 0; i < 40; i++) {
			int64_t start = 5 + i * 8 + (int64_t)(check_random(&random) % 40);
			int64_t end = start + (int64_t)(check_random(&random) % 30);
			sum += gsh_union_add(&u, start, end);
			for (int64_t t = start; t < end; t++) bits[t] = 1;
		}
		for (int t = 0; t < SPAN; t++) covered += bits[t];
		CHECK_EQUAL(sum, covered);
	}
}

/* Compared with bits that are set from the end backwards. */
TEST(fill_equals_bits) {
	for (uint64_t seed = 1; seed <= 500; seed++) {
		struct gsh_union u = {0};
		unsigned char bits[SPAN] = {0};
		uint64_t random = seed;
		for (int i = 0; i < 40; i++) {
			int64_t start = 5 + i * 8 + (int64_t)(check_random(&random) % 40);
			int64_t end = start + (int64_t)(check_random(&random) % 35);
			uint64_t most = check_random(&random) % 30, want = 0;
			for (int64_t t = end - 1; t >= start && want < most; t--) {
				want += !bits[t];
				bits[t] = 1;
			}
			CHECK_EQUAL(gsh_union_fill(&u, start, end, most), want);
		}
	}
}

TEST(empty_and_reversed) {
	struct gsh_union u = {0};
	CHECK_EQUAL(gsh_union_add(&u, 10, 10), 0);
	CHECK_EQUAL(gsh_union_add(&u, 10, 5), 0);
	CHECK_EQUAL(gsh_union_add(&u, 10, 20), 10);
	CHECK_EQUAL(gsh_union_add(&u, 10, 20), 0);
}

/* Time before dropped intervals counts as covered, so nothing is counted twice. */
TEST(dropped_is_covered) {
	struct gsh_union u = {0};
	for (int i = 0; i < 10 * GSH_INTERVALS; i++) CHECK_EQUAL(gsh_union_add(&u, 100 * i + 1, 100 * i + 51), 50);
	CHECK_EQUAL(gsh_union_add(&u, 1, 51), 0);
	CHECK(u.n <= GSH_INTERVALS);
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {{"union_equals_bits", union_equals_bits},
						  {"fill_equals_bits", fill_equals_bits},
						  {"empty_and_reversed", empty_and_reversed},
						  {"dropped_is_covered", dropped_is_covered},
						  {0}};
	return check_run(tests, argc, argv);
}
