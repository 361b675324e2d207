/* What the programs of the GPU lane share: checked calls, standard input as a signal to go on, and order statistics. */
#ifndef GSHARE_FAKE_LANE_H
#define GSHARE_FAKE_LANE_H

#include "../fake.h"

#include <stdio.h>
#include <stdlib.h>

/* Exits with a message unless the call succeeded. */
static inline void must(CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS) {
		fprintf(stderr, "%s: %d\n", what, result);
		exit(1);
	}
}
#define MUST(call) must(call, #call)

/* Shows what was printed, and waits for a line of the standard input or for its end. */
static inline void wait_for_line(void)
{
	fflush(stdout);
	while (getchar() != '\n' && !feof(stdin))
		;
}

/* Compares two doubles, for qsort. */
static inline int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

#endif
