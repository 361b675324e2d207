/*
 * Memsets, copies and prefetches. They take time on the simulation: on the device's memory like a kernel, on all SMs from 64 MiB
 * on, since one fills the memory's bandwidth; between host and device on a copy engine, beside kernels. Prefetches, decompression and copies
 * of arrays take time and move no bytes.
 */
#include "memory.h"
#include "wire.h"

typedef CUdeviceptr D;

#pragma GCC diagnostic ignored "-Wunused-parameter" /* addresses and values do not matter */

#define SETUP 1000u           /* ns of any of them */
#define BLOCK 65536u          /* bytes that need another per-mille of the SMs */

/* What one of these calls does on the device. */
struct load {
	int type; /* of its node in a capture */
	uint64_t duration;
	uint32_t width;
	struct move move;
};

static uint32_t width(size_t n) { return n / BLOCK < 999 ? 1 + (uint32_t)(n / BLOCK) : 1000; }

/* Rows of a number of units of 1, 2 or 4 bytes. */
static struct load set(D to, size_t pitch, uint32_t value, uint32_t unit, size_t w, size_t h)
{
	size_t n = unit * w * h;
	return (struct load){NODE_MEMSET, SETUP + n / fake_model->memory, width(n), {{to, pitch, 0, DEVICE}, {0}, unit * w, h, 1, value, unit}};
}

/* A copy within the device reads and writes its memory; one with the host uses the link. */
static struct load copy_of(struct move move)
{
	size_t n = move.width * move.rows * move.layers;
	struct load load = {NODE_MEMCPY, SETUP + 2 * n / fake_model->memory, width(n), move};
	if (move.to.where == EITHER || move.from.where == EITHER)
		fake_move_check(&move);
	if (move.to.where == HOST || move.from.where == HOST) {
		load.duration = SETUP + n / fake_model->link;
		load.width = 0;
	}
	return load;
}
static struct load bytes(D to, enum where there, D from, enum where here, size_t n)
{
	return copy_of((struct move){{to, 0, 0, there}, {from, 0, 0, here}, n, 1, 1, 0, 0});
}
static struct load copy(D to, D from, size_t n) { return bytes(to, DEVICE, from, DEVICE, n); }
static struct load up(D to, const void *from, size_t n) { return bytes(to, DEVICE, (D)(uintptr_t)from, HOST, n); }
static struct load down(void *to, D from, size_t n) { return bytes((D)(uintptr_t)to, HOST, from, DEVICE, n); }
static struct load either(D to, D from, size_t n) { return bytes(to, EITHER, from, EITHER, n); }
static struct load nothing(size_t n) { return bytes(0, NOWHERE, 0, NOWHERE, n); }

/* CUDA_MEMCPY2D and, with more fields, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER. */
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

/* Returns a side of a copy by the CUmemorytype of its memory. */
static struct place place(int type, void *host, D device, size_t offset, size_t pitch, size_t layer)
{
	enum where where = type == 1 ? HOST : type == 2 ? DEVICE : type == 4 ? EITHER : NOWHERE;
	return (struct place){(where == HOST ? (D)(uintptr_t)host : device) + offset, pitch, layer, where};
}
static struct place place2(const struct side2 *s) { return place(s->type, s->host, s->device, s->y * s->pitch + s->x, s->pitch, 0); }
static struct place place3(const struct side3 *s)
{
	size_t layer = s->pitch * s->height;
	return place(s->type, s->host, s->device, s->z * layer + s->y * s->pitch + s->x, s->pitch, layer);
}
static struct load copy_rows(const struct rows *c)
{
	return copy_of((struct move){place2(&c->to), place2(&c->from), c->width, c->height, 1, 0, 0});
}
static struct load copy_layers(const struct layers *c)
{
	return copy_of((struct move){place3(&c->to), place3(&c->from), c->width, c->height, c->depth, 0, 0});
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
	NEED_STREAM(stream, handle);
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (refused)
		return refused;
	struct graph_node node = {.type = load.type, .duration = load.duration, .width = load.width, .move = load.move};
	if (fake_capture_node(stream, &node))
		return CUDA_SUCCESS;
	if ((refused = fake_move_check(&load.move)))
		return refused;
	fake_copy(stream, load.duration, load.width);
	fake_move(&load.move);
	fake_spend(fake_host_launch);
	return CUDA_SUCCESS;
}

/* Queues the work and waits for its end. */
static CUresult block(CUstream handle, struct load load)
{
	NEED_STREAM(stream, handle);
	CUresult refused = fake_checks ? fake_check_wait(stream) : CUDA_SUCCESS;
	if (refused || (refused = fake_move_check(&load.move)))
		return refused;
	if (fake_simulated)
		fake_copy(stream, load.duration, load.width);
	fake_move(&load.move);
	if (fake_simulated)
		fake_sim_wait_stream(stream);
	return CUDA_SUCCESS;
}

/* Queues several copies, which are set up together. */
static CUresult queue_all(CUstream handle, const D *to, const D *from, const size_t *sizes, size_t count)
{
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < count && !result; i++) {
		struct load load = either(to[i], from[i], sizes[i]);
		load.duration -= i ? SETUP : 0;
		result = queue(handle, load);
	}
	return result;
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
	DEFAULT(cuMemsetD##bits, _v2, 3020, (D to, type value, size_t n), queue, set(to, 0, value, bits / 8, n, 1))                     \
	STREAMED(cuMemsetD##bits##Async, , 3020, (D to, type value, size_t n, CUstream s), set(to, 0, value, bits / 8, n, 1))           \
	DEFAULT(cuMemsetD2D##bits, _v2, 3020, (D to, size_t pitch, type value, size_t w, size_t h), queue, set(to, pitch, value, bits / 8, w, h)) \
	STREAMED(cuMemsetD2D##bits##Async, , 3020, (D to, size_t pitch, type value, size_t w, size_t h, CUstream s), set(to, pitch, value, bits / 8, w, h))
MEMSET(8, unsigned char)
MEMSET(16, unsigned short)
MEMSET(32, unsigned)

DEFAULT(cuMemcpy, , 4000, (D to, D from, size_t n), block, either(to, from, n))
DEFAULT(cuMemcpyHtoD, _v2, 3020, (D to, const void *from, size_t n), block, up(to, from, n))
DEFAULT(cuMemcpyDtoH, _v2, 3020, (void *to, D from, size_t n), block, down(to, from, n))
DEFAULT(cuMemcpyDtoD, _v2, 3020, (D to, D from, size_t n), queue, copy(to, from, n))
DEFAULT(cuMemcpyDtoA, _v2, 3020, (void *to, size_t at, D from, size_t n), block, nothing(n))
DEFAULT(cuMemcpyAtoD, _v2, 3020, (D to, void *from, size_t at, size_t n), block, nothing(n))
DEFAULT(cuMemcpyAtoA, _v2, 3020, (void *to, size_t at, void *from, size_t offset, size_t n), block, nothing(n))
DEFAULT(cuMemcpy2D, _v2, 3020, (const struct rows *c), block, copy_rows(c))
DEFAULT(cuMemcpy2DUnaligned, _v2, 3020, (const struct rows *c), block, copy_rows(c))
DEFAULT(cuMemcpy3D, _v2, 3020, (const struct layers *c), block, copy_layers(c))
DEFAULT(cuMemcpyPeer, , 4000, (D to, CUcontext there, D from, CUcontext here, size_t n), block, copy(to, from, n))
DEFAULT(cuMemcpy3DPeer, , 4000, (const struct layers *c), block, copy_layers(c))
STREAMED(cuMemcpyAsync, , 4000, (D to, D from, size_t n, CUstream s), either(to, from, n))
STREAMED(cuMemcpyHtoDAsync, _v2, 3020, (D to, const void *from, size_t n, CUstream s), up(to, from, n))
STREAMED(cuMemcpyDtoHAsync, _v2, 3020, (void *to, D from, size_t n, CUstream s), down(to, from, n))
STREAMED(cuMemcpyDtoDAsync, _v2, 3020, (D to, D from, size_t n, CUstream s), copy(to, from, n))
STREAMED(cuMemcpy2DAsync, _v2, 3020, (const struct rows *c, CUstream s), copy_rows(c))
STREAMED(cuMemcpy3DAsync, _v2, 3020, (const struct layers *c, CUstream s), copy_layers(c))
STREAMED(cuMemcpyPeerAsync, , 4000, (D to, CUcontext there, D from, CUcontext here, size_t n, CUstream s), copy(to, from, n))
STREAMED(cuMemcpy3DPeerAsync, , 4000, (const struct layers *c, CUstream s), copy_layers(c))
BOTH(cuMemcpyBatchAsync, , _ptsz, 12080,
     (D *to, D *from, size_t *sizes, size_t n, void *how, size_t *which, size_t hows, size_t *failed, CUstream s), (void)0, s = PER_THREAD(s),
     queue_all(s, to, from, sizes, n))
BOTH(cuMemcpyBatchAsync, _v2, _ptsz, 13000,
     (const D *to, const D *from, const size_t *sizes, size_t n, void *how, size_t *which, size_t hows, CUstream s), (void)0, s = PER_THREAD(s),
     queue_all(s, to, from, sizes, n))
STREAMED(cuMemcpy3DBatchAsync, , 12080, (size_t n, void *list, size_t *failed, unsigned long long flags, CUstream s), nothing(0))
STREAMED(cuMemcpy3DBatchAsync, _v2, 13000, (size_t n, void *list, unsigned long long flags, CUstream s), nothing(0))

/* CUmemLocation. */
struct location {
	int type, id;
};
STUB(cuMemAdvise, , 8000, D p, size_t n, int advice, CUdevice device)
/* A negative device is the host. */
static struct load prefetch(D p, size_t n, CUdevice device)
{
	struct block *block = block_containing(p);
	if (block && device >= 0)
		block_populate(block, device);
	return nothing(n);
}
static struct load prefetch_to(D p, size_t n, struct location at) { return prefetch(p, n, at.type == 1 ? at.id : -1); }
static struct load prefetch_all(const D *p, const size_t *sizes, size_t n, const struct location *at, const size_t *which, size_t ats)
{
	for (size_t i = 0, place = 0; i < n && ats; i++) {
		while (place + 1 < ats && which[place + 1] <= i) /* the ranges from which[place] on go to at[place] */
			place++;
		prefetch_to(p[i], sizes[i], at[place]);
	}
	return nothing(sum(sizes, n));
}
STREAMED(cuMemPrefetchAsync, , 8000, (D p, size_t n, CUdevice device, CUstream s), prefetch(p, n, device))
STREAMED(cuMemPrefetchAsync, _v2, 12020, (D p, size_t n, struct location at, unsigned flags, CUstream s), prefetch_to(p, n, at))
STREAMED(cuMemPrefetchBatchAsync, , 13000,
	 (D *p, size_t *sizes, size_t n, struct location *at, size_t *which, size_t ats, unsigned long long flags, CUstream s),
	 prefetch_all(p, sizes, n, at, which, ats))
STREAMED(cuMemDiscardBatchAsync, , 13000, (D *p, size_t *sizes, size_t n, unsigned long long flags, CUstream s), nothing(0))
STREAMED(cuMemDiscardAndPrefetchBatchAsync, , 13000,
	 (D *p, size_t *sizes, size_t n, struct location *at, size_t *which, size_t ats, unsigned long long flags, CUstream s),
	 prefetch_all(p, sizes, n, at, which, ats))
STREAMED(cuMemBatchDecompressAsync, , 12060, (void *list, size_t n, unsigned flags, size_t *failed, CUstream s), nothing(0))
