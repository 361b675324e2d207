/*
 * A program that loads the driver itself: opened dlsym|v1|v2|ptds.
 *   dlsym  every function by name and version, as XLA does
 *   v1 v2  cuGetProcAddress in its two ABIs, as the CUDA runtime does
 *   ptds   the same, with per-thread default streams
 */
#include "paths.h"

#include <dlfcn.h>

typedef CUresult (*v1)(const char *, void **, int, uint64_t);
typedef CUresult (*v2)(const char *, void **, int, uint64_t, int *);

static void *library, *entry;
static int abi;
static uint64_t flags;

/* Looks a function up in the chosen way. */
static void *find(const char *base, const char *name)
{
	void *function = NULL;
	if (abi == 0)
		return dlsym(library, name);
	if (abi == 1)
		((v1)entry)(base, &function, 11030, flags);
	else
		((v2)entry)(base, &function, 12000, flags, NULL);
	return function;
}

int main(int count, char **arguments)
{
	const char *way = count > 1 ? arguments[1] : "dlsym";
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		printf("failed %s\n", dlerror());
		return 1;
	}
	abi = strcmp(way, "dlsym") == 0 ? 0 : strcmp(way, "v1") == 0 ? 1 : 2;
	flags = strcmp(way, "ptds") == 0 ? 2 : 0;
	entry = abi ? dlsym(library, abi == 1 ? "cuGetProcAddress" : "cuGetProcAddress_v2") : NULL;
	const struct driver d = {
		find("cuInit", "cuInit"),
		find("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain"),
		find("cuCtxSetCurrent", "cuCtxSetCurrent"),
		find("cuModuleLoadData", "cuModuleLoadData"),
		find("cuModuleGetFunction", "cuModuleGetFunction"),
		find("cuLaunchKernel", "cuLaunchKernel"),
		find("cuCtxSynchronize", "cuCtxSynchronize"),
		find("cuMemAlloc", "cuMemAlloc_v2"),
		find("cuMemFree", "cuMemFree_v2"),
		find("cuMemGetInfo", "cuMemGetInfo_v2"),
	};
	return use(&d);
}
