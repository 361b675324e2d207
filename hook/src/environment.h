/* The environment, also that of a program that has cleared it before it uses CUDA. */
#ifndef GSHARE_ENVIRONMENT_H
#define GSHARE_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Stores the value of a variable, from the environment or else from the one that the program was started with. Returns false if neither
 * has it, if it does not fit, or in a program that runs with more privileges than its caller. One thread at a time.
 */
bool gsh_environment(const char *name, char *value, size_t size);

#endif
