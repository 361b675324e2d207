/* Prints where the fields of the shared pages and the range of locks lie. */
#include <stddef.h>
#include <stdio.h>

#include "gshare_wire.h"

#define AT(page, field) printf(#page " " #field " %zu\n", offsetof(struct gshare_##page##_page, field))

int main(void) {
	AT(server, magic);
	AT(server, major);
	AT(server, minor);
	AT(server, generation);
	AT(server, state);
	AT(server, sequence);
	AT(server, amount);
	AT(server, deadline);
	AT(server, window);
	AT(server, run_ahead);
	AT(server, unit);
	AT(server, guaranteed);
	AT(server, part_start);
	AT(server, memory_limit);
	AT(server, policy);
	AT(server, import_allowance);
	AT(server, wake);
	AT(server, heartbeat);
	AT(server, credit);
	AT(container, memory);
	AT(container, imported);
	AT(container, taken);
	AT(client, launches);
	AT(client, blocks);
	AT(client, busy);
	AT(client, open);
	AT(client, last_launch);
	AT(client, waiting);
	AT(client, self_paced);
	AT(client, waiting_since);
	AT(client, memory);
	AT(client, captures);
	AT(client, uncovered);
	AT(client, refused);
	AT(client, imported);
	AT(client, cycles);
	AT(client, cycle_start);
	AT(client, cycle_times);
	printf("server size %zu\n", sizeof(struct gshare_server_page));
	printf("container size %zu\n", sizeof(struct gshare_container_page));
	printf("client size %zu\n", sizeof(struct gshare_client_page));
	printf("unserved start %lld length %lld\n", GSHARE_UNSERVED_START, GSHARE_UNSERVED_LENGTH);
	return 0;
}
