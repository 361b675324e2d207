/* Executable graphs: launches, and memory of their nodes. */
#include "memory.h"

#include <stdlib.h>

/* An executable graph. */
struct graph_exec {
	struct graph *graph;
	int moves;  /* whether it has memsets or copies */
};

static uint64_t reserved[DEVICES_MAX]; /* bytes for memory nodes, from the first launch of a graph until a trim */
static pthread_mutex_t taking = PTHREAD_MUTEX_INITIALIZER; /* held while either changes, but where memory is freed */
static uint64_t used[DEVICES_MAX];     /* of these, bytes that graphs have not freed */

/* Reports whether a graph or a child graph has memsets or copies. */
static int has_moves(const struct graph *graph)
{
	for (struct graph_node *n = graph->first; n; n = n->next)
		if (n->type == NODE_MEMCPY || n->type == NODE_MEMSET || (n->type == NODE_GRAPH && has_moves(n->child)))
			return 1;
	return 0;
}

/* Creates an executable copy of a graph. */
static CUresult instantiate(CUgraphExec *exec, CUgraph graph)
{
	if (!exec || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	*exec = calloc(1, sizeof **exec);
	(*exec)->graph = fake_graph();
	fake_graph_copy((*exec)->graph, graph);
	(*exec)->moves = has_moves(graph);
	return CUDA_SUCCESS;
}

FN(cuGraphInstantiate, , 10000, CUgraphExec *e, CUgraph g, CUgraphNode *bad, char *log, size_t size)
{
	ENTER(cuGraphInstantiate);
	(void)bad, (void)log, (void)size;
	return instantiate(e, g);
}
FN(cuGraphInstantiate, _v2, 11000, CUgraphExec *e, CUgraph g, CUgraphNode *bad, char *log, size_t size)
{
	ENTER(cuGraphInstantiate_v2);
	(void)bad, (void)log, (void)size;
	return instantiate(e, g);
}
FN(cuGraphInstantiateWithFlags, , 11040, CUgraphExec *e, CUgraph g, unsigned long long flags)
{
	ENTER(cuGraphInstantiateWithFlags);
	AT_RETURN();
	(void)flags;
	return instantiate(e, g);
}
FN(cuGraphExecDestroy, , 10000, CUgraphExec exec)
{
	ENTER(cuGraphExecDestroy);
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	fake_graph_destroy(exec->graph);
	free(exec);
	return CUDA_SUCCESS;
}

/* Replaces the nodes of an executable graph. */
static CUresult update(CUgraphExec exec, CUgraph graph)
{
	if (!exec || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	fake_graph_destroy(exec->graph);
	exec->graph = fake_graph();
	fake_graph_copy(exec->graph, graph);
	exec->moves = has_moves(graph);
	return CUDA_SUCCESS;
}

FN(cuGraphExecUpdate, , 10020, CUgraphExec e, CUgraph g, CUgraphNode *bad, int *result)
{
	ENTER(cuGraphExecUpdate);
	(void)bad;
	if (result)
		*result = 0;
	return update(e, g);
}
FN(cuGraphExecUpdate, _v2, 12000, CUgraphExec e, CUgraph g, void *result)
{
	ENTER(cuGraphExecUpdate_v2);
	(void)result;
	return update(e, g);
}

/* The parameters are accepted and not stored. */
FN(cuGraphExecKernelNodeSetParams, , 10010, CUgraphExec e, CUgraphNode n, const void *p)
{
	ENTER(cuGraphExecKernelNodeSetParams);
	(void)n;
	return e && p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FN(cuGraphExecKernelNodeSetParams, _v2, 12000, CUgraphExec e, CUgraphNode n, const void *p)
{
	ENTER(cuGraphExecKernelNodeSetParams_v2);
	(void)n;
	return e && p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FN(cuGraphExecMemcpyNodeSetParams, , 10020, CUgraphExec e, CUgraphNode n, const void *p, CUcontext c)
{
	ENTER(cuGraphExecMemcpyNodeSetParams);
	(void)n, (void)c;
	return e && p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FN(cuGraphExecMemsetNodeSetParams, , 10020, CUgraphExec e, CUgraphNode n, const void *p, CUcontext c)
{
	ENTER(cuGraphExecMemsetNodeSetParams);
	(void)n, (void)c;
	return e && p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FN(cuGraphNodeSetEnabled, , 11060, CUgraphExec e, CUgraphNode n, unsigned enabled)
{
	ENTER(cuGraphNodeSetEnabled);
	(void)enabled;
	return e && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FN(cuGraphExecChildGraphNodeSetParams, , 11010, CUgraphExec e, CUgraphNode n, CUgraph child)
{
	ENTER(cuGraphExecChildGraphNodeSetParams);
	(void)n;
	return e && child ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FN(cuGraphExecNodeSetParams, , 12020, CUgraphExec e, CUgraphNode n, void *p)
{
	ENTER(cuGraphExecNodeSetParams);
	(void)n;
	return e && p ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Launches all kernels, memsets and copies of a graph. */
static CUresult run(struct graph *graph, struct stream *stream)
{
	CUresult result = CUDA_SUCCESS;
	for (struct graph_node *n = graph->first; n && !result; n = n->next) {
		if (n->type == NODE_KERNEL)
			result = fake_launch(stream, n->kernel.function);
		else if (n->type == NODE_MEMCPY || n->type == NODE_MEMSET) {
			fake_copy(stream, n->duration, n->width);
			struct move move = n->move;
			if (!(result = fake_move_check(&move)))
				fake_move(&move);
		}
		else if (n->type == NODE_GRAPH)
			result = run(n->child, stream);
	}
	return result;
}

/* An address that a graph allocates has a block; `size` of it is 0, and `used` says whether the memory outlives the last launch. */
struct graph_node fake_alloc_node(uint64_t size, CUdevice device)
{
	struct graph_node node = {.type = NODE_ALLOC, .size = size, .device = device, .address = block_new_address(size)};
	struct block *block = block_add(node.address, 0, device);
	block->of_graph = 1;
	block->length = size;
	return node;
}

void fake_graph_memory_freed(CUdevice device, uint64_t size) { __atomic_sub_fetch(&used[device], ROUND(size, CHUNK), __ATOMIC_RELAXED); }

/* Reports whether a graph or a child graph has a memory node of a type for an address. */
static int has_node(const struct graph *graph, int type, CUdeviceptr address)
{
	for (const struct graph_node *n = graph->first; n; n = n->next)
		if ((n->type == type && n->address == address) || (n->type == NODE_GRAPH && has_node(n->child, type, address)))
			return 1;
	return 0;
}

/* Adds up what the memory nodes of a graph and its child graphs allocate anew. */
static uint64_t new_memory(const struct graph *graph)
{
	uint64_t bytes = 0;
	for (const struct graph_node *n = graph->first; n; n = n->next) {
		struct block *block = n->type == NODE_ALLOC ? block_find(n->address) : NULL;
		if (n->type == NODE_GRAPH)
			bytes += new_memory(n->child);
		else if (n->type == NODE_ALLOC && !(block && block->used))
			bytes += ROUND(n->size, CHUNK);
	}
	return bytes;
}

/* What the nodes of a graph that is launched as `whole` leave in use, and what they free of others. */
static void keep_memory(const struct graph *graph, const struct graph *whole, CUdevice device)
{
	for (const struct graph_node *n = graph->first; n; n = n->next) {
		struct block *block = n->type == NODE_ALLOC ? block_find(n->address) : NULL;
		if (n->type == NODE_GRAPH)
			keep_memory(n->child, whole, device);
		else if (n->type == NODE_FREE && !has_node(whole, NODE_ALLOC, n->address))
			cuMemFree_v2(n->address);
		else if (block && !block->used && !has_node(whole, NODE_FREE, n->address)) {
			block->used = 1;
			__atomic_add_fetch(&used[device], ROUND(n->size, CHUNK), __ATOMIC_RELAXED);
		}
	}
}

/* Returns the device of the first memory node of a graph or a child graph, or another one if there is none. */
static CUdevice device_of(const struct graph *graph, CUdevice other)
{
	for (const struct graph_node *n = graph->first; n; n = n->next)
		if (n->type == NODE_ALLOC)
			return n->device;
		else if (n->type == NODE_GRAPH && device_of(n->child, -1) >= 0)
			return device_of(n->child, -1);
	return other;
}

/*
 * Takes memory for a graph's memory nodes when it is launched. Graphs share what is not in use
 * between their launches. Returns 0 if there is not enough.
 */
static int ensure_backed(CUgraphExec exec, CUdevice device)
{
	LOCKED(taking);
	device = device_of(exec->graph, device);
	uint64_t need = new_memory(exec->graph), idle = reserved[device] - used[device], more = need > idle ? need - idle : 0;
	if (more && !fake_charge(device, more))
		return 0;
	__atomic_add_fetch(&reserved[device], more, __ATOMIC_RELAXED);
	keep_memory(exec->graph, exec->graph, device);
	return 1;
}

FN(cuGraphLaunch, , 10000, CUgraphExec exec, CUstream handle)
{
	ENTER(cuGraphLaunch);
	AT_RETURN();
	NEED_STREAM(stream, handle);
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	if (!fake_checks && !exec->moves)
		return ensure_backed(exec, stream->context->device) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	CUresult refused = fake_check_legacy(stream);
	if (refused)
		return refused;
	if (fake_capture(stream)) {
		struct graph_node node = {.type = NODE_GRAPH, .child = fake_graph()};
		fake_graph_copy(node.child, exec->graph);
		if (fake_capture_node(stream, &node))
			return CUDA_SUCCESS;
		fake_graph_destroy(node.child);
	}
	if (!ensure_backed(exec, stream->context->device))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = run(exec->graph, stream);
	fake_spend(fake_host_launch);
	return result;
}
TWIN(cuGraphLaunch, , _ptsz, 10000, (CUgraphExec e, CUstream s), (e, PER_THREAD(s)))

/* Takes the memory of a graph before its first launch. */
static CUresult upload(CUgraphExec exec, CUstream handle)
{
	NEED_STREAM(stream, handle);
	NEED(exec);
	return ensure_backed(exec, stream->context->device) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FN(cuGraphUpload, , 11010, CUgraphExec exec, CUstream stream)
{
	ENTER(cuGraphUpload);
	return upload(exec, stream);
}
TWIN(cuGraphUpload, , _ptsz, 11010, (CUgraphExec e, CUstream s), (e, PER_THREAD(s)))

/* Flag CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD of the first field of the parameters. */
#define UPLOAD 2

/* The beginning of CUDA_GRAPH_INSTANTIATE_PARAMS. */
struct instantiate_params {
	unsigned long long flags;
	CUstream stream;
};

/* Creates an executable graph, and uploads it if the parameters say so. */
static CUresult instantiate_with(CUgraphExec *e, CUgraph g, const struct instantiate_params *p, CUstream stream)
{
	CUresult result = instantiate(e, g);
	return !result && p && p->flags & UPLOAD ? upload(*e, stream) : result;
}

FN(cuGraphInstantiateWithParams, , 12000, CUgraphExec *e, CUgraph g, const struct instantiate_params *p)
{
	ENTER(cuGraphInstantiateWithParams);
	return instantiate_with(e, g, p, p ? p->stream : NULL);
}
EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *e, CUgraph g, const struct instantiate_params *p);
static struct symbol symbol_cuGraphInstantiateWithParams_ptsz SYMBOL = {"cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz", 12000, 1,
									(void *)cuGraphInstantiateWithParams_ptsz, 0, 0, 0, 0};
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *e, CUgraph g, const struct instantiate_params *p)
{
	ENTER(cuGraphInstantiateWithParams_ptsz);
	return instantiate_with(e, g, p, PER_THREAD(p ? p->stream : NULL));
}

FN(cuDeviceGetGraphMemAttribute, , 11040, CUdevice device, int attribute, void *value)
{
	ENTER(cuDeviceGetGraphMemAttribute);
	AT_RETURN();
	if (device < 0 || device >= fake_devices || !value || attribute < 0 || attribute > 3)
		return CUDA_ERROR_INVALID_VALUE;
	*(uint64_t *)value = attribute < 2 ? used[device] : reserved[device];
	return CUDA_SUCCESS;
}

FN(cuDeviceGraphMemTrim, , 11040, CUdevice device)
{
	ENTER(cuDeviceGraphMemTrim);
	if (device < 0 || device >= fake_devices)
		return CUDA_ERROR_INVALID_DEVICE;
	LOCKED(taking);
	uint64_t keep = __atomic_load_n(&used[device], __ATOMIC_RELAXED);
	fake_refund(device, __atomic_exchange_n(&reserved[device], keep, __ATOMIC_RELAXED) - keep);
	return CUDA_SUCCESS;
}
