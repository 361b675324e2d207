/* A CUDA driver without a GPU, see README.md. Types and numbers are those of the CUDA driver API. */
#ifndef GSHARE_FAKE_H
#define GSHARE_FAKE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

/* The handles of the driver API are pointers to the structures of this library. */
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

/* CUresult */
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
	CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
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

/* mps.c: the client of the fake MPS daemon */
extern uint64_t fake_mps_memory; /* bytes of device memory that this client may have */
CUresult fake_mps_start(void);   /* connects, where there is a daemon; returns the result of cuInit */
double fake_mps_percent(void);   /* active thread percentage */
int fake_mps_has_low_priority(void); /* CUDA_MPS_CLIENT_PRIORITY is below normal */
int fake_mps_sms(int sms);       /* returns how many of these SMs this process may use */
int fake_mps_await(int fd);      /* waits until there is something to read, or the server has ended the work of this client: then it returns 0 */

/* One exported function. FN puts it into a linker section, which is the list of all functions. */
struct symbol {
	const char *base, *name; /* cuMemAlloc, cuMemAlloc_v2 */
	int version;             /* first CUDA version with this ABI */
	int per_thread;          /* a _ptsz or _ptds twin */
	void *address;
	unsigned long calls;                /* number of calls so far */
	unsigned long fail_from, fail_upto; /* range of calls that fail, from 1; the end is exclusive */
	CUresult failure;
} __attribute__((aligned(64)));

#define SYMBOL __attribute__((section("fake_symbols"), used))
#define EXPORT __attribute__((visibility("default")))

/* Defines an exported function: name, suffix of its ABI version, first CUDA version, parameters. */
#define FN(base, suffix, version, ...)                                                                                  \
	EXPORT CUresult base##suffix(__VA_ARGS__);                                                                      \
	static struct symbol symbol_##base##suffix SYMBOL = {#base, #base #suffix, version, 0, (void *)base##suffix,    \
							     0,     0,             0,       0};                         \
	CUresult base##suffix(__VA_ARGS__)

/* Defines a function that only succeeds. */
#define STUB(base, suffix, version, ...)                                                                                \
	FN(base, suffix, version, __VA_ARGS__) { ENTER(base##suffix); return CUDA_SUCCESS; }

/* Defines the variant of a function whose stream 0 is the calling thread's own. */
#define TWIN(base, suffix, tail, version, parameters, arguments)                                                        \
	EXPORT CUresult base##suffix##tail parameters;                                                                  \
	static struct symbol symbol_##base##suffix##tail SYMBOL = {                                                     \
		#base, #base #suffix #tail, version, 1, (void *)base##suffix##tail, 0, 0, 0, 0};                        \
	CUresult base##suffix##tail parameters { ENTER(base##suffix##tail); return base##suffix arguments; }

/* The stream that a handle means in such a variant. */
#define PER_THREAD(stream) ((stream) ? (stream) : STREAM_PER_THREAD)

/* Counts the call, and returns the error that fakecuda_fail has set for it. ENTER also returns fake_broken. */
#define COUNT(function)                                                                                                 \
	do {                                                                                                            \
		struct symbol *self = &symbol_##function;                                                               \
		unsigned long call = __atomic_load_n(&self->calls, __ATOMIC_RELAXED) + 1;                               \
		__atomic_store_n(&self->calls, call, __ATOMIC_RELAXED);                                                 \
		if (__builtin_expect(self->fail_upto != 0, 0) && call >= self->fail_from && call < self->fail_upto)     \
			return self->failure;                                                                           \
	} while (0)
#define ENTER(function)                                                                                                 \
	COUNT(function);                                                                                                \
	if (__builtin_expect(fake_broken != 0, 0))                                                                      \
		return fake_broken

/* AT_RETURN makes a call invoke what fakecuda_at_return has set when it has stored its results. LOCKED makes it hold a lock until then. */
void fake_returning(const int *unused);
void fake_unlock(pthread_mutex_t **lock);
#define AT_RETURN() __attribute__((cleanup(fake_returning), unused)) const int returning = 0
#define LOCKED(mutex)                                                                                                   \
	__attribute__((cleanup(fake_unlock), unused)) pthread_mutex_t *locked = &(mutex);                               \
	pthread_mutex_lock(locked)

#define THREAD_LOCAL __thread __attribute__((tls_model("initial-exec")))

/* device.c, context.c */
/*
 * A context with its legacy default stream. The structures of contexts, streams and events that are destroyed are used again for the next
 * ones, so handles do too, as with a real driver; until then they have no id, by which a destroyed one is known.
 */
struct context {
	struct context *next; /* in the list of destroyed ones */
	CUdevice device;
	int primary, green, references; /* references: retains of a primary context */
	unsigned flags;
	struct stream *legacy;
	uint64_t id; /* 0: destroyed, or a primary context that is not active */
	uint64_t limits[3]; /* stack, printf, heap: bytes beyond the driver's default */
};
extern int fake_devices;     /* number of devices that the process sees */
int fake_gpu(CUdevice device); /* returns the number of the GPU that the process sees as this device */
extern uint64_t fake_memory; /* bytes of each device */
extern const struct model {
	const char *name;
	unsigned memory, link; /* GB/s, which are bytes in a ns: of device memory, and between host and device */
} *fake_model; /* the modelled GPU */
extern int fake_initialised;
extern CUresult fake_broken; /* returned by all calls that need the driver: in a forked child, or once the MPS client has lost its server */
extern THREAD_LOCAL struct context *fake_current; /* the calling thread's context */

/*
 * Return an error where the thread has no context, a handle names no stream, the device does not exist, or a pointer is NULL. Which of the
 * first two a function has, by cuda.h, is in programs/contexts.c.
 */
CUresult fake_no_context(void); /* returns the error of a call that needs a current context, where there is none */
#define NEED_CONTEXT()                                                                                                  \
	do {                                                                                                            \
		if (__builtin_expect(!fake_current || !fake_current->id, 0))                                            \
			return fake_no_context();                                                                       \
	} while (0)

/* Declares the stream of a handle. Only a default stream needs a current context. */
CUresult fake_no_stream(CUstream handle);
#define NEED_STREAM(stream, handle)                                                                                     \
	struct stream *stream = fake_stream(handle);                                                                    \
	if (__builtin_expect(!stream, 0))                                                                               \
		return fake_no_stream(handle)

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

/* module.c: a kernel */
#define FUNCTION_ATTRIBUTES 16
struct function {
	struct function *next;
	char name[128];
	uint64_t duration; /* ns */
	uint64_t other_duration;  /* ns, of `changed` launches after each `after` launches */
	unsigned after, changed;
	_Atomic unsigned launches;
	uint32_t width;    /* per-mille of the SMs that it uses */
	uint32_t waves;    /* of thread blocks, one after another; 1 if all fit on the SMs */
	int attributes[FUNCTION_ATTRIBUTES]; /* by CUfunction_attribute */
	struct module *module;
};
void fake_function_defaults(struct function *function); /* function.c: sets the attributes that a new function has */

/* stream.c */
/* A capture that is in progress; forks counts other streams that joined it. */
struct capture {
	struct graph *graph;
	struct stream *origin;
	pthread_t thread;
	int mode, invalid, forks;
	int ended; /* streams that have joined it leave it at their next use */
	uint64_t id;
};
/* A stream; capture is NULL unless it captures. */
struct stream {
	struct stream *next; /* in the list of destroyed ones */
	struct context *context;
	uint64_t context_id; /* of the context when the stream was created */
	struct capture *capture;
	uint64_t id; /* 0: destroyed */
	unsigned flags;
	int priority;
};
/* An event. */
struct event {
	struct event *next; /* in the list of destroyed ones */
	struct context *context; /* NULL: destroyed */
	uint64_t context_id;
	unsigned flags;
	int recorded, done;
	uint64_t id, time; /* of the last record; ns, valid when done */
	struct capture *capture;
};
struct stream *fake_stream(CUstream stream); /* returns the stream of a handle; NULL if there is none */
struct event *fake_event(CUevent event);     /* returns the event, NULL if it was destroyed */
struct context *fake_primary(CUdevice device); /* returns the primary context of a device */
uint64_t fake_next_id(void);                 /* returns a number that is unique in the process */

/* capture.c: checks of calls while streams capture; each returns CUDA_SUCCESS or the error that a driver would return */
extern int fake_checks; /* number of captures and simulations; calls skip the checks while it is 0 */
CUresult fake_check_unsafe(void);                        /* a potentially unsafe call */
CUresult fake_check_wait(struct stream *stream); /* a synchronisation with the stream */
CUresult fake_check_wait_context(const struct context *context); /* a synchronisation with all streams of a context */
CUresult fake_check_legacy(struct stream *stream);     /* work on the legacy stream, which synchronises with others */
struct capture *fake_capture(struct stream *stream); /* returns the capture that the stream is in, or NULL */
struct graph_node;
int fake_capture_node(struct stream *stream, const struct graph_node *node); /* appends a copy to the stream's capture; 0 if it is in none */
void fake_join_capture(struct stream *stream, struct event *event); /* makes a stream that waits for a captured event part of the capture */
extern pthread_mutex_t fake_lock;

/* contents.c: what memsets and copies do to the contents of memory */
enum where { NOWHERE, DEVICE, HOST, EITHER }; /* NOWHERE: in an array, whose contents are not modelled */
/* One side of a copy: an address, and the bytes from one row and one layer to the next. */
struct place {
	uint64_t address;
	size_t pitch, layer;
	enum where where;
};
/* A memset or copy of rows in layers. A memset repeats the first `unit` bytes of `value`; a copy has a unit of 0. */
struct move {
	struct place to, from;
	size_t width, rows, layers; /* width: bytes of a row */
	uint32_t value, unit;
};
CUresult fake_move_check(struct move *move); /* decides what EITHER means and returns the error of a range that is not memory */
void fake_move(const struct move *move);     /* moves the bytes, after fake_move_check */

/* graph.c, exec.c */
/* CUgraphNodeType */
enum node_type { NODE_KERNEL = 0, NODE_MEMCPY = 1, NODE_MEMSET = 2, NODE_HOST = 3, NODE_GRAPH = 4, NODE_EMPTY = 5,
		 NODE_ALLOC = 10, NODE_FREE = 11 };
/* CUDA_KERNEL_NODE_PARAMS. */
struct kernel_params {
	CUfunction function;
	unsigned grid[3], block[3], shared;
	void **parameters, **extra;
	void *kernel, *context; /* since version 2 */
};
/* A node of a graph. */
struct graph_node {
	struct graph_node *next;
	int type;
	struct kernel_params kernel;
	struct graph *child;
	uint64_t size; /* bytes of a memory node */
	uint64_t duration; /* ns of a memset or copy */
	uint32_t width;    /* per-mille of the SMs that it uses */
	struct move move;  /* what a memset or copy does to memory */
	CUdevice device;
	CUdeviceptr address; /* of a memory node */
};
/* A graph; end is where the next node is linked. */
struct graph {
	struct graph_node *first, **end;
	int nodes;
};
struct graph *fake_graph(void);                                /* creates an empty graph */
struct graph_node fake_alloc_node(uint64_t size, CUdevice device); /* returns a node that allocates, at a new address */
void fake_graph_memory_freed(CUdevice device, uint64_t size); /* memory of a graph was freed outside of it: later launches may use it */
struct graph_node *fake_node(struct graph *graph, const struct graph_node *node); /* appends a copy of a node */
void fake_graph_copy(struct graph *to, const struct graph *from);
void fake_graph_destroy(struct graph *graph);

/* launch.c: starts a kernel on the simulation, if there is one */
CUresult fake_launch(struct stream *stream, struct function *function);

/* copy.c: starts a memset or copy on the simulation, if there is one */
void fake_copy(struct stream *stream, uint64_t duration, uint32_t width);

/* memory.c */
int fake_charge(CUdevice device, uint64_t size); /* takes device memory; returns 0 if there is not enough */
void fake_refund(CUdevice device, uint64_t size);
void fake_context_ended(struct context *context); /* frees the memory of a context */
void fake_context_hand_on(struct context *from, struct context *to); /* the memory of the first becomes the second's */
uint64_t fake_image_globals(const void *image);   /* image.c: returns the bytes of the variables of a module's image */
uint64_t fake_used(CUdevice device); /* bytes that this process has taken */
void fake_free_reached(void);              /* frees memory that was freed in the order of a stream and that it has come to */
void fake_pools_trim(CUdevice device);     /* returns the unused memory of pools to the device, as a synchronisation does */

/* sim.c: the client of the device simulation. Waits return a non-zero status if the work is not done. */
extern int fake_simulated;
CUresult fake_sim_start(void);
void fake_sim_work(int kind, struct stream *stream, uint64_t duration, uint32_t width, uint32_t waves, uint64_t event);
int fake_sim_wait_stream(struct stream *stream);
int fake_sim_wait_device(CUdevice device);
int fake_sim_query_stream(struct stream *stream);
int fake_sim_event(struct event *event, int wait); /* returns 1 and sets the time if the event is complete */
uint64_t fake_now(void); /* ns of the virtual or the real clock */
extern uint64_t fake_host_launch; /* ns of host time of a launch on the virtual clock */
void fake_spend(uint64_t ns); /* lets host time pass on the virtual clock */

/* For tests, which find them with dlsym or declare them. fakecuda_fail returns 0 if there is no such function. */
EXPORT int fakecuda_fail(const char *name, unsigned long nth, unsigned long count, CUresult code);
EXPORT void fakecuda_at_return(void (*call)(void)); /* sets what the next of some calls does last, as another thread could at that moment */
EXPORT CUresult fakecuda_retain_primary(CUcontext *context, CUdevice device); /* as a runtime does through cuGetExportTable */
EXPORT unsigned long fakecuda_calls(const char *name);
EXPORT unsigned long fakecuda_stale_pools(void); /* how often a pool was asked for an attribute after it was destroyed */
EXPORT uint64_t fakecuda_used(CUdevice device); /* bytes of the device that this process has taken */
EXPORT uint64_t fakecuda_most_used(CUdevice device); /* the most that it has had at any moment */
EXPORT unsigned long fakecuda_captured(void); /* kernels and graphs that were launched into captures */
EXPORT uint64_t fakecuda_used_by_all(CUdevice device); /* and all processes, also what has outlived them in other processes */

/* For the hook on the virtual clock, and programs that use it. */
EXPORT uint64_t fakesim_now(void);
EXPORT void fakesim_sleep(uint64_t ns);
EXPORT int fakesim_wait_word(const uint32_t *word, uint32_t seen, uint64_t timeout_ns); /* returns 0 or ETIMEDOUT */
EXPORT void fakesim_announce(void); /* stops the clock until the token server has handled a frame */
EXPORT void fakesim_leave(void);    /* the thread does not hold the clock until its next call */
EXPORT void fakesim_wake(void);     /* all threads that wait for a word check it again */
EXPORT int fakesim_open(void);      /* returns a connection for a new thread, which counts as running */
EXPORT void fakesim_adopt(int);     /* called by that thread */

#endif
