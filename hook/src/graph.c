/*
 * The wrappers of graphs: one launch of many kernels, charged like one function whose cost is measured. Thread blocks are
 * counted once, when the graph is instantiated. Memory nodes allocate at the first launch, as much as the driver reports.
 */
#define _GNU_SOURCE
#include "graph.h"

#include <string.h>
#include <sys/mman.h>

#include "device.h"
#include "gate.h"
#include "pool.h"
#include "reap.h"
#include "reserve.h"
#include "start.h"

/* Whether any graph has memory nodes; in most programs none has. */
static atomic_bool with_memory;

/*
 * A list of handles that grows, in memory of its own: the hook does not use the application's allocator in its calls, and lists
 * are too long for the stack of a small thread.
 */
struct list {
	void **items;
	size_t count, capacity;
};

/* Totals over the nodes of a graph and of its child graphs. */
struct contents {
	uint64_t blocks, bytes; /* thread blocks of kernels; bytes that memory nodes allocate */
	CUdevice device;        /* of the memory nodes; -1: there are none */
	bool refused;           /* some memory nodes are on a device without a share, or they are not all on one device */
	CUgraphExec nodes_of;   /* the executable graph whose kernels get ledger items of their own; NULL: none do */
	struct list allocated, freed; /* addresses of memory nodes, each followed by its bytes; addresses that nodes free */
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

/* The thread blocks of a kernel, from its parameters in any version. */
#define KERNEL_BLOCKS(p) ((uint64_t)(p)->gridDimX * (p)->gridDimY * (p)->gridDimZ)

/* Returns the ledger key of a node of an executable graph. Nodes of different graphs with the same key are told apart by their owner. */
static uint64_t node_key(CUgraphExec e, CUgraphNode n) { return (uint64_t)n ^ (uint64_t)e * 0x9e3779b97f4a7c15ull; }

/* Adds a kernel to the contents. */
static void add_kernel(CUgraphNode node, struct contents *c) {
	CUDA_KERNEL_NODE_PARAMS p = {0};
	if (CALL(cuGraphKernelNodeGetParams_v2, node, &p) != CUDA_SUCCESS) return;
	c->blocks += KERNEL_BLOCKS(&p);
	if (c->nodes_of) gsh_ledger_put(&(struct gsh_item){NODE, node_key(c->nodes_of, node), NULL, c->nodes_of, 0, KERNEL_BLOCKS(&p), 0, 0});
}

#define UNIT (2ull << 20) /* in which the driver maps memory */

/* Adds a memory node to the contents. Returns false if there is no memory. */
static bool add_memory(CUgraphNode node, struct contents *c) {
	CUDA_MEM_ALLOC_NODE_PARAMS p = {0};
	if (CALL(cuGraphMemAllocNodeGetParams, node, &p) != CUDA_SUCCESS || gsh_location_is_host(p.poolProps.location.type)) return true;
	CUdevice d = p.poolProps.location.id;
	uint64_t bytes = p.bytesize > UINT64_MAX - UNIT ? UINT64_MAX : (p.bytesize + UNIT - 1) / UNIT * UNIT;
	c->refused = c->refused || gsh_device_refused(d) || (c->device >= 0 && c->device != d);
	c->device = d;
	if (__builtin_add_overflow(c->bytes, bytes, &c->bytes)) c->refused = true;
	return list_append(&c->allocated, (void *)p.dptr) && list_append(&c->allocated, (void *)bytes);
}

/* Adds a node that frees memory to the contents. Returns false if there is no memory. */
static bool add_free(CUgraphNode node, struct contents *c) {
	CUdeviceptr p = 0;
	return CALL(cuGraphMemFreeNodeGetParams, node, &p) != CUDA_SUCCESS || list_append(&c->freed, (void *)p);
}

/* Adds one node to the contents, and its child graph to the list of graphs. Returns false if there is no memory. */
static bool inspect_node(CUgraphNode node, struct contents *c, struct list *graphs) {
	int type = -1;
	CUgraph child = NULL;
	if (CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) return true;
	if (type == CU_GRAPH_NODE_TYPE_KERNEL) add_kernel(node, c);
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) return add_memory(node, c);
	if (type == CU_GRAPH_NODE_TYPE_MEM_FREE) return add_free(node, c);
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

static void contents_free(struct contents *c) {
	list_free(&c->allocated);
	list_free(&c->freed);
}

/* Reports whether launches on some device need block tokens, so that the thread blocks of graphs have to be right. */
static bool is_metered(void) {
	for (uint32_t i = 0; i < atomic_load(&gsh_vgpu_count); i++)
		if (atomic_load(&gsh_vgpus[i].server->unit) == GSHARE_UNIT_BLOCKS) return true;
	return false;
}

/* Flags of an EXEC. KEEPS: it has items of kind NODE_MEMORY. FREES: it has items of kind NODE_FREE. Flag of a NODE_MEMORY: it is in use. */
enum { KEEPS = 1, FREES = 2 };
enum { IN_USE = 1 };

/* Reports whether a list has an item at one of the places 0, step, 2 step and so on. */
static bool list_has(const struct list *l, size_t step, const void *item) {
	for (size_t i = 0; i < l->count; i += step)
		if (l->items[i] == item) return true;
	return false;
}

/* Returns the owner of the addresses of a graph, which stay when its kernels are replaced. */
static const void *addresses_of(CUgraphExec e) { return (const char *)e + 1; }

/*
 * Enters the addresses in the ledger that a graph allocates and does not free, and those that it frees and has not allocated. Returns the
 * flags of the graph. An address that cannot be entered counts as not in use at the next launch.
 */
static unsigned enter_addresses(CUgraphExec e, const struct contents *c) {
	unsigned flags = 0;
	gsh_ledger_lock();
	for (size_t i = 0; i + 1 < c->allocated.count; i += 2) {
		uint64_t p = (uint64_t)c->allocated.items[i], bytes = (uint64_t)c->allocated.items[i + 1];
		if (list_has(&c->freed, 1, c->allocated.items[i]) || gsh_item_find(NODE_MEMORY, p)) continue;
		if (gsh_item_put(&(struct gsh_item){NODE_MEMORY, p, NULL, addresses_of(e), bytes, 0, 0, 0})) flags |= KEEPS;
	}
	for (size_t i = 0; i < c->freed.count; i++) {
		if (list_has(&c->allocated, 2, c->freed.items[i])) continue;
		flags |= FREES;
		gsh_item_put(&(struct gsh_item){NODE_FREE, node_key(e, c->freed.items[i]), NULL, addresses_of(e), 0, (uint64_t)c->freed.items[i], 0, 0});
	}
	gsh_ledger_unlock();
	return flags;
}

/*
 * Enters a new executable graph in the cost table and in the ledger and stores it for the caller, or destroys it if its memory is
 * refused. Returns r.
 */
static CUresult instantiated(CUresult r, CUgraphExec e, CUgraphExec *to, CUgraph g) {
	if (r != CUDA_SUCCESS) return r;
	gsh_start();
	struct contents c = {.device = -1, .nodes_of = is_metered() ? e : NULL};
	if (!inspect_graph(g, &c) && !c.bytes) c.bytes = 1; /* unknown, but not 0: what it really takes is charged after its first launch */
	CUdevice d = c.device >= 0 ? c.device : gsh_target(BY_UNSAID, 0).device;
	unsigned flags = enter_addresses(e, &c);
	contents_free(&c);
	gsh_ledger_lock();
	bool entered = !c.refused && gsh_item_put(&(struct gsh_item){EXEC, (uint64_t)e, NULL, NULL, c.bytes, (uint64_t)d, c.blocks, flags});
	gsh_ledger_unlock();
	if (!entered) {
		gsh_ledger_drop_owned(e);
		gsh_ledger_drop_owned(addresses_of(e));
		CALL(cuGraphExecDestroy, e);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	gsh_cost_add_graph(e, c.blocks);
	if (c.bytes || flags) atomic_store(&with_memory, true);
	*to = e;
	return r;
}

#define INSTANTIATE(name, parameters, arguments)                                                                        \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		CUgraphExec created = NULL, *to = e;                                                                    \
		if (e) e = &created;                                                                                    \
		CUresult r = real arguments;                                                                            \
		return instantiated(r, created, to, g);                                                                 \
	}
INSTANTIATE(cuGraphInstantiate, (CUgraphExec * e, CUgraph g, CUgraphNode *bad, char *log, size_t n), (e, g, bad, log, n))
INSTANTIATE(cuGraphInstantiate_v2, (CUgraphExec * e, CUgraph g, CUgraphNode *bad, char *log, size_t n), (e, g, bad, log, n))
INSTANTIATE(cuGraphInstantiateWithFlags, (CUgraphExec * e, CUgraph g, unsigned long long flags), (e, g, flags))

/* CUDA_GRAPH_INSTANTIATE_PARAMS. */
struct instantiate_params {
	unsigned long long flags;
	CUstream upload_stream;
	CUgraphNode bad;
	int result;
};
#define UPLOAD_FLAG 2ull

/*
 * The driver would allocate an uploaded graph's memory before its size is known, so the graph is instantiated without upload and
 * then uploaded.
 */
#define INSTANTIATE_WITH_PARAMS(name, upload)                                                                           \
	GSH_EXPORT CUresult name(CUgraphExec *e, CUgraph g, void *params) {                                             \
		NEED(name);                                                                                             \
		struct instantiate_params *p = params, own;                                                             \
		if (!p || !e) return real(e, g, params);                                                                \
		own = *p;                                                                                               \
		bool uploads = own.flags & UPLOAD_FLAG;                                                                 \
		own.flags &= ~UPLOAD_FLAG;                                                                              \
		CUgraphExec created = NULL;                                                                             \
		CUresult r = real(&created, g, &own);                                                                   \
		r = instantiated(r, created, e, g);                                                                     \
		p->bad = own.bad;                                                                                       \
		p->result = own.result;                                                                                 \
		if (r != CUDA_SUCCESS || !uploads || (r = upload(created, own.upload_stream)) == CUDA_SUCCESS) return r; \
		cuGraphExecDestroy(created);                                                                            \
		return r;                                                                                               \
	}
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams, cuGraphUpload)
INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz, cuGraphUpload_ptsz)

GSH_EXPORT CUresult cuGraphExecDestroy(CUgraphExec e) {
	NEED(cuGraphExecDestroy);
	struct gsh_item item;
	gsh_reap_forget(e);
	bool known = gsh_ledger_take(EXEC, (uint64_t)e, &item);
	if (is_metered()) gsh_ledger_drop_owned(e);
	if (known && item.flags) gsh_ledger_drop_owned(addresses_of(e));
	return real(e);
}

/* Sets the thread blocks of a node of an executable graph. If the ledger lacks the node, its previous thread blocks stay counted. */
static void set_node_blocks(CUgraphExec e, CUgraphNode node, uint64_t blocks) {
	gsh_ledger_lock();
	struct gsh_item *n = gsh_item_find(NODE, node_key(e, node)), *i = gsh_item_find(EXEC, (uint64_t)e);
	if (n && n->owner != e) n = NULL;
	uint64_t all = i ? i->mappings += blocks - (n ? n->other : 0) : blocks;
	if (n)
		n->other = blocks;
	else
		gsh_item_put(&(struct gsh_item){NODE, node_key(e, node), NULL, e, 0, blocks, 0, 0});
	gsh_ledger_unlock();
	gsh_cost_set_blocks(e, all);
}

/* Counts the blocks of a child graph that replaces another one's. */
static void set_child_blocks(CUgraphExec e, CUgraphNode node, CUgraph child) {
	struct contents c = {.device = -1};
	inspect_graph(child, &c);
	contents_free(&c);
	set_node_blocks(e, node, c.blocks);
}

/*
 * Forgets the cost of an executable graph if a call has changed the graph, so that its next launch is measured. Returns whether the thread
 * blocks of its nodes have to be counted, too.
 */
static bool changed(CUresult r, CUgraphExec e) {
	if (r == CUDA_SUCCESS) gsh_reap_forget(e);
	return r == CUDA_SUCCESS && is_metered();
}

#define SET_KERNEL(name, params)                                                                                                \
	GSH_EXPORT CUresult name(CUgraphExec e, CUgraphNode n, const params *p) {                                       \
		NEED(name);                                                                                             \
		CUresult r = real(e, n, p);                                                                             \
		if (changed(r, e)) set_node_blocks(e, n, KERNEL_BLOCKS(p));                         \
		return r;                                                                                               \
	}
SET_KERNEL(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1)
SET_KERNEL(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS)

GSH_EXPORT CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec e, CUgraphNode n, CUgraph child) {
	NEED(cuGraphExecChildGraphNodeSetParams);
	CUresult r = real(e, n, child);
	if (changed(r, e)) set_child_blocks(e, n, child);
	return r;
}

/* Changes of nodes that have no thread blocks, or keep them: a copy of a few bytes may become one of many. */
#define CHANGE(name, parameters, arguments)                                                                             \
	GSH_EXPORT CUresult name parameters {                                                                           \
		NEED(name);                                                                                             \
		CUresult r = real arguments;                                                                            \
		changed(r, e);                                                                                          \
		return r;                                                                                               \
	}
CHANGE(cuGraphExecMemcpyNodeSetParams, (CUgraphExec e, CUgraphNode n, const CUDA_MEMCPY3D *p, CUcontext c), (e, n, p, c))
CHANGE(cuGraphExecMemsetNodeSetParams, (CUgraphExec e, CUgraphNode n, const void *p, CUcontext c), (e, n, p, c))
CHANGE(cuGraphNodeSetEnabled, (CUgraphExec e, CUgraphNode n, unsigned enabled), (e, n, enabled))

GSH_EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec e, CUgraphNode n, CUgraphNodeParams *p) {
	NEED(cuGraphExecNodeSetParams);
	CUresult r = real(e, n, p);
	if (!changed(r, e)) return r;
	if (p->type == CU_GRAPH_NODE_TYPE_KERNEL) set_node_blocks(e, n, KERNEL_BLOCKS(&p->kernel));
	if (p->type == CU_GRAPH_NODE_TYPE_GRAPH) set_child_blocks(e, n, p->graph.graph);
	return r;
}

/* Counts the thread blocks of an executable graph after it was updated from another graph. Its nodes keep their handles. */
static CUresult updated(CUresult r, CUgraphExec e, CUgraph g) {
	struct contents c = {.device = -1};
	if (!changed(r, e)) return r;
	inspect_graph(g, &c);
	contents_free(&c);
	gsh_ledger_drop_owned(e);
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(EXEC, (uint64_t)e);
	if (i) i->mappings = c.blocks;
	gsh_ledger_unlock();
	gsh_cost_set_blocks(e, c.blocks);
	return r;
}

GSH_EXPORT CUresult cuGraphExecUpdate(CUgraphExec e, CUgraph g, CUgraphNode *bad, int *result) {
	NEED(cuGraphExecUpdate);
	return updated(real(e, g, bad, result), e, g);
}

GSH_EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec e, CUgraph g, void *result) {
	NEED(cuGraphExecUpdate_v2);
	return updated(real(e, g, result), e, g);
}

/* Copies the item of an executable graph; false if the ledger has none. */
static bool find(CUgraphExec e, struct gsh_item *copy) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(EXEC, (uint64_t)e);
	if (i) *copy = *i;
	gsh_ledger_unlock();
	return i != NULL;
}

/* Returns an attribute of a device's memory for graphs, in bytes; 0 if the driver does not return it. */
static uint64_t graph_memory(CUdevice d, int attribute) {
	uint64_t bytes = 0;
	return CALL(cuDeviceGetGraphMemAttribute, d, attribute, &bytes) == CUDA_SUCCESS ? bytes : 0;
}

/*
 * Adds bytes, possibly a negative number, to what graphs that are being launched on a device may take, and returns the sum before.
 * All graphs on a device share their memory, so the ledger has one item for it.
 */
static uint64_t add_pending(CUdevice d, int64_t bytes) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(GRAPH_MEMORY, (uint64_t)d);
	uint64_t before = i ? i->other : 0;
	if (i)
		i->other += (uint64_t)bytes;
	else
		gsh_item_put(&(struct gsh_item){GRAPH_MEMORY, (uint64_t)d, gsh_vgpu_of_device(d), NULL, 0, (uint64_t)bytes, 0, 0});
	gsh_ledger_unlock();
	return before;
}

/*
 * Charges what the driver has reserved for graphs on a device. `hold` is what a launch has reserved that is complete: if it took idle memory, on
 * which others count that are under way, these need as much once more, so that it stays charged until they are complete.
 */
static void refresh_device(CUdevice d, uint64_t hold) {
	uint64_t bytes = graph_memory(d, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(GRAPH_MEMORY, (uint64_t)d);
	uint64_t held = i ? i->bytes + hold : 0, most = i ? bytes + i->other : 0;
	gsh_ledger_unlock();
	if (held > most) held = most;
	gsh_item_resize(GRAPH_MEMORY, (uint64_t)d, held > bytes ? held : bytes);
}

static uint64_t frees_seen; /* how often a call that frees memory of graphs has begun or ended; guarded by the ledger's lock */

/*
 * Returns how many bytes a graph's memory nodes have that it has not freed: its next launch needs no others in their place. Stores frees_seen.
 */
static uint64_t kept(CUgraphExec e, uint64_t *seen) {
	uint64_t bytes = 0;
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == NODE_MEMORY && i->owner == addresses_of(e) && i->flags & IN_USE) bytes += i->bytes;
	*seen = frees_seen;
	gsh_ledger_unlock();
	return bytes;
}

/* Records that a graph that was launched has the memory of its nodes, but for what a call may have freed that has begun or ended since, or is under way. */
static void keep(CUgraphExec e, uint64_t seen) {
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == NODE_MEMORY && i->owner == addresses_of(e) && !i->mappings && i->other <= seen) i->flags = IN_USE;
	gsh_ledger_unlock();
}

/* Records that memory of a graph is not in use, before (1) and after (-1) a call that frees it. The ledger is locked. */
static void count_free(CUdeviceptr p, int calls) {
	struct gsh_item *i = gsh_item_find(NODE_MEMORY, p);
	if (!i) return;
	i->flags = 0;
	i->other = ++frees_seen;
	if (calls > 0 || i->mappings) i->mappings += (uint64_t)calls;
}

/* Does so for the memory of other graphs that a graph frees. */
static void frees(CUgraphExec e, int calls) {
	gsh_ledger_lock();
	for (struct gsh_item *i = gsh_item_next(NULL); i; i = gsh_item_next(i))
		if (i->kind == NODE_FREE && i->owner == addresses_of(e)) count_free(i->other, calls);
	gsh_ledger_unlock();
}

void gsh_graph_memory_freeing(CUdeviceptr p, int calls) {
	if (likely(!atomic_load_explicit(&with_memory, memory_order_relaxed))) return;
	gsh_ledger_lock();
	count_free(p, calls);
	gsh_ledger_unlock();
}

/* A launch of a graph with memory nodes. */
struct launch {
	struct gsh_reservation hold;
	uint64_t bytes; /* of its memory nodes */
	CUdevice device;
	unsigned flags;
	uint64_t seen; /* see kept */
};

/*
 * Reserves a graph's memory. The driver keeps memory that graphs have freed for later graphs, so only what exceeds the idle part of
 * the driver's reservation is new. Launches that are under way may take the idle part too, and keep it from being trimmed.
 */
static bool reserve_memory(struct launch *l, CUgraphExec e) {
	struct gsh_item item;
	*l = (struct launch){0};
	if (!find(e, &item)) return gsh_driver_lost(); /* about to be entered: its handle is that of a graph from before */
	if (!(item.bytes || item.flags)) return true;
	CUdevice d = l->device = (CUdevice)item.other;
	l->flags = item.flags;
	if (l->flags & FREES) frees(e, 1);
	if (!item.bytes) return true;
	gsh_reserve_wait();
	int cancel = gsh_pools_lock();
	l->bytes = item.bytes;
	uint64_t taken = add_pending(d, (int64_t)item.bytes), need = item.bytes, own = l->flags & KEEPS ? kept(e, &l->seen) : 0;
	need -= own < need ? own : need;
	taken += graph_memory(d, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
	uint64_t have = graph_memory(d, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), idle = have > taken ? have - taken : 0;
	gsh_pools_unlock(cancel);
	if (gsh_reserve_at_once(&l->hold, gsh_vgpu_of_device(d), need > idle ? need - idle : 0)) return true;
	add_pending(d, -(int64_t)item.bytes);
	if (l->flags & FREES) frees(e, -1);
	return false;
}

/* Charges what the driver has reserved by now and releases the reservation. Returns r. */
static CUresult commit_memory(struct launch *l, CUgraphExec e, CUresult r, bool captured) {
	if (r == CUDA_SUCCESS && !captured && l->flags & KEEPS) keep(e, l->seen);
	if (l->flags & FREES) frees(e, -1);
	if (!l->bytes) return r;
	add_pending(l->device, -(int64_t)l->bytes);
	if (!l->hold.counted) return r;
	int cancel = gsh_pools_lock(); /* the last to set the charge has read the latest value */
	refresh_device(l->device, l->hold.bytes);
	gsh_pools_unlock(cancel);
	gsh_memory_release(l->hold.on.vgpu, l->hold.bytes);
	return r;
}

/* Returns the thread blocks of one launch of a graph: from the ledger if its entry in the cost table has been taken by another key. */
static uint64_t blocks_of(CUgraphExec e) {
	struct gsh_cost *c = gsh_cost_find(e);
	struct gsh_item item;
	uint64_t blocks = c ? atomic_load_explicit(&c->blocks, memory_order_relaxed) : GSH_BLOCKS_UNKNOWN;
	if (likely(blocks != GSH_BLOCKS_UNKNOWN)) return blocks;
	blocks = find(e, &item) ? item.mappings : 0;
	gsh_cost_set_blocks(e, blocks);
	return blocks;
}

/* Launches a graph on the slow path. Sets captured if the launch became a node of another graph. */
static CUresult launch_slow(cuGraphLaunch_fn real, CUgraphExec e, CUstream s, bool twin, bool *captured) {
	struct gsh_stream_state *st = gsh_enter_slow(gsh_stream_handle(s, twin), e, blocks_of(e));
	if (!st) return CUDA_ERROR_DEVICE_UNAVAILABLE;
	CUresult r = real(e, s);
	*captured = gsh_is_captured(st);
	gsh_leave(st, r);
	return r;
}

/* Launches a graph that may have memory nodes. */
static CUresult launch_with_memory(cuGraphLaunch_fn real, CUgraphExec e, CUstream s, bool twin) {
	struct launch l;
	bool captured = false;
	if (!reserve_memory(&l, e)) return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = launch_slow(real, e, s, twin, &captured);
	return commit_memory(&l, e, r, captured);
}

#define RUN(name, twin)                                                                                                 \
	GSH_EXPORT CUresult name(CUgraphExec e, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		if (unlikely(atomic_load_explicit(&with_memory, memory_order_relaxed)))                                 \
			return launch_with_memory(real, e, s, twin);                                                    \
		struct gsh_stream_state *st = gsh_enter_set(gsh_stream_handle(s, twin), e);                             \
		if (unlikely(!st)) return launch_slow(real, e, s, twin, &(bool){false});                                \
		st->blocks += blocks_of(e);                                                                             \
		return real(e, s);                                                                                      \
	}
RUN(cuGraphLaunch, false)
RUN(cuGraphLaunch_ptsz, true)

#define UPLOAD(name)                                                                                                    \
	GSH_EXPORT CUresult name(CUgraphExec e, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		struct launch l;                                                                                        \
		return reserve_memory(&l, e) ? commit_memory(&l, e, real(e, s), false) : CUDA_ERROR_OUT_OF_MEMORY;             \
	}
UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

/* Memory that a launch under way counts on is kept: it is not idle, although the driver does not know yet. */
GSH_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice d) {
	NEED(cuDeviceGraphMemTrim);
	int cancel = gsh_pools_lock();
	CUresult r = add_pending(d, 0) ? CUDA_SUCCESS : real(d);
	refresh_device(d, 0);
	gsh_pools_unlock(cancel);
	return r;
}
