/*
 * The union of time intervals on one device. Streams overlap, so the sum of stream times is not the time the device was
 * busy; what counts is the part of each new interval that none before covered. The last few are remembered: marks are
 * settled within milliseconds of each other.
 */
#ifndef GSHARE_INTERVAL_H
#define GSHARE_INTERVAL_H

#include <stdint.h>

#define GSH_INTERVALS 32

struct gsh_union {
	int n;
	struct {
		int64_t start, end;
	} at[GSH_INTERVALS]; /* disjoint, in order */
	int64_t floor;       /* everything before is taken for covered once intervals were forgotten */
};

/* Adds [start, end) and returns how much of it was not yet covered, ns. */
uint64_t gsh_union_add(struct gsh_union *u, int64_t start, int64_t end);

/* Adds at most so many ns of [start, end), the last that were not yet covered. Returns how many. */
uint64_t gsh_union_fill(struct gsh_union *u, int64_t start, int64_t end, uint64_t most);

#endif
