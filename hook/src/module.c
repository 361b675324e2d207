/*
 * The wrappers of modules. The variables of a module (__device__) are memory of the context into which the module is loaded. The
 * variables of a library are memory of every context that uses the library, perhaps much later. Both are charged when they are
 * loaded, at the size that the image declares: a library once for each of the process's devices, whose primary context may use it,
 * and once for each other context.
 */
#define _GNU_SOURCE
#include "module.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "image.h"
#include "start.h"

#define CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR 75

/* Returns the bytes that the variables of an image take in one context. */
static uint64_t variable_bytes(const void *image) {
	int major = 0;
	struct gsh_target on = gsh_target(BY_THREAD, 0);
	if (on.context) CALL(cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, on.device);
	uint64_t bytes = gsh_image_bytes(image, major > 0 ? (unsigned)major : 0);
	return bytes ? gsh_allocated_bytes(bytes) : 0;
}

/* Returns the same for an image in a file; 0 if it cannot be read, which the driver reports. */
static uint64_t variable_bytes_of_file(const char *file) {
	int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
	off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
	if (fd >= 0 && size <= 0) close(fd);
	if (fd < 0 || size <= 0) return 0;
	/* One byte more, so that PTX ends with a zero. */
	char *image = mmap(NULL, (size_t)size + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ssize_t got = 0, n;
	while (image != MAP_FAILED && got < size && (n = pread(fd, image + got, (size_t)(size - got), got)) > 0) got += n;
	close(fd);
	if (image == MAP_FAILED) return UINT64_MAX;
	uint64_t bytes = got == size ? variable_bytes(image) : UINT64_MAX;
	munmap(image, (size_t)size + 1);
	return bytes;
}

#define LOAD(name, parameters, arguments, bytes_of_image)                                                               \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		struct gsh_reservation h;                                                                               \
		uint64_t bytes = bytes_of_image;                                                                        \
		if (!bytes) return real arguments;                                                                      \
		CUresult r = gsh_reserve(&h, BY_##name, 0, bytes);                                                      \
		if (r != CUDA_SUCCESS) return r;                                                                        \
		CUmodule loaded = NULL, *to = m;                                                                        \
		if (m) m = &loaded;                                                                                     \
		r = real arguments;                                                                                     \
		if (r == CUDA_SUCCESS) *to = loaded;                                                                    \
		return gsh_reserve_commit(&h, r, MODULE, (uint64_t)loaded, bytes);                                      \
	}
LOAD(cuModuleLoad, (CUmodule * m, const char *file), (m, file), variable_bytes_of_file(file))
LOAD(cuModuleLoadData, (CUmodule * m, const void *image), (m, image), variable_bytes(image))
LOAD(cuModuleLoadDataEx, (CUmodule * m, const void *image, unsigned n, int *options, void **values), (m, image, n, options, values),
     variable_bytes(image))
LOAD(cuModuleLoadFatBinary, (CUmodule * m, const void *image), (m, image), variable_bytes(image))

GSH_EXPORT CUresult cuModuleUnload(CUmodule m) {
	NEED(cuModuleUnload);
	return GSH_FREE(MODULE, m, real(m));
}

/* Returns in how many contexts a library may be used on a vGPU: the primary one, and those that were created. */
static uint64_t contexts_of(const struct gsh_vgpu *v) {
	uint64_t n = 1;
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i)) n += i->kind == CONTEXT && i->vgpu == v;
	gsh_ledger_unlock();
	return n;
}

/* Returns the bytes that the variables of all libraries take in one context on a vGPU. */
static uint64_t library_bytes(const struct gsh_vgpu *v) {
	uint64_t sum = 0;
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == LIBRARY && i->vgpu == v) sum += i->other;
	gsh_ledger_unlock();
	return sum;
}

/* Releases the reservations on the first n vGPUs. */
static void release(struct gsh_reservation *held, uint32_t n) {
	while (n-- > 0) gsh_memory_release(held[n].on.vgpu, held[n].bytes);
}

/* Reserves a library's variables on all vGPUs. Returns on how many; if they do not fit on one of them, reserves none and returns -1. */
static int reserve_library(struct gsh_reservation held[GSHARE_VGPU_MAX], uint64_t bytes) {
	gsh_start();
	uint32_t n = atomic_load(&gsh_vgpu_count);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t all;
		if (__builtin_mul_overflow(bytes, contexts_of(&gsh_vgpus[i]), &all)) all = UINT64_MAX;
		if (gsh_reserve_vgpu(&held[i], &gsh_vgpus[i], all)) continue;
		release(held, i);
		return -1;
	}
	return (int)n;
}

/* Enters a library in the ledger, once for each vGPU, or releases the reservations if r is an error. Returns r. */
static CUresult commit_library(struct gsh_reservation *held, int n, CUresult r, CUlibrary l, uint64_t bytes) {
	if (r != CUDA_SUCCESS) release(held, (uint32_t)n);
	for (int i = 0; r == CUDA_SUCCESS && i < n; i++)
		gsh_ledger_put(&(struct gsh_item){LIBRARY, (uint64_t)l, held[i].on.vgpu, NULL, held[i].bytes, bytes, 0, 0});
	return r;
}

#define LOAD_LIBRARY(name, image, bytes_of_image)                                                                       \
	GSH_EXPORT CUresult name(CUlibrary *l, image, int *jit, void **jit_values, unsigned jit_n, int *options, void **values, unsigned n) { \
		NEED(name);                                                                                             \
		struct gsh_reservation held[GSHARE_VGPU_MAX];                                                           \
		uint64_t bytes = bytes_of_image;                                                                        \
		if (!bytes) return real(l, code, jit, jit_values, jit_n, options, values, n);                           \
		int vgpus = reserve_library(held, bytes);                                                               \
		if (vgpus < 0) return CUDA_ERROR_OUT_OF_MEMORY;                                                         \
		CUlibrary loaded = NULL;                                                                                \
		CUresult r = real(l ? &loaded : NULL, code, jit, jit_values, jit_n, options, values, n);                \
		if (r == CUDA_SUCCESS) *l = loaded;                                                                     \
		return commit_library(held, vgpus, r, loaded, bytes);                                                   \
	}
LOAD_LIBRARY(cuLibraryLoadData, const void *code, variable_bytes(code))
LOAD_LIBRARY(cuLibraryLoadFromFile, const char *code, variable_bytes_of_file(code))

GSH_EXPORT CUresult cuLibraryUnload(CUlibrary l) {
	NEED(cuLibraryUnload);
	struct gsh_item items[GSHARE_VGPU_MAX];
	int n = 0;
	while (n < GSHARE_VGPU_MAX && gsh_ledger_take(LIBRARY, (uint64_t)l, &items[n])) n++;
	CUresult r = real(l);
	while (n-- > 0) {
		if (r == CUDA_SUCCESS)
			gsh_memory_release(items[n].vgpu, items[n].bytes);
		else
			gsh_ledger_put(&items[n]);
	}
	return r;
}

CUresult gsh_context_begin(struct gsh_reservation *h, CUdevice d) {
	gsh_start();
	*h = (struct gsh_reservation){0};
	if (gsh_device_refused(d)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
	struct gsh_vgpu *v = gsh_vgpu_of_device(d);
	if (!v) return CUDA_SUCCESS; /* the driver returns its own error, or limits are switched off */
	uint64_t bytes = library_bytes(v);
	if (!bytes) {
		h->on.vgpu = v;
		h->counted = true;
		return CUDA_SUCCESS;
	}
	return gsh_reserve_vgpu(h, v, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult gsh_context_commit(struct gsh_reservation *h, CUresult r, CUcontext c) {
	h->on.context = c;
	return gsh_reserve_commit(h, r, CONTEXT, (uint64_t)h->on.context, h->bytes);
}
