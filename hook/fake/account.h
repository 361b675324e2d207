/* What all processes of a machine have of its devices: a file that FAKE_CUDA_SHARED names. Without, a process sees its own only. */
#ifndef GSHARE_FAKE_ACCOUNT_H
#define GSHARE_FAKE_ACCOUNT_H

#include <stdint.h>

#define ACCOUNT_DEVICES 16
#define ACCOUNT_PROCESSES 64

struct account_use {
	int pid;
	uint64_t bytes[ACCOUNT_DEVICES];
};

int account_take(int device, uint64_t bytes, uint64_t capacity); /* 0 if the others leave no room */
void account_give(int device, uint64_t bytes);
int account_list(struct account_use to[ACCOUNT_PROCESSES]); /* those that live; -1 without a file */
uint64_t account_used(int device, uint64_t own);	    /* own without a file */

#endif
