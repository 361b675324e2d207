/*
 * The wrappers of graphs: one launch of many kernels, charged like one function whose cost is measured. Thread blocks are
 * counted once, when the graph is instantiated. Memory nodes allocate at the first launch, as much as the driver reports.
 */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>

#include "device.h"
#include "gate.h"
#include "reserve.h"
#include "start.h"

/* Whether any graph has memory nodes; in most programs none has. */
static atomic_bool with_memory;

/* Totals over the nodes of a graph and of its child graphs. */
struct contents {
	uint64_t blocks, bytes; /* thread blocks of kernels; bytes that memory nodes allocate */
};

/*
 * A list of handles that grows, in memory of its own: the hook does not use the application's allocator in its calls, and lists
 * are too long for the stack of a small thread.
 */
struct list {
	void **items;
	size_t count, capacity;
};

/* Makes room for n items in all. Returns false if there is no memory. */
static bool list_reserve(struct list *l, size_t n) {
	if (n <= l->capacity) return true;
	size_t capacity = l->capacity ? l->capacity : 512;
	while (capacity < n) capacity *= 2;
	void **items = mmap(NULL, capacity * sizeof *items, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (items == MAP_FAILED) return false;
	if (l->items) memcpy(items, l->items, l->count * sizeof *items);
	if (l->items) munmap(l->items, l->capacity * sizeof *items);
	l->items = items;
	l->capacity = capacity;
	return true;
}

/* Appends an item. Returns false if there is no memory. */
static bool list_append(struct list *l, void *item) {
	if (!list_reserve(l, l->count + 1)) return false;
	l->items[l->count++] = item;
	return true;
}

static void list_free(struct list *l) {
	if (l->items) munmap(l->items, l->capacity * sizeof *l->items);
}

/* Adds one node to the contents, and its child graph to the list of graphs. Returns false if there is no memory. */
static bool inspect_node(CUgraphNode node, struct contents *c, struct list *graphs) {
	int type = -1;
	CUgraph child = NULL;
	CUDA_KERNEL_NODE_PARAMS kernel = {0};
	CUDA_MEM_ALLOC_NODE_PARAMS memory = {0};
	if (CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) return true;
	if (type == CU_GRAPH_NODE_TYPE_KERNEL && CALL(cuGraphKernelNodeGetParams_v2, node, &kernel) == CUDA_SUCCESS)
		c->blocks += (uint64_t)kernel.gridDimX * kernel.gridDimY * kernel.gridDimZ;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && CALL(cuGraphMemAllocNodeGetParams, node, &memory) == CUDA_SUCCESS)
		c->bytes += memory.bytesize;
	if (type == CU_GRAPH_NODE_TYPE_GRAPH && CALL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS && child)
		return list_append(graphs, child);
	return true;
}

/* Stores the nodes of a graph in the list. Returns false if there is no memory. */
static bool list_nodes(CUgraph g, struct list *nodes) {
	nodes->count = 0;
	size_t n = 0;
	if (CALL(cuGraphGetNodes, g, NULL, &n) != CUDA_SUCCESS || !n) return true;
	if (!list_reserve(nodes, n)) return false;
	if (CALL(cuGraphGetNodes, g, (CUgraphNode *)nodes->items, &n) == CUDA_SUCCESS) nodes->count = n < nodes->capacity ? n : nodes->capacity;
	return true;
}

/* Adds all nodes of a graph and of its child graphs, at any depth, to the contents. Returns false if there is no memory. */
static bool inspect_graph(CUgraph g, struct contents *c) {
	struct list graphs = {0}, nodes = {0};
	bool complete = list_append(&graphs, g);
	while (complete && graphs.count) {
		complete = list_nodes(graphs.items[--graphs.count], &nodes);
		for (size_t i = 0; complete && i < nodes.count; i++) complete = inspect_node(nodes.items[i], c, &graphs);
	}
	list_free(&graphs);
	list_free(&nodes);
	return complete;
}

/* Enters a new executable graph in the table of costs, and in the ledger if it has memory nodes. Returns r. */
static CUresult instantiated(CUresult r, CUgraphExec *e, CUgraph g) {
	struct contents c = {0};
	if (r != CUDA_SUCCESS || !e) return r;
	if (!inspect_graph(g, &c) && !c.bytes) c.bytes = 1; /* what it really takes is charged after its first launch */
	gsh_cost_add_graph(*e, c.blocks);
	if (!c.bytes) return r;
	atomic_store(&with_memory, true);
	gsh_ledger_put(&(struct gsh_item){EXEC, (uint64_t)*e, NULL, NULL, 0, c.bytes, 0, false});
	return r;
}

#define INSTANTIATE(name, parameters, arguments)                                                                        \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		return instantiated(real arguments, e, g);                                                              \
	}
INSTANTIATE(cuGraphInstantiate, (CUgraphExec * e, CUgraph g, CUgraphNode *bad, char *log, size_t n), (e, g, bad, log, n))
INSTANTIATE(cuGraphInstantiate_v2, (CUgraphExec * e, CUgraph g, CUgraphNode *bad, char *log, size_t n), (e, g, bad, log, n))
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec * e, CUgraph g, unsigned long long flags), (e, g, flags))
INSTANTIATE(cuGraphInstantiateWithParams, (CUgraphExec * e, CUgraph g, void *params), (e, g, params))
INSTANTIATE(cuGraphInstantiateWithParams_ptsz, (CUgraphExec * e, CUgraph g, void *params), (e, g, params))

GSH_EXPORT CUresult cuGraphExecDestroy(CUgraphExec e) {
	NEED(cuGraphExecDestroy);
	struct gsh_item item;
	gsh_cost_forget(e);
	gsh_ledger_take(EXEC, (uint64_t)e, &item);
	return real(e);
}

/* Returns the bytes that a graph's memory nodes allocate. */
static uint64_t memory_of(CUgraphExec e) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(EXEC, (uint64_t)e);
	uint64_t bytes = i ? i->other : 0;
	gsh_ledger_unlock();
	return bytes;
}

/* Returns the bytes that are charged for graphs on a device, and enters them in the ledger at first use. */
static uint64_t charged_bytes(struct gsh_current at) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(GRAPH_MEMORY, (uint64_t)at.device);
	uint64_t bytes = i ? i->bytes : 0;
	if (!i) gsh_item_put(&(struct gsh_item){GRAPH_MEMORY, (uint64_t)at.device, at.vgpu, NULL, 0, 0, 0, false});
	gsh_ledger_unlock();
	return bytes;
}

/* Charges what the driver has reserved for graphs on a device. */
static void refresh_device(CUdevice d) {
	uint64_t bytes = 0;
	if (CALL(cuDeviceGetGraphMemAttribute, d, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS)
		gsh_item_resize(GRAPH_MEMORY, (uint64_t)d, bytes);
}

/* Reserves a graph's memory. Graphs on one device share theirs, so only what exceeds the present charge is reserved. */
static bool reserve_memory(struct gsh_reservation *h, CUgraphExec e) {
	uint64_t bytes = memory_of(e);
	*h = (struct gsh_reservation){0};
	if (!bytes) return true;
	gsh_start();
	uint64_t have = charged_bytes(gsh_current());
	return gsh_reserve_current(h, bytes > have ? bytes - have : 0);
}

/* Charges what the driver has reserved by now and releases the reservation. Returns r. */
static CUresult commit_memory(struct gsh_reservation *h, CUresult r) {
	if (!h->counted) return r;
	refresh_device(h->on.device);
	gsh_memory_release(h->on.vgpu, h->bytes);
	return r;
}

/* Returns the thread blocks of one launch of a graph. */
static uint64_t blocks_of(CUgraphExec e) {
	struct gsh_cost *c = gsh_cost_find(e);
	return c ? atomic_load_explicit(&c->blocks, memory_order_relaxed) : 0;
}

/* Launches a graph by the slow path. */
static CUresult launch_slow(cuGraphLaunch_fn real, CUgraphExec e, CUstream s, bool twin) {
	struct gsh_stream_state *st = gsh_enter_slow(gsh_stream_handle(s, twin), e, blocks_of(e));
	CUresult r = real(e, s);
	gsh_leave(st, r);
	return r;
}

/* Launches a graph that may have memory nodes. */
static CUresult launch_with_memory(cuGraphLaunch_fn real, CUgraphExec e, CUstream s, bool twin) {
	struct gsh_reservation h;
	return reserve_memory(&h, e) ? commit_memory(&h, launch_slow(real, e, s, twin)) : CUDA_ERROR_OUT_OF_MEMORY;
}

#define RUN(name, twin)                                                                                                 \
	GSH_EXPORT CUresult name(CUgraphExec e, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		if (unlikely(atomic_load_explicit(&with_memory, memory_order_relaxed)))                                 \
			return launch_with_memory(real, e, s, twin);                                                    \
		struct gsh_stream_state *st = gsh_enter_set(gsh_stream_handle(s, twin), e);                             \
		if (unlikely(!st)) return launch_slow(real, e, s, twin);                                                \
		st->blocks += blocks_of(e);                                                                             \
		return real(e, s);                                                                                      \
	}
RUN(cuGraphLaunch, false)
RUN(cuGraphLaunch_ptsz, true)

#define UPLOAD(name)                                                                                                    \
	GSH_EXPORT CUresult name(CUgraphExec e, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		struct gsh_reservation h;                                                                               \
		return reserve_memory(&h, e) ? commit_memory(&h, real(e, s)) : CUDA_ERROR_OUT_OF_MEMORY;                \
	}
UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

GSH_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice d) {
	NEED(cuDeviceGraphMemTrim);
	CUresult r = real(d);
	refresh_device(d);
	return r;
}
