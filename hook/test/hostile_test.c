/*
 * Programs that try to have more device memory than their container's limit, or memory of a device that it was not granted. Each
 * is run by its name, with and without the hook. It fails (exit code 1) if the fake driver, which counts the memory of all
 * processes of the machine, has more than the limit at its end. Without the hook all of them have more.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "image.h"
#include "server.h"

#define MIB (1ull << 20)
#define LIMIT (512 * MIB)
#define PART (200 * MIB) /* of which the limit has room for two */

uint64_t fakecuda_used_by_all(CUdevice d);
void fakecuda_at_return(void (*call)(void));
CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr p);
CUresult cuMemPoolExportPointer(void *data, CUdeviceptr p);
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *os, int type, unsigned long long flags);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t bytes, CUdevice d, CUstream s);
CUresult cuLibraryGetModule(CUmodule *m, CUlibrary l);
CUresult cuLibraryGetGlobal(CUdeviceptr *p, size_t *n, CUlibrary l, const char *name);

static struct server server = {.memory_limit = LIMIT, .uuid = "GPU-00000000-0000-0000-0000-000000000000"};

/* Memory of a device for VMM, and a pool's properties. */
static CUmemAllocationProp on(int location, CUdevice d) { return (CUmemAllocationProp){.type = 1, .location = {location, d}}; }
static CUmemoryPool pool_on(int location, CUdevice d) {
	CUmemPoolProps props = {.allocType = 1, .location = {location, d}};
	CUmemoryPool pool = NULL;
	return cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS ? pool : NULL;
}

TEST(allocate) {
	CUdeviceptr p;
	for (int i = 0; i < 8; i++) cuMemAlloc_v2(&p, PART);
}

static void *race(void *arg) {
	CUcontext c;
	CUdeviceptr p;
	cuDevicePrimaryCtxRetain(&c, 0);
	cuCtxSetCurrent(c);
	for (int i = 0; i < 64; i++) cuMemAlloc_v2(&p, 2 * MIB);
	return arg;
}

TEST(threads_race) {
	pthread_t t[16];
	for (int i = 0; i < 16; i++) pthread_create(&t[i], NULL, race, NULL);
	for (int i = 0; i < 16; i++) pthread_join(t[i], NULL);
}

/* Sizes whose products overflow, and mipmaps with 0 levels, of which the driver makes 1. */
TEST(sizes_overflow) {
	CUdeviceptr p;
	size_t pitch;
	CUarray a;
	CUmipmappedArray m;
	CUDA_ARRAY3D_DESCRIPTOR wide = {1ull << 32, 1ull << 30, 1 << 4, 0x20, 4, 0}, one = {PART / 16, 1, 0, 0x20, 4, 0};
	cuMemAllocPitch_v2(&p, &pitch, (size_t)-100, 4, 4);
	cuMemAllocPitch_v2(&p, &pitch, 1ull << 40, 1ull << 40, 4);
	cuArray3DCreate_v2(&a, &wide);
	cuMipmappedArrayCreate(&m, &wide, 40);
	for (int i = 0; i < 8; i++) cuMipmappedArrayCreate(&m, &one, 0);
}

static void *_Atomic changing; /* what change() writes to; NULL ends it */
static uint64_t values[2];

/* Writes one value after the other over what the main thread passes to the driver. */
static void *change(void *arg) {
	volatile uint64_t *at;
	for (int i = 0; (at = atomic_load(&changing)); i++) *at = values[i % 2];
	return arg;
}

/* Calls a function many times while another thread changes what it passes, until there is too much. */
static void call_while_changing(void *at, uint64_t one, uint64_t other, void (*call)(void)) {
	pthread_t t;
	values[0] = one;
	values[1] = other;
	atomic_store(&changing, at);
	pthread_create(&t, NULL, change, NULL);
	for (int i = 0; i < 20000 && fakecuda_used_by_all(0) <= LIMIT; i++) call();
	atomic_store(&changing, NULL);
	pthread_join(t, NULL);
}

static union { CUmemLocation location; uint64_t words; } device = {.location = {1, 0}}, host = {.location = {2, 0}};
static CUmemAllocationProp memory = {.type = 1};
static CUDA_ARRAY3D_DESCRIPTOR array = {16, 1, 0, 0x20, 4, 0};

static void create_memory(void) {
	CUmemGenericAllocationHandle h;
	uint64_t before = fakecuda_used_by_all(0);
	if (!cuMemCreate(&h, PART, &memory, 0) && fakecuda_used_by_all(0) == before) cuMemRelease(h);
}

static void create_array(void) {
	CUarray a;
	uint64_t before = fakecuda_used_by_all(0);
	if (!cuArray3DCreate_v2(&a, &array) && fakecuda_used_by_all(0) < before + PART) cuArrayDestroy(a);
}

/* Another thread changes what is asked for between the hook's look at it and the driver's. */
TEST(changed_memory) { call_while_changing(&memory.location, device.words, host.words, create_memory); }
TEST(changed_array) { call_while_changing(&array.Width, 16, PART / 16, create_array); }

static struct { CUdeviceptr p; size_t pitch; } result;

static void allocate_rows(void) {
	size_t before, after, total;
	cuMemGetInfo_v2(&before, &total);
	if (cuMemAllocPitch_v2(&result.p, &result.pitch, 1024, PART / 1024, 4)) return;
	cuMemGetInfo_v2(&after, &total);
	if (after <= LIMIT && after < before) cuMemFree_v2(result.p);
}

/* Another thread changes what the driver has returned before the hook looks at it. */
TEST(changed_pitch) { call_while_changing(&result.pitch, 0, 0, allocate_rows); }

/* What another thread does when the driver has stored its results and the hook has not looked at them: writes another value. */
static uint64_t *stored, driver_value, other_value;
static void overwrite(void) {
	driver_value = *stored;
	*stored = other_value;
}
static void overwrite_result(void *at, uint64_t value) {
	stored = at;
	other_value = value;
	fakecuda_at_return(overwrite);
}

/* Modules whose memory the hook takes for that of a module without variables, which is then unloaded. */
TEST(changed_module) {
	struct cubin big = cubin(PART);
	CUmodule m, empty;
	for (int i = 0; i < 8; i++) {
		if (cuModuleLoadData(&empty, "")) return;
		overwrite_result(&m, (uint64_t)empty);
		if (cuModuleLoadData(&m, &big) == CUDA_SUCCESS) cuModuleUnload(empty);
	}
}

/* An executable graph that the hook does not know. */
TEST(changed_graph) {
	for (int i = 0; i < 8; i++) {
		CUgraph g;
		CUgraphNode n;
		CUgraphExec e = NULL;
		CUDA_MEM_ALLOC_NODE_PARAMS node = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = PART};
		cuGraphCreate(&g, 0);
		cuGraphAddMemAllocNode(&n, g, NULL, 0, &node);
		overwrite_result(&e, 1);
		if (cuGraphInstantiateWithFlags(&e, g, 0) == CUDA_SUCCESS) cuGraphLaunch(driver_value ? (CUgraphExec)driver_value : e, NULL);
	}
}

static CUmemGenericAllocationHandle handle; /* of the memory that another thread releases */
static CUdeviceptr address;                 /* of its mapping */
static CUarrayMapInfo arrays;

static void release(void) { cuMemRelease(handle); }
static void unmap(void) { cuMemUnmap(address, PART); }
static void change_list(void) { arrays.memHandle = 0; }

/* Creates memory and an address for it, and maps it. Returns false if there is no more. */
static bool create_mapped(bool map) {
	CUmemAllocationProp device = on(1, 0);
	return !cuMemCreate(&handle, PART, &device, 0) && !cuMemAddressReserve(&address, 2 * PART, 0, 0, 0) && (!map || !cuMemMap(address, PART, 0, handle, 0));
}

/* The last handle is released while the memory is mapped. */
TEST(released_while_mapping) {
	for (int i = 0; i < 8 && create_mapped(false); i++) {
		fakecuda_at_return(release);
		cuMemMap(address, PART, 0, handle, 0);
	}
}

/* The mapping is removed while the memory gets another handle. */
TEST(unmapped_while_retaining) {
	CUmemGenericAllocationHandle again;
	for (int i = 0; i < 8 && create_mapped(true); i++) {
		release();
		fakecuda_at_return(unmap);
		cuMemRetainAllocationHandle(&again, (void *)address);
	}
}

/* The last handle is released while it is exported, or mapped into an array. */
TEST(released_while_exporting) {
	int fd;
	for (int i = 0; i < 8 && create_mapped(false); i++) {
		fakecuda_at_return(release);
		cuMemExportToShareableHandle(&fd, handle, 1, 0);
	}
}
TEST(changed_list) {
	for (int i = 0; i < 8 && create_mapped(false); i++) {
		arrays = (CUarrayMapInfo){.memOperationType = 1, .memHandle = handle};
		fakecuda_at_return(change_list);
		cuMemMapArrayAsync(&arrays, 1, NULL);
		release();
	}
}

/* Makes the stack large enough for all later calls: its pages stay when this returns, and calls from the caller use them. */
static __attribute__((noinline)) void grow_stack(void) {
	volatile char pages[1 << 18];
	for (size_t i = 0; i < sizeof pages; i += 1024) pages[i] = 0;
}

/*
 * A process that can map no more memory, so that the hook has no room for what it should remember of pools and graphs. The driver has room, in
 * what malloc has kept.
 */
TEST(no_room) {
	CUdeviceptr p;
	grow_stack();          /* not later: a stack that cannot grow is a SIGSEGV */
	cuMemAlloc_v2(&p, 512); /* starts the hook, whose ledger has room then; the loop below fills it */
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	void *volatile kept = malloc(64 << 20);
	free(kept);
	struct rlimit none = {0, RLIM_INFINITY};
	setrlimit(RLIMIT_AS, &none);
	for (int i = 0; i < 2000; i++) cuMemAlloc_v2(&p, 512);
	for (int i = 0; i < 8; i++) {
		CUmemoryPool pool = pool_on(1, 0);
		if (pool) cuMemAllocFromPoolAsync(&p, PART, pool, NULL);
	}
}

TEST(managed_and_prefetched) {
	CUdeviceptr p;
	for (int i = 0; i < 8; i++)
		if (cuMemAllocManaged(&p, PART, 1) == CUDA_SUCCESS) cuMemPrefetchAsync(p, PART, 0, NULL);
}

TEST(freed_twice) {
	CUdeviceptr first, p;
	cuMemAlloc_v2(&first, PART);
	cuMemAlloc_v2(&p, PART);
	for (int i = 0; i < 8; i++) cuMemFree_v2(first), cuMemFreeAsync(first, NULL);
	for (int i = 0; i < 8; i++) cuMemAlloc_v2(&p, PART);
}

/* Memory that is freed in the order of a stream lives until the stream comes to it. This one does not. */
TEST(freed_behind_a_kernel) {
	CUfunction f = NULL;
	CUmodule m;
	CUstream s;
	CUdeviceptr p;
	if (cuModuleLoadData(&m, "") || cuModuleGetFunction(&f, m, "spin_ns3000000000_sm100_blocks8") || cuStreamCreate(&s, 1)) return;
	driver_launch(f, s);
	for (int i = 0; i < 8; i++)
		if (cuMemAlloc_v2(&p, PART) == CUDA_SUCCESS) cuMemFreeAsync(p, s);
}

/* Pools keep what was freed into them, below their threshold. */
TEST(pool_threshold) {
	uint64_t all = UINT64_MAX;
	CUdeviceptr p[2];
	for (int i = 0; i < 4; i++) {
		CUmemoryPool pool = pool_on(1, 0);
		if (!pool) continue;
		cuMemPoolSetAttribute(pool, 4, &all);
		if (cuMemAllocFromPoolAsync(&p[0], PART, pool, NULL) == CUDA_SUCCESS) cuMemFreeAsync(p[0], NULL);
		cuCtxSynchronize();
	}
}

/* The memory of a pool that is destroyed lives until the last of its allocations is freed. */
TEST(pool_destroyed) {
	CUdeviceptr p;
	for (int i = 0; i < 8; i++) {
		CUmemoryPool pool = pool_on(1, 0);
		if (!pool) continue;
		cuMemAllocFromPoolAsync(&p, PART, pool, NULL);
		cuMemPoolDestroy(pool);
		cuCtxSynchronize();
	}
}

TEST(virtual_memory) {
	CUmemAllocationProp unnamed = on(0, 0), device = on(1, 0);
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	for (int i = 0; i < 8; i++) {
		if (cuMemCreate(&h, PART, i % 2 ? &unnamed : &device, 0)) continue;
		cuMemAddressReserve(&at, 2 * PART, 0, 0, 0);
		cuMemMap(at, PART, 0, h, 0);
		cuMemMap(at + PART, PART, 0, h, 0);
		cuMemRelease(h);
		cuMemUnmap(at, PART); /* the second mapping keeps it */
	}
}

/* Objects of the driver keep memory whose handle is released. */
TEST(bound_and_released) {
	CUmemAllocationProp device = on(1, 0);
	CUmemGenericAllocationHandle h, multicast = 0x3000000000;
	CUdeviceptr at;
	for (int i = 0; i < 9; i++) {
		if (cuMemCreate(&h, PART, &device, 0)) continue;
		CUarrayMapInfo map = {.memOperationType = 1, .memHandle = h};
		cuMemAddressReserve(&at, PART, 0, 0, 0);
		cuMemMap(at, PART, 0, h, 0);
		if (i % 3 == 0) cuMulticastBindMem(multicast, 0, h, 0, PART, 0);
		if (i % 3 == 1) cuMulticastBindAddr(multicast, 0, at, PART, 0);
		if (i % 3 == 2) cuMemMapArrayAsync(&map, 1, NULL);
		cuMemUnmap(at, PART);
		cuMemRelease(h);
	}
}

/* One call binds the memory of several mappings. */
TEST(bound_over_mappings) {
	CUmemAllocationProp device = on(1, 0);
	CUmemGenericAllocationHandle h, multicast = 0x3000000000;
	CUdeviceptr at;
	for (int i = 0; i < 8; i++) {
		cuMemAddressReserve(&at, PART + 2 * MIB, 0, 0, 0);
		if (cuMemCreate(&h, 2 * MIB, &device, 0)) continue;
		cuMemMap(at, 2 * MIB, 0, h, 0);
		cuMemRelease(h);
		if (cuMemCreate(&h, PART, &device, 0)) continue;
		cuMemMap(at + 2 * MIB, PART, 0, h, 0);
		cuMemRelease(h);
		cuMulticastBindAddr(multicast, 0, at, PART + 2 * MIB, 0);
		cuMemUnmap(at, PART + 2 * MIB);
	}
}

TEST(exported_and_imported) {
	CUmemAllocationProp device = on(1, 0);
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr at;
	for (int i = 0; i < 8; i++) {
		int fd = -1;
		if (cuMemCreate(&h, PART, &device, 0)) continue;
		cuMemExportToShareableHandle(&fd, h, 1, 0);
		cuMemRelease(h);
		cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1);
		cuMemAddressReserve(&at, PART, 0, 0, 0);
		cuMemMap(at, PART, 0, again, 0);
	}
}

/* What another process has exported: one of the three ways. */
struct export {
	int pid, fd;
	CUipcMemHandle ipc;
	char pool_pointer[64];
};

/* Process: exports memory in a way, writes the handle to a pipe, and ends when the other pipe is closed. */
static int exporter(const char *way, int to, int from) {
	struct export e = {.pid = getpid()};
	CUmemAllocationProp device = on(1, 0);
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	char byte;
	if (!driver_start("exporter")) return 2;
	if (!strcmp(way, "fd") && (cuMemCreate(&h, PART, &device, 0) || cuMemExportToShareableHandle(&e.fd, h, 1, 0))) return 2;
	if (!strcmp(way, "ipc") && (cuMemAlloc_v2(&p, PART) || cuIpcGetMemHandle(&e.ipc, p))) return 2;
	if (!strcmp(way, "pool") && (cuMemAllocAsync(&p, PART, NULL) || cuMemPoolExportPointer(e.pool_pointer, p))) return 2;
	if (write(to, &e, sizeof e) != sizeof e) return 2;
	return read(from, &byte, 1) == 1 ? 2 : 0;
}

static CUdeviceptr tiny; /* memory of 512 bytes, for which what is opened is to be taken; 0: it is not */

/* Opens what another process has exported. */
static void import(const char *way, struct export *e) {
	CUmemGenericAllocationHandle h = 0;
	CUmemoryPool pool;
	CUdeviceptr p;
	char path[64];
	if (!strcmp(way, "fd")) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", e->pid, e->fd);
		int fd = open(path, O_RDWR);
		cuMemAddressReserve(&p, PART, 0, 0, 0);
		if (tiny) overwrite_result(&h, 0);
		if (cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd, 1) != CUDA_SUCCESS) return;
		if (tiny && driver_value) h = driver_value;
		if (cuMemMap(p, PART, 0, h, 0)) cuMemRelease(h);
	} else if (!strcmp(way, "ipc")) {
		if (tiny) overwrite_result(&p, tiny);
		cuIpcOpenMemHandle_v2(&p, e->ipc, 1);
	} else {
		cuMemPoolImportFromShareableHandle(&pool, NULL, 1, 0);
		cuMemPoolImportPointer(&p, pool, e->pool_pointer);
	}
}

/* Returns how many processes have a session with the token server. */
static int connected(void) {
	int n = 0;
	for (int i = 0; i < server.sessions; i++) n += server.session[i].connected;
	return n;
}

/* Imports from one process after another, each of which ends after that. */
static void outlive(const char *way) {
	char to[16], from[16];
	for (int i = 0; i < 6; i++) {
		int out[2], in[2];
		struct export e;
		if (pipe(out) || pipe(in)) return;
		snprintf(to, sizeof to, "%d", out[1]);
		snprintf(from, sizeof from, "%d", in[0]);
		pid_t child = fork();
		if (!child) {
			close(in[1]);
			execl("/proc/self/exe", "exporter", way, to, from, NULL);
			_exit(1);
		}
		close(out[1]);
		close(in[0]);
		if (read(out[0], &e, sizeof e) == sizeof e) import(way, &e);
		close(in[1]);
		waitpid(child, NULL, 0);
		for (int n = 0; n < 1000 && connected() > 1; n++) usleep(1000); /* until its memory is subtracted */
	}
}
TEST(exporter_of_memory_ends) { outlive("fd"); }
TEST(exporter_of_ipc_ends) { outlive("ipc"); }
TEST(exporter_of_pool_ends) { outlive("pool"); }
TEST(changed_import) {
	cuMemAlloc_v2(&tiny, 512);
	outlive("fd");
}
TEST(changed_opening) {
	cuMemAlloc_v2(&tiny, 512);
	outlive("ipc");
}

#define PTX(bytes) ".version 8.0\n.target sm_90\n.address_size 64\n.visible .global .align 4 .b8 a[" #bytes "];\n"

TEST(variables_of_cubins) {
	struct cubin c = cubin(PART);
	CUmodule m;
	for (int i = 0; i < 8; i++) i % 2 ? cuModuleLoadData(&m, &c) : cuModuleLoadDataEx(&m, &c, 0, NULL, NULL);
}

TEST(variables_of_ptx) {
	CUmodule m;
	for (int i = 0; i < 8; i++) cuModuleLoadData(&m, PTX(209715200));
}

TEST(variables_of_fat_binaries) {
	struct fat f = fat(PART);
	struct registered r = registered(&f);
	CUmodule m;
	for (int i = 0; i < 8; i++) i % 2 ? cuModuleLoadFatBinary(&m, &f) : cuModuleLoadData(&m, &r);
}

TEST(variables_of_linked_fat_binaries) {
	struct fat part = fat(PART / 2);
	const struct fat_header empty = {0xba55ed50, 1, 16, 0};
	const void *parts[] = {&part, &part, NULL};
	struct registered r = registered_parts(&empty, parts);
	CUmodule m;
	for (int i = 0; i < 8; i++) cuModuleLoadData(&m, &r);
}

TEST(variables_of_files) {
	struct cubin c = cubin(PART);
	char name[64];
	CUmodule m;
	CUlibrary l;
	int fd = memfd_create("cubin", 0);
	if (write(fd, &c, sizeof c) != sizeof c) return;
	snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	for (int i = 0; i < 8; i++) {
		if (i % 2)
			cuModuleLoad(&m, name);
		else if (cuLibraryLoadFromFile(&l, name, NULL, NULL, 0, NULL, NULL, 0) == CUDA_SUCCESS)
			cuLibraryGetModule(&m, l);
	}
}

/* A library has its variables in each context that uses it. */
TEST(variables_of_libraries) {
	struct cubin c = cubin(PART);
	CUcontext context;
	CUdeviceptr p;
	size_t n;
	CUlibrary l = NULL;
	if (cuLibraryLoadData(&l, &c, NULL, NULL, 0, NULL, NULL, 0)) return;
	cuLibraryGetGlobal(&p, &n, l, "a");
	for (int i = 0; i < 8; i++)
		if (cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS) cuLibraryGetGlobal(&p, &n, l, "a");
}

/* Launches a graph of 300 empty nodes, then a memory node, as a child of a graph. */
static void launch_node(CUdevice d, CUstream s) {
	CUgraph g, outer;
	CUgraphNode n;
	CUgraphExec e;
	CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = 1, .location = {1, d}}, .bytesize = PART};
	cuGraphCreate(&g, 0);
	cuGraphCreate(&outer, 0);
	for (int i = 0; i < 300; i++) cuGraphAddEmptyNode(&n, g, NULL, 0);
	cuGraphAddMemAllocNode(&n, g, NULL, 0, &params);
	cuGraphAddChildGraphNode(&n, outer, NULL, 0, g);
	if (cuGraphInstantiateWithFlags(&e, outer, 0) == CUDA_SUCCESS) cuGraphLaunch(e, s);
}

/* Memory that a graph allocates and does not free is not that of the next graph. */
TEST(nodes_of_graphs) {
	for (int i = 0; i < 8; i++) launch_node(0, NULL);
}

/* A graph takes its memory when it is uploaded, also by its instantiation, and need not be launched. */
TEST(uploaded_graphs) {
	for (int i = 0; i < 8; i++) {
		struct {
			unsigned long long flags;
			CUstream upload;
			CUgraphNode bad;
			int result;
		} params = {.flags = 2};
		CUgraph g;
		CUgraphNode n;
		CUgraphExec e;
		CUDA_MEM_ALLOC_NODE_PARAMS node = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = PART};
		cuGraphCreate(&g, 0);
		cuGraphAddMemAllocNode(&n, g, NULL, 0, &node);
		if (i % 2) cuGraphInstantiateWithParams(&e, g, &params);
		else if (!cuGraphInstantiateWithFlags(&e, g, 0)) cuGraphUpload(e, NULL);
	}
}

TEST(heap_of_kernels) {
	CUcontext c;
	for (int i = 0; i < 8; i++)
		if (cuCtxCreate(&c, 0, 0) == CUDA_SUCCESS) cuCtxSetLimit(2, PART);
}

/* Memory is entered under the context that is current, or it would be paid back with another one's end. */
TEST(context_changed_unseen) {
	CUcontext keep, c;
	CUdeviceptr p;
	cuCtxCreate_v2(&keep, 0, 0);
	cuCtxPopCurrent(NULL);
	for (int i = 0; i < 8; i++) {
		if (i % 2 ? cuGLCtxCreate_v2(&c, 0, 0) : cuCtxCreate(&c, 0, 0)) return;
		cuMemAlloc_v2(&p, 512);
		cuCtxPushCurrent(keep);
		cuMemAlloc_v2(&p, PART);
		cuCtxPopCurrent(NULL);
		cuCtxDestroy(c);
	}
}

/* A device that was not granted, in every way to have memory there. */
TEST(another_device) {
	CUmemAllocationProp there = on(1, 1);
	CUmemGenericAllocationHandle h;
	CUcontext own, c = NULL;
	CUmemoryPool pool;
	CUdeviceptr p;
	CUmodule m;
	struct cubin image = cubin(PART);
	cuMemCreate(&h, PART, &there, 0);
	if ((pool = pool_on(1, 1))) cuMemAllocFromPoolAsync(&p, PART, pool, NULL);
	cuDeviceGetDefaultMemPool(&pool, 1);
	cuMemAllocFromPoolAsync(&p, PART, pool, NULL);
	launch_node(1, NULL);
	cuCtxGetCurrent(&own);
	if (cuDevicePrimaryCtxRetain(&c, 1) || cuCtxSetCurrent(c))
		if (cuCtxCreate_v2(&c, 0, 1)) return;
	cuMemAlloc_v2(&p, PART);
	cuMemAllocAsync(&p, PART, NULL);
	cuModuleLoadData(&m, &image);
	cuCtxSetLimit(2, PART);
}

static int ran_elsewhere; /* launches and contexts on a device that was not granted */

TEST(contexts_on_another_device) {
	CUcontext c;
	CUgreenCtx g;
	ran_elsewhere += cuGreenCtxCreate(&g, NULL, 1, 1) == CUDA_SUCCESS;
	ran_elsewhere += cuDevicePrimaryCtxRetain(&c, 1) == CUDA_SUCCESS;
	ran_elsewhere += cuCtxCreate_v2(&c, 0, 1) == CUDA_SUCCESS;
}

TEST(kernels_on_another_device) {
	CUcontext c = NULL;
	CUfunction f = NULL;
	CUmodule m;
	if (cuDevicePrimaryCtxRetain(&c, 1) || cuCtxSetCurrent(c))
		if (cuCtxCreate_v2(&c, 0, 1)) return;
	if (cuModuleLoadData(&m, "") || cuModuleGetFunction(&f, m, "k")) return;
	for (int i = 0; i < 200; i++) ran_elsewhere += driver_launch(f, NULL) == CUDA_SUCCESS;
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test attempts[] = {
		T(allocate), T(threads_race), T(sizes_overflow), T(changed_memory), T(changed_array), T(changed_pitch), T(changed_module), T(changed_graph),
		T(released_while_mapping), T(unmapped_while_retaining), T(released_while_exporting), T(changed_list), T(no_room),
		T(managed_and_prefetched), T(freed_twice), T(freed_behind_a_kernel), T(pool_threshold), T(pool_destroyed),
		T(virtual_memory), T(bound_and_released), T(bound_over_mappings), T(exported_and_imported), T(exporter_of_memory_ends), T(exporter_of_ipc_ends), T(exporter_of_pool_ends), T(changed_import), T(changed_opening),
		T(variables_of_cubins), T(variables_of_ptx), T(variables_of_fat_binaries), T(variables_of_linked_fat_binaries), T(variables_of_files), T(variables_of_libraries),
		T(nodes_of_graphs), T(uploaded_graphs), T(heap_of_kernels), T(context_changed_unseen), T(another_device), T(contexts_on_another_device), T(kernels_on_another_device), {0}};
	if (!strcmp(argv[0], "exporter")) return exporter(argv[1], atoi(argv[2]), atoi(argv[3]));
	if (argc < 2) {
		for (const struct check_test *t = attempts; t->name; t++) puts(t->name);
		return 0;
	}
	server_start(&server);
	if (!driver_start("k")) return 2;
	for (const struct check_test *t = attempts; t->name; t++)
		if (!strcmp(argv[1], t->name)) t->run();
	uint64_t own = fakecuda_used_by_all(0), other = fakecuda_used_by_all(1);
	printf("%llu MiB of %llu, %llu MiB and %d launches and contexts on another device\n", (unsigned long long)(own / MIB), LIMIT / MIB,
	       (unsigned long long)(other / MIB), ran_elsewhere);
	fflush(stdout);
	server_remove_directories();
	_exit(own > LIMIT || other > 0 || ran_elsewhere);
}
