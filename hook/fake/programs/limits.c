/* limits: prints how many SMs it may use and how many MiB it can allocate, then waits for the end of its standard input. */
#include "../fake.h"

#include <stdio.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuDeviceGetAttribute(int *, int, CUdevice);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);

int main(void)
{
	CUcontext context;
	CUdeviceptr p;
	int sms = 0, mib = 0;
	CUresult result = cuInit(0);
	if (result == CUDA_SUCCESS)
		result = cuDevicePrimaryCtxRetain(&context, 0);
	if (result == CUDA_SUCCESS)
		result = cuCtxSetCurrent(context);
	if (result == CUDA_SUCCESS)
		result = cuDeviceGetAttribute(&sms, 16, 0);
	while (result == CUDA_SUCCESS && cuMemAlloc_v2(&p, 16 << 20) == CUDA_SUCCESS)
		mib += 16;
	printf("error %d, SMs %d, MiB %d\n", result, sms, mib);
	fflush(stdout);
	while (getchar() != EOF)
		;
	return 0;
}
