#define _GNU_SOURCE
#include "policy.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "platform.h"

#define FORMAT "vgpu %u %s memory %llu quota %u sm %u"

/* The parsed values are printed again and compared with the line, which makes a sign or a number that is too large invalid. */
bool gsh_policy_parse(const char *line, struct gsh_policy_line *p) {
	unsigned long long memory = 0;
	char printed[160];
	*p = (struct gsh_policy_line){0};
	int n = sscanf(line, "vgpu %u %47s memory %llu quota %u sm %u", &p->index, p->uuid, &memory, &p->quota, &p->sm);
	p->memory = memory;
	snprintf(printed, sizeof printed, FORMAT, p->index, p->uuid, memory, p->quota, p->sm);
	return n == 5 && !strcmp(line, printed) && p->quota <= 1000 && p->sm <= 1000;
}

/* Sets up one vGPU. */
static void apply(struct gsh_vgpu *v, const struct gsh_policy_line *p) {
	v->index = p->index;
	memcpy(v->uuid, p->uuid, sizeof v->uuid);
	atomic_store(&v->server->memory_limit, p->memory);
	atomic_store(&v->server->guaranteed, p->quota);
	atomic_store(&v->server->window, 100 * GSH_MILLISECOND);
	atomic_store(&v->server->run_ahead, 10 * GSH_MILLISECOND);
}

/* Reads the policy file as text. Returns its length, or a number below 1. */
static ssize_t read_file(const char *directory, char *text, size_t size) {
	static char path[4096];
	snprintf(path, sizeof path, "%s/policy", directory);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) return -1;
	ssize_t n = read(fd, text, size - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	return n;
}

uint32_t gsh_policy_apply(char *text) {
	char *rest = text;
	const char *line = strsep(&rest, "\n");
	uint32_t vgpus = 0;
	if (strcmp(line, "version 1")) return 0;
	while ((line = strsep(&rest, "\n")) && vgpus < GSHARE_VGPU_MAX) {
		struct gsh_policy_line p;
		if (gsh_policy_parse(line, &p)) apply(&gsh_vgpus[vgpus++], &p);
	}
	return vgpus;
}

/* Its buffers are not on the stack, which may be that of a small thread: one thread at a time starts the hook. */
uint32_t gsh_policy_read(const char *directory) {
	static char text[4096];
	return read_file(directory, text, sizeof text) > 0 ? gsh_policy_apply(text) : 0;
}
