/* The file in which the agent leaves a container's limits, for the time without a server. */
#ifndef GSHARE_POLICY_H
#define GSHARE_POLICY_H

#include "account.h"

/*
 * Reads <directory>/policy into vGPUs with pages of our own. Returns how many there are; 0 if the file is missing or not
 * understood: then no memory is allowed (fail closed).
 */
uint32_t gsh_policy_read(const char *directory);

/* The same, of the file's text, which it cuts into lines. */
uint32_t gsh_policy_apply(char *text);

/* One line of the file. Returns false if it is not a valid vgpu line. Pure. */
struct gsh_policy_line {
	uint32_t index;
	char uuid[GSHARE_UUID_SIZE];
	uint64_t memory;
	uint32_t quota, sm;
};
bool gsh_policy_parse(const char *line, struct gsh_policy_line *p);

#endif
