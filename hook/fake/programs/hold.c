/* hold BYTES: allocates device memory and keeps it until its standard input ends. Prints "ok" or "error CODE". */
#include "../fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);

int main(int argc, char **argv)
{
	CUcontext context;
	CUdeviceptr memory;
	char end;
	CUresult error = cuInit(0);
	if (!error)
		error = cuDevicePrimaryCtxRetain(&context, 0);
	if (!error)
		error = cuCtxSetCurrent(context);
	if (!error)
		error = cuMemAlloc_v2(&memory, argc > 1 ? strtoull(argv[1], NULL, 0) : 0);
	if (error)
		printf("error %d\n", (int)error);
	else
		printf("ok\n");
	fflush(stdout);
	return read(STDIN_FILENO, &end, 1) < 0;
}
