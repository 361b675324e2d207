/* Unit tests in a few macros: TEST(name) { CHECK(...); }, run by check_run, which prints one line for each. */
#ifndef GSHARE_CHECK_H
#define GSHARE_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A test: its name and its function. */
struct check_test {
	const char *name;
	void (*run)(void);
};
static int check_failures; /* of the test that runs */

#define TEST(name) static void name(void)
#define CHECK(condition)                                                                                                \
	do {                                                                                                            \
		if (!(condition)) {                                                                                     \
			check_failures++;                                                                               \
			printf("  %s:%d: %s\n", __FILE__, __LINE__, #condition);                                        \
		}                                                                                                       \
	} while (0)
#define CHECK_EQUAL(got, want)                                                                                          \
	do {                                                                                                            \
		long long got_ = (long long)(got), want_ = (long long)(want);                                           \
		if (got_ != want_) {                                                                                    \
			check_failures++;                                                                               \
			printf("  %s:%d: %s = %lld, want %lld\n", __FILE__, __LINE__, #got, got_, want_);               \
		}                                                                                                       \
	} while (0)

/* Runs all tests, or those of the name in the first argument. Returns how many failed, for use as exit code. */
static inline int check_run(const struct check_test *tests, int argc, char **argv) {
	int failed = 0;
	for (; tests->name; tests++) {
		if (argc > 1 && strcmp(argv[1], tests->name)) continue;
		check_failures = 0;
		tests->run();
		printf("%s %s\n", check_failures ? "not ok" : "ok", tests->name);
		fflush(stdout);
		failed += check_failures != 0;
	}
	return failed;
}

/* Returns the next of a sequence of random numbers that is the same in every run. */
static inline uint64_t check_random(uint64_t *state) {
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

#endif
