/*
 * hold: keeps half of its share of memory, 512 MiB of 1 GiB, and tries again and again to get more than the rest. It ends
 * with code 9 if it ever gets it.
 */
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(uint64_t *, size_t);

#define OUT_OF_MEMORY 2

int main(void)
{
	void *context;
	uint64_t memory;
	if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuMemAlloc_v2(&memory, 512 << 20))
		return 1;
	while (cuMemAlloc_v2(&memory, 768 << 20) == OUT_OF_MEMORY)
		usleep(1000);
	return 9;
}
