/*
 * The device memory of all processes of a machine, in the file that FAKE_CUDA_SHARED names. Without the file a process sees
 * only its own.
 */
#ifndef GSHARE_FAKE_ACCOUNT_H
#define GSHARE_FAKE_ACCOUNT_H

#include <stdint.h>

#define ACCOUNT_DEVICES 16
#define ACCOUNT_PROCESSES 64
#define ACCOUNT_SHARED 256
#define ACCOUNT_HOLDERS 32

/* A process by its PID and the PID namespace that it is in. */
struct account_process {
	int pid; /* 0: none */
	uint64_t space;
};

/* What a process has. */
struct account_use {
	struct account_process process;
	uint64_t bytes[ACCOUNT_DEVICES];
};

/* Memory that several processes may have. It is part of its owner's bytes, and of nobody's when the owner has ended or freed it. */
struct account_shared {
	struct account_process owner; /* none when it has gone */
	int device;
	uint64_t bytes;
	struct {
		struct account_process process;
		int count;
	} holders[ACCOUNT_HOLDERS]; /* processes that have opened it, and how often */
};

int account_add(int device, uint64_t bytes, uint64_t capacity); /* returns 0 if all processes together would exceed the capacity */
void account_subtract(int device, uint64_t bytes);
int account_list(struct account_use to[ACCOUNT_PROCESSES]); /* stores running processes of the caller's PID namespace and returns their number; -1 without a file */
uint64_t account_used(int device, uint64_t own);            /* returns the sum of all processes, or `own` without a file */

uint64_t account_namespace(void); /* returns the PID namespace of the calling process; 0 if it is not known */

uint64_t account_share(int device, uint64_t bytes); /* returns the number of a new entry that this process owns; 0 without a file */
void account_open(uint64_t shared);                 /* adds this process to the holders; number 0 is ignored, as in the next two */
void account_close(uint64_t shared);
void account_disown(uint64_t shared); /* called by the owner, which has subtracted the bytes from its own */

#endif
