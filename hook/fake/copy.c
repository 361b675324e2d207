/*
 * Memsets, copies and prefetches. They move no bytes, but take time on the simulation: on the device's memory like a kernel, on
 * all SMs from 64 MiB on, since one fills the memory's bandwidth; between host and device on a copy engine, beside kernels. The
 * figures are those of a device of 16 GB on PCIe 3.0 (V100). Addresses do not tell where memory is, so what may be either is the device's.
 */
#include "memory.h"
#include "wire.h"

typedef CUdeviceptr D;

#pragma GCC diagnostic ignored "-Wunused-parameter" /* addresses and values do not matter */

#define MEMORY_BANDWIDTH 900u /* bytes in a ns */
#define LINK_BANDWIDTH 12u    /* between host and device */
#define SETUP 1000u           /* ns of any of them */
#define BLOCK 65536u          /* bytes that need another per-mille of the SMs */

/* What one of these calls does on the device. */
struct load {
	int type; /* of its node in a capture */
	uint64_t duration;
	uint32_t width;
};

static uint32_t width(size_t n) { return n / BLOCK < 999 ? 1 + (uint32_t)(n / BLOCK) : 1000; }
static struct load set(size_t n) { return (struct load){NODE_MEMSET, SETUP + n / MEMORY_BANDWIDTH, width(n)}; }
/* A copy within the device reads and writes its memory. */
static struct load copy(size_t n) { return (struct load){NODE_MEMCPY, SETUP + 2 * n / MEMORY_BANDWIDTH, width(n)}; }
static struct load transfer(size_t n) { return (struct load){NODE_MEMCPY, SETUP + n / LINK_BANDWIDTH, 0}; }

/* CUDA_MEMCPY2D and, with more fields, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER. A memory type of 1 is the host's. */
struct side2 {
	size_t x, y;
	int type;
	void *host;
	D device;
	void *array;
	size_t pitch;
};
struct rows {
	struct side2 from, to;
	size_t width, height;
};
struct side3 {
	size_t x, y, z, level;
	int type;
	void *host;
	D device;
	void *array, *context;
	size_t pitch, height;
};
struct layers {
	struct side3 from, to;
	size_t width, height, depth;
};

static struct load copy_rows(const struct rows *c)
{
	return c->from.type == 1 || c->to.type == 1 ? transfer(c->width * c->height) : copy(c->width * c->height);
}
static struct load copy_layers(const struct layers *c)
{
	size_t n = c->width * c->height * c->depth;
	return c->from.type == 1 || c->to.type == 1 ? transfer(n) : copy(n);
}
static size_t sum(const size_t *sizes, size_t count)
{
	size_t total = 0;
	for (size_t i = 0; i < count; i++)
		total += sizes[i];
	return total;
}

void fake_copy(struct stream *stream, uint64_t duration, uint32_t width)
{
	if (fake_simulated)
		fake_sim_work(SIM_KERNEL, stream, duration, width, 1, 0);
}

/* Queues the work, or appends it to a capture. */
static CUresult queue(CUstream handle, struct load load)
{
	NEED_CONTEXT();
	struct stream *stream = fake_stream(handle);
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	if (stream->capture) {
		struct graph_node *node = fake_node(stream->capture->graph, load.type);
		node->duration = load.duration;
		node->width = load.width;
		return CUDA_SUCCESS;
	}
	fake_copy(stream, load.duration, load.width);
	fake_spend(fake_host_launch);
	return CUDA_SUCCESS;
}

/* Queues the work and waits for its end. */
static CUresult block(CUstream handle, struct load load)
{
	NEED_CONTEXT();
	struct stream *stream = fake_stream(handle);
	CUresult refused = fake_checks ? fake_check_wait(stream) : CUDA_SUCCESS;
	if (refused || !fake_simulated)
		return refused;
	fake_copy(stream, load.duration, load.width);
	fake_sim_wait_stream(stream);
	return CUDA_SUCCESS;
}

/* Defines a function and its twin. `s` is the stream, which the first and the second statement set for each of them. */
#define UNPACK(...) __VA_ARGS__
#define BOTH(base, suffix, tail, since, parameters, plain, own, call)                                                   \
	FN(base, suffix, since, UNPACK parameters) { ENTER(base##suffix); plain; return call; }                         \
	EXPORT CUresult base##suffix##tail parameters;                                                                  \
	static struct symbol symbol_##base##suffix##tail SYMBOL = {#base, #base #suffix #tail, since < 7000 ? 7000 : since, 1, \
								   (void *)base##suffix##tail, 0, 0, 0, 0};             \
	CUresult base##suffix##tail parameters { ENTER(base##suffix##tail); own; return call; }
#define STREAMED(base, suffix, since, parameters, load)                                                                 \
	BOTH(base, suffix, _ptsz, since, parameters, (void)0, s = PER_THREAD(s), queue(s, load))
#define DEFAULT(base, suffix, since, parameters, how, load)                                                             \
	BOTH(base, suffix, _ptds, since, parameters, CUstream s = STREAM_LEGACY, CUstream s = STREAM_PER_THREAD, how(s, load))

#define MEMSET(bits, type)                                                                                              \
	DEFAULT(cuMemsetD##bits, _v2, 3020, (D to, type value, size_t n), queue, set(n * bits / 8))                     \
	STREAMED(cuMemsetD##bits##Async, , 3020, (D to, type value, size_t n, CUstream s), set(n * bits / 8))           \
	DEFAULT(cuMemsetD2D##bits, _v2, 3020, (D to, size_t pitch, type value, size_t w, size_t h), queue, set(w * h * bits / 8)) \
	STREAMED(cuMemsetD2D##bits##Async, , 3020, (D to, size_t pitch, type value, size_t w, size_t h, CUstream s), set(w * h * bits / 8))
MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned)

DEFAULT(cuMemcpy, , 4000, (D to, D from, size_t n), block, copy(n))
DEFAULT(cuMemcpyHtoD, _v2, 3020, (D to, const void *from, size_t n), block, transfer(n))
DEFAULT(cuMemcpyDtoH, _v2, 3020, (void *to, D from, size_t n), block, transfer(n))
DEFAULT(cuMemcpyDtoD, _v2, 3020, (D to, D from, size_t n), queue, copy(n))
DEFAULT(cuMemcpyDtoA, _v2, 3020, (void *to, size_t at, D from, size_t n), block, copy(n))
DEFAULT(cuMemcpyAtoD, _v2, 3020, (D to, void *from, size_t at, size_t n), block, copy(n))
DEFAULT(cuMemcpyAtoA, _v2, 3020, (void *to, size_t at, void *from, size_t offset, size_t n), block, copy(n))
DEFAULT(cuMemcpy2D, _v2, 3020, (const struct rows *c), block, copy_rows(c))
DEFAULT(cuMemcpy2DUnaligned, _v2, 3020, (const struct rows *c), block, copy_rows(c))
DEFAULT(cuMemcpy3D, _v2, 3020, (const struct layers *c), block, copy_layers(c))
DEFAULT(cuMemcpyPeer, , 4000, (D to, CUcontext there, D from, CUcontext here, size_t n), block, copy(n))
DEFAULT(cuMemcpy3DPeer, , 4000, (const struct layers *c), block, copy_layers(c))
STREAMED(cuMemcpyAsync, , 4000, (D to, D from, size_t n, CUstream s), copy(n))
STREAMED(cuMemcpyHtoDAsync, _v2, 3020, (D to, const void *from, size_t n, CUstream s), transfer(n))
STREAMED(cuMemcpyDtoHAsync, _v2, 3020, (void *to, D from, size_t n, CUstream s), transfer(n))
STREAMED(cuMemcpyDtoDAsync, _v2, 3020, (D to, D from, size_t n, CUstream s), copy(n))
STREAMED(cuMemcpy2DAsync, _v2, 3020, (const struct rows *c, CUstream s), copy_rows(c))
STREAMED(cuMemcpy3DAsync, _v2, 3020, (const struct layers *c, CUstream s), copy_layers(c))
STREAMED(cuMemcpyPeerAsync, , 4000, (D to, CUcontext there, D from, CUcontext here, size_t n, CUstream s), copy(n))
STREAMED(cuMemcpy3DPeerAsync, , 4000, (const struct layers *c, CUstream s), copy_layers(c))
STREAMED(cuMemcpyBatchAsync, , 12080,
	 (D *to, D *from, size_t *sizes, size_t n, void *how, size_t *which, size_t hows, size_t *failed, CUstream s), copy(sum(sizes, n)))
STREAMED(cuMemcpyBatchAsync, _v2, 13000,
	 (const D *to, const D *from, const size_t *sizes, size_t n, void *how, size_t *which, size_t hows, CUstream s), copy(sum(sizes, n)))
STREAMED(cuMemcpy3DBatchAsync, , 12080, (size_t n, void *list, size_t *failed, unsigned long long flags, CUstream s), copy(0))
STREAMED(cuMemcpy3DBatchAsync, _v2, 13000, (size_t n, void *list, unsigned long long flags, CUstream s), copy(0))

/* CUmemLocation. */
struct location {
	int type, id;
};
STUB(cuMemAdvise, , 8000, D p, size_t n, int advice, CUdevice device)
/* Managed memory takes memory of the device to which it is moved first; all of a block moves. */
static struct load prefetch(D p, size_t n, CUdevice device)
{
	struct block *block = block_find(p);
	if (block && block->managed && !block->size && fake_charge(device, block_size(block->managed))) {
		block->size = block_size(block->managed);
		block->device = device;
	}
	return copy(n);
}
STREAMED(cuMemPrefetchAsync, , 8000, (D p, size_t n, CUdevice device, CUstream s), prefetch(p, n, device))
STREAMED(cuMemPrefetchAsync, _v2, 12020, (D p, size_t n, struct location at, unsigned flags, CUstream s), prefetch(p, n, at.id))
STREAMED(cuMemPrefetchBatchAsync, , 13000,
	 (D *p, size_t *sizes, size_t n, struct location *at, size_t *which, size_t ats, unsigned long long flags, CUstream s),
	 copy(sum(sizes, n)))
STREAMED(cuMemDiscardBatchAsync, , 13000, (D *p, size_t *sizes, size_t n, unsigned long long flags, CUstream s), set(0))
STREAMED(cuMemDiscardAndPrefetchBatchAsync, , 13000,
	 (D *p, size_t *sizes, size_t n, struct location *at, size_t *which, size_t ats, unsigned long long flags, CUstream s),
	 copy(sum(sizes, n)))
STREAMED(cuMemBatchDecompressAsync, , 12060, (void *list, size_t n, unsigned flags, size_t *failed, CUstream s), copy(0))
