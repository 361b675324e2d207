/* Shared by the fuzz targets: a condition that does not hold ends the run with the input that caused it. */
#ifndef GSHARE_TEST_FUZZ_H
#define GSHARE_TEST_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REQUIRE(condition)                                                                                              \
	do {                                                                                                            \
		if (!(condition)) {                                                                                     \
			fprintf(stderr, "%s:%d: violated: %s\n", __FILE__, __LINE__, #condition);                       \
			abort();                                                                                        \
		}                                                                                                       \
	} while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
