/*
 * sample: a CUDA program to be compiled by nvcc. It uses each part of the runtime once, allocates 512 MiB and 3 GiB of device memory, and
 * runs 200 kernels of 1 ms, whose name tells the fake driver how long they run. It prints a line for each step except the first.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                                     \
	do {                                                                                                            \
		cudaError_t r = (call);                                                                                 \
		if (r != cudaSuccess) {                                                                                 \
			printf("%s: error %d, %s\n", #call, r, cudaGetErrorString(r));                                  \
			exit(1);                                                                                        \
		}                                                                                                       \
	} while (0)

extern "C" __global__ void spin_ns1000000_sm1000_blocks64(float *p) {
	if (p) *p = 1;
}

template <typename T> __global__ void add(const T *a, const T *b, T *c, int n) {
	int i = blockDim.x * blockIdx.x + threadIdx.x;
	if (i < n) c[i] = a[i] + b[i];
}

/* Uses every part of the runtime once. */
static void all() {
	int devices = 0;
	cudaDeviceProp properties;
	CHECK(cudaGetDeviceCount(&devices));
	CHECK(cudaGetDeviceProperties(&properties, 0));

	const int n = 50000;
	float *host = nullptr, *a, *b, *c, *managed;
	CHECK(cudaMallocHost((void **)&host, n * sizeof *host));
	CHECK(cudaMalloc(&a, n * sizeof *a));
	CHECK(cudaMalloc(&b, n * sizeof *b));
	CHECK(cudaMalloc(&c, n * sizeof *c));
	CHECK(cudaMallocManaged(&managed, n * sizeof *managed));
	size_t pitch;
	void *pitched;
	CHECK(cudaMallocPitch(&pitched, &pitch, 100, 100));
	CHECK(cudaMemcpy(a, host, n * sizeof *a, cudaMemcpyHostToDevice));
	CHECK(cudaMemset(b, 0, n * sizeof *b));
	add<<<(n + 255) / 256, 256>>>(a, b, c, n);
	CHECK(cudaGetLastError());
	CHECK(cudaMemcpy(host, c, n * sizeof *c, cudaMemcpyDeviceToHost));

	cudaStream_t first, second;
	cudaEvent_t from, to;
	float ms;
	CHECK(cudaStreamCreate(&first));
	CHECK(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking));
	CHECK(cudaEventCreate(&from));
	CHECK(cudaEventCreate(&to));
	CHECK(cudaEventRecord(from, first));
	spin_ns1000000_sm1000_blocks64<<<64, 128, 0, first>>>(a);
	CHECK(cudaEventRecord(to, first));
	CHECK(cudaStreamWaitEvent(second, to, 0));
	add<double><<<1, 32, 0, second>>>(nullptr, nullptr, nullptr, 0);
	float *asynchronous;
	CHECK(cudaMallocAsync((void **)&asynchronous, 1 << 20, second));
	CHECK(cudaMemsetAsync(asynchronous, 1, 1 << 20, second));
	CHECK(cudaFreeAsync(asynchronous, second));
	CHECK(cudaStreamSynchronize(second));
	CHECK(cudaEventSynchronize(to));
	CHECK(cudaEventElapsedTime(&ms, from, to));

	void *arguments[] = {&a};
	CHECK(cudaLaunchCooperativeKernel((void *)spin_ns1000000_sm1000_blocks64, dim3(64), dim3(128), arguments, 0, first));
	cudaLaunchConfig_t config = {};
	config.gridDim = dim3(64), config.blockDim = dim3(128), config.stream = first;
	CHECK(cudaLaunchKernelEx(&config, spin_ns1000000_sm1000_blocks64, a));

	cudaGraph_t graph;
	cudaGraphExec_t executable;
	CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
	for (int i = 0; i < 5; i++) spin_ns1000000_sm1000_blocks64<<<64, 128, 0, first>>>(a);
	CHECK(cudaStreamEndCapture(first, &graph));
	CHECK(cudaGraphInstantiate(&executable, graph, 0));
	for (int i = 0; i < 4; i++) CHECK(cudaGraphLaunch(executable, first));
	CHECK(cudaDeviceSynchronize());

	CHECK(cudaGraphExecDestroy(executable));
	CHECK(cudaGraphDestroy(graph));
	CHECK(cudaEventDestroy(from));
	CHECK(cudaEventDestroy(to));
	CHECK(cudaStreamDestroy(first));
	CHECK(cudaStreamDestroy(second));
	for (void *p : {(void *)a, (void *)b, (void *)c, (void *)managed, pitched}) CHECK(cudaFree(p));
	CHECK(cudaFreeHost(host));
}

/* Allocates device memory, and frees it. */
static void allocate(size_t mib) {
	void *p = nullptr;
	printf("%zu MiB: error %d\n", mib, cudaMalloc(&p, mib << 20));
	CHECK(cudaFree(p));
}

int main() {
	all();
	size_t left, total;
	CHECK(cudaMemGetInfo(&left, &total));
	printf("%zu of %zu MiB free\n", left >> 20, total >> 20);
	allocate(512);
	allocate(3072);
	auto begin = std::chrono::steady_clock::now();
	for (int i = 0; i < 200; i++) spin_ns1000000_sm1000_blocks64<<<64, 128>>>(nullptr);
	CHECK(cudaDeviceSynchronize());
	printf("%.0f ms\n", std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count());
	return 0;
}
