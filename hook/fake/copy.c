/* Copies: they copy nothing, but blocking ones wait for their stream. */
#include "memory.h"

/* A blocking copy: waits for the stream. */
static CUresult wait(CUstream handle)
{
	NEED_CONTEXT();
	struct stream *stream = fake_stream(handle);
	CUresult refused = fake_checks ? fake_check_wait(stream) : CUDA_SUCCESS;
	if (!refused && fake_simulated)
		fake_sim_wait_stream(stream);
	return refused;
}

/* An asynchronous copy: becomes a node of this type in a capture. */
static CUresult queue(CUstream handle, int type)
{
	NEED_CONTEXT();
	struct stream *stream = fake_stream(handle);
	CUresult refused = fake_checks ? fake_check_legacy(stream) : CUDA_SUCCESS;
	if (!refused && stream->capture)
		fake_node(stream->capture->graph, type);
	return refused;
}

typedef CUdeviceptr D;
#define IGNORE3(a, b, c) (void)(a), (void)(b), (void)(c)

FN(cuMemcpy, , 4000, D to, D from, size_t n) { ENTER(cuMemcpy); IGNORE3(to, from, n); return wait(STREAM_LEGACY); }
TWIN(cuMemcpy, , _ptds, 7000, (D to, D from, size_t n), (to, from, n))
FN(cuMemcpyHtoD, _v2, 3020, D to, const void *from, size_t n) { ENTER(cuMemcpyHtoD_v2); IGNORE3(to, from, n); return wait(STREAM_LEGACY); }
TWIN(cuMemcpyHtoD, _v2, _ptds, 7000, (D to, const void *from, size_t n), (to, from, n))
FN(cuMemcpyDtoH, _v2, 3020, void *to, D from, size_t n) { ENTER(cuMemcpyDtoH_v2); IGNORE3(to, from, n); return wait(STREAM_LEGACY); }
TWIN(cuMemcpyDtoH, _v2, _ptds, 7000, (void *to, D from, size_t n), (to, from, n))
FN(cuMemcpyDtoD, _v2, 3020, D to, D from, size_t n) { ENTER(cuMemcpyDtoD_v2); IGNORE3(to, from, n); return queue(STREAM_LEGACY, NODE_MEMCPY); }
TWIN(cuMemcpyDtoD, _v2, _ptds, 7000, (D to, D from, size_t n), (to, from, n))
FN(cuMemcpyAsync, , 4000, D to, D from, size_t n, CUstream s) { ENTER(cuMemcpyAsync); IGNORE3(to, from, n); return queue(s, NODE_MEMCPY); }
TWIN(cuMemcpyAsync, , _ptsz, 7000, (D to, D from, size_t n, CUstream s), (to, from, n, PER_THREAD(s)))
FN(cuMemcpyHtoDAsync, _v2, 3020, D to, const void *from, size_t n, CUstream s)
{
	ENTER(cuMemcpyHtoDAsync_v2);
	IGNORE3(to, from, n);
	return queue(s, NODE_MEMCPY);
}
TWIN(cuMemcpyHtoDAsync, _v2, _ptsz, 7000, (D to, const void *from, size_t n, CUstream s), (to, from, n, PER_THREAD(s)))
FN(cuMemcpyDtoHAsync, _v2, 3020, void *to, D from, size_t n, CUstream s)
{
	ENTER(cuMemcpyDtoHAsync_v2);
	IGNORE3(to, from, n);
	return queue(s, NODE_MEMCPY);
}
TWIN(cuMemcpyDtoHAsync, _v2, _ptsz, 7000, (void *to, D from, size_t n, CUstream s), (to, from, n, PER_THREAD(s)))
FN(cuMemsetD8, _v2, 3020, D to, unsigned char value, size_t n) { ENTER(cuMemsetD8_v2); IGNORE3(to, value, n); return queue(STREAM_LEGACY, NODE_MEMSET); }
TWIN(cuMemsetD8, _v2, _ptds, 7000, (D to, unsigned char value, size_t n), (to, value, n))
FN(cuMemsetD8Async, , 3020, D to, unsigned char value, size_t n, CUstream s) { ENTER(cuMemsetD8Async); IGNORE3(to, value, n); return queue(s, NODE_MEMSET); }
TWIN(cuMemsetD8Async, , _ptsz, 7000, (D to, unsigned char value, size_t n, CUstream s), (to, value, n, PER_THREAD(s)))
FN(cuMemsetD32Async, , 3020, D to, unsigned value, size_t n, CUstream s) { ENTER(cuMemsetD32Async); IGNORE3(to, value, n); return queue(s, NODE_MEMSET); }
TWIN(cuMemsetD32Async, , _ptsz, 7000, (D to, unsigned value, size_t n, CUstream s), (to, value, n, PER_THREAD(s)))
STUB(cuMemAdvise, , 8000, D p __attribute__((unused)), size_t n __attribute__((unused)), int advice __attribute__((unused)),
     CUdevice device __attribute__((unused)))
FN(cuMemPrefetchAsync, , 8000, D p, size_t n, CUdevice device, CUstream s)
{
	ENTER(cuMemPrefetchAsync);
	struct block *block = block_find(p);
	(void)n; /* all of it moves */
	if (block && block->managed && !block->size && fake_charge(device, block_size(block->managed))) {
		block->size = block_size(block->managed);
		block->device = device;
	}
	return queue(s, NODE_MEMCPY);
}
TWIN(cuMemPrefetchAsync, , _ptsz, 8000, (D p, size_t n, CUdevice device, CUstream s), (p, n, device, PER_THREAD(s)))
