#include "interval.h"

#include <string.h>

/* Removes `count` intervals from index i. */
static void erase(struct gsh_union *u, int i, int count) {
	memmove(&u->at[i], &u->at[i + count], (u->n - i - count) * sizeof u->at[0]);
	u->n -= count;
}

/* Inserts an interval at index i, in place of the oldest one if all are in use. */
static void insert(struct gsh_union *u, int i, int64_t start, int64_t end) {
	if (u->n == GSH_INTERVALS) {
		if (i == 0) return; /* older than all intervals that are kept */
		u->floor = u->at[0].end;
		erase(u, 0, 1);
		i--;
	}
	memmove(&u->at[i + 1], &u->at[i], (u->n - i) * sizeof u->at[0]);
	u->at[i].start = start;
	u->at[i].end = end;
	u->n++;
}

uint64_t gsh_union_add(struct gsh_union *u, int64_t start, int64_t end) {
	if (u->n == GSH_INTERVALS && start < u->at[0].start) start = u->at[0].start;
	if (u->floor && start < u->floor) start = u->floor;
	if (end <= start) return 0;
	int first = 0;
	while (first < u->n && u->at[first].end < start) first++;
	int last = first;
	uint64_t added = end - start;
	int64_t from = start, to = end;
	for (; last < u->n && u->at[last].start <= end; last++) { /* adjacent or overlapping */
		int64_t a = u->at[last].start > start ? u->at[last].start : start;
		int64_t b = u->at[last].end < end ? u->at[last].end : end;
		if (b > a) added -= b - a;
		if (u->at[last].start < from) from = u->at[last].start;
		if (u->at[last].end > to) to = u->at[last].end;
	}
	erase(u, first, last - first);
	insert(u, first, from, to);
	return added;
}

/* Returns the start of the shortest time before `end` in which `uncovered` ns are covered by no interval. */
static int64_t uncovered_start(const struct gsh_union *u, int64_t end, int64_t uncovered) {
	for (int i = u->n - 1; i >= 0; i--) {
		if (u->at[i].start >= end) continue;
		int64_t gap = end > u->at[i].end ? end - u->at[i].end : 0;
		if (gap >= uncovered) break;
		uncovered -= gap;
		end = u->at[i].start;
	}
	return end - uncovered;
}

uint64_t gsh_union_fill(struct gsh_union *u, int64_t start, int64_t end, uint64_t most) {
	int64_t from = uncovered_start(u, end, (int64_t)most);
	return gsh_union_add(u, from > start ? from : start, end);
}
