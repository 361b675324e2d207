#include "../src/budget.h"
#include "check.h"

#define STATES 8
#define BOUND 1000000

static struct gshare_server_page page = {.run_ahead = BOUND};
static struct gsh_vgpu vgpu = {.server = &page};

/*
 * Streams of threads that start and end: the budgets add up to a quarter of the bound at most, whatever each asks for, and
 * those of streams that are no longer used are free again two epochs later.
 */
TEST(budgets_stay_within_a_quarter) {
	struct gsh_stream_state states[STATES] = {0};
	uint64_t random = 1;
	for (int i = 0; i < STATES; i++) states[i].vgpu = &vgpu;
	for (int step = 0; step < 20000; step++) {
		struct gsh_stream_state *st = &states[check_random(&random) % STATES];
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
		for (int i = 0; i < STATES; i++)
			if (states[i].budget_epoch == gsh_epoch) held += states[i].budget;
		CHECK(held <= BOUND / 4);
		CHECK(held <= gsh_budgets_held(&vgpu));
	}
	gsh_epoch += 2;
	CHECK_EQUAL(gsh_budgets_held(&vgpu), 0);
	gsh_budget_take(&states[0], BOUND);
	CHECK_EQUAL(states[0].budget, BOUND / 4);
	gsh_budget_release(&states[0]);
	CHECK_EQUAL(gsh_budgets_held(&vgpu), 0);
}

/* The first of many streams takes all that it may have alone, so later ones get the rest. */
TEST(later_streams_get_the_rest) {
	struct gsh_stream_state states[STATES] = {0};
	uint64_t held = 0;
	gsh_epoch += 2;
	for (int i = 0; i < STATES; i++) {
		states[i].vgpu = &vgpu;
		uint64_t wanted = gsh_budget_share(&states[i]);
		gsh_budget_take(&states[i], wanted);
		held += states[i].budget;
		if (i == 0) CHECK_EQUAL(wanted, BOUND / 4);
		if (i == 1) CHECK(wanted == BOUND / 8 && states[i].budget == 0);
	}
	CHECK_EQUAL(held, BOUND / 4);
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {{"budgets_stay_within_a_quarter", budgets_stay_within_a_quarter},
						  {"later_streams_get_the_rest", later_streams_get_the_rest},
						  {0}};
	return check_run(tests, argc, argv);
}
