/*
 * Random programs: threads that allocate, use pools, graphs and captures, change contexts and launch, on two devices. The fake driver's own
 * count, which shares no code with the hook, decides: at no moment more than the limit of a device is allocated or less is counted than that, and
 * every launch that is not captured is counted.
 *
 *   races_test SECONDS [SEED]    each seed first with one thread, so that it can be repeated, then with three
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define MIB (1ull << 20)
#define LIMIT (512 * MIB)
#define THREADS 3
#define STREAMS 3 /* that all threads share; as many again are each thread's own */
#define OBJECTS 8
#define DEVICES 2

uint64_t fakecuda_most_used(CUdevice d);
uint64_t fakecuda_used(CUdevice d);
unsigned long fakecuda_captured(void);
void fakecuda_at_return(void (*call)(void));
CUresult cuDeviceSetMemPool(CUdevice d, CUmemoryPool pool);
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph g, const CUgraphNode *from, size_t n, CUdeviceptr p);

static struct server server = {.memory_limit = LIMIT, .vgpus = DEVICES};
static CUcontext primaries[DEVICES];
#define primary primaries[0]
static CUfunction kernel;
static CUstream shared[STREAMS];
static CUgraphExec common[2];          /* graphs that all threads launch and that keep memory, which all free */
static CUdeviceptr common_kept[2];
static CUmemoryPool spare;             /* that is current now and then */
static CUmemoryPool _Atomic swapped;   /* that the meddling thread replaces, by one on a random device */
static pthread_mutex_t swapping = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t launched;      /* launches that succeeded, captured ones too */
static const char *_Atomic last;       /* the operation that was the first to have too much */
static atomic_bool stopped;

/* What a thread has. */
struct thread {
	uint64_t random;
	CUstream own[STREAMS]; /* of a context of device 0, of device 1, and of a green context */
	CUgreenCtx green;
	CUdeviceptr memory[OBJECTS];
	CUmemoryPool pool[2];
	CUgraphExec exec[OBJECTS];
	CUdeviceptr kept[OBJECTS]; /* what each graph allocates and does not free */
	CUarray array;
	int rounds;
};

static uint64_t below(struct thread *t, uint64_t n) { return check_random(&t->random) % n; }
static CUstream any_stream(struct thread *t) { return below(t, 2) ? shared[below(t, STREAMS)] : t->own[below(t, STREAMS)]; }
static uint64_t any_size(struct thread *t) { return below(t, 4) ? (1 + below(t, 400)) * MIB : 1 + below(t, 4 * MIB); }

static CUmemPoolProps pool_on(CUdevice d) { return (CUmemPoolProps){.allocType = 1, .location = {1, d}}; }
static CUmemPoolProps host_pool(void) { return (CUmemPoolProps){.allocType = 1, .location = {2, 0}}; }

/* What the meddling thread can do. */
enum meddling { NONE, END_CAPTURES, TRIM_GRAPHS, NEW_CONTEXT, LAUNCH_COMMON, SWAP_POOL, CHOOSE_POOL };
static _Atomic enum meddling asked;

/* Takes all memory of the current context's device for a moment. */
static void fill(void) {
	CUdeviceptr p[8];
	for (int i = 0; i < 8; i++)
		if (cuMemAlloc_v2(&p[i], LIMIT / 2 >> i)) p[i] = 0;
	atomic_store(&asked, NONE);
	usleep(500);
	for (int i = 0; i < 8; i++) cuMemFree_v2(p[i]);
}

/* Has memory in a new context, which may have the handle of one that has just ended, and then as much again. */
static void fill_new_context(void) {
	CUcontext c;
	CUdeviceptr p;
	if (cuCtxCreate_v2(&c, 0, 0)) return;
	cuMemAlloc_v2(&p, LIMIT / 2 + MIB);
	atomic_store(&asked, NONE);
	usleep(500);
	cuMemAlloc_v2(&p, LIMIT / 2 + MIB);
	cuCtxDestroy_v2(c);
	cuCtxSetCurrent(primary);
}

/* Makes another pool of the handle, if the driver gives it the same one. */
static void swap_pool(uint64_t *random) {
	CUmemoryPool pool = atomic_load(&swapped);
	CUmemPoolProps props = check_random(random) % 3 ? pool_on((int)(check_random(random) % DEVICES)) : host_pool();
	if (!pool) return;
	cuMemPoolDestroy(pool);
	atomic_store(&swapped, cuMemPoolCreate(&pool, &props) ? NULL : pool);
}

static void run_graph(CUgraphExec e, CUstream s) {
	if (e && cuGraphLaunch(e, s) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
}
static void launch_common(uint64_t i, CUstream s) { run_graph(common[i], s); }

/* Makes the spare pool current, or the default one. */
static void choose_pool(uint64_t *random) {
	CUmemoryPool pool = spare;
	if (check_random(random) % 2) cuDeviceGetDefaultMemPool(&pool, 0);
	cuDeviceSetMemPool(0, pool);
}

/* Thread: changes what the hook has just looked at, as any thread of a program may. */
static void *meddle(void *arg) {
	uint64_t random = 1;
	cuCtxSetCurrent(primary);
	for (;; atomic_store(&asked, NONE)) {
		enum meddling what;
		while (!(what = atomic_load(&asked))) usleep(20);
		for (int i = 0; what == END_CAPTURES && i < STREAMS; i++) cuStreamEndCapture(shared[i], &(CUgraph){0});
		if (what == TRIM_GRAPHS) cuDeviceGraphMemTrim(0), fill();
		if (what == NEW_CONTEXT) fill_new_context();
		if (what == LAUNCH_COMMON) launch_common(0, shared[0]);
		if (what == SWAP_POOL) swap_pool(&random);
		if (what == CHOOSE_POOL) choose_pool(&random);
	}
	return arg;
}

/* Lets the meddling thread act between what the driver has told the hook and what the hook does next. The hook may make it wait. */
static void let_meddle(enum meddling what) {
	atomic_store(&asked, what);
	for (int i = 0; i < 20 && atomic_load(&asked); i++) usleep(50);
}
static void end_captures_now(void) { let_meddle(END_CAPTURES); }
static void trim_graphs_now(void) { let_meddle(TRIM_GRAPHS); }
static void new_context_now(void) { let_meddle(NEW_CONTEXT); }
static void launch_common_now(void) { let_meddle(LAUNCH_COMMON); }
static void swap_pool_now(void) { let_meddle(SWAP_POOL); }
static void choose_pool_now(void) { let_meddle(CHOOSE_POOL); }
static void end_captures_next(void) { fakecuda_at_return(end_captures_now); }
static void trim_graphs_next(void) { fakecuda_at_return(trim_graphs_now); }

static void allocate(struct thread *t) {
	CUdeviceptr *p = &t->memory[below(t, OBJECTS)];
	if (*p) return;
	if (cuMemAlloc_v2(p, any_size(t))) *p = 0;
}

static void allocate_in_order(struct thread *t) {
	CUdeviceptr *p = &t->memory[below(t, OBJECTS)];
	CUmemoryPool pool = t->pool[below(t, 2)];
	if (*p) return;
	CUresult r = pool && below(t, 2) ? cuMemAllocFromPoolAsync(p, any_size(t), pool, any_stream(t)) : cuMemAllocAsync(p, any_size(t), any_stream(t));
	if (r) *p = 0;
}

static void release(struct thread *t) {
	CUdeviceptr *p = &t->memory[below(t, OBJECTS)];
	if (*p && (below(t, 2) ? cuMemFree_v2(*p) : cuMemFreeAsync(*p, any_stream(t))) == CUDA_SUCCESS) *p = 0;
}

static void release_of_graph(struct thread *t) {
	CUdeviceptr p = t->kept[below(t, OBJECTS)];
	if (p) below(t, 2) ? cuMemFree_v2(p) : cuMemFreeAsync(p, any_stream(t));
}

static void change_pool(struct thread *t) {
	CUmemoryPool *pool = &t->pool[below(t, 2)];
	CUmemPoolProps props = below(t, 4) ? pool_on((int)below(t, DEVICES)) : host_pool();
	int no = 0;
	uint64_t all = UINT64_MAX;
	if (*pool && below(t, 2)) return (void)cuMemPoolTrimTo(*pool, 0);
	if (*pool) cuMemPoolDestroy(*pool);
	if (cuMemPoolCreate(pool, &props)) return (void)(*pool = NULL);
	if (below(t, 2)) cuMemPoolSetAttribute(*pool, 2, &no);
	if (below(t, 2)) cuMemPoolSetAttribute(*pool, 4, &all);
}

/* A pool that keeps what was freed and, in every other case, cannot use it again. */
static void cycle_pool(struct thread *t) {
	CUmemPoolProps props = pool_on((int)below(t, DEVICES));
	CUmemoryPool pool;
	CUdeviceptr p;
	int reuse = (int)below(t, 2);
	uint64_t all = UINT64_MAX, size = (40 + below(t, 160)) * MIB;
	if (cuMemPoolCreate(&pool, &props)) return;
	cuMemPoolSetAttribute(pool, 2, &reuse);
	cuMemPoolSetAttribute(pool, 4, &all);
	for (int i = 0; i < 6; i++)
		if (cuMemAllocFromPoolAsync(&p, size, pool, t->own[0]) == CUDA_SUCCESS) cuMemFreeAsync(p, t->own[0]);
	cuMemPoolDestroy(pool);
}

/* An allocation from a pool that another thread replaces meanwhile. */
static void swap_beside(struct thread *t) {
	CUmemPoolProps props = below(t, 2) ? host_pool() : pool_on((int)below(t, DEVICES));
	CUmemoryPool pool;
	CUdeviceptr p[4] = {0};
	if (pthread_mutex_trylock(&swapping)) return;
	if (cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS) {
		atomic_store(&swapped, pool);
		for (int i = 0; i < 4 && (pool = atomic_load(&swapped)); i++) {
			fakecuda_at_return(swap_pool_now);
			if (cuMemAllocFromPoolAsync(&p[i], any_size(t), pool, t->own[0])) p[i] = 0;
		}
		for (int i = 0; i < 4; i++)
			if (p[i]) cuMemFreeAsync(p[i], t->own[0]);
		while (atomic_load(&asked) == SWAP_POOL) usleep(20);
		if ((pool = atomic_exchange(&swapped, NULL))) cuMemPoolDestroy(pool);
	}
	pthread_mutex_unlock(&swapping);
}

/* Allocates from the current pool, which another thread may change meanwhile. */
static void choose_beside(struct thread *t) {
	CUdeviceptr p[4];
	for (int i = 0; i < 4; i++) {
		fakecuda_at_return(choose_pool_now);
		if (cuMemAllocAsync(&p[i], (100 + below(t, 200)) * MIB, t->own[0])) p[i] = 0;
	}
	for (int i = 0; i < 4; i++)
		if (p[i]) cuMemFreeAsync(p[i], t->own[0]);
	cuStreamSynchronize(t->own[0]);
}

/* Work in a shared stream that captures, and whose capture another thread may end at any moment. */
static void capture_beside(struct thread *t) {
	CUstream s = shared[below(t, STREAMS)];
	CUdeviceptr p = 0;
	if (cuStreamBeginCapture_v2(s, 2)) return;
	fakecuda_at_return(below(t, 2) ? end_captures_now : end_captures_next);
	if (below(t, 2)) {
		if (driver_launch(kernel, s) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
	} else if (cuMemAllocAsync(&p, (100 + below(t, 400)) * MIB, s) == CUDA_SUCCESS) {
		cuMemFreeAsync(p, s);
	}
	cuStreamEndCapture(s, &(CUgraph){0});
}

/* Launches a graph whose memory is idle, which another thread may give back at any moment. */
static void trim_beside(struct thread *t) {
	CUgraph g;
	CUgraphNode n;
	CUgraphExec e;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = (20 + below(t, 200)) * MIB};
	cuGraphCreate(&g, 0);
	cuGraphAddMemAllocNode(&n, g, NULL, 0, &p);
	cuGraphAddMemFreeNode(&n, g, NULL, 0, p.dptr);
	CUresult r = cuGraphInstantiateWithFlags(&e, g, 0);
	cuGraphDestroy(g);
	if (r) return;
	for (int i = 0; i < 2; i++) {
		run_graph(e, t->own[0]);
		fakecuda_at_return(below(t, 2) ? trim_graphs_now : trim_graphs_next);
	}
	cuGraphExecDestroy(e);
}

/* Frees what a graph keeps, while another thread may launch it. */
static void free_beside(struct thread *t) {
	uint64_t i = below(t, 4) ? 0 : 1;
	launch_common(i, any_stream(t));
	if (below(t, 2)) fakecuda_at_return(launch_common_now);
	below(t, 2) ? cuMemFree_v2(common_kept[i]) : cuMemFreeAsync(common_kept[i], t->own[0]);
	if (below(t, 2)) launch_common(below(t, 2), any_stream(t));
}

/* Returns a graph that allocates bytes, unless they are 0, and stores their address; or that frees what is stored there. */
static CUgraphExec memory_graph(uint64_t bytes, CUdeviceptr *kept) {
	CUgraph g;
	CUgraphNode n;
	CUgraphExec e;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = bytes};
	cuGraphCreate(&g, 0);
	if (bytes && cuGraphAddMemAllocNode(&n, g, NULL, 0, &p) == CUDA_SUCCESS) *kept = p.dptr;
	if (!bytes) cuGraphAddMemFreeNode(&n, g, NULL, 0, *kept);
	if (cuGraphInstantiateWithFlags(&e, g, 0)) e = NULL;
	cuGraphDestroy(g);
	return e;
}

/* Gives up most of what the program has. */
static void give_up(struct thread *t) {
	for (int i = 0; i < OBJECTS; i++) {
		if (t->memory[i] && cuMemFree_v2(t->memory[i]) == CUDA_SUCCESS) t->memory[i] = 0;
		if (t->kept[i]) cuMemFree_v2(t->kept[i]);
	}
	for (int i = 0; i < 2; i++) cuMemFree_v2(common_kept[i]);
	if (t->array) cuArrayDestroy(t->array), t->array = NULL;
	cuStreamEndCapture(t->own[0], &(CUgraph){0});
	cuCtxSynchronize();
	cuDeviceGraphMemTrim(0);
}

/*
 * Launches a graph again whose memory was freed, by a call or by a graph, and that another graph may have by now: the limit has no room for both.
 */
static void launch_freed(struct thread *t) {
	uint64_t bytes = LIMIT / 2 + (2 + below(t, 200)) * MIB;
	CUdeviceptr p = 0, q = 0;
	give_up(t);
	CUgraphExec first = memory_graph(bytes, &p), second = memory_graph(bytes, &q), freeing = memory_graph(0, &p);
	for (int i = 0; i < 3; i++) {
		run_graph(first, t->own[0]);
		switch (below(t, 4)) {
		case 0: cuMemFree_v2(p); break;
		case 1: cuMemFreeAsync(p, t->own[0]); break;
		case 2: run_graph(freeing, t->own[0]); break;
		default: break;
		}
		run_graph(below(t, 4) ? second : first, t->own[0]);
		run_graph(first, t->own[0]);
		cuMemFree_v2(below(t, 2) ? p : q);
	}
	cuMemFree_v2(p);
	cuMemFree_v2(q);
	if (first) cuGraphExecDestroy(first);
	if (second) cuGraphExecDestroy(second);
	if (freeing) cuGraphExecDestroy(freeing);
}

/* Takes the place of a graph for a new one, or for none. */
static void put_graph(struct thread *t, CUgraph g, CUdeviceptr kept) {
	uint64_t i = below(t, OBJECTS);
	if (t->exec[i]) cuGraphExecDestroy(t->exec[i]);
	t->exec[i] = NULL;
	t->kept[i] = 0;
	if (g && cuGraphInstantiateWithFlags(&t->exec[i], g, 0) == CUDA_SUCCESS) t->kept[i] = kept;
	if (g) cuGraphDestroy(g);
}

/* A graph that allocates, and frees that or something of another graph. */
static void make_graph(struct thread *t) {
	CUgraph g;
	CUgraphNode n;
	CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = any_size(t)};
	cuGraphCreate(&g, 0);
	cuGraphAddMemAllocNode(&n, g, NULL, 0, &p);
	bool keeps = below(t, 2);
	CUdeviceptr other = below(t, 4) ? t->kept[below(t, OBJECTS)] : common_kept[below(t, 2)];
	if (!keeps) cuGraphAddMemFreeNode(&n, g, NULL, 0, p.dptr);
	if (other && below(t, 2)) cuGraphAddMemFreeNode(&n, g, NULL, 0, other);
	put_graph(t, g, keeps ? p.dptr : 0);
}

static void launch_graph(struct thread *t) {
	run_graph(t->exec[below(t, OBJECTS)], any_stream(t));
}

static void launch(struct thread *t) {
	CUstream s = any_stream(t);
	for (int n = (int)below(t, 20); n >= 0; n--)
		if (driver_launch(kernel, s) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
}

static void begin_capture(struct thread *t) { cuStreamBeginCapture_v2(any_stream(t), 2); }

static void end_capture(struct thread *t) {
	CUgraph g = NULL;
	if (cuStreamEndCapture(any_stream(t), &g) == CUDA_SUCCESS) put_graph(t, g, 0);
}

static void synchronise(struct thread *t) { below(t, 2) ? cuStreamSynchronize(any_stream(t)) : cuCtxSynchronize(); }
static void trim_graphs(struct thread *t) { (void)t, cuDeviceGraphMemTrim(0); }

static void change_context(struct thread *t) { cuCtxSetCurrent(below(t, 3) ? primaries[below(t, DEVICES)] : NULL); }

/* A context that ends with all that it has. */
static void use_context(struct thread *t) {
	CUcontext c;
	CUstream s;
	CUdeviceptr p;
	if (cuCtxCreate_v2(&c, 0, (int)below(t, DEVICES))) return;
	for (uint64_t n = below(t, 8); n; n--) cuCtxSetLimit(2, any_size(t));
	if (cuMemAlloc_v2(&p, any_size(t)) == CUDA_SUCCESS && below(t, 2)) cuMemFreeAsync(p, NULL);
	if (cuStreamCreate(&s, 1) == CUDA_SUCCESS) {
		if (below(t, 2)) cuStreamBeginCapture_v2(s, 2);
		if (driver_launch(kernel, s) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
		cuStreamDestroy_v2(s);
	}
	if (below(t, 2)) fakecuda_at_return(new_context_now);
	cuCtxDestroy_v2(c);
	cuCtxSetCurrent(primary);
}

/* A green context, whose memory is that of the primary one. */
static void use_green_context(struct thread *t) {
	CUgreenCtx g;
	CUcontext c;
	CUstream s;
	CUdeviceptr p = 0;
	if (cuGreenCtxCreate(&g, NULL, (int)below(t, DEVICES), 1)) return;
	if (cuCtxFromGreenCtx(&c, g) == CUDA_SUCCESS && below(t, 2)) cuCtxSetCurrent(c);
	if (cuMemAlloc_v2(&p, any_size(t))) p = 0;
	if (cuGreenCtxStreamCreate(&s, g, 1, 0) == CUDA_SUCCESS) {
		if (driver_launch(kernel, s) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
		CUdeviceptr q;
		if (cuMemAllocAsync(&q, any_size(t), s) == CUDA_SUCCESS) cuMemFreeAsync(q, s);
		cuStreamDestroy_v2(s);
	}
	cuGreenCtxDestroy(g);
	cuCtxSetCurrent(primary);
	if (p) cuMemFree_v2(p);
}

/* Memory with a handle and mappings of its own, which are given up in any order. */
static void map_memory(struct thread *t) {
	CUmemAllocationProp prop = {.type = 1, .location = {1, (int)below(t, DEVICES)}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	size_t bytes = (1 + below(t, 200)) * 2 * MIB;
	if (cuMemAddressReserve(&at, bytes, 0, 0, 0) || cuMemCreate(&h, bytes, &prop, 0)) return;
	bool mapped = below(t, 4) && cuMemMap(at, bytes, 0, h, 0) == CUDA_SUCCESS, released = below(t, 2) && cuMemRelease(h) == CUDA_SUCCESS;
	if (mapped) cuMemUnmap(at, bytes);
	if (!released) cuMemRelease(h);
}

static void change_array(struct thread *t) {
	CUDA_ARRAY3D_DESCRIPTOR d = {any_size(t) / 16, 1, 0, 0x20, 4, 0};
	if (t->array) cuArrayDestroy(t->array);
	if (cuArray3DCreate_v2(&t->array, &d)) t->array = NULL;
}

static const struct {
	const char *name;
	void (*run)(struct thread *);
} operations[] = {
#define O(name) {#name, name}
	O(allocate), O(allocate_in_order), O(allocate_in_order), O(release), O(release), O(release_of_graph), O(change_pool), O(make_graph), O(launch_graph),
	O(launch_graph), O(launch), O(begin_capture), O(end_capture), O(end_capture), O(synchronise), O(trim_graphs), O(cycle_pool), O(capture_beside), O(trim_beside), O(change_context), O(use_context),
	O(change_array), O(swap_beside), O(choose_beside), O(free_beside), O(free_beside), O(launch_freed), O(use_green_context), O(map_memory)};

/* Returns the most memory that the process has had on a device. */
static uint64_t most_used(void) {
	uint64_t most = 0;
	for (CUdevice d = 0; d < DEVICES; d++) most = fakecuda_most_used(d) > most ? fakecuda_most_used(d) : most;
	return most;
}

/*
 * Reports whether the hook counts no less than the driver, at any moment, as it counts before the driver allocates and after it has freed. The
 * two are not read at once, so only what stays so is a fault. It may count more, while what was freed in stream order waits.
 */
static bool is_counted(CUdevice d, uint64_t *used, uint64_t *counted) {
	for (int i = 0; i < 100 && server.sessions; i++, usleep(1000)) {
		*used = fakecuda_used(d);
		*counted = ((volatile struct gshare_container_page *)server.container[d])->memory;
		if (*counted >= *used) return true;
	}
	return !server.sessions;
}

/* Prints where the hook counts less than the driver. */
static bool check_counted(const char *after) {
	uint64_t used = 0, counted = 0;
	for (CUdevice d = 0; d < DEVICES; d++)
		if (!is_counted(d, &used, &counted)) {
			printf("device %d: %llu KiB are used after %s, %lld counted\n", d, (unsigned long long)(used >> 10), after, (long long)counted >> 10);
			return false;
		}
	return true;
}

static void *run_thread(void *arg) {
	struct thread *t = arg;
	cuCtxSetCurrent(primary);
	for (int i = 0; i < t->rounds && !atomic_load(&stopped); i++) {
		uint64_t k = below(t, sizeof operations / sizeof operations[0]);
		static void (*const any[])(void) = {end_captures_now, trim_graphs_now, new_context_now, launch_common_now, choose_pool_now};
		if (!below(t, 8)) fakecuda_at_return(any[below(t, sizeof any / sizeof any[0])]);
		operations[k].run(t);
		if (most_used() <= LIMIT && (atomic_load(&stopped) || check_counted(operations[k].name))) continue;
		if (!atomic_exchange(&stopped, true)) atomic_store(&last, operations[k].name);
	}
	cuCtxSetCurrent(primary);
	for (int i = 0; i < STREAMS; i++) cuStreamEndCapture(shared[i], &(CUgraph){0}), cuStreamEndCapture(t->own[i], &(CUgraph){0});
	for (int i = 0; i < OBJECTS; i++) {
		if (t->memory[i]) cuMemFree_v2(t->memory[i]);
		if (t->kept[i]) cuMemFree_v2(t->kept[i]);
		if (t->exec[i]) cuGraphExecDestroy(t->exec[i]);
	}
	for (int i = 0; i < 2; i++)
		if (t->pool[i]) cuMemPoolDestroy(t->pool[i]);
	if (t->array) cuArrayDestroy(t->array);
	for (int i = 0; i < STREAMS; i++) cuStreamDestroy_v2(t->own[i]);
	cuGreenCtxDestroy(t->green);
	cuDeviceGraphMemTrim(0);
	cuCtxSynchronize();
	return NULL;
}

/* Makes the streams of a thread. */
static bool make_streams(struct thread *t) {
	bool made = cuStreamCreate(&t->own[0], 1) == CUDA_SUCCESS && cuCtxSetCurrent(primaries[1]) == CUDA_SUCCESS &&
	            cuStreamCreate(&t->own[1], 1) == CUDA_SUCCESS && cuGreenCtxCreate(&t->green, NULL, 0, 1) == CUDA_SUCCESS &&
	            cuGreenCtxStreamCreate(&t->own[2], t->green, 1, 0) == CUDA_SUCCESS;
	return cuCtxSetCurrent(primary) == CUDA_SUCCESS && made;
}

/* Makes the graphs that all threads launch. */
static void make_common(struct thread *t) {
	for (int i = 0; i < 2; i++) {
		CUgraph g;
		CUgraphNode n;
		CUDA_MEM_ALLOC_NODE_PARAMS p = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = (2 + below(t, 200)) * MIB};
		cuGraphCreate(&g, 0);
		cuGraphAddMemAllocNode(&n, g, NULL, 0, &p);
		if (cuGraphInstantiateWithFlags(&common[i], g, 0)) common[i] = NULL;
		common_kept[i] = p.dptr;
		cuGraphDestroy(g);
	}
}

/* Gives up what all threads have used. */
static void end_common(void) {
	while (atomic_load(&asked)) usleep(20);
	for (int i = 0; i < 2; i++) {
		cuMemFree_v2(common_kept[i]);
		if (common[i]) cuGraphExecDestroy(common[i]);
		common[i] = NULL;
	}
	for (CUdevice d = 0; d < DEVICES; d++) cuDeviceGraphMemTrim(d);
	cuCtxSynchronize();
	usleep(1000); /* the meddling thread may still free */
}

/* Runs the program of a seed in a number of threads. Reports whether it stayed within the limit with all launches counted. */
static bool run_seed(uint64_t seed, int threads) {
	pthread_t id[THREADS];
	static struct thread t[THREADS];
	for (int i = 0; i < threads; i++) {
		t[i] = (struct thread){.random = seed * THREADS + (uint64_t)i, .rounds = 200};
		if (!make_streams(&t[i])) return printf("no stream\n"), false;
		if (!i) make_common(&t[i]);
		pthread_create(&id[i], NULL, run_thread, &t[i]);
	}
	for (int i = 0; i < threads; i++) pthread_join(id[i], NULL);
	end_common();
	uint64_t most = most_used(), ran = atomic_load(&launched) - fakecuda_captured();
	uint64_t counted = 0; /* without the hook there is no session */
	for (int i = 0; i < 2000 && counted < ran; i++, usleep(1000)) {
		counted = 0;
		for (CUdevice d = 0; d < DEVICES && server.sessions; d++)
			counted += ((volatile struct gshare_client_page *)server.session[0].client[d])->launches;
		if (counted >= ran || !server.sessions) break;
	}
	bool less = atomic_load(&stopped) && most <= LIMIT;
	if (less || most > LIMIT) printf("seed %llu, %d threads: %llu MiB in %s\n", (unsigned long long)seed, threads, (unsigned long long)(most / MIB), atomic_load(&last));
	if (counted < ran)
		printf("seed %llu, %d threads: %llu launches, of which %llu are counted\n", (unsigned long long)seed, threads, (unsigned long long)ran,
		       (unsigned long long)counted);
	return check_counted("the end") && !less && most <= LIMIT && counted >= ran;
}

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
	double until = now() + (argc > 1 ? atof(argv[1]) : 3);
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, seeds = 0;
	bool good = true;
	pthread_t meddler;
	CUmemPoolProps props = pool_on(0);
	setenv("FAKE_CUDA_DEVICES", "2", 1);
	server_start(&server);
	if (!(kernel = driver_start("k")) || cuDevicePrimaryCtxRetain(&primaries[1], 1)) return printf("no driver\n"), 1;
	cuCtxGetCurrent(&primary);
	cuMemPoolCreate(&spare, &props);
	for (int i = 0; i < STREAMS; i++) cuStreamCreate(&shared[i], 1);
	pthread_create(&meddler, NULL, meddle, NULL);
	for (; good && now() < until; seed++, seeds++) good = run_seed(seed, 1) && run_seed(seed, THREADS);
	printf("%s random_programs\n%llu seeds, %llu launches, at most %llu MiB\n", good ? "ok" : "not ok", (unsigned long long)seeds,
	       (unsigned long long)atomic_load(&launched), (unsigned long long)(most_used() / MIB));
	return !good;
}
