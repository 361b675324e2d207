/*
 * Rooms: work that was launched has no mark before its batch ends, and until then only its thread can count it (FG-78). So a
 * batch takes room before it begins. The rooms of all batches are a quarter of the bound of unfinished work at most.
 */
#ifndef GSHARE_ROOM_H
#define GSHARE_ROOM_H

#include "gate.h"

/* How much work of the process may be unfinished, in ns. */
uint64_t gsh_run_ahead(const struct gsh_vgpu *v);

/* The quarter's part of each stream that the process launches into at present. */
uint64_t gsh_room_wanted(const struct gsh_track *k);

/* Takes room for the track's next batch in place of the last one's, less than was wanted if others have the rest. */
void gsh_room_take(struct gsh_track *k, uint64_t wanted);

/* Gives it back: the track waits, or is given up. */
void gsh_room_leave(struct gsh_track *k);

/* The rooms of this epoch, or of the last one until there are new ones, in ns. */
uint64_t gsh_rooms(const struct gsh_vgpu *v);

#endif
