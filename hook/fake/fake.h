/*
 * A CUDA driver without a GPU. See README.md. Types and numbers are those of the CUDA driver API, the names are ours.
 */
#ifndef GSHARE_FAKE_H
#define GSHARE_FAKE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;
typedef struct event *CUevent;
typedef struct module *CUmodule;
typedef struct function *CUfunction;
typedef struct graph *CUgraph;
typedef struct graph_exec *CUgraphExec;
typedef struct graph_node *CUgraphNode;

enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_NOT_INITIALIZED = 3,
	CUDA_ERROR_NO_DEVICE = 100,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_CONTEXT = 201,
	CUDA_ERROR_INVALID_HANDLE = 400,
	CUDA_ERROR_ILLEGAL_STATE = 401,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_NOT_READY = 600,
	CUDA_ERROR_NOT_SUPPORTED = 801,
	CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	CUDA_ERROR_STREAM_CAPTURE_MERGE = 902,
	CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
	CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	CUDA_ERROR_CAPTURED_EVENT = 907,
	CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

#define STREAM_LEGACY ((CUstream)1)
#define STREAM_PER_THREAD ((CUstream)2)
#define DEVICES_MAX 16
#define DRIVER_VERSION 13030

/* mps.c */
extern CUresult fake_mps_error; /* of all calls, once this client has lost its server */
extern uint64_t fake_mps_memory; /* bytes of device memory that this client may have */
CUresult fake_mps_start(void);
double fake_mps_percent(void);
int fake_mps_sms(int sms); /* how many of them this process may use */

/* One exported function. FN puts one into a section of its own, so that the list needs no second place. */
struct symbol {
	const char *base, *name; /* cuMemAlloc, cuMemAlloc_v2 */
	int version;             /* first CUDA version with this ABI */
	int per_thread;          /* a _ptsz or _ptds twin */
	void *address;
	unsigned long calls;                /* so far */
	unsigned long fail_from, fail_upto; /* calls that fail, counted from 1; the second is not among them */
	CUresult failure;
} __attribute__((aligned(64)));

#define SYMBOL __attribute__((section("fake_symbols"), used))
#define EXPORT __attribute__((visibility("default")))

#define FN(base, suffix, version, ...)                                                                                  \
	EXPORT CUresult base##suffix(__VA_ARGS__);                                                                      \
	static struct symbol symbol_##base##suffix SYMBOL = {#base, #base #suffix, version, 0, (void *)base##suffix,    \
							     0,     0,             0,       0};                         \
	CUresult base##suffix(__VA_ARGS__)

/* A function that has nothing to do. */
#define STUB(base, suffix, version, ...)                                                                                \
	FN(base, suffix, version, __VA_ARGS__) { ENTER(base##suffix); return CUDA_SUCCESS; }

/* The twin of a function whose stream 0 is the calling thread's. */
#define TWIN(base, suffix, tail, version, parameters, arguments)                                                        \
	EXPORT CUresult base##suffix##tail parameters;                                                                  \
	static struct symbol symbol_##base##suffix##tail SYMBOL = {                                                     \
		#base, #base #suffix #tail, version, 1, (void *)base##suffix##tail, 0, 0, 0, 0};                        \
	CUresult base##suffix##tail parameters { ENTER(base##suffix##tail); return base##suffix arguments; }

#define OWN(stream) ((stream) ? (stream) : STREAM_PER_THREAD)

/* Counts the call and returns the failure that was ordered for it. */
#define ENTER(function)                                                                                                   \
	do {                                                                                                            \
		struct symbol *self = &symbol_##function;                                                                \
		unsigned long call = __atomic_load_n(&self->calls, __ATOMIC_RELAXED) + 1;                               \
		__atomic_store_n(&self->calls, call, __ATOMIC_RELAXED);                                                 \
		if (__builtin_expect(self->fail_upto != 0, 0) && call >= self->fail_from && call < self->fail_upto)     \
			return self->failure;                                                                           \
		if (__builtin_expect(fake_mps_error != 0, 0))                                                           \
			return fake_mps_error;                                                                          \
	} while (0)

#define HERE __thread __attribute__((tls_model("initial-exec")))

/* device.c, context.c */
struct context {
	CUdevice device;
	int primary, references;
	unsigned flags;
	struct stream *legacy;
	uint64_t id;
};
extern int fake_devices;
extern uint64_t fake_memory; /* bytes of each device */
extern int fake_initialised;
extern HERE struct context *fake_current;

#define NEED_CONTEXT()                                                                                                  \
	do {                                                                                                            \
		if (__builtin_expect(!fake_current, 0))                                                                 \
			return fake_initialised ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_NOT_INITIALIZED;              \
	} while (0)

#define NEED_DEVICE(d)                                                                                                  \
	do {                                                                                                            \
		if (!fake_initialised)                                                                                  \
			return CUDA_ERROR_NOT_INITIALIZED;                                                              \
		if ((d) < 0 || (d) >= fake_devices)                                                                     \
			return CUDA_ERROR_INVALID_DEVICE;                                                               \
	} while (0)

#define NEED(pointer)                                                                                                   \
	do {                                                                                                            \
		if (!(pointer))                                                                                         \
			return CUDA_ERROR_INVALID_VALUE;                                                                \
	} while (0)

/* module.c */
struct function {
	struct function *next;
	char name[128];
	uint64_t duration; /* ns at full width */
	uint32_t width;    /* per-mille of the SMs */
};

/* stream.c */
struct capture {
	struct graph *graph;
	struct stream *origin;
	pthread_t thread;
	int mode, invalid, forks;
	uint64_t id;
};
struct stream {
	struct stream *next;
	struct context *context;
	struct capture *capture;
	uint64_t id;
	unsigned flags;
	int priority;
};
struct event {
	unsigned flags;
	int recorded, done;
	uint64_t id, time; /* of the last record; ns, valid when done */
	struct capture *capture;
};
struct stream *fake_stream(CUstream stream); /* the one that a handle means; NULL if there is no context */
uint64_t fake_next_id(void);

/* capture.c: what a call may do while streams capture */
extern int fake_busy; /* not 0 while launches need a second look: a capture or a simulation */
CUresult fake_unsafe(void);                            /* a potentially unsafe call */
CUresult fake_wait_allowed(struct stream *stream);     /* a synchronisation with the stream, or with all if NULL */
CUresult fake_implicit(struct stream *stream);         /* work on the legacy stream */
void fake_join(struct stream *stream, struct event *event);
extern pthread_mutex_t fake_lock;

/* graph.c, exec.c */
enum node_type { NODE_KERNEL = 0, NODE_MEMCPY = 1, NODE_MEMSET = 2, NODE_HOST = 3, NODE_GRAPH = 4, NODE_EMPTY = 5,
		 NODE_ALLOC = 10, NODE_FREE = 11 };
struct kernel_params {
	CUfunction function;
	unsigned grid[3], block[3], shared;
	void **parameters, **extra;
	void *kernel, *context; /* of version 2 */
};
struct graph_node {
	struct graph_node *next;
	int type;
	struct kernel_params kernel;
	struct graph *child;
	uint64_t size; /* of a memory node */
	CUdevice device;
};
struct graph {
	struct graph_node *first, **end;
	int nodes;
};
struct graph *fake_graph(void);
struct graph_node *fake_node(struct graph *graph, int type);
void fake_graph_copy(struct graph *to, const struct graph *from);
void fake_graph_destroy(struct graph *graph);

/* launch.c */
CUresult fake_launch(struct stream *stream, struct function *function);

/* memory.c */
int fake_charge(CUdevice device, uint64_t size); /* 0 if there is no room */
void fake_refund(CUdevice device, uint64_t size);
uint64_t fake_used(CUdevice device);
void fake_trim(CUdevice device); /* pools give back what nobody uses, as a synchronisation makes them */

/* sim.c: the device simulation at the other end of a socket */
extern int fake_simulated;
CUresult fake_sim_start(void);
void fake_sim_work(int kind, struct stream *stream, uint64_t duration, uint32_t width, uint64_t event);
int fake_sim_wait_stream(struct stream *stream);
int fake_sim_wait_device(CUdevice device);
int fake_sim_query_stream(struct stream *stream);
int fake_sim_event(struct event *event, int wait); /* 1 if done; fills time */
uint64_t fake_now(void);
extern uint64_t fake_host_launch; /* ns of host time of a launch on the virtual clock */
void fake_host(uint64_t ns);

/* For tests: loaded with dlsym or declared by hand. */
EXPORT int fakecuda_fail(const char *name, unsigned long nth, unsigned long count, CUresult code);
EXPORT unsigned long fakecuda_calls(const char *name);
EXPORT uint64_t fakecuda_used(CUdevice device); /* bytes of the device that this process has */

/* For the platform of a hook on the virtual clock. */
EXPORT uint64_t fakesim_now(void);
EXPORT void fakesim_sleep(uint64_t ns);
EXPORT int fakesim_wait_word(const uint32_t *word, uint32_t seen, uint64_t timeout_ns); /* 0 changed, else ETIMEDOUT */
EXPORT void fakesim_announce(void); /* a frame is on its way to the token server */
EXPORT void fakesim_leave(void);    /* the thread waits outside of the clock from here on, until its next call */
EXPORT void fakesim_wake(void);     /* all that wait for words look again */
EXPORT int fakesim_open(void);      /* a place on the clock for a thread that starts; it counts as running */
EXPORT void fakesim_adopt(int);     /* in that thread: takes the place */

#endif
