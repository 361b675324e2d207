/* Memory accounting on the fake driver: no drift, one limit for several processes, queries. Runs under the hook. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "image.h"
#include "server.h"

#define MIB (1ull << 20)
#define LIMIT (512 * MIB)
#define SLACK (64 * MIB) /* how far above the limit reserved memory may be used */

void fakecuda_at_return(void (*call)(void));
uint64_t fakecuda_used(CUdevice d);
unsigned long fakecuda_calls(const char *name);
CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type);
unsigned long fakecuda_stale_pools(void);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuDeviceSetMemPool(CUdevice d, CUmemoryPool pool);
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph g, const CUgraphNode *from, size_t n, CUdeviceptr p);
int fakecuda_fail(const char *name, unsigned long nth, unsigned long count, CUresult code);

static struct server server = {.memory_limit = LIMIT};

/* Returns the memory on the container page. */
static uint64_t container(void) { return server.container[0]->memory; }

enum kind { PLAIN, PITCH, MANAGED, FLAT, DEEP, LEVELS, PHYSICAL, MAPPED, POOLED, KINDS };
/* An allocation; bytes is what is charged for it. */
struct held {
	enum kind kind;
	uint64_t key, address, bytes;
};

/* Returns what an allocation takes of the device: blocks of 512 bytes, of 2 MiB from 1 MiB on. */
static uint64_t blocks(uint64_t bytes) {
	uint64_t block = bytes < MIB ? 512 : 2 * MIB;
	return (bytes + block - 1) / block * block;
}

static CUmemAllocationProp on_device(CUdevice d) { return (CUmemAllocationProp){.type = 1, .location = {1, d}}; }

static CUresult allocate_physical(struct held *h, uint64_t bytes) {
	CUmemAllocationProp p = on_device(0);
	h->bytes = (bytes / (2 * MIB) + 1) * 2 * MIB;
	return cuMemCreate((CUmemGenericAllocationHandle *)&h->key, h->bytes, &p, 0);
}

/* Creates and maps memory, then releases its handle, so that only the mapping keeps it. */
static CUresult allocate_mapped(struct held *h, uint64_t bytes) {
	CUresult r = allocate_physical(h, bytes);
	if (r) return r;
	cuMemAddressReserve((CUdeviceptr *)&h->address, h->bytes, 0, 0, 0);
	cuMemMap(h->address, h->bytes, 0, h->key, 0);
	return cuMemRelease(h->key);
}

/* Allocates memory of h's kind and stores how much is charged. */
static CUresult allocate(struct held *h, uint64_t bytes) {
	CUDA_ARRAY_DESCRIPTOR flat = {bytes / 64 + 1, 4, 0x20, 4};
	CUDA_ARRAY3D_DESCRIPTOR deep = {bytes / 256 + 1, 4, 4, 0x20, 4, 0}, levels = {bytes / 64 + 1, 4, 0, 0x20, 4, 0};
	size_t pitch = 0;
	CUresult r = 0;
	h->bytes = blocks(bytes);
	switch (h->kind) {
	case PLAIN: return cuMemAlloc_v2((CUdeviceptr *)&h->key, bytes);
	case PITCH:
		r = cuMemAllocPitch_v2((CUdeviceptr *)&h->key, &pitch, bytes / 8 + 1, 8, 4);
		h->bytes = blocks(pitch * 8);
		return r;
	case MANAGED: return cuMemAllocManaged((CUdeviceptr *)&h->key, bytes, 1);
	case FLAT: h->bytes = blocks((bytes / 64 + 1) * 4 * 16); return cuArrayCreate_v2((CUarray *)&h->key, &flat);
	case DEEP: h->bytes = blocks((bytes / 256 + 1) * 16 * 16); return cuArray3DCreate_v2((CUarray *)&h->key, &deep);
	case LEVELS:
		h->bytes = 0;
		for (int l = 0; l < 3; l++) {
			uint64_t w = (bytes / 64 + 1) >> l;
			h->bytes += (w ? w : 1) * (4 >> l) * 16;
		}
		h->bytes = blocks(h->bytes);
		return cuMipmappedArrayCreate((CUmipmappedArray *)&h->key, &levels, 3);
	case PHYSICAL: return allocate_physical(h, bytes);
	case MAPPED: return allocate_mapped(h, bytes);
	default: h->bytes = 0; return cuMemAllocAsync((CUdeviceptr *)&h->key, bytes, NULL);
	}
}

/* Frees it. */
static CUresult release_one(struct held *h) {
	switch (h->kind) {
	case FLAT:
	case DEEP: return cuArrayDestroy((CUarray)h->key);
	case LEVELS: return cuMipmappedArrayDestroy((CUmipmappedArray)h->key);
	case PHYSICAL: return cuMemRelease(h->key);
	case MAPPED: return cuMemUnmap(h->address, h->bytes);
	case POOLED: return cuMemFreeAsync(h->key, NULL);
	default: return cuMemFree_v2(h->key);
	}
}

/* Returns what the default pool has reserved. */
static uint64_t pool_reserved(void) {
	CUmemoryPool pool;
	uint64_t bytes = 0;
	cuDeviceGetDefaultMemPool(&pool, 0);
	cuMemPoolGetAttribute(pool, 5, &bytes);
	return bytes;
}

/* After any sequence of allocations and releases the page shows exactly what is held, and never more than the limit. */
TEST(random_operations_do_not_drift) {
	static struct held held[512];
	uint64_t random = 11, sum = 0, taken = 0, refused = 0;
	long operations = getenv("OPERATIONS") ? atol(getenv("OPERATIONS")) : 1000000;
	int n = 0, over = 0, drift = 0;
	for (long i = 0; i < operations; i++) {
		if (n < 512 && check_random(&random) % 2) {
			struct held h = {.kind = (enum kind)(check_random(&random) % KINDS)};
			uint64_t bytes = 1 + check_random(&random) % (check_random(&random) % 16 ? 4 * MIB : 100 * MIB);
			if (allocate(&h, bytes)) {
				refused++;
			} else {
				sum += h.bytes;
				held[n++] = h;
				taken++;
			}
		} else if (n) {
			int at = (int)(check_random(&random) % (uint64_t)n);
			if (release_one(&held[at])) drift++;
			sum -= held[at].bytes;
			held[at] = held[--n];
		}
		if (i % 64 == 0) cuCtxSynchronize();
		over += container() > LIMIT;
		if (i % 64 == 0) drift += container() != sum + pool_reserved();
	}
	while (n) release_one(&held[--n]);
	cuCtxSynchronize();
	CHECK_EQUAL(over, 0);
	CHECK_EQUAL(drift, 0);
	CHECK_EQUAL(container(), pool_reserved());
	CHECK_EQUAL(server.session[0].client[0]->memory, pool_reserved());
	CHECK(taken > 1000 && refused > 100); /* the limit was reached */
}

TEST(excess_is_refused) {
	CUdeviceptr p, q;
	uint64_t before = server.session[0].client[0]->refused;
	CHECK_EQUAL(cuMemAlloc_v2(&p, LIMIT - container()), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(server.session[0].client[0]->refused, before + 1);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&q, 1), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFree_v2(q), CUDA_SUCCESS);
	CHECK(cuMemFree_v2(12345) != CUDA_SUCCESS); /* unknown: the driver's own error */
}

TEST(queries_return_the_share) {
	size_t left = 0, total = 0;
	CUdeviceptr p;
	uint64_t other = container();
	cuMemAlloc_v2(&p, 100 * MIB);
	CHECK_EQUAL(cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
	CHECK_EQUAL(total, LIMIT);
	CHECK_EQUAL(left, LIMIT - 100 * MIB - other);
	CHECK_EQUAL(cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
	CHECK_EQUAL(total, LIMIT);
	server.session[0].server[0]->memory_limit = 50 * MIB; /* lower than what is used */
	CHECK_EQUAL(cuMemGetInfo_v2(&left, NULL) == CUDA_SUCCESS ? left : 0, 0);
	server.session[0].server[0]->memory_limit = LIMIT;
	cuMemFree_v2(p);
	cuMemGetInfo_v2(NULL, NULL); /* whatever the driver returns, without a crash */
}

TEST(managed_policies) {
	CUdeviceptr p;
	uint64_t before = container();
	_Atomic uint32_t *policy = &server.session[0].server[0]->policy;
	*policy = GSHARE_MANAGED_DENY;
	CHECK_EQUAL(cuMemAllocManaged(&p, MIB, 1), CUDA_ERROR_NOT_SUPPORTED);
	*policy = GSHARE_MANAGED_IGNORE;
	CHECK_EQUAL(cuMemAllocManaged(&p, MIB, 1), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	cuMemFree_v2(p);
	*policy = 0;
	CHECK_EQUAL(container(), before);
}

/* A handle may be retained through its mapping after it was released. */
TEST(handles_and_mappings) {
	uint64_t before = container();
	CUmemAllocationProp p = on_device(0);
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr at;
	CHECK_EQUAL(cuMemCreate(&h, 4 * MIB, &p, 0), CUDA_SUCCESS);
	cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0);
	CHECK_EQUAL(cuMemMap(at, 4 * MIB, 0, h, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemRelease(h), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 4 * MIB);
	if (cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at) == CUDA_SUCCESS) {
		CHECK_EQUAL(cuMemUnmap(at, 4 * MIB), CUDA_SUCCESS);
		CHECK_EQUAL(container(), before + 4 * MIB);
		CHECK_EQUAL(cuMemRelease(again), CUDA_SUCCESS);
	}
	CHECK_EQUAL(container(), before);
}

/* Captures an allocation into an executable graph. */
static void capture_allocation(CUstream s, uint64_t bytes, CUgraphExec *e) {
	CUgraph g;
	CUdeviceptr p;
	cuStreamBeginCapture_v2(s, 0);
	cuMemAllocAsync(&p, bytes, s);
	cuMemFreeAsync(p, s);
	cuStreamEndCapture(s, &g);
	cuGraphInstantiateWithFlags(e, g, 0);
	cuGraphDestroy(g);
}

/* Memory nodes are charged, or refused, when the graph is launched, not when it is captured. */
TEST(graph_memory) {
	CUstream s;
	CUgraphExec small = NULL, large = NULL;
	uint64_t before = container(), held = 0;
	cuStreamCreate(&s, 0);
	capture_allocation(s, 64 * MIB, &small);
	capture_allocation(s, 2 * LIMIT, &large);
	CHECK_EQUAL(container(), before);
	CHECK_EQUAL(cuGraphLaunch(large, s), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(container(), before);
	CHECK_EQUAL(cuGraphLaunch(small, s), CUDA_SUCCESS);
	cuDeviceGetGraphMemAttribute(0, 2, &held);
	CHECK(held >= 64 * MIB);
	CHECK_EQUAL(container(), before + held);
	cuGraphExecDestroy(small);
	cuGraphExecDestroy(large);
	cuDeviceGraphMemTrim(0);
	CHECK_EQUAL(container(), before);
}

/*
 * An exported handle keeps memory that has no other handle any more, and whoever maps what was imported pays too: its owner may end.
 */
TEST(exported_memory_stays_charged) {
	uint64_t before = container(), exported = 0, mapped = 0;
	CUmemAllocationProp p = on_device(0);
	for (int i = 0; i < 12; i++) {
		CUmemGenericAllocationHandle h, again;
		CUdeviceptr at;
		int fd = -1;
		if (cuMemCreate(&h, 128 * MIB, &p, 0) != CUDA_SUCCESS) break;
		CHECK_EQUAL(cuMemExportToShareableHandle(&fd, h, 1, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemRelease(h), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)fd, 1), CUDA_SUCCESS);
		cuMemAddressReserve(&at, 128 * MIB, 0, 0, 0);
		exported += 128 * MIB;
		if (cuMemMap(at, 128 * MIB, 0, again, 0) == CUDA_SUCCESS) mapped += 128 * MIB;
		if (i == 0) {
			CHECK_EQUAL(cuMemUnmap(at, 128 * MIB), CUDA_SUCCESS);
			CHECK_EQUAL(cuMemRelease(again), CUDA_SUCCESS);
			mapped = 0;
		}
	}
	CHECK(exported > 0 && mapped > 0);
	CHECK_EQUAL(container(), before + exported + mapped);
	CHECK(container() <= LIMIT);
}

/* Memory is charged to the context that is current, by whichever version of the calls it became so. */
TEST(contexts_of_version_1) {
	CUcontext primary, first, second;
	CUdeviceptr p;
	uint64_t before = container();
	cuCtxGetCurrent(&primary);
	CHECK_EQUAL(cuCtxCreate(&first, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxPopCurrent(NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxCreate(&second, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 512), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxPushCurrent(first), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 64 * MIB), CUDA_SUCCESS); /* in the first */
	CHECK_EQUAL(cuCtxPopCurrent(NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxDestroy(second), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 64 * MIB); /* it still has its memory */
	CHECK_EQUAL(cuCtxDestroy(first), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	cuCtxSetCurrent(primary);
}

TEST(small_allocations_take_whole_blocks) {
	uint64_t before = container();
	CUdeviceptr p[1000], q;
	for (int i = 0; i < 1000; i++) CHECK_EQUAL(cuMemAlloc_v2(&p[i], 1), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 1000 * 512);
	for (int i = 0; i < 1000; i++) cuMemFree_v2(p[i]);
	CHECK_EQUAL(cuMemAlloc_v2(&q, 2 * MIB + 1), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 4 * MIB);
	cuMemFree_v2(q);
	CHECK_EQUAL(container(), before);
}

/* The bytes that are charged for an array of 512 x 512 texels. */
static uint64_t charged(int format, unsigned channels, unsigned flags, unsigned depth, unsigned levels) {
	CUDA_ARRAY3D_DESCRIPTOR d = {512, 512, depth, format, channels, flags};
	uint64_t before = container(), bytes;
	CUarray a = NULL;
	CUmipmappedArray m = NULL;
	CUresult r = levels ? cuMipmappedArrayCreate(&m, &d, levels) : cuArray3DCreate_v2(&a, &d);
	CHECK_EQUAL(r, CUDA_SUCCESS);
	bytes = container() - before;
	if (a) cuArrayDestroy(a);
	if (m) cuMipmappedArrayDestroy(m);
	CHECK_EQUAL(container(), before);
	return bytes;
}

TEST(arrays_take_what_their_format_takes) {
	CHECK_EQUAL(charged(0x20, 4, 0, 0, 0), 4 * MIB);        /* float, 4 channels */
	CHECK_EQUAL(charged(0x91, 4, 0, 0, 0), 512 * 512 / 2);   /* BC1 */
	CHECK_EQUAL(charged(0x9d, 4, 0, 0, 0), 512 * 512);       /* BC7 */
	CHECK_EQUAL(charged(0xb0, 3, 0, 0, 0), 512 * 512 * 3 / 2); /* NV12 */
	CHECK_EQUAL(charged(0xc2, 4, 0, 0, 0), 2 * MIB);         /* 4 channels of 8 bits */
	CHECK_EQUAL(charged(0x20, 4, 0x40, 0, 0), 0);            /* sparse: mapped from memory that is charged */
	CHECK_EQUAL(charged(0x20, 4, 0x80, 0, 0), 0);            /* mapped later */
	CHECK_EQUAL(charged(0x01, 1, 4, 6, 2), 2 * MIB);         /* six faces at both levels: 1.5 and 0.375 MiB */
}

/* Makes a graph that allocates and, if it frees, frees, and returns its address. */
static CUdeviceptr make_graph(uint64_t bytes, bool frees, CUgraphExec *e) {
	CUgraph g;
	CUgraphNode allocation, freeing;
	CUDA_MEM_ALLOC_NODE_PARAMS memory = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = bytes};
	CHECK_EQUAL(cuGraphCreate(&g, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuGraphAddMemAllocNode(&allocation, g, NULL, 0, &memory), CUDA_SUCCESS);
	if (frees) CHECK_EQUAL(cuGraphAddMemFreeNode(&freeing, g, &allocation, 1, memory.dptr), CUDA_SUCCESS);
	CHECK_EQUAL(cuGraphInstantiateWithFlags(e, g, 0), CUDA_SUCCESS);
	cuGraphDestroy(g);
	return memory.dptr;
}

static CUresult free_at_once(CUdeviceptr p, CUstream s) {
	cuStreamSynchronize(s);
	return cuMemFree_v2(p);
}

/*
 * A graph that has been launched uses its memory again, unless it or the program has freed it and another graph has it now. Then it needs as
 * much once more.
 */
TEST(freed_memory_of_a_graph_is_used_by_another) {
	enum { BYTES = 320 }; /* MiB: not twice within the limit */
	CUresult (*frees[])(CUdeviceptr, CUstream) = {NULL, free_at_once, cuMemFreeAsync, cuMemFreeAsync_ptsz};
	uint64_t before = container();
	for (size_t i = 0; i < sizeof frees / sizeof *frees; i++) {
		CUstream s;
		CUgraphExec first, second;
		CUdeviceptr p, q;
		cuStreamCreate(&s, 1);
		p = make_graph(BYTES * MIB, !frees[i], &first);
		q = make_graph(BYTES * MIB, false, &second);
		CHECK_EQUAL(cuGraphLaunch(first, s), CUDA_SUCCESS);
		CHECK_EQUAL(cuStreamSynchronize(s), CUDA_SUCCESS);
		if (frees[i]) CHECK_EQUAL(frees[i](p, s), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphLaunch(second, s), CUDA_SUCCESS);
		CHECK_EQUAL(cuStreamSynchronize(s), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphLaunch(first, s), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK(container() <= LIMIT && fakecuda_used(0) <= LIMIT);
		CHECK_EQUAL(cuMemFreeAsync(q, s), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphLaunch(first, s), CUDA_SUCCESS); /* the memory is its own again */
		CHECK_EQUAL(cuStreamSynchronize(s), CUDA_SUCCESS);
		if (frees[i]) CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
		cuGraphExecDestroy(first);
		cuGraphExecDestroy(second);
		cuDeviceGraphMemTrim(0);
		cuStreamDestroy_v2(s);
		CHECK_EQUAL(container(), before);
	}
}

static CUgraphExec beside;
static pthread_t launcher;
static atomic_int launched, freed;
static CUcontext current;

static unsigned long launches; /* of graphs, before the one beside the free */

/* Runs when the driver has launched the graph: the hook sees that only after the free has ended. */
static void wait_for_free(void) {
	if (fakecuda_calls("cuGraphLaunch") == launches) return fakecuda_at_return(wait_for_free);
	launched = 1;
	for (int i = 0; i < 2000 && !freed; i++) usleep(1000);
}

static void *launch_beside(void *unused) {
	cuCtxSetCurrent(current);
	fakecuda_at_return(wait_for_free);
	CHECK_EQUAL(cuGraphLaunch(beside, NULL), CUDA_SUCCESS);
	return unused;
}

/* Runs when a free has begun, and the driver has not freed: another thread launches the graph. */
static void launch_meanwhile(void) {
	pthread_create(&launcher, NULL, launch_beside, NULL);
	for (int i = 0; i < 2000 && !launched; i++) usleep(1000);
}

/* A launch that began after a free and ends after it does not have the memory that was freed: another graph may take it. */
TEST(free_beside_a_launch) {
	enum { BYTES = 200 }; /* MiB: twice within the limit, but not three times */
	CUgraphExec other;
	CUdeviceptr q;
	uint64_t before = container();
	CUdeviceptr p = make_graph(BYTES * MIB, false, &beside);
	cuCtxGetCurrent(&current);
	CHECK_EQUAL(cuGraphLaunch(beside, NULL), CUDA_SUCCESS);
	launches = fakecuda_calls("cuGraphLaunch");
	fakecuda_at_return(launch_meanwhile);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
	freed = 1;
	pthread_join(launcher, NULL);
	p = make_graph(BYTES * MIB, false, &other);
	CHECK_EQUAL(cuGraphLaunch(other, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&q, BYTES * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuGraphLaunch(beside, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(container() <= LIMIT && fakecuda_used(0) <= LIMIT);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFree_v2(q), CUDA_SUCCESS);
	cuGraphExecDestroy(beside);
	CHECK_EQUAL(cuGraphLaunch(beside, NULL), CUDA_ERROR_OUT_OF_MEMORY); /* the driver does not get a graph that is not known */
	cuGraphExecDestroy(other);
	cuDeviceGraphMemTrim(0);
	CHECK_EQUAL(container(), before);
}

/* A container a little above its limit still uses the memory that the driver has reserved for its graphs, and gets no more. */
TEST(reserved_memory_is_used_above_the_limit) {
	CUstream s;
	CUgraphExec e = NULL;
	CUdeviceptr p = 0, q = 0;
	_Atomic uint64_t *limit = &server.session[0].server[0]->memory_limit;
	uint64_t before = container();
	cuStreamCreate(&s, 0);
	capture_allocation(s, 64 * MIB, &e);
	CHECK_EQUAL(cuGraphLaunch(e, s), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAllocAsync(&p, MIB, s), CUDA_SUCCESS); /* the pool reserves more */
	CHECK(container() > before + 64 * MIB);
	*limit = container() - SLACK; /* lower than what is used, as if the driver had rounded it up */
	CHECK_EQUAL(cuGraphLaunch(e, s), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAllocAsync(&q, MIB, s), CUDA_ERROR_OUT_OF_MEMORY); /* the driver may be unable to use what the pool has left */
	CHECK_EQUAL(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
	*limit = container() - SLACK - 1;
	CHECK_EQUAL(cuGraphLaunch(e, s), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(cuMemAllocAsync(&q, MIB, s), CUDA_ERROR_OUT_OF_MEMORY);
	*limit = LIMIT;
	CHECK_EQUAL(cuMemFreeAsync(p, s), CUDA_SUCCESS);
	cuGraphExecDestroy(e);
	cuDeviceGraphMemTrim(0);
	cuCtxSynchronize();
	CHECK_EQUAL(container(), before);
}

/* A pool that cannot reuse what was freed grows although it seems to have room. Under the limit it returns that memory first. */
TEST(pool_without_reuse_stays_at_the_limit) {
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
	CUmemoryPool pool;
	CUdeviceptr p;
	int no = 0;
	uint64_t all = UINT64_MAX, before = container();
	CHECK_EQUAL(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemPoolSetAttribute(pool, 2, &no), CUDA_SUCCESS);  /* CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC */
	CHECK_EQUAL(cuMemPoolSetAttribute(pool, 4, &all), CUDA_SUCCESS); /* CU_MEMPOOL_ATTR_RELEASE_THRESHOLD */
	for (int i = 0; i < 100; i++) {
		CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, 64 * MIB, pool, NULL), CUDA_SUCCESS);
		CHECK(container() <= LIMIT && fakecuda_used(0) <= LIMIT);
		CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	}
	CHECK_EQUAL(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, 64 * MIB, pool, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

/* Memory nodes count wherever they stand in the graph, and in graphs in graphs. */
TEST(graph_memory_behind_other_nodes) {
	CUgraph g[12];
	CUgraphNode n;
	CUgraphExec e;
	uint64_t before = container();
	CUDA_MEM_ALLOC_NODE_PARAMS large = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = 2 * LIMIT};
	for (int i = 0; i < 12; i++) CHECK_EQUAL(cuGraphCreate(&g[i], 0), CUDA_SUCCESS);
	for (int i = 0; i < 6000; i++) cuGraphAddEmptyNode(&n, g[0], NULL, 0);
	CHECK_EQUAL(cuGraphAddMemAllocNode(&n, g[0], NULL, 0, &large), CUDA_SUCCESS);
	for (int i = 1; i < 12; i++) CHECK_EQUAL(cuGraphAddChildGraphNode(&n, g[i], NULL, 0, g[i - 1]), CUDA_SUCCESS);
	for (int i = 0; i < 12; i += 11) {
		CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, g[i], 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphLaunch(e, NULL), CUDA_ERROR_OUT_OF_MEMORY);
		cuGraphExecDestroy(e);
	}
	CHECK_EQUAL(container(), before);
	for (int i = 0; i < 12; i++) cuGraphDestroy(g[i]);
}

/* A memory node counts that was added with the call for nodes of all kinds. */
TEST(graph_memory_of_nodes_of_all_kinds) {
	CUresult cuGraphAddNode(CUgraphNode * node, CUgraph g, const CUgraphNode *from, size_t n, void *params);
	struct {
		int type, zero[3];
		union {
			long long words[29];
			CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		};
		long long last;
	} params = {.type = 10, .alloc = {.poolProps = {.allocType = 1, .location = {1, 0}}}}; /* CU_GRAPH_NODE_TYPE_MEM_ALLOC */
	uint64_t before = container();
	for (int fits = 0; fits < 2; fits++) {
		CUgraph g;
		CUgraphNode n;
		CUgraphExec e;
		params.alloc.bytesize = fits ? 64 * MIB : 2 * LIMIT;
		CHECK_EQUAL(cuGraphCreate(&g, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphAddNode(&n, g, NULL, 0, &params), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, g, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphLaunch(e, NULL), fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_EQUAL(container(), before + (fits ? 64 * MIB : 0));
		if (fits) CHECK_EQUAL(cuMemFree_v2(params.alloc.dptr), CUDA_SUCCESS);
		CHECK_EQUAL(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
		CHECK_EQUAL(container(), before);
		cuGraphExecDestroy(e);
		cuGraphDestroy(g);
	}
}

/* The heap of kernels, which a limit enlarges, is device memory. */
TEST(limits_of_a_context_take_memory) {
	CUcontext c, primary;
	uint64_t before = container();
	cuCtxGetCurrent(&primary);
	CHECK_EQUAL(cuCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSetLimit(2, 8 * MIB), CUDA_SUCCESS); /* the driver's default */
	CHECK_EQUAL(container(), before);
	CHECK_EQUAL(cuCtxSetLimit(2, 108 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 100 * MIB);
	CHECK_EQUAL(cuCtxSetLimit(2, 2 * LIMIT), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(container(), before + 100 * MIB);
	CHECK_EQUAL(cuCtxSetLimit(2, 58 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 50 * MIB);
	CHECK_EQUAL(cuCtxSetLimit(0, 1 << 20), CUDA_ERROR_OUT_OF_MEMORY); /* 1 MiB for every thread */
	CHECK_EQUAL(cuCtxSetLimit(5, 128), CUDA_SUCCESS);                 /* a limit that takes no memory */
	CHECK(fakecuda_fail("cuCtxSetLimit", 1, 1, CUDA_ERROR_OUT_OF_MEMORY)); /* the device has less than the share */
	CHECK_EQUAL(cuCtxSetLimit(2, 108 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(container(), before + 50 * MIB);
	CHECK_EQUAL(cuCtxDestroy_v2(c), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	cuCtxSetCurrent(primary);
}

/* The driver frees a destroyed pool when its last allocation is freed, and so does the hook. */
TEST(destroyed_pools_stay_charged) {
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}}, host = {.allocType = 1, .location = {2, 0}};
	CUmemoryPool pool;
	CUdeviceptr p;
	uint64_t before = container();
	CHECK_EQUAL(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, 100 * MIB, pool, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK(container() >= before + 100 * MIB);
	CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	CHECK_EQUAL(cuMemPoolCreate(&pool, &host), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, 4 * LIMIT, pool, NULL), CUDA_SUCCESS); /* of the host */
	CHECK_EQUAL(container(), before);
	CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

/* What another process allocated is charged once, however often it is opened, until it is closed as often. */
TEST(memory_is_opened_twice) {
	union {
		uint64_t words[8];
		CUipcMemHandle handle;
	} h = {{0}};
	CUdeviceptr own, p, q;
	uint64_t before = container();
	CUresult cuIpcGetMemHandle(CUipcMemHandle *, CUdeviceptr);
	CHECK_EQUAL(cuMemAlloc_v2(&own, 10 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuIpcGetMemHandle(&h.handle, own), CUDA_SUCCESS);
	CHECK_EQUAL(cuIpcOpenMemHandle_v2(&p, h.handle, 1), CUDA_SUCCESS);
	CHECK_EQUAL(cuIpcOpenMemHandle_v2(&q, h.handle, 1), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + (p == q ? 20 : 30) * MIB);
	CHECK_EQUAL(cuIpcCloseMemHandle(p), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 20 * MIB);
	CHECK_EQUAL(cuIpcCloseMemHandle(q), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 10 * MIB);
	CHECK_EQUAL(cuMemFree_v2(own), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

/* A library's variables are charged for each context that may use them, and with it released. */
TEST(libraries_are_charged_for_each_context) {
	struct cubin c = cubin(40 * MIB);
	CUlibrary l;
	CUcontext first, second, primary;
	uint64_t before = container();
	cuCtxGetCurrent(&primary);
	CHECK_EQUAL(cuCtxCreate_v2(&first, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuLibraryLoadData(&l, &c, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 80 * MIB);
	CHECK_EQUAL(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 120 * MIB);
	CHECK_EQUAL(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 80 * MIB);
	CHECK_EQUAL(cuLibraryUnload(l), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxDestroy_v2(first), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	cuCtxSetCurrent(primary);
}

/* One call removes the mappings of host memory, which is not charged, and of device memory behind it. */
TEST(unmapped_with_host_memory) {
	CUmemAllocationProp device = on_device(0), host = {.type = 1, .location = {2, 0}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	uint64_t before = container();
	CHECK_EQUAL(cuMemAddressReserve(&at, 40 * MIB, 0, 0, 0), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++) {
		CHECK_EQUAL(cuMemCreate(&h, 10 * MIB, i % 2 ? &device : &host, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemMap(at + i * 10 * MIB, 10 * MIB, 0, h, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemRelease(h), CUDA_SUCCESS);
	}
	CHECK_EQUAL(container(), before + 20 * MIB);
	CHECK_EQUAL(cuMemUnmap(at, 40 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

/* What is freed into any of many pools is free again after a synchronisation. */
TEST(many_pools) {
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
	CUmemoryPool pool[200];
	int failed = 0;
	CUdeviceptr p;
	uint64_t before = container();
	for (int i = 0; i < 200; i++) {
		CUresult r = cuMemPoolCreate(&pool[i], &props);
		if (!r) r = cuMemAllocFromPoolAsync(&p, 2 * MIB, pool[i], NULL);
		if (!r) r = cuMemFreeAsync(p, NULL);
		if (i % 8 == 7) cuCtxSynchronize();
		failed += r != CUDA_SUCCESS;
	}
	CHECK_EQUAL(failed, 0);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	for (int i = 0; i < 200; i++) CHECK_EQUAL(cuMemPoolDestroy(pool[i]), CUDA_SUCCESS);
}

static CUmemoryPool doomed;
static pthread_t destroyer;
static _Atomic int destroyed;

static void *destroy_doomed(void *unused) {
	CHECK_EQUAL(cuMemPoolDestroy(doomed), CUDA_SUCCESS);
	destroyed = 1;
	return unused;
}

/* Runs when the first pool has been asked: another thread destroys a later one, or has to wait. */
static void destroy_meanwhile(void) {
	pthread_create(&destroyer, NULL, destroy_doomed, NULL);
	for (int i = 0; i < 200 && !destroyed; i++) usleep(1000);
}

/* While one thread asks all pools what they have, another may destroy one. */
TEST(destroyed_pool_is_not_used) {
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
	CUmemoryPool first, second;
	CHECK_EQUAL(cuMemPoolCreate(&first, &props), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemPoolCreate(&second, &props), CUDA_SUCCESS);
	doomed = first > second ? first : second; /* pools are asked in ascending order */
	fakecuda_at_return(destroy_meanwhile);
	CHECK_EQUAL(cuMemGetInfo_v2(&(size_t){0}, &(size_t){0}), CUDA_SUCCESS);
	pthread_join(destroyer, NULL);
	CHECK_EQUAL(fakecuda_stale_pools(), 0);
	CHECK_EQUAL(cuMemPoolDestroy(first > second ? second : first), CUDA_SUCCESS);
}

/* Another thread destroys a device's current pool when an allocation has looked it up: then the default pool is charged. */
TEST(destroyed_pool_is_not_entered_again) {
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
	CUdeviceptr p;
	unsigned long stale = fakecuda_stale_pools();
	uint64_t before = container();
	CHECK_EQUAL(cuMemPoolCreate(&doomed, &props), CUDA_SUCCESS);
	CHECK_EQUAL(cuDeviceSetMemPool(0, doomed), CUDA_SUCCESS);
	destroyed = 0;
	fakecuda_at_return(destroy_meanwhile);
	CHECK_EQUAL(cuMemAllocAsync(&p, 64 * MIB, NULL), CUDA_SUCCESS);
	pthread_join(destroyer, NULL);
	CHECK_EQUAL(cuMemGetInfo_v2(&(size_t){0}, &(size_t){0}), CUDA_SUCCESS);
	CHECK_EQUAL(fakecuda_stale_pools(), stale);
	CHECK_EQUAL(container(), before + 64 * MIB);
	CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

static CUmemoryPool again; /* a handle of a pool that was destroyed, which the next pool gets */
static CUdeviceptr from_again;
static CUcontext kept;

static void *allocate_again(void *unused) {
	cuCtxSetCurrent(kept);
	if (cuMemAllocFromPoolAsync(&from_again, 64 * MIB, again, NULL)) from_again = 0;
	destroyed = 1;
	return unused;
}

/* Runs when the driver has created a pool: another thread knows its handle, or has to wait. */
static void allocate_meanwhile(void) {
	destroyed = 0;
	pthread_create(&destroyer, NULL, allocate_again, NULL);
	for (int i = 0; i < 200 && !destroyed; i++) usleep(1000);
}

/* Another thread allocates from a pool of which it has the handle before the thread that creates it: that is counted. */
TEST(pool_is_known_when_it_is_created) {
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
	CUmemoryPool pool;
	uint64_t before = container();
	cuCtxGetCurrent(&kept);
	CHECK_EQUAL(cuMemPoolCreate(&again, &props), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemPoolDestroy(again), CUDA_SUCCESS);
	fakecuda_at_return(allocate_meanwhile);
	CHECK_EQUAL(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	pthread_join(destroyer, NULL);
	CHECK_EQUAL((uint64_t)pool, (uint64_t)again);
	CHECK_EQUAL(container(), before + (from_again ? 64 * MIB : 0));
	if (from_again) CHECK_EQUAL(cuMemFreeAsync(from_again, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

/* Of the pools that nobody creates, those of devices and of managed memory are counted and those of the host are not. The driver gets no other. */
TEST(default_pools_are_known) {
	static const struct { CUmemLocation location; int type; bool counted; } cases[] = {
		{{1, 0}, 1, true}, {{1, 0}, 2, true}, {{0, 0}, 2, true}, {{2, 0}, 1, false}};
	CUmemoryPool pool;
	CUdeviceptr p;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		CUmemLocation location = cases[i].location;
		uint64_t before = container();
		CHECK_EQUAL(cuMemGetDefaultMemPool(&pool, &location, cases[i].type), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, 64 * MIB, pool, NULL), CUDA_SUCCESS);
		CHECK_EQUAL(container(), before + (cases[i].counted ? 64 * MIB : 0));
		CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, LIMIT, pool, NULL), cases[i].counted ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
		if (cases[i].counted) CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
		CHECK_EQUAL(container(), before);
	}
	unsigned long calls = fakecuda_calls("cuMemAllocFromPoolAsync");
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, MIB, (CUmemoryPool)&p, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, MIB, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(fakecuda_calls("cuMemAllocFromPoolAsync"), calls);
}

static CUdeviceptr mapped;
static CUmemGenericAllocationHandle retained;

/* Runs when the driver has mapped memory: another thread asks for a handle of what is there. */
static void *retain(void *unused) {
	if (cuMemRetainAllocationHandle(&retained, (void *)mapped)) retained = 0;
	return unused;
}
static void retain_meanwhile(void) {
	pthread_create(&destroyer, NULL, retain, NULL);
	pthread_join(destroyer, NULL);
}

/* A handle that is not known, or not yet, is refused: what would keep the memory alive is not counted. */
TEST(unknown_handles_are_refused) {
	CUmemAllocationProp here = on_device(0);
	CUmemGenericAllocationHandle h, other;
	uint64_t before = container();
	CHECK_EQUAL(cuMemAddressReserve(&mapped, 2 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemCreate(&h, 2 * MIB, &here, 0), CUDA_SUCCESS);
	fakecuda_at_return(retain_meanwhile);
	CHECK_EQUAL(cuMemMap(mapped, 2 * MIB, 0, h, 0), CUDA_SUCCESS);
	CHECK_EQUAL(retained, 0);
	CHECK_EQUAL(cuMemRetainAllocationHandle(&other, (void *)mapped), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemUnmap(mapped, 2 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemRelease(h), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before + 2 * MIB);
	CHECK_EQUAL(cuMemRelease(other), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	/* A multicast object is known, too, and takes no memory. */
	CHECK_EQUAL(cuMulticastCreate(&other, &(struct { unsigned devices; size_t size; unsigned long long types, flags; }){1, 2 * MIB, 0, 0}), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemMap(mapped, 2 * MIB, 0, other, 0), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
	CHECK_EQUAL(cuMemUnmap(mapped, 2 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemRelease(other), CUDA_SUCCESS);
	unsigned long maps = fakecuda_calls("cuMemMap"), exports = fakecuda_calls("cuMemExportToShareableHandle");
	CHECK_EQUAL(cuMemMap(mapped, 2 * MIB, 0, h, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(cuMemExportToShareableHandle(&(int){0}, h, 1, 0), CUDA_ERROR_INVALID_VALUE);
	CHECK_EQUAL(fakecuda_calls("cuMemMap") + fakecuda_calls("cuMemExportToShareableHandle"), maps + exports);
}

static uint64_t charged_meanwhile;

/* Runs when a context has been destroyed and the hook has not seen it: asks for all events behind freed memory, as any thread may. */
static void ask_meanwhile(void) {
	cuCtxSetCurrent(kept);
	CHECK_EQUAL(cuMemGetInfo_v2(&(size_t){0}, &(size_t){0}), CUDA_SUCCESS);
	charged_meanwhile = container();
}

/* An event behind freed memory that ends with its context is not queried: the memory stays charged until the context is seen to end. */
TEST(event_of_a_destroyed_context_is_not_used) {
	CUcontext c;
	CUdeviceptr p;
	uint64_t before = container();
	cuCtxGetCurrent(&kept);
	CHECK_EQUAL(cuCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 64 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	fakecuda_at_return(ask_meanwhile);
	CHECK_EQUAL(cuCtxDestroy_v2(c), CUDA_SUCCESS);
	CHECK_EQUAL(charged_meanwhile, before + 64 * MIB);
	CHECK_EQUAL(container(), before);
	cuCtxSetCurrent(kept);
}

/* Destroys a context, in a thread in which it is not current. */
static void *destroy_context(void *c) { return cuCtxDestroy_v2(c), NULL; }

static CUresult load_module(uint64_t bytes) {
	CUmodule m;
	struct cubin image = cubin(bytes);
	return cuModuleLoadData(&m, &image);
}

/* With a destroyed context calls return the driver's error, whatever they ask for, and not that there is no memory. Nothing is charged. */
TEST(destroyed_context_is_refused_by_the_driver) {
	static const uint64_t sizes[] = {4096, 64 * MIB, LIMIT + 2 * MIB};
	CUcontext c;
	pthread_t thread;
	CUdeviceptr p;
	uint64_t before = container();
	cuCtxGetCurrent(&kept);
	CHECK_EQUAL(cuCtxCreate_v2(&c, 0, 0), CUDA_SUCCESS);
	pthread_create(&thread, NULL, destroy_context, c);
	pthread_join(thread, NULL);
	for (int i = 0; i < 3; i++) {
		for (enum kind kind = PLAIN; kind <= LEVELS; kind++)
			CHECK_EQUAL(allocate(&(struct held){.kind = kind}, sizes[i]), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		CHECK_EQUAL(cuMemAllocAsync(&p, sizes[i], NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		CHECK_EQUAL(load_module(sizes[i]), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		for (int limit = 0; limit < 3; limit++) CHECK_EQUAL(cuCtxSetLimit(limit, sizes[i]), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	}
	CHECK_EQUAL(container(), before);
	cuCtxSetCurrent(kept);
}

/* A release that does not end the primary context leaves its events in use. */
TEST(freed_memory_of_a_context_that_lives_on) {
	CUcontext c;
	CUdeviceptr p;
	uint64_t before = container();
	CHECK_EQUAL(cuDevicePrimaryCtxRetain(&c, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 64 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFreeAsync(p, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

/* Neither is lost what cuMemAlloc has allocated and many calls have freed in the order of a stream. */
TEST(many_freed_in_order) {
	CUstream s;
	CUdeviceptr p;
	uint64_t before = container();
	CHECK_EQUAL(cuStreamCreate(&s, 1), CUDA_SUCCESS);
	for (int i = 0; i < 200; i++) {
		CHECK_EQUAL(cuMemAlloc_v2(&p, 2 * MIB), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemFreeAsync(p, s), CUDA_SUCCESS);
	}
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(container(), before);
}

/* Process: allocates until refused, reports how often it succeeded, and waits. */
static void competitor(int fd) {
	CUdeviceptr p;
	char got = 0;
	driver_start("spin_ns1_sm1_blocks1");
	while (cuMemAlloc_v2(&p, 6 * MIB) == CUDA_SUCCESS) got++;
	if (write(fd, &got, 1) != 1) _exit(1);
	pause();
	_exit(0);
}

/* Returns what a thread may have as its current context while it uses a stream: the stream's, none, another one, or a green one. */
static CUcontext context_of_case(int i, CUcontext own, CUcontext other, CUgreenCtx g) {
	CUcontext green = NULL;
	cuCtxFromGreenCtx(&green, g);
	CUcontext all[] = {own, NULL, other, green};
	return all[i];
}

/* The stream decides which vGPU is charged, not the current context; so does a pool. */
TEST(stream_decides_what_is_charged) {
	CUcontext own, other;
	CUgreenCtx g;
	CUstream s, of_green;
	CUmemoryPool pool;
	CUdeviceptr p[3], plain;
	cuCtxGetCurrent(&own);
	CHECK_EQUAL(cuCtxCreate_v2(&other, 0, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuGreenCtxCreate(&g, NULL, 0, 1), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSetCurrent(own), CUDA_SUCCESS);
	CHECK_EQUAL(cuStreamCreate(&s, 1), CUDA_SUCCESS);
	CHECK_EQUAL(cuGreenCtxStreamCreate(&of_green, g, 1, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
	uint64_t before = container();
	for (int i = 0; i < 16; i++) {
		CUstream in = i & 4 ? of_green : s;
		CHECK_EQUAL(cuCtxSetCurrent(context_of_case(i & 3, own, other, g)), CUDA_SUCCESS);
		for (int k = 0; k < 3; k++)
			CHECK_EQUAL(i & 8 ? cuMemAllocFromPoolAsync(&p[k], 200 * MIB, pool, in) : cuMemAllocAsync(&p[k], 200 * MIB, in),
				    k == 2 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
		CHECK(container() >= before + 400 * MIB && container() <= LIMIT);
		for (int k = 0; k < 2; k++) CHECK_EQUAL(cuMemFreeAsync(p[k], in), CUDA_SUCCESS);
		CHECK_EQUAL(cuStreamSynchronize(in), CUDA_SUCCESS);
		CHECK_EQUAL(container(), before);
		/* Freed in the order of the stream, which has an event of its own context. */
		CHECK_EQUAL(cuCtxSetCurrent(own), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemAlloc_v2(&plain, 64 * MIB), CUDA_SUCCESS);
		CHECK_EQUAL(cuCtxSetCurrent(context_of_case(i & 3, own, other, g)), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemFreeAsync(plain, in), CUDA_SUCCESS);
		CHECK_EQUAL(cuStreamSynchronize(in), CUDA_SUCCESS);
		CHECK_EQUAL(container(), before);
	}
	CHECK_EQUAL(cuCtxDestroy_v2(other), CUDA_SUCCESS);
	CHECK_EQUAL(cuGreenCtxDestroy(g), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSetCurrent(own), CUDA_SUCCESS);
}

/* In a child that was forked after cuInit the driver says that it is not initialised, and so does the hook. */
TEST(forked_child_is_not_initialised) {
	CUmemAllocationProp here = on_device(0);
	CUmemoryPool pool;
	CUstream s;
	int status = -1;
	CHECK_EQUAL(cuStreamCreate(&s, 1), CUDA_SUCCESS);
	CHECK_EQUAL(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
	pid_t child = fork();
	if (!child) {
		CUdeviceptr p;
		CUmemGenericAllocationHandle h;
		check_failures = 0;
		CHECK_EQUAL(cuMemAlloc_v2(&p, MIB), CUDA_ERROR_NOT_INITIALIZED);
		CHECK_EQUAL(cuMemAllocAsync(&p, MIB, s), CUDA_ERROR_NOT_INITIALIZED);
		CHECK_EQUAL(cuMemAllocFromPoolAsync(&p, MIB, pool, NULL), CUDA_ERROR_NOT_INITIALIZED);
		CHECK_EQUAL(cuMemCreate(&h, 2 * MIB, &here, 0), CUDA_ERROR_NOT_INITIALIZED);
		CHECK_EQUAL(driver_launch((CUfunction)&p, NULL), CUDA_ERROR_NOT_INITIALIZED);
		CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
		_exit(check_failures != 0);
	}
	waitpid(child, &status, 0);
	CHECK_EQUAL(status, 0);
}

/* 16 processes allocate until refused: together exactly the limit. Killed, their memory is released. */
TEST(processes_race_at_the_limit) {
	int pipes[2], sum = 0;
	char got;
	pid_t child[16];
	uint64_t before = container();
	char to[16];
	if (pipe(pipes)) return;
	snprintf(to, sizeof to, "%d", pipes[1]);
	for (int i = 0; i < 16; i++)
		if (!(child[i] = fork())) {
			execl("/proc/self/exe", "competitor", to, NULL);
			_exit(1);
		}
	close(pipes[1]); /* so that read ends if one of them dies */
	for (int i = 0; i < 16 && read(pipes[0], &got, 1) == 1; i++) sum += got;
	CHECK_EQUAL(sum, (LIMIT - before) / (6 * MIB));
	CHECK_EQUAL(container(), before + (uint64_t)sum * 6 * MIB);
	for (int i = 0; i < 16; i++) kill(child[i], 9), waitpid(child[i], NULL, 0);
	for (int i = 0; i < 1000 && container() != before; i++) usleep(1000);
	CHECK_EQUAL(container(), before);
	close(pipes[0]);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(excess_is_refused), T(queries_return_the_share), T(managed_policies),
						  T(handles_and_mappings), T(graph_memory), T(freed_memory_of_a_graph_is_used_by_another), T(free_beside_a_launch),
						  T(reserved_memory_is_used_above_the_limit), T(pool_without_reuse_stays_at_the_limit), T(graph_memory_behind_other_nodes),
						  T(graph_memory_of_nodes_of_all_kinds),
						  T(contexts_of_version_1), T(small_allocations_take_whole_blocks),
						  T(arrays_take_what_their_format_takes), T(limits_of_a_context_take_memory),
						  T(destroyed_pools_stay_charged), T(memory_is_opened_twice), T(libraries_are_charged_for_each_context),
						  T(unmapped_with_host_memory), T(many_pools), T(destroyed_pool_is_not_used),
						  T(destroyed_pool_is_not_entered_again), T(pool_is_known_when_it_is_created), T(default_pools_are_known),
						  T(unknown_handles_are_refused), T(event_of_a_destroyed_context_is_not_used),
						  T(destroyed_context_is_refused_by_the_driver),
						  T(freed_memory_of_a_context_that_lives_on), T(many_freed_in_order),
						  T(stream_decides_what_is_charged), T(forked_child_is_not_initialised), T(processes_race_at_the_limit), T(random_operations_do_not_drift),
						  T(exported_memory_stays_charged), {0}};
	if (!strcmp(argv[0], "competitor")) competitor(atoi(argv[1]));
	server_start(&server);
	if (!driver_start("spin_ns1_sm1_blocks1") || server.sessions != 1) return printf("no session with the token server\n"), 1;
	return check_run(tests, argc, argv);
}
