/* Graphs: lists of nodes, executed one after another; edges are ignored. */
#include "fake.h"

#include <stdlib.h>
#include <string.h>

struct graph *fake_graph(void)
{
	struct graph *graph = calloc(1, sizeof *graph);
	graph->end = &graph->first;
	return graph;
}

struct graph_node *fake_node(struct graph *graph, const struct graph_node *node)
{
	struct graph_node *made = calloc(1, sizeof *made);
	*made = *node;
	made->next = NULL;
	*graph->end = made;
	graph->end = &made->next;
	graph->nodes++;
	return made;
}

void fake_graph_copy(struct graph *to, const struct graph *from)
{
	for (const struct graph_node *n = from->first; n; n = n->next) {
		struct graph_node *made = fake_node(to, n);
		if (n->child) {
			made->child = fake_graph();
			fake_graph_copy(made->child, n->child);
		}
	}
}

void fake_graph_destroy(struct graph *graph)
{
	for (struct graph_node *n = graph->first, *next; n; n = next) {
		next = n->next;
		if (n->child)
			fake_graph_destroy(n->child);
		free(n);
	}
	free(graph);
}

FN(cuGraphCreate, , 10000, CUgraph *graph, unsigned flags)
{
	ENTER(cuGraphCreate);
	(void)flags;
	*graph = fake_graph();
	return CUDA_SUCCESS;
}

FN(cuGraphDestroy, , 10000, CUgraph graph)
{
	ENTER(cuGraphDestroy);
	if (!graph)
		return CUDA_ERROR_INVALID_VALUE;
	fake_graph_destroy(graph);
	return CUDA_SUCCESS;
}

FN(cuGraphClone, , 10000, CUgraph *clone, CUgraph graph)
{
	ENTER(cuGraphClone);
	*clone = fake_graph();
	fake_graph_copy(*clone, graph);
	return CUDA_SUCCESS;
}

FN(cuGraphGetNodes, , 10000, CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	ENTER(cuGraphGetNodes);
	if (!graph || !count)
		return CUDA_ERROR_INVALID_VALUE;
	size_t most = *count, i = 0;
	if (nodes)
		for (struct graph_node *n = graph->first; n && i < most; n = n->next)
			nodes[i++] = n;
	*count = nodes ? i : (size_t)graph->nodes;
	return CUDA_SUCCESS;
}

FN(cuGraphNodeGetType, , 10000, CUgraphNode node, int *type)
{
	ENTER(cuGraphNodeGetType);
	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->type;
	return CUDA_SUCCESS;
}

FN(cuGraphChildGraphNodeGetGraph, , 10000, CUgraphNode node, CUgraph *graph)
{
	ENTER(cuGraphChildGraphNodeGetGraph);
	if (!node || node->type != NODE_GRAPH)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = node->child;
	return CUDA_SUCCESS;
}

/* The sizes of the two versions of kernel parameters. */
#define V1 offsetof(struct kernel_params, kernel)
#define V2 sizeof(struct kernel_params)

/* Stores the parameters of a kernel node. */
static CUresult get(CUgraphNode node, void *parameters, size_t size)
{
	if (!node || node->type != NODE_KERNEL || !parameters)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(parameters, &node->kernel, size);
	return CUDA_SUCCESS;
}

/* Appends a node with parameters. */
static CUresult add(CUgraphNode *node, CUgraph graph, int type, const void *parameters, size_t size)
{
	if (!node || !graph || !parameters)
		return CUDA_ERROR_INVALID_VALUE;
	*node = fake_node(graph, &(struct graph_node){.type = type});
	memcpy(&(*node)->kernel, parameters, size);
	return CUDA_SUCCESS;
}

FN(cuGraphKernelNodeGetParams, , 10000, CUgraphNode n, void *p) { ENTER(cuGraphKernelNodeGetParams); return get(n, p, V1); }
FN(cuGraphKernelNodeGetParams, _v2, 12000, CUgraphNode n, void *p) { ENTER(cuGraphKernelNodeGetParams_v2); return get(n, p, V2); }
FN(cuGraphAddKernelNode, , 10000, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, const void *p)
{
	ENTER(cuGraphAddKernelNode);
	(void)after, (void)count;
	return add(n, g, NODE_KERNEL, p, V1);
}
FN(cuGraphAddKernelNode, _v2, 12000, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, const void *p)
{
	ENTER(cuGraphAddKernelNode_v2);
	(void)after, (void)count;
	return add(n, g, NODE_KERNEL, p, V2);
}

FN(cuGraphAddChildGraphNode, , 10000, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, CUgraph child)
{
	ENTER(cuGraphAddChildGraphNode);
	(void)after, (void)count;
	if (!n || !g || !child)
		return CUDA_ERROR_INVALID_VALUE;
	*n = fake_node(g, &(struct graph_node){.type = NODE_GRAPH});
	(*n)->child = fake_graph();
	fake_graph_copy((*n)->child, child);
	return CUDA_SUCCESS;
}

FN(cuGraphAddEmptyNode, , 10000, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count)
{
	ENTER(cuGraphAddEmptyNode);
	(void)after, (void)count;
	*n = fake_node(g, &(struct graph_node){.type = NODE_EMPTY});
	return CUDA_SUCCESS;
}

/* CUDA_MEM_ALLOC_NODE_PARAMS: pool properties, access descriptors, size, address. */
struct alloc_params {
	unsigned char pool[88];
	const void *access;
	size_t access_count, size;
	CUdeviceptr address;
};

FN(cuGraphAddMemAllocNode, , 11040, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, struct alloc_params *p)
{
	ENTER(cuGraphAddMemAllocNode);
	(void)after, (void)count;
	if (!n || !g || !p)
		return CUDA_ERROR_INVALID_VALUE;
	struct graph_node node = fake_alloc_node(p->size, *(int *)&p->pool[12]);
	*n = fake_node(g, &node);
	p->address = node.address;
	return CUDA_SUCCESS;
}

FN(cuGraphAddMemFreeNode, , 11040, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, CUdeviceptr address)
{
	ENTER(cuGraphAddMemFreeNode);
	(void)after, (void)count;
	NEED(g);
	*n = fake_node(g, &(struct graph_node){.type = NODE_FREE, .address = address});
	return CUDA_SUCCESS;
}

FN(cuGraphMemAllocNodeGetParams, , 11040, CUgraphNode node, struct alloc_params *p)
{
	ENTER(cuGraphMemAllocNodeGetParams);
	if (!node || node->type != NODE_ALLOC || !p)
		return CUDA_ERROR_INVALID_VALUE;
	*p = (struct alloc_params){.size = node->size};
	*(int *)&p->pool[8] = 1; /* on a device */
	*(int *)&p->pool[12] = node->device;
	p->address = node->address;
	return CUDA_SUCCESS;
}

FN(cuGraphMemFreeNodeGetParams, , 11040, CUgraphNode node, CUdeviceptr *address)
{
	ENTER(cuGraphMemFreeNodeGetParams);
	if (!node || node->type != NODE_FREE || !address)
		return CUDA_ERROR_INVALID_VALUE;
	*address = node->address;
	return CUDA_SUCCESS;
}

/* CUgraphNodeParams; of its union the kinds that are modelled, laid out as in the calls above. */
struct node_params {
	int type, zero[3];
	union {
		long long words[29];
		struct kernel_params kernel;
		CUgraph child;
		struct alloc_params alloc;
		CUdeviceptr free;
	};
	long long zero_too;
};

/* Appends a node of the kind that its parameters state. */
static CUresult add_any(CUgraphNode *n, CUgraph g, struct node_params *p)
{
	if (!p || p->zero[0] || p->zero[1] || p->zero[2] || p->zero_too || !n || !g)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case NODE_KERNEL: return cuGraphAddKernelNode_v2(n, g, NULL, 0, &p->kernel);
	case NODE_GRAPH: return cuGraphAddChildGraphNode(n, g, NULL, 0, p->child);
	case NODE_EMPTY: return cuGraphAddEmptyNode(n, g, NULL, 0);
	case NODE_ALLOC: return cuGraphAddMemAllocNode(n, g, NULL, 0, &p->alloc);
	case NODE_FREE: return cuGraphAddMemFreeNode(n, g, NULL, 0, p->free);
	}
	return CUDA_ERROR_NOT_SUPPORTED;
}

FN(cuGraphAddNode, , 12020, CUgraphNode *n, CUgraph g, const CUgraphNode *after, size_t count, struct node_params *p)
{
	ENTER(cuGraphAddNode);
	(void)after, (void)count;
	return add_any(n, g, p);
}
FN(cuGraphAddNode, _v2, 12030, CUgraphNode *n, CUgraph g, const CUgraphNode *after, const void *data, size_t count, struct node_params *p)
{
	ENTER(cuGraphAddNode_v2);
	(void)after, (void)data, (void)count;
	return add_any(n, g, p);
}
