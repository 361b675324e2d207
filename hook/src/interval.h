/*
 * The union of time intervals on one device. Streams overlap, so the sum of their times is not the time for which the device
 * was busy; only the part of each new interval that no earlier one covered is counted. The last few are kept: events are
 * reaped within milliseconds of each other.
 */
#ifndef GSHARE_INTERVAL_H
#define GSHARE_INTERVAL_H

#include <stdint.h>

#define GSH_INTERVALS 32

/* The intervals that were added, merged where they touch. */
struct gsh_union {
	int n;
	struct {
		int64_t start, end;
	} at[GSH_INTERVALS]; /* disjoint, in order */
	int64_t floor;       /* once intervals have been dropped: all time before it counts as covered */
};

/* Adds [start, end). Returns how many ns of it were not yet covered. */
uint64_t gsh_union_add(struct gsh_union *u, int64_t start, int64_t end);

/* Adds the last uncovered ns of [start, end), at most `most`. Returns how many it added. */
uint64_t gsh_union_fill(struct gsh_union *u, int64_t start, int64_t end, uint64_t most);

#endif
