/* The ledger's hash table compared with a plain array. */
#include "../src/ledger.h"
#include "check.h"

#define KEYS 3000

TEST(table_equals_array) {
	static unsigned char present[KEYS];
	static uint64_t bytes[KEYS];
	uint64_t random = 5, count = 0;
	struct gsh_item item;
	gsh_pages_init();
	for (int i = 0; i < 400000; i++) {
		uint64_t key = check_random(&random) % KEYS;
		if (present[key]) {
			CHECK(gsh_ledger_take(POINTER, key << 9, &item) && item.bytes == bytes[key]);
			present[key] = 0;
			count--;
		} else {
			CHECK(!gsh_ledger_take(POINTER, key << 9, &item));
			bytes[key] = check_random(&random);
			gsh_ledger_put(&(struct gsh_item){.kind = POINTER, .key = key << 9, .bytes = bytes[key]});
			present[key] = 1;
			count++;
		}
		CHECK_EQUAL(gsh_ledger_count(), count);
	}
	CHECK(!gsh_ledger_take(ARRAY, 0, &item)); /* another kind of the same key */
	gsh_ledger_after_fork();
	CHECK_EQUAL(gsh_ledger_count(), 0);
}

/* The end of a context releases its memory and no other. */
TEST(context_end_releases_memory) {
	struct gsh_vgpu *v = &gsh_vgpus[0];
	gsh_pages_init();
	for (uint64_t i = 0; i < 2000; i++) {
		gsh_memory_charge(v, 10);
		gsh_ledger_put(&(struct gsh_item){POINTER, i * 4096, v, (CUcontext)(1 + i % 2), 10, 0, 0, 0});
	}
	gsh_ledger_drop_owned((CUcontext)1);
	CHECK_EQUAL(gsh_ledger_count(), 1000);
	CHECK_EQUAL(atomic_load(&v->memory), 10000);
	gsh_ledger_drop_owned((CUcontext)2);
	CHECK_EQUAL(gsh_ledger_count(), 0);
	CHECK_EQUAL(atomic_load(&v->memory), 0);
	CHECK_EQUAL(gsh_memory_used(v), 0);
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {{"table_equals_array", table_equals_array},
						  {"context_end_releases_memory", context_end_releases_memory},
						  {0}};
	return check_run(tests, argc, argv);
}
