#include "../src/budget.h"
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
	struct gsh_stream_state tracks[TRACKS] = {0};
	uint64_t random = 1;
	for (int i = 0; i < TRACKS; i++) tracks[i].vgpu = &vgpu;
	for (int step = 0; step < 20000; step++) {
		struct gsh_stream_state *st = &tracks[check_random(&random) % TRACKS];
		switch (check_random(&random) % 8) {
		case 0:
			gsh_epoch++;
			break;
		case 1:
			*st = (struct gsh_stream_state){.vgpu = &vgpu};
			break;
		case 2:
			gsh_budget_release(st);
			break;
		default:
			gsh_budget_take(st, gsh_budget_share(st));
			st->epoch = st->budget_epoch;
		}
		uint64_t held = 0;
		for (int i = 0; i < TRACKS; i++)
			if (tracks[i].budget_epoch == gsh_epoch) held += tracks[i].budget;
		CHECK(held <= BOUND / 4);
		CHECK(held <= gsh_budgets_held(&vgpu));
	}
	gsh_epoch += 2;
	CHECK_EQUAL(gsh_budgets_held(&vgpu), 0);
	gsh_budget_take(&tracks[0], BOUND);
	CHECK_EQUAL(tracks[0].budget, BOUND / 4);
	gsh_budget_release(&tracks[0]);
	CHECK_EQUAL(gsh_budgets_held(&vgpu), 0);
}

/* The first of many streams takes all that it could alone, so the others have to do with what is left. */
TEST(late_streams_find_less) {
	struct gsh_stream_state tracks[TRACKS] = {0};
	uint64_t held = 0;
	gsh_epoch += 2;
	for (int i = 0; i < TRACKS; i++) {
		tracks[i].vgpu = &vgpu;
		uint64_t wanted = gsh_budget_share(&tracks[i]);
		gsh_budget_take(&tracks[i], wanted);
		held += tracks[i].budget;
		if (i == 0) CHECK_EQUAL(wanted, BOUND / 4);
		if (i == 1) CHECK(wanted == BOUND / 8 && tracks[i].budget == 0);
	}
	CHECK_EQUAL(held, BOUND / 4);
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {{"rooms_fit_a_quarter", rooms_fit_a_quarter},
						  {"late_streams_find_less", late_streams_find_less},
						  {0}};
	return check_run(tests, argc, argv);
}
