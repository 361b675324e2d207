/*
 * Modules and functions. The name of a kernel states what it does: spin_ns<duration>_sm<per-mille>_blocks<n>, and with
 * _after<n>_ns<duration>_for<n> behind it, that after so many launches so many others take another duration, and so on in
 * turn; _waves<n> at its end is the number of waves in which its blocks run. A name that begins with "missing" is not found; any
 * other is a kernel on all SMs that takes the time in FAKE_CUDA_KERNEL_NS, or none.
 */
#include "memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNLISTED (64 << 10) /* bytes of a variable that fake_image_globals does not find in the image, such as a compressed one */

/* A module or library; guarded by fake_lock. */
struct module {
	struct function *functions;
	uint64_t bytes; /* of its variables */
};

/* Takes memory for the variables of a module in the current context, if they have none there. Returns their block; NULL without memory. */
static struct block *back(struct module *module)
{
	struct block *block = block_of(fake_current, module, 0);
	if (block)
		return block;
	if (module->bytes > fake_memory || !fake_charge(fake_current->device, block_size(module->bytes)))
		return NULL;
	block = block_add(block_new_address(module->bytes), block_size(module->bytes), fake_current->device);
	block->context = fake_current;
	block->module = module;
	block->length = block->size > UNLISTED ? block->size : UNLISTED;
	return block;
}

/* Creates a library: a module whose variables are taken in each context that uses it. */
static CUresult load_library(CUmodule *library, const void *image)
{
	if (!library)
		return CUDA_ERROR_INVALID_VALUE;
	*library = calloc(1, sizeof **library);
	(*library)->bytes = fake_image_globals(image);
	return CUDA_SUCCESS;
}

/* Creates a module in the current context. */
static CUresult load(CUmodule *module, const void *image)
{
	NEED_CONTEXT();
	CUresult result = load_library(module, image);
	if (result || back(*module))
		return result;
	free(*module);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Returns the contents of a file, or NULL. */
static void *contents(const char *file)
{
	FILE *from = file ? fopen(file, "r") : NULL;
	char *text = calloc(1, 1 << 20);
	if (!from || !text || fread(text, 1, (1 << 20) - 1, from) == 0)
		text = (free(text), NULL);
	if (from)
		fclose(from);
	return text;
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
		const char *others = getenv("FAKE_CUDA_KERNEL_NS");
		if (sscanf(name, "spin_ns%llu_sm%u_blocks%u_after%u_ns%llu_for%u", &duration, &width, &blocks, &f->after, &other, &f->changed) < 1 && others)
			duration = strtoull(others, NULL, 10);
		f->duration = duration;
		f->other_duration = other;
		f->width = width < 1 ? 1 : width > 1000 ? 1000 : width;
		const char *waves = strstr(name, "_waves");
		f->waves = waves ? (uint32_t)strtoul(waves + 6, NULL, 10) : 1;
		fake_function_defaults(f);
		f->module = module;
		f->next = module->functions;
		module->functions = f;
	}
	pthread_mutex_unlock(&fake_lock);
	*function = f;
	return CUDA_SUCCESS;
}

/* Without a file the module is empty. */
FN(cuModuleLoad, , 2000, CUmodule *module, const char *file)
{
	ENTER(cuModuleLoad);
	void *image = contents(file);
	CUresult result = load(module, image);
	free(image);
	return result;
}

FN(cuModuleLoadData, , 2000, CUmodule *module, const void *image)
{
	ENTER(cuModuleLoadData);
	AT_RETURN();
	return load(module, image);
}
FN(cuModuleLoadFatBinary, , 2000, CUmodule *module, const void *image)
{
	ENTER(cuModuleLoadFatBinary);
	return load(module, image);
}

FN(cuModuleLoadDataEx, , 2010, CUmodule *module, const void *image, unsigned count, int *options, void **values)
{
	ENTER(cuModuleLoadDataEx);
	(void)count, (void)options, (void)values;
	return load(module, image);
}

/* Frees a module or library, with its variables in all contexts. */
static CUresult unload(CUmodule module)
{
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	for (struct block *block; (block = block_of(NULL, module, 0));)
		block_free(block);
	for (struct function *f = module->functions, *next; f; f = next) {
		next = f->next;
		free(f);
	}
	free(module);
	return CUDA_SUCCESS;
}

FN(cuModuleUnload, , 2000, CUmodule module) { ENTER(cuModuleUnload); return unload(module); }

FN(cuModuleGetFunction, , 2000, CUfunction *function, CUmodule module, const char *name)
{
	ENTER(cuModuleGetFunction);
	return find(function, module, name);
}

/* Finds a variable. All variables of a module are at one address: only the size of all of them is known. */
static CUresult find_global(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
	NEED_CONTEXT();
	if (!module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (strncmp(name, "missing", 7) == 0)
		return CUDA_ERROR_NOT_FOUND;
	struct block *block = back(module);
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (address)
		*address = block->key;
	if (bytes)
		*bytes = block->length;
	return CUDA_SUCCESS;
}

FN(cuModuleGetGlobal, _v2, 3020, CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name)
{
	ENTER(cuModuleGetGlobal_v2);
	return find_global(address, bytes, module, name);
}

FN(cuModuleGetLoadingMode, , 11070, int *mode)
{
	ENTER(cuModuleGetLoadingMode);
	*mode = 2;
	return CUDA_SUCCESS;
}

FN(cuLibraryLoadData, , 12000, CUmodule *library, const void *code, int *jit, void **jit_values, unsigned jit_count, int *options,
   void **values, unsigned count)
{
	ENTER(cuLibraryLoadData);
	(void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	return load_library(library, code);
}

FN(cuLibraryLoadFromFile, , 12000, CUmodule *library, const char *file, int *jit, void **jit_values, unsigned jit_count, int *options,
   void **values, unsigned count)
{
	ENTER(cuLibraryLoadFromFile);
	(void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
	void *image = contents(file);
	CUresult result = load_library(library, image);
	free(image);
	return result;
}

FN(cuLibraryUnload, , 12000, CUmodule library) { ENTER(cuLibraryUnload); return unload(library); }

/* The calls that load a library into the current context. */
FN(cuLibraryGetModule, , 12000, CUmodule *module, CUmodule library)
{
	ENTER(cuLibraryGetModule);
	NEED_CONTEXT();
	*module = library;
	return back(library) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FN(cuLibraryGetGlobal, , 12000, CUdeviceptr *address, size_t *bytes, CUmodule library, const char *name)
{
	ENTER(cuLibraryGetGlobal);
	return find_global(address, bytes, library, name);
}

/* A CUkernel is the function itself. */
FN(cuLibraryGetKernel, , 12000, CUfunction *kernel, CUmodule library, const char *name)
{
	ENTER(cuLibraryGetKernel);
	return find(kernel, library, name);
}

FN(cuKernelGetFunction, , 12000, CUfunction *function, CUfunction kernel)
{
	ENTER(cuKernelGetFunction);
	NEED_CONTEXT();
	*function = kernel;
	return back(kernel->module) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
