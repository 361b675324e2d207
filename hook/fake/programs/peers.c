/*
 * peers: two processes that share device memory, in each of the three ways. The second one is started with the names of the memory and
 * the file descriptor; it checks the contents and changes them, which the first one checks. Prints "ok".
 */
#include "../fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuDeviceGetDefaultMemPool(void **, CUdevice);
CUresult cuMemAlloc_v2(CUdeviceptr *, size_t);
CUresult cuMemAllocAsync(CUdeviceptr *, size_t, CUstream);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemCreate(unsigned long long *, size_t, const void *, unsigned long long);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t);
CUresult cuMemExportToShareableHandle(void *, unsigned long long, int, unsigned long long);
CUresult cuMemImportFromShareableHandle(unsigned long long *, void *, int);
struct name { unsigned char bytes[64]; };
CUresult cuIpcGetMemHandle(struct name *, CUdeviceptr);
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *, struct name, unsigned);
CUresult cuMemPoolExportPointer(struct name *, CUdeviceptr);
CUresult cuMemPoolImportPointer(CUdeviceptr *, void *, const struct name *);

enum { SIZE = 2 << 20, WAYS = 3 };

/* Exits with a message unless the call succeeded. */
static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "peers: %s: %d\n", what, result);
	exit(1);
}
#define MUST(call) must(call, #call)

/* Maps the memory of a handle, which only a process that writes may change. */
static CUdeviceptr map(unsigned long long handle)
{
	CUdeviceptr p;
	int access[3] = {1, 0, 3};
	MUST(cuMemAddressReserve(&p, SIZE, 0, 0, 0));
	MUST(cuMemMap(p, SIZE, 0, handle, 0));
	MUST(cuMemSetAccess(p, SIZE, access, 1));
	return p;
}

/* Ends the process unless the first bytes of some memory are these. */
static void expect(CUdeviceptr p, const char *want)
{
	char text[8];
	MUST(cuMemcpyDtoH_v2(text, p, sizeof text));
	if (strcmp(text, want) == 0)
		return;
	fprintf(stderr, "peers: it contains \"%.8s\", not \"%s\"\n", text, want);
	exit(1);
}

/* The second process: finds the first one's text in all memory, and writes its own. */
static void second(int file, struct name *names)
{
	void *pool;
	unsigned long long handle;
	CUdeviceptr p[WAYS];
	MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, 1));
	p[0] = map(handle);
	MUST(cuIpcOpenMemHandle_v2(&p[1], names[0], 1));
	MUST(cuDeviceGetDefaultMemPool(&pool, 0));
	MUST(cuMemPoolImportPointer(&p[2], pool, &names[1]));
	for (int i = 0; i < WAYS; i++) {
		expect(p[i], "first");
		MUST(cuMemcpyHtoD_v2(p[i], "second", 7));
	}
}

int main(int n, char **a)
{
	CUcontext context;
	CUdeviceptr p[WAYS];
	unsigned long long handle;
	int file, status, prop[8] = {1, 1, 1, 0};
	struct name names[2];
	char text[2][16];
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	if (n == 3) {
		if (read(atoi(a[2]), names, sizeof names) != sizeof names)
			return 1;
		second(atoi(a[1]), names);
		return 0;
	}
	MUST(cuMemCreate(&handle, SIZE, prop, 0));
	p[0] = map(handle);
	MUST(cuMemAlloc_v2(&p[1], SIZE));
	MUST(cuMemAllocAsync(&p[2], SIZE, NULL));
	MUST(cuMemcpyHtoD_v2(p[1], "first", 6)); /* before it is shared, the others after it */
	MUST(cuMemExportToShareableHandle(&file, handle, 1, 0));
	MUST(cuIpcGetMemHandle(&names[0], p[1]));
	MUST(cuMemPoolExportPointer(&names[1], p[2]));
	MUST(cuMemcpyHtoD_v2(p[0], "first", 6));
	MUST(cuMemcpyHtoD_v2(p[2], "first", 6));
	int pipes[2];
	if (pipe(pipes) != 0 || write(pipes[1], names, sizeof names) != sizeof names || fcntl(file, F_SETFD, 0) != 0)
		return 1;
	snprintf(text[0], sizeof text[0], "%d", file);
	snprintf(text[1], sizeof text[1], "%d", pipes[0]);
	pid_t child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "peers", text[0], text[1], NULL);
		_exit(1);
	}
	if (waitpid(child, &status, 0) != child || status != 0)
		return 1;
	for (int i = 0; i < WAYS; i++)
		expect(p[i], "second");
	puts("ok");
	return 0;
}
