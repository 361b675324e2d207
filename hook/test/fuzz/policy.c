/* Fuzzes the text of a policy file: every limit that is parsed is in the text, digit by digit. */
#include "../../src/policy.h"
#include "fuzz.h"

static void check_line(const char *line) {
	struct gsh_policy_line p;
	char printed[256];
	if (!gsh_policy_parse(line, &p)) return;
	REQUIRE(p.quota <= 1000 && p.sm <= 1000 && memchr(p.uuid, 0, sizeof p.uuid));
	snprintf(printed, sizeof printed, "vgpu %u %s memory %llu quota %u sm %u", p.index, p.uuid, (unsigned long long)p.memory, p.quota,
		 p.sm);
	REQUIRE(!strcmp(printed, line));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	char line[4096], text[4096];
	if (size >= sizeof line) return 0;
	memcpy(line, data, size);
	line[size] = 0;
	check_line(line);
	memcpy(text, line, size + 1);
	if (!gsh_vgpus[0].server) gsh_pages_init();
	uint32_t vgpus = gsh_policy_apply(text);
	REQUIRE(vgpus <= GSHARE_VGPU_MAX && (vgpus == 0 || !strncmp(line, "version 1\n", 10)));
	for (uint32_t i = 0; i < vgpus; i++) {
		REQUIRE(memchr(gsh_vgpus[i].uuid, 0, GSHARE_UUID_SIZE) && gsh_vgpus[i].server->guaranteed <= 1000);
		REQUIRE(!gsh_memory_reserve(&gsh_vgpus[i], gsh_vgpus[i].server->memory_limit + 1) || gsh_vgpus[i].server->memory_limit == UINT64_MAX);
	}
	return 0;
}
