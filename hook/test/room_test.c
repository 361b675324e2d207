#include "../src/room.h"
#include "check.h"

#define TRACKS 8
#define BOUND 1000000

static struct gshare_server_page page = {.run_ahead = BOUND};
static struct gsh_vgpu vgpu = {.server = &page};

/*
 * Tracks of any number of threads that come and go: the rooms held are a quarter of the bound at most, whatever each wanted,
 * and what a track that is gone held is free again two epochs later.
 */
TEST(rooms_fit_a_quarter) {
	struct gsh_track tracks[TRACKS] = {0};
	uint64_t random = 1;
	for (int i = 0; i < TRACKS; i++) tracks[i].vgpu = &vgpu;
	for (int step = 0; step < 20000; step++) {
		struct gsh_track *k = &tracks[check_random(&random) % TRACKS];
		switch (check_random(&random) % 8) {
		case 0:
			gsh_epoch++;
			break;
		case 1:
			*k = (struct gsh_track){.vgpu = &vgpu};
			break;
		case 2:
			gsh_room_leave(k);
			break;
		default:
			gsh_room_take(k, gsh_room_wanted(k));
			k->epoch = k->since;
		}
		uint64_t held = 0;
		for (int i = 0; i < TRACKS; i++)
			if (tracks[i].since == gsh_epoch) held += tracks[i].room;
		CHECK(held <= BOUND / 4);
		CHECK(held <= gsh_rooms(&vgpu));
	}
	gsh_epoch += 2;
	CHECK_EQUAL(gsh_rooms(&vgpu), 0);
	gsh_room_take(&tracks[0], BOUND);
	CHECK_EQUAL(tracks[0].room, BOUND / 4);
	gsh_room_leave(&tracks[0]);
	CHECK_EQUAL(gsh_rooms(&vgpu), 0);
}

/* The first of many streams takes all that it could alone, so the others have to do with what is left. */
TEST(late_streams_find_less) {
	struct gsh_track tracks[TRACKS] = {0};
	uint64_t held = 0;
	gsh_epoch += 2;
	for (int i = 0; i < TRACKS; i++) {
		tracks[i].vgpu = &vgpu;
		uint64_t wanted = gsh_room_wanted(&tracks[i]);
		gsh_room_take(&tracks[i], wanted);
		held += tracks[i].room;
		if (i == 0) CHECK_EQUAL(wanted, BOUND / 4);
		if (i == 1) CHECK(wanted == BOUND / 8 && tracks[i].room == 0);
	}
	CHECK_EQUAL(held, BOUND / 4);
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {{"rooms_fit_a_quarter", rooms_fit_a_quarter},
						  {"late_streams_find_less", late_streams_find_less},
						  {0}};
	return check_run(tests, argc, argv);
}
