#include "stream.h"

_Thread_local struct gsh_stream_state gsh_stream_states[GSH_STREAM_STATES];

void gsh_streams_invalidate(void) {
	for (int i = 0; i < GSH_STREAM_STATES; i++) gsh_stream_states[i].epoch = 0;
}

void gsh_streams_after_fork(void) {
	for (int i = 0; i < GSH_STREAM_STATES; i++) gsh_stream_states[i] = (struct gsh_stream_state){0};
}

/* Returns a way of the set that no stream has, or NULL. */
static struct gsh_stream_state *free_way(struct gsh_stream_state *set) {
	for (int i = 0; i < GSH_WAYS; i++)
		if (!set[i].stream) return &set[i];
	return NULL;
}

struct gsh_stream_state *gsh_stream_assign(CUstream s) {
	struct gsh_stream_state *set = gsh_stream_set(s), *st = gsh_stream_find(s);
	if (!st && !gsh_stream_preferred(s)->stream) st = gsh_stream_preferred(s);
	if (!st) st = free_way(set);
	if (!st) st = &set[set->next_victim++ % GSH_WAYS];
	return st;
}
