/*
 * Graphs: one launch of many kernels, charged like one function whose cost is measured. Thread blocks are counted once,
 * when the graph is instantiated. Memory nodes take their memory at the first launch; the driver says how much it is.
 */
#define _GNU_SOURCE
#include "gate.h"
#include "memory.h"
#include "start.h"

#define NODES_MAX 4096 /* beyond, the rest is not looked at; time is measured anyway */
#define DEPTH_MAX 8

static atomic_bool with_memory; /* whether any graph had memory nodes; in most programs none has */

struct contents {
	uint64_t blocks, bytes;
	uint64_t nodes;
};

static void look(CUgraph g, struct contents *c, int depth);

static void look_at_node(CUgraphNode node, struct contents *c, int depth) {
	int type = -1;
	CUgraph child = NULL;
	CUDA_KERNEL_NODE_PARAMS kernel = {0};
	CUDA_MEM_ALLOC_NODE_PARAMS memory = {0};
	if (CALL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) return;
	if (type == CU_GRAPH_NODE_TYPE_KERNEL && CALL(cuGraphKernelNodeGetParams_v2, node, &kernel) == CUDA_SUCCESS)
		c->blocks += (uint64_t)kernel.gridDimX * kernel.gridDimY * kernel.gridDimZ;
	if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && CALL(cuGraphMemAllocNodeGetParams, node, &memory) == CUDA_SUCCESS)
		c->bytes += memory.bytesize;
	if (type == CU_GRAPH_NODE_TYPE_GRAPH && CALL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS)
		look(child, c, depth + 1);
}

/* The list is on the stack of a call that may take milliseconds anyway; no allocation. */
static void look(CUgraph g, struct contents *c, int depth) {
	CUgraphNode nodes[NODES_MAX / DEPTH_MAX];
	size_t n = sizeof nodes / sizeof nodes[0];
	if (depth >= DEPTH_MAX || CALL(cuGraphGetNodes, g, nodes, &n) != CUDA_SUCCESS) return;
	for (size_t i = 0; i < n && i < sizeof nodes / sizeof nodes[0] && c->nodes++ < NODES_MAX; i++)
		look_at_node(nodes[i], c, depth);
}

static CUresult instantiated(CUresult r, CUgraphExec *e, CUgraph g) {
	struct contents c = {0};
	if (r != CUDA_SUCCESS || !e) return r;
	look(g, &c, 0);
	gsh_cost_graph(*e, c.blocks);
	if (!c.bytes) return r;
	atomic_store(&with_memory, true);
	gsh_ledger_put(&(struct gsh_item){EXEC, (uint64_t)*e, NULL, NULL, 0, c.bytes, 0});
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

static uint64_t memory_of(CUgraphExec e) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(EXEC, (uint64_t)e);
	uint64_t bytes = i ? i->other : 0;
	gsh_ledger_unlock();
	return bytes;
}

/* What the driver keeps for graphs on this device; the item is made at first use. */
static uint64_t charged(struct gsh_place at) {
	gsh_ledger_lock();
	struct gsh_item *i = gsh_item_find(GRAPH_MEMORY, (uint64_t)at.device);
	uint64_t bytes = i ? i->bytes : 0;
	if (!i) gsh_item_put(&(struct gsh_item){GRAPH_MEMORY, (uint64_t)at.device, at.vgpu, NULL, 0, 0, 0});
	gsh_ledger_unlock();
	return bytes;
}

static void sync_device(CUdevice d) {
	uint64_t bytes = 0;
	if (CALL(cuDeviceGetGraphMemAttribute, d, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes) == CUDA_SUCCESS)
		gsh_set_charge(GRAPH_MEMORY, (uint64_t)d, bytes);
}

/* Graphs on one device share their memory, so the largest one decides. */
static bool hold(struct gsh_hold *h, CUgraphExec e) {
	uint64_t bytes = memory_of(e);
	*h = (struct gsh_hold){0};
	if (!bytes) return true;
	gsh_start();
	uint64_t have = charged(gsh_here());
	return gsh_hold(h, bytes > have ? bytes - have : 0);
}

static CUresult keep(struct gsh_hold *h, CUresult r) {
	if (!h->counted) return r;
	sync_device(h->place.device);
	gsh_release(h->place.vgpu, h->bytes);
	return r;
}

static uint64_t blocks_of(CUgraphExec e) {
	struct gsh_cost *c = gsh_cost_find(e);
	return c ? atomic_load_explicit(&c->blocks, memory_order_relaxed) : 0;
}

static CUresult launch_counted(cuGraphLaunch_fn real, CUgraphExec e, CUstream s, bool twin) {
	struct gsh_track *k = gsh_enter_slow(gsh_stream(s, twin), e, blocks_of(e));
	CUresult r = real(e, s);
	gsh_leave(k, r);
	return r;
}

static CUresult launch_with_memory(cuGraphLaunch_fn real, CUgraphExec e, CUstream s, bool twin) {
	struct gsh_hold h;
	return hold(&h, e) ? keep(&h, launch_counted(real, e, s, twin)) : CUDA_ERROR_OUT_OF_MEMORY;
}

#define RUN(name, twin)                                                                                                 \
	GSH_EXPORT CUresult name(CUgraphExec e, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		if (unlikely(atomic_load_explicit(&with_memory, memory_order_relaxed)))                                 \
			return launch_with_memory(real, e, s, twin);                                                    \
		struct gsh_track *k = gsh_enter_again(gsh_stream(s, twin), e);                                          \
		if (unlikely(!k)) return launch_counted(real, e, s, twin);                                              \
		k->blocks += blocks_of(e);                                                                              \
		return real(e, s);                                                                                      \
	}
RUN(cuGraphLaunch, false)
RUN(cuGraphLaunch_ptsz, true)

#define UPLOAD(name)                                                                                                    \
	GSH_EXPORT CUresult name(CUgraphExec e, CUstream s) {                                                           \
		NEED(name);                                                                                             \
		struct gsh_hold h;                                                                                      \
		return hold(&h, e) ? keep(&h, real(e, s)) : CUDA_ERROR_OUT_OF_MEMORY;                                   \
	}
UPLOAD(cuGraphUpload)
UPLOAD(cuGraphUpload_ptsz)

GSH_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice d) {
	NEED(cuDeviceGraphMemTrim);
	CUresult r = real(d);
	sync_device(d);
	return r;
}
