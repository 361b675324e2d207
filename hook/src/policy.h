/* The policy file: a container's limits, written by the agent, for processes that have no server. */
#ifndef GSHARE_POLICY_H
#define GSHARE_POLICY_H

#include "account.h"

/*
 * Reads <directory>/policy and sets up its vGPUs on anonymous pages. Returns how many there are; 0 if the file is missing or
 * invalid: then no memory is allowed (fail closed).
 */
uint32_t gsh_policy_read(const char *directory);

/* Sets up the vGPUs from the text of a policy file, like gsh_policy_read. Splits the text into lines in place. */
uint32_t gsh_policy_apply(char *text);

/* The vGPU that one line of the policy file describes. */
struct gsh_policy_line {
	uint32_t index; /* device ordinal in the container */
	char uuid[GSHARE_UUID_SIZE];
	uint64_t memory;    /* bytes */
	uint32_t quota, sm; /* per-mille */
};

/* Parses a line of the policy file. Returns false if it is not a valid vgpu line. */
bool gsh_policy_parse(const char *line, struct gsh_policy_line *p);

#endif
