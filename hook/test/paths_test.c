/*
 * Every path to allocate device memory: each is counted, refused beyond the limit, and released. A memory function of
 * symbols.def that none of them uses fails the test. Also what NVML returns. Runs under the hook.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "image.h"
#include "server.h"

#define MIB (1ull << 20)
#define LIMIT (256 * MIB)
#define SIZE (8 * MIB)

static struct server server = {.memory_limit = LIMIT};
static CUmemoryPool pool;
static CUstream stream;
static uint64_t key, address, handle; /* of the latest allocation */

static uint64_t container(void) { return server.container[0]->memory; }

static CUresult plain(void) { return cuMemAlloc_v2((CUdeviceptr *)&key, SIZE); }
static CUresult pitched(void) { return cuMemAllocPitch_v2((CUdeviceptr *)&key, &(size_t){0}, SIZE / 8, 8, 4); }
static CUresult managed(void) { return cuMemAllocManaged((CUdeviceptr *)&key, SIZE, 1); }
static CUresult pointer_free(void) { return cuMemFree_v2(key); }

static CUresult ordered(void) { return cuMemAllocAsync((CUdeviceptr *)&key, SIZE, stream); }
static CUresult ordered_own(void) { return cuMemAllocAsync_ptsz((CUdeviceptr *)&key, SIZE, NULL); }
static CUresult pooled(void) { return cuMemAllocFromPoolAsync((CUdeviceptr *)&key, SIZE, pool, stream); }
static CUresult pooled_own(void) { return cuMemAllocFromPoolAsync_ptsz((CUdeviceptr *)&key, SIZE, pool, NULL); }

/* A pool keeps freed memory until it is trimmed. */
static CUresult trimmed(CUresult r) {
	CUmemoryPool first;
	cuDeviceGetDefaultMemPool(&first, 0);
	cuCtxSynchronize();
	return r ? r : cuMemPoolTrimTo(pool, 0) ? CUDA_ERROR_INVALID_VALUE : cuMemPoolTrimTo(first, 0);
}
static CUresult ordered_free(void) { return trimmed(cuMemFreeAsync(key, stream)); }
static CUresult ordered_own_free(void) { return trimmed(cuMemFreeAsync_ptsz(key, NULL)); }

/* Destroying a pool releases the memory in it. */
static CUresult own_pool(void) {
	CUmemoryPool made;
	CUmemPoolProps p = {.allocType = 1, .location = {1, 0}};
	if (cuMemPoolCreate(&made, &p)) return CUDA_ERROR_INVALID_VALUE;
	address = (uint64_t)made;
	CUresult r = cuMemAllocFromPoolAsync((CUdeviceptr *)&key, SIZE, made, stream);
	if (r) cuMemPoolDestroy(made);
	return r;
}
static CUresult own_pool_free(void) {
	cuMemFreeAsync(key, stream);
	cuCtxSynchronize();
	return cuMemPoolDestroy((CUmemoryPool)address);
}

static CUresult physical(void) {
	CUmemAllocationProp p = {.type = 1, .location = {1, 0}};
	return cuMemCreate((CUmemGenericAllocationHandle *)&handle, SIZE, &p, 0);
}
static CUresult physical_free(void) { return cuMemRelease(handle); }

/* Released first is the handle, so that only the mapping keeps the memory, then a handle that was retained from it. */
static CUresult mapped(void) {
	CUresult r = physical();
	if (r) return r;
	cuMemAddressReserve((CUdeviceptr *)&address, SIZE, 0, 0, 0);
	r = cuMemMap(address, SIZE, 0, handle, 0);
	return r ? r : cuMemRelease(handle);
}
static CUresult mapped_free(void) {
	CUmemGenericAllocationHandle again;
	uint64_t held = container();
	if (cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)address) || cuMemUnmap(address, SIZE)) return CUDA_ERROR_INVALID_VALUE;
	CHECK_EQUAL(container(), held);
	return cuMemRelease(again);
}

static CUresult flat(void) {
	return cuArrayCreate_v2((CUarray *)&key, &(CUDA_ARRAY_DESCRIPTOR){SIZE / 64, 4, 0x20, 4});
}
static CUresult deep(void) {
	return cuArray3DCreate_v2((CUarray *)&key, &(CUDA_ARRAY3D_DESCRIPTOR){SIZE / 256, 4, 4, 0x20, 4, 0});
}
static CUresult array_free(void) { return cuArrayDestroy((CUarray)key); }
static CUresult levels(void) {
	return cuMipmappedArrayCreate((CUmipmappedArray *)&key, &(CUDA_ARRAY3D_DESCRIPTOR){SIZE / 64, 4, 0, 0x20, 4, 0}, 3);
}
static CUresult levels_free(void) { return cuMipmappedArrayDestroy((CUmipmappedArray)key); }
static CUresult external(void) {
	return cuImportExternalMemory((CUexternalMemory *)&key, &(CUDA_EXTERNAL_MEMORY_HANDLE_DESC){.type = 1, .size = SIZE});
}
static CUresult external_free(void) { return cuDestroyExternalMemory((CUexternalMemory)key); }

/* Memory of another process: handles as the fake driver makes them, with the size in the second word. */
static const union {
	uint64_t words[8];
	CUipcMemHandle handle;
} foreign = {{0, SIZE}};
static CUresult opened(void) { return cuIpcOpenMemHandle((CUdeviceptr *)&key, foreign.handle, 1); }
static CUresult opened_v2(void) { return cuIpcOpenMemHandle_v2((CUdeviceptr *)&key, foreign.handle, 1); }
static CUresult opened_close(void) { return cuIpcCloseMemHandle(key); }
static CUresult imported(void) { return cuMemPoolImportPointer((CUdeviceptr *)&key, pool, (void *)&foreign); }

/* Returns the name of a file with a cubin that has SIZE bytes of variables. */
static const char *cubin_file(void) {
	static char name[64];
	struct cubin c = cubin(SIZE);
	int fd = name[0] ? -1 : memfd_create("cubin", 0);
	if (fd >= 0 && write(fd, &c, sizeof c) == sizeof c) snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	return name;
}
static CUresult module_file(void) { return cuModuleLoad((CUmodule *)&key, cubin_file()); }
static CUresult module(void) { struct cubin c = cubin(SIZE); return cuModuleLoadData((CUmodule *)&key, &c); }
static CUresult module_options(void) { struct cubin c = cubin(SIZE); return cuModuleLoadDataEx((CUmodule *)&key, &c, 0, NULL, NULL); }
static CUresult module_fat(void) { struct fat f = fat(SIZE); return cuModuleLoadFatBinary((CUmodule *)&key, &f); }
static CUresult module_unload(void) { return cuModuleUnload((CUmodule)key); }
static CUresult library(void) {
	struct cubin c = cubin(SIZE);
	return cuLibraryLoadData((CUlibrary *)&key, &c, NULL, NULL, 0, NULL, NULL, 0);
}
static CUresult library_file(void) { return cuLibraryLoadFromFile((CUlibrary *)&key, cubin_file(), NULL, NULL, 0, NULL, NULL, 0); }
static CUresult library_unload(void) { return cuLibraryUnload((CUlibrary)key); }

/* A way to allocate: the functions that it uses, and how to allocate and release. */
static const struct path {
	const char *name, *functions;
	CUresult (*allocate)(void), (*release)(void);
} paths[] = {
	{"plain", "cuMemAlloc_v2 cuMemFree_v2", plain, pointer_free},
	{"pitched", "cuMemAllocPitch_v2", pitched, pointer_free},
	{"managed", "cuMemAllocManaged", managed, pointer_free},
	{"ordered", "cuMemAllocAsync cuMemFreeAsync cuMemPoolTrimTo", ordered, ordered_free},
	{"ordered, per thread", "cuMemAllocAsync_ptsz cuMemFreeAsync_ptsz", ordered_own, ordered_own_free},
	{"pool", "cuMemAllocFromPoolAsync", pooled, ordered_free},
	{"pool, per thread", "cuMemAllocFromPoolAsync_ptsz", pooled_own, ordered_own_free},
	{"pool, destroyed", "cuMemPoolCreate cuMemPoolDestroy", own_pool, own_pool_free},
	{"physical", "cuMemCreate cuMemRelease", physical, physical_free},
	{"mapped", "cuMemMap cuMemUnmap cuMemRetainAllocationHandle", mapped, mapped_free},
	{"array", "cuArrayCreate_v2 cuArrayDestroy", flat, array_free},
	{"array of three dimensions", "cuArray3DCreate_v2", deep, array_free},
	{"mipmapped array", "cuMipmappedArrayCreate cuMipmappedArrayDestroy", levels, levels_free},
	{"external", "cuImportExternalMemory cuDestroyExternalMemory", external, external_free},
	{"opened", "cuIpcOpenMemHandle cuIpcCloseMemHandle", opened, opened_close},
	{"opened, version 2", "cuIpcOpenMemHandle_v2", opened_v2, opened_close},
	{"imported into a pool", "cuMemPoolImportPointer", imported, pointer_free},
	{"module of a file", "cuModuleLoad cuModuleUnload", module_file, module_unload},
	{"module", "cuModuleLoadData", module, module_unload},
	{"module with options", "cuModuleLoadDataEx", module_options, module_unload},
	{"module of a fat binary", "cuModuleLoadFatBinary", module_fat, module_unload},
	{"library", "cuLibraryLoadData cuLibraryUnload", library, library_unload},
	{"library of a file", "cuLibraryLoadFromFile", library_file, library_unload},
	{"bound, see hostile_test.c", "cuMulticastCreate cuMulticastBindMem cuMulticastBindAddr cuMemMapArrayAsync cuMemMapArrayAsync_ptsz", NULL, NULL},
	{"access to weights of a model store, see store_test.c", "cuMemSetAccess", NULL, NULL},
	{"exported and imported, see memory_test.c", "cuMemExportToShareableHandle cuMemImportFromShareableHandle", NULL, NULL},
	{"version 1, refused", "cuMemAlloc cuMemAllocPitch cuArrayCreate cuArray3DCreate", NULL, NULL},
};
#define PATHS (sizeof paths / sizeof paths[0])

/* Checks one way at and below the limit. */
static void check_path(const struct path *w) {
	uint64_t before = container();
	CUdeviceptr rest;
	int failures = check_failures;
	CHECK_EQUAL(w->allocate(), CUDA_SUCCESS);
	CHECK(container() >= before + SIZE);
	CHECK_EQUAL(w->release(), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	CHECK_EQUAL(cuMemAlloc_v2(&rest, LIMIT - before - SIZE + 2 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(w->allocate(), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(container(), LIMIT - SIZE + 2 * MIB);
	CHECK_EQUAL(cuMemFree_v2(rest), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	if (check_failures != failures) printf("  %s\n", w->name);
}

TEST(every_allocation_is_counted) {
	for (size_t i = 0; i < PATHS; i++)
		if (paths[i].allocate) check_path(&paths[i]);
}

/* Version 1 of what allocates has addresses and sizes of 32 bits. */
TEST(version_1_is_refused) {
	unsigned p, pitch;
	CUarray a;
	CHECK_EQUAL(cuMemAlloc(&p, 512), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuMemAllocPitch(&p, &pitch, 512, 1, 4), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuArrayCreate(&a, &(unsigned[4]){1, 1, 1, 1}), CUDA_ERROR_NOT_SUPPORTED);
	CHECK_EQUAL(cuArray3DCreate(&a, &(unsigned[6]){1, 1, 1, 1, 1, 0}), CUDA_ERROR_NOT_SUPPORTED);
}

/* Reports whether a way uses the function. */
static bool used(const char *function) {
	char word[80], all[1024];
	snprintf(word, sizeof word, " %s ", function);
	for (size_t i = 0; i < PATHS; i++) {
		snprintf(all, sizeof all, " %s ", paths[i].functions);
		if (strstr(all, word)) return true;
	}
	return false;
}

TEST(every_memory_function_is_tested) {
	static const struct {
		enum gsh_kind kind;
		const char *name;
	} listed[] = {
#define CU(kind, by, name, ...) {kind, #name},
#define CUP(kind, by, name, twin, ...) {kind, #name}, {kind, #name "_" #twin},
#define NVML(...)
#define USE(...)
#include "../src/symbols.def"
	};
	int functions = 0;
	for (size_t i = 0; i < sizeof listed / sizeof listed[0]; i++) {
		if (listed[i].kind != MEMORY) continue;
		functions++;
		if (used(listed[i].name)) continue;
		printf("  %s\n", listed[i].name);
		CHECK(!"used");
	}
	CHECK(functions > 20);
}

/* The queries of nvidia-smi and allocators return the share. */
TEST(nvml_returns_the_share) {
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
	int (*by_index)(unsigned, nvmlDevice_t *) = (int (*)(unsigned, nvmlDevice_t *))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	nvmlDeviceGetMemoryInfo_fn ask = (nvmlDeviceGetMemoryInfo_fn)dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo");
	nvmlDeviceGetMemoryInfo_v2_fn ask_v2 = (nvmlDeviceGetMemoryInfo_v2_fn)dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo_v2");
	nvmlDevice_t d;
	nvmlMemory_t m = {0};
	nvmlMemory_v2_t m2 = {.version = sizeof m2 | 2 << 24};
	CUdeviceptr p;
	uint64_t before = container();
	CHECK(init && !init() && !by_index(0, &d) && ask && ask_v2);
	if (!ask || !ask_v2) return;
	CHECK_EQUAL(cuMemAlloc_v2(&p, 100 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(ask(d, &m), 0);
	CHECK(m.total == LIMIT && m.used == before + 100 * MIB && m.free == LIMIT - m.used);
	CHECK_EQUAL(ask_v2(d, &m2), 0);
	CHECK(m2.total == LIMIT && m2.used == m.used && m2.free == m.free);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
}

/* Writes a policy file with the server's limit, as the agent does. */
static void write_policy(void) {
	char path[96];
	snprintf(path, sizeof path, "%s/policy", server.directory);
	FILE *policy = fopen(path, "w");
	CHECK(policy && fprintf(policy, "version 1\nvgpu 0 %s memory %llu quota 300 sm 1000\n", server.uuid, LIMIT) > 0 && !fclose(policy));
}

/* Returns the total memory of the first device that NVML reports, or 1 if it cannot be asked. */
static unsigned long long nvml_total(void) {
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
	int (*by_index)(unsigned, nvmlDevice_t *) = (int (*)(unsigned, nvmlDevice_t *))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
	nvmlDeviceGetMemoryInfo_fn ask = (nvmlDeviceGetMemoryInfo_fn)dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo");
	nvmlDevice_t d;
	nvmlMemory_t m = {0};
	return !init || init() || by_index(0, &d) || ask(d, &m) ? 1 : m.total;
}

/* Returns the exit code of a child process. */
static int status_of(pid_t child) {
	int status = -1;
	waitpid(child, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A forked child has no session and none of the parent's pages, so its limit is that of the policy file. */
TEST(nvml_returns_the_share_in_a_child) {
	write_policy();
	CHECK_EQUAL(nvml_total(), LIMIT);
	pid_t child = fork();
	if (!child) _exit(nvml_total() != LIMIT);
	CHECK_EQUAL(status_of(child), 0);
}

static _Atomic int started;
static void *start_cuda(void *unused) {
	cuInit(0);
	started = 1;
	return unused;
}

/*
 * Runs in a program of its own. Asks NVML while the hook starts, and before, or first when a byte comes from a pipe. Returns exit code 0
 * if all answers are the share.
 */
static int starting(int pipe) {
	char byte;
	pthread_t thread;
	int wrong = pipe < 0 && nvml_total() != LIMIT;
	pthread_create(&thread, NULL, start_cuda, NULL);
	wrong += pipe >= 0 && read(pipe, &byte, 1) != 1;
	for (; !started; usleep(1000)) wrong += nvml_total() != LIMIT;
	pthread_join(thread, NULL);
	return wrong != 0;
}

/* The server is slow to answer, so the start takes long. */
TEST(nvml_returns_the_share_during_the_start) {
	write_policy();
	server.silent = 1;
	pid_t child = fork();
	if (!child) {
		execl("/proc/self/exe", "starting", "-1", NULL);
		_exit(2);
	}
	CHECK_EQUAL(status_of(child), 0);
	CHECK(server.unanswered > 0 && server.unanswered < 20); /* each takes a second, and the start gives up after two */
	server.silent = 0;
}

/* Starts the program that begins to ask while the server does not answer. Returns its exit code. */
static int status_of_first_query(void) {
	int fds[2], before = server.unanswered;
	char number[16];
	if (pipe(fds)) return -1;
	snprintf(number, sizeof number, "%d", fds[0]);
	server.silent = 1;
	pid_t child = fork();
	if (!child) {
		close(fds[1]);
		execl("/proc/self/exe", "starting", number, NULL);
		_exit(2);
	}
	close(fds[0]);
	while (server.unanswered == before && !waitpid(child, NULL, WNOHANG)) usleep(1000);
	CHECK_EQUAL(write(fds[1], "", 1), 1);
	int status = status_of(child);
	close(fds[1]);
	server.silent = 0;
	return status;
}

/* Nothing has asked before the start. */
TEST(nvml_returns_the_share_first_during_the_start) {
	write_policy();
	CHECK_EQUAL(status_of_first_query(), 0);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(every_allocation_is_counted), T(version_1_is_refused), T(every_memory_function_is_tested), T(nvml_returns_the_share),
						  T(nvml_returns_the_share_in_a_child), T(nvml_returns_the_share_during_the_start),
						  T(nvml_returns_the_share_first_during_the_start), {0}};
	CUmemPoolProps p = {.allocType = 1, .location = {1, 0}};
	if (!strcmp(argv[0], "starting")) return starting(atoi(argv[1]));
	server.uuid = "GPU-00000000-0000-0000-0000-000000000000";
	server_start(&server);
	if (!driver_start("spin_ns1_sm1_blocks1") || server.sessions != 1) return printf("no session with the token server\n"), 1;
	if (cuMemPoolCreate(&pool, &p) || cuStreamCreate(&stream, 1)) return 1;
	return check_run(tests, argc, argv);
}
