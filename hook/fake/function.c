/* Attributes and occupancy of kernels. A CUkernel is the function itself, and its library the module. */
#include "fake.h"

#include <string.h>

/* CUfunction_attribute, from CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES on those that programs may set */
enum { MAX_THREADS = 0, REGISTERS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, DYNAMIC_SHARED = 8, CARVEOUT = 9 };
enum { THREADS_OF_SM = 2048, BLOCKS_OF_SM = 32, SHARED_OF_BLOCK = 49152, CLUSTER = 8 };

void fake_function_defaults(struct function *function)
{
	static const int defaults[FUNCTION_ATTRIBUTES] = {
		[MAX_THREADS] = 1024, [REGISTERS] = 32, [PTX_VERSION] = 90, [BINARY_VERSION] = 90, [DYNAMIC_SHARED] = SHARED_OF_BLOCK, [CARVEOUT] = -1,
	};
	memcpy(function->attributes, defaults, sizeof defaults);
}

static CUresult get(int *value, int attribute, CUfunction function)
{
	if (!value || attribute < 0 || attribute >= FUNCTION_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*value = function->attributes[attribute];
	return CUDA_SUCCESS;
}

static CUresult set(CUfunction function, int attribute, int value)
{
	if (attribute < DYNAMIC_SHARED || attribute >= FUNCTION_ATTRIBUTES)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	function->attributes[attribute] = value;
	return CUDA_SUCCESS;
}

FN(cuFuncGetAttribute, , 2020, int *value, int attribute, CUfunction f) { ENTER(cuFuncGetAttribute); return get(value, attribute, f); }
FN(cuFuncSetAttribute, , 9000, CUfunction f, int attribute, int value) { ENTER(cuFuncSetAttribute); return set(f, attribute, value); }
/* Attributes do not differ between devices here. */
FN(cuKernelGetAttribute, , 12000, int *value, int attribute, CUfunction f, CUdevice device)
{
	ENTER(cuKernelGetAttribute);
	NEED_DEVICE(device);
	return get(value, attribute, f);
}
FN(cuKernelSetAttribute, , 12000, int attribute, int value, CUfunction f, CUdevice device)
{
	ENTER(cuKernelSetAttribute);
	NEED_DEVICE(device);
	return set(f, attribute, value);
}

STUB(cuFuncSetCacheConfig, , 3000, CUfunction f __attribute__((unused)), int config __attribute__((unused)))
STUB(cuKernelSetCacheConfig, , 12000, CUfunction f __attribute__((unused)), int config __attribute__((unused)), CUdevice d __attribute__((unused)))
STUB(cuFuncSetBlockShape, , 2000, CUfunction f __attribute__((unused)), int x __attribute__((unused)),
     int y __attribute__((unused)), int z __attribute__((unused)))
STUB(cuFuncLoad, , 12040, CUfunction f __attribute__((unused)))

static CUresult name_of(const char **name, CUfunction function)
{
	if (!name || !function)
		return CUDA_ERROR_INVALID_VALUE;
	*name = function->name;
	return CUDA_SUCCESS;
}
FN(cuFuncGetName, , 12030, const char **name, CUfunction f) { ENTER(cuFuncGetName); return name_of(name, f); }
FN(cuKernelGetName, , 12030, const char **name, CUfunction f) { ENTER(cuKernelGetName); return name_of(name, f); }

static CUresult module_of(CUmodule *module, CUfunction function)
{
	NEED(module);
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	*module = function->module;
	return CUDA_SUCCESS;
}
FN(cuFuncGetModule, , 11000, CUmodule *module, CUfunction f) { ENTER(cuFuncGetModule); return module_of(module, f); }
FN(cuKernelGetLibrary, , 12050, CUmodule *library, CUfunction f) { ENTER(cuKernelGetLibrary); return module_of(library, f); }

/* Parameters of kernels are not known. */
static CUresult parameter(CUfunction function) { return function ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE; }
FN(cuFuncGetParamInfo, , 12040, CUfunction f, size_t index, size_t *offset, size_t *size)
{
	ENTER(cuFuncGetParamInfo);
	(void)index, (void)offset, (void)size;
	return parameter(f);
}
FN(cuKernelGetParamInfo, , 12040, CUfunction f, size_t index, size_t *offset, size_t *size)
{
	ENTER(cuKernelGetParamInfo);
	(void)index, (void)offset, (void)size;
	return parameter(f);
}

/* The occupancy by threads alone: registers and shared memory are not counted. */
static CUresult blocks_of(int *blocks, int threads)
{
	NEED(blocks);
	*blocks = threads <= 0 ? 0 : THREADS_OF_SM / threads < BLOCKS_OF_SM ? THREADS_OF_SM / threads : BLOCKS_OF_SM;
	return CUDA_SUCCESS;
}
FN(cuOccupancyMaxActiveBlocksPerMultiprocessor, , 6050, int *blocks, CUfunction f, int threads, size_t shared)
{
	ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
	(void)f, (void)shared;
	return blocks_of(blocks, threads);
}
FN(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, , 7000, int *blocks, CUfunction f, int threads, size_t shared, unsigned flags)
{
	ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
	(void)f, (void)shared, (void)flags;
	return blocks_of(blocks, threads);
}
FN(cuOccupancyAvailableDynamicSMemPerBlock, , 10020, size_t *size, CUfunction f, int blocks, int threads)
{
	ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
	(void)f, (void)blocks, (void)threads;
	NEED(size);
	*size = SHARED_OF_BLOCK;
	return CUDA_SUCCESS;
}
FN(cuOccupancyMaxPotentialBlockSize, , 6050, int *grid, int *block, CUfunction f, size_t (*shared)(int), size_t dynamic, int most)
{
	ENTER(cuOccupancyMaxPotentialBlockSize);
	(void)f, (void)shared, (void)dynamic;
	NEED(grid);
	NEED(block);
	*block = most > 0 && most < 1024 ? most : 1024;
	*grid = 100 * (THREADS_OF_SM / 1024); /* of 100 SMs */
	return CUDA_SUCCESS;
}
FN(cuOccupancyMaxPotentialClusterSize, , 11070, int *size, CUfunction f, const void *config)
{
	ENTER(cuOccupancyMaxPotentialClusterSize);
	(void)f, (void)config;
	NEED(size);
	*size = CLUSTER;
	return CUDA_SUCCESS;
}
FN(cuOccupancyMaxActiveClusters, , 11070, int *count, CUfunction f, const void *config)
{
	ENTER(cuOccupancyMaxActiveClusters);
	(void)f, (void)config;
	NEED(count);
	*count = 100 / CLUSTER;
	return CUDA_SUCCESS;
}
