/*
 * Random programs: threads that allocate, use pools, graphs and captures, change contexts and launch. The fake driver's own count, which shares
 * no code with the hook, decides: at no moment more than the limit is allocated, and every launch that is not captured is counted.
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

uint64_t fakecuda_most_used(CUdevice d);
uint64_t fakecuda_used(CUdevice d);
unsigned long fakecuda_captured(void);
void fakecuda_at_return(void (*call)(void));
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph g, const CUgraphNode *from, size_t n, CUdeviceptr p);

static struct server server = {.memory_limit = LIMIT};
static CUcontext primary;
static CUfunction kernel;
static CUstream shared[STREAMS];
static _Atomic uint64_t launched;      /* launches that succeeded, captured ones too */
static const char *_Atomic last;       /* the operation that was the first to have too much */
static atomic_bool stopped;

/* What a thread has. */
struct thread {
	uint64_t random;
	CUstream own[STREAMS];
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

static _Atomic int asked; /* what the meddling thread is to do; 0: nothing */

/* Thread: changes what the hook has just looked at, as any thread of a program may. */
static void *meddle(void *arg) {
	CUdeviceptr p[8];
	cuCtxSetCurrent(primary);
	for (;; atomic_store(&asked, 0)) {
		int what;
		while (!(what = atomic_load(&asked))) usleep(20);
		for (int i = 0; what == 1 && i < STREAMS; i++) cuStreamEndCapture(shared[i], &(CUgraph){0});
		if (what != 2) continue;
		cuDeviceGraphMemTrim(0);
		for (int i = 0; i < 8; i++)
			if (cuMemAlloc_v2(&p[i], LIMIT / 2 >> i)) p[i] = 0;
		atomic_store(&asked, 0);
		usleep(500);
		for (int i = 0; i < 8; i++) cuMemFree_v2(p[i]);
	}
	return arg;
}

/* Lets the meddling thread act between what the driver has told the hook and what the hook does next. The hook may make it wait. */
static void let_meddle(int what) {
	atomic_store(&asked, what);
	for (int i = 0; i < 20 && atomic_load(&asked); i++) usleep(50);
}
static void end_captures_now(void) { let_meddle(1); }
static void trim_graphs_now(void) { let_meddle(2); }
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
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
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
	CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
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
		if (cuGraphLaunch(e, t->own[0]) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
		fakecuda_at_return(below(t, 2) ? trim_graphs_now : trim_graphs_next);
	}
	cuGraphExecDestroy(e);
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
	CUdeviceptr other = t->kept[below(t, OBJECTS)];
	if (!keeps) cuGraphAddMemFreeNode(&n, g, NULL, 0, p.dptr);
	if (other && below(t, 2)) cuGraphAddMemFreeNode(&n, g, NULL, 0, other);
	put_graph(t, g, keeps ? p.dptr : 0);
}

static void launch_graph(struct thread *t) {
	CUgraphExec e = t->exec[below(t, OBJECTS)];
	if (e && cuGraphLaunch(e, any_stream(t)) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
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

static void change_context(struct thread *t) { cuCtxSetCurrent(below(t, 3) ? primary : NULL); }

/* A context that ends with all that it has. */
static void use_context(struct thread *t) {
	CUcontext c;
	CUstream s;
	CUdeviceptr p;
	if (cuCtxCreate_v2(&c, 0, 0)) return;
	if (below(t, 2)) cuCtxSetLimit(2, any_size(t));
	if (cuMemAlloc_v2(&p, any_size(t)) == CUDA_SUCCESS && below(t, 2)) cuMemFreeAsync(p, NULL);
	if (cuStreamCreate(&s, 1) == CUDA_SUCCESS) {
		if (below(t, 2)) cuStreamBeginCapture_v2(s, 2);
		if (driver_launch(kernel, s) == CUDA_SUCCESS) atomic_fetch_add(&launched, 1);
		cuStreamDestroy_v2(s);
	}
	cuCtxDestroy_v2(c);
	cuCtxSetCurrent(primary);
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
	O(change_array)};

static void *run_thread(void *arg) {
	struct thread *t = arg;
	cuCtxSetCurrent(primary);
	for (int i = 0; i < t->rounds && !atomic_load(&stopped); i++) {
		uint64_t k = below(t, sizeof operations / sizeof operations[0]);
		if (!below(t, 8)) fakecuda_at_return(below(t, 2) ? end_captures_now : trim_graphs_now);
		operations[k].run(t);
		if (fakecuda_most_used(0) <= LIMIT) continue;
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
	cuDeviceGraphMemTrim(0);
	cuCtxSynchronize();
	return NULL;
}

/* Runs the program of a seed in a number of threads. Reports whether it stayed within the limit with all launches counted. */
static bool run_seed(uint64_t seed, int threads) {
	pthread_t id[THREADS];
	static struct thread t[THREADS];
	for (int i = 0; i < threads; i++) {
		t[i] = (struct thread){.random = seed * THREADS + (uint64_t)i, .rounds = 200};
		for (int k = 0; k < STREAMS; k++)
			if (cuStreamCreate(&t[i].own[k], 1)) return printf("no stream\n"), false;
		pthread_create(&id[i], NULL, run_thread, &t[i]);
	}
	for (int i = 0; i < threads; i++) pthread_join(id[i], NULL);
	uint64_t most = fakecuda_most_used(0), ran = atomic_load(&launched) - fakecuda_captured();
	static const volatile uint64_t none; /* without the hook there is no session */
	const volatile uint64_t *counted = server.sessions ? (const volatile uint64_t *)&server.session[0].client[0]->launches : &none;
	for (int i = 0; i < 2000 && *counted < ran; i++) usleep(1000);
	if (most > LIMIT) printf("seed %llu, %d threads: %llu MiB in %s\n", (unsigned long long)seed, threads, (unsigned long long)(most / MIB), atomic_load(&last));
	if (*counted < ran)
		printf("seed %llu, %d threads: %llu launches, of which %llu are counted\n", (unsigned long long)seed, threads, (unsigned long long)ran,
		       (unsigned long long)*counted);
	return most <= LIMIT && *counted >= ran;
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
	server_start(&server);
	if (!(kernel = driver_start("k"))) return printf("no driver\n"), 1;
	cuCtxGetCurrent(&primary);
	for (int i = 0; i < STREAMS; i++) cuStreamCreate(&shared[i], 1);
	pthread_create(&meddler, NULL, meddle, NULL);
	for (; good && now() < until; seed++, seeds++) good = run_seed(seed, 1) && run_seed(seed, THREADS);
	printf("%s random_programs\n%llu seeds, %llu launches, at most %llu MiB\n", good ? "ok" : "not ok", (unsigned long long)seeds,
	       (unsigned long long)atomic_load(&launched), (unsigned long long)(fakecuda_most_used(0) / MIB));
	return !good;
}
