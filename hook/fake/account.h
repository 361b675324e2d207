/*
 * The device memory of all processes of a machine, in the file that FAKE_CUDA_SHARED names. Without the file a process sees
 * only its own.
 */
#ifndef GSHARE_FAKE_ACCOUNT_H
#define GSHARE_FAKE_ACCOUNT_H

#include <stdint.h>

#define ACCOUNT_DEVICES 16
#define ACCOUNT_PROCESSES 64

/* One process. */
struct account_use {
	int pid;
	uint64_t bytes[ACCOUNT_DEVICES];
};

int account_add(int device, uint64_t bytes, uint64_t capacity); /* returns 0 if all processes together would exceed the capacity */
void account_subtract(int device, uint64_t bytes);
int account_list(struct account_use to[ACCOUNT_PROCESSES]); /* stores running processes and returns their number; -1 without a file */
uint64_t account_used(int device, uint64_t own);            /* returns the sum of all processes, or `own` without a file */

#endif
