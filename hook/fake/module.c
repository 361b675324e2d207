/*
 * Modules and functions. The name of a kernel states what it does: spin_ns<duration>_sm<per-mille>_blocks<n>, and with
 * _after<n>_ns<duration>_for<n> behind it, that after so many launches so many others take another duration, and so on in
 * turn; _waves<n> at its end is the number of waves in which its blocks run. A name that begins with "missing" is not found; any
 * other is a kernel that takes no time.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A module or library; guarded by fake_lock. */
struct module {
	struct function *functions;
};

/* Creates a module. */
static CUresult load(CUmodule *module)
{
	NEED_CONTEXT();
	if (!module)
		return CUDA_ERROR_INVALID_VALUE;
	*module = calloc(1, sizeof **module);
	return CUDA_SUCCESS;
}

/* Returns the function of a name, created at its first use. */
static CUresult find(CUfunction *function, CUmodule module, const char *name)
{
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (strncmp(name, "missing", 7) == 0)
		return CUDA_ERROR_NOT_FOUND;
	pthread_mutex_lock(&fake_lock);
	struct function *f = module->functions;
	while (f && strcmp(f->name, name) != 0)
		f = f->next;
	if (!f) {
		f = calloc(1, sizeof *f);
		snprintf(f->name, sizeof f->name, "%s", name);
		unsigned long long duration = 0, other = 0;
		unsigned width = 1000, blocks; /* the number of blocks has no effect */
		sscanf(name, "spin_ns%llu_sm%u_blocks%u_after%u_ns%llu_for%u", &duration, &width, &blocks, &f->after, &other, &f->changed);
		f->duration = duration;
		f->other_duration = other;
		f->width = width < 1 ? 1 : width > 1000 ? 1000 : width;
		const char *waves = strstr(name, "_waves");
		f->waves = waves ? (uint32_t)strtoul(waves + 6, NULL, 10) : 1;
		f->next = module->functions;
		module->functions = f;
	}
	pthread_mutex_unlock(&fake_lock);
	*function = f;
	return CUDA_SUCCESS;
}

FN(cuModuleLoad, , 2000, CUmodule *module, const char *file) { ENTER(cuModuleLoad); (void)file; return load(module); }
FN(cuModuleLoadData, , 2000, CUmodule *module, const void *image) { ENTER(cuModuleLoadData); (void)image; return load(module); }
FN(cuModuleLoadFatBinary, , 2000, CUmodule *module, const void *image)
{
	ENTER(cuModuleLoadFatBinary);
	(void)image;
	return load(module);
}

FN(cuModuleLoadDataEx, , 2010, CUmodule *module, const void *image, unsigned count, int *options, void **values)
{
	ENTER(cuModuleLoadDataEx);
	(void)image, (void)count, (void)options, (void)values;
	return load(module);
}

FN(cuModuleUnload, , 2000, CUmodule module)
{
	ENTER(cuModuleUnload);
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	for (struct function *f = module->functions, *next; f; f = next) {
		next = f->next;
		free(f);
	}
	free(module);
	return CUDA_SUCCESS;
}

FN(cuModuleGetFunction, , 2000, CUfunction *function, CUmodule module, const char *name)
{
	ENTER(cuModuleGetFunction);
	return find(function, module, name);
}

FN(cuModuleGetGlobal, _v2, 3020, CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
	ENTER(cuModuleGetGlobal_v2);
	(void)address, (void)bytes, (void)module, (void)name;
	return CUDA_ERROR_NOT_FOUND;
}

FN(cuModuleGetLoadingMode, , 11070, int *mode)
{
	ENTER(cuModuleGetLoadingMode);
	*mode = 2;
	return CUDA_SUCCESS;
}

/* A library is a module that needs no context, a CUkernel the function itself. */
FN(cuLibraryLoadData, , 12000, CUmodule *library, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
   void **values, unsigned count)
{
	ENTER(cuLibraryLoadData);
	(void)code, (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	*library = calloc(1, sizeof **library);
	return CUDA_SUCCESS;
}

FN(cuLibraryUnload, , 12000, CUmodule library) { ENTER(cuLibraryUnload); return cuModuleUnload(library); }
FN(cuLibraryGetKernel, , 12000, CUfunction *kernel, CUmodule library, const char *name)
{
	ENTER(cuLibraryGetKernel);
	return find(kernel, library, name);
}

FN(cuKernelGetFunction, , 12000, CUfunction *function, CUfunction kernel)
{
	ENTER(cuKernelGetFunction);
	*function = kernel;
	return CUDA_SUCCESS;
}

FN(cuFuncGetAttribute, , 2020, int *value, int attribute, CUfunction function)
{
	ENTER(cuFuncGetAttribute);
	if (!value || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attribute == 0 ? 1024 : 0; /* maximum threads per block */
	return CUDA_SUCCESS;
}

FN(cuFuncGetName, , 12030, const char **name, CUfunction function)
{
	ENTER(cuFuncGetName);
	if (!name || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*name = function->name;
	return CUDA_SUCCESS;
}

STUB(cuFuncSetAttribute, , 9000, CUfunction f __attribute__((unused)), int a __attribute__((unused)), int v __attribute__((unused)))
STUB(cuFuncSetCacheConfig, , 3000, CUfunction f __attribute__((unused)), int config __attribute__((unused)))
STUB(cuFuncSetBlockShape, , 2000, CUfunction f __attribute__((unused)), int x __attribute__((unused)),
     int y __attribute__((unused)), int z __attribute__((unused)))

FN(cuOccupancyMaxActiveBlocksPerMultiprocessor, , 6050, int *blocks, CUfunction function, int threads, size_t shared)
{
	ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
	(void)function, (void)shared;
	*blocks = threads > 0 ? 2048 / threads : 0;
	return CUDA_SUCCESS;
}
