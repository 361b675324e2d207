/*
 * spin: a process that keeps a GPU busy, the load of experiments.
 *
 *   spin KERNEL [from=NS] [until=NS] [count=N] [as=kernel|graph|cooperative] [graph=N] [sync=N] [pause=NS] [streams=N] [threads=N]
 *        [lie=NS] [context=none|other|green]
 *   spin BYTES as=memset|copy|upload ...
 *
 * KERNEL is a name of the fake driver, with its number of blocks. Each thread launches it from one time until another or
 * `count` times, in graphs of N kernels if asked for, into its streams in turn. Or it sets or copies so many bytes on the
 * device, or copies them to the device. After every `sync` launches it waits for the stream, then sleeps for `pause`. With
 * `lie` it writes 0 to what the hook reports to the token server, in that period. `context` says that it launches while no context is
 * current or another one than its streams', or that these are of a green context. At the end it prints "launches <n> waits
 * <ns>": the longest time of one launch with its synchronisation.
 */
#include "../fake.h"
#include "../../include/gshare_wire.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuModuleLoadData(CUmodule *, const void *);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *);
CUresult cuStreamCreate(CUstream *, unsigned);
CUresult cuGreenCtxCreate(CUcontext *, void *, CUdevice, unsigned);
CUresult cuGreenCtxStreamCreate(CUstream *, CUcontext, unsigned, int);
CUresult cuCtxCreate_v2(CUcontext *, unsigned, CUdevice);
CUresult cuStreamSynchronize(CUstream);
CUresult cuCtxSynchronize(void);
CUresult cuStreamBeginCapture_v2(CUstream, int);
CUresult cuStreamEndCapture(CUstream, CUgraph *);
CUresult cuGraphInstantiateWithFlags(CUgraphExec *, CUgraph, unsigned long long);
CUresult cuGraphLaunch(CUgraphExec, CUstream);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr, CUdeviceptr, size_t, CUstream);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr, const void *, size_t, CUstream);
CUresult cuLaunchCooperativeKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **);

#define STREAMS_MAX 16
#define THREADS_MAX 16

static struct {
	uint64_t from, until, count, pause, sync, graph, streams, threads, lie;
	const char *as, *context;
} option = {0, UINT64_MAX, UINT64_MAX, 0, 0, 1, 1, 1, 0, "kernel", ""};

static CUcontext context;
static unsigned grid = 64; /* thread blocks of a launch */
static CUfunction kernel;
static size_t bytes; /* of a memset or copy */

/* Exits with a message unless the call succeeded. */
static void must(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "spin: %s: %d\n", what, result);
	exit(1);
}
#define MUST(call) must(call, #call)

/* Parses one name=value argument. */
static void parse(char *argument)
{
	char *value = strchr(argument, '=');
	if (!value) {
		fprintf(stderr, "spin: %s: no value\n", argument);
		exit(2);
	}
	*value++ = 0;
	struct { const char *name; uint64_t *to; } numbers[] = {
		{"from", &option.from}, {"until", &option.until}, {"count", &option.count}, {"pause", &option.pause},
		{"sync", &option.sync}, {"graph", &option.graph}, {"streams", &option.streams}, {"threads", &option.threads}, {"lie", &option.lie},
	};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		if (strcmp(argument, numbers[i].name) == 0) {
			*numbers[i].to = strtoull(value, NULL, 10);
			return;
		}
	if (strcmp(argument, "as") == 0)
		option.as = value;
	if (strcmp(argument, "context") == 0)
		option.context = value;
}

/* Returns an executable graph of kernels. */
static CUgraphExec capture(CUstream stream)
{
	CUgraph graph;
	CUgraphExec exec;
	MUST(cuStreamBeginCapture_v2(stream, 0));
	for (uint64_t i = 0; i < option.graph; i++)
		MUST(cuLaunchKernel(kernel, grid, 1, 1, 128, 1, 1, 0, stream, NULL, NULL));
	MUST(cuStreamEndCapture(stream, &graph));
	MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
	return exec;
}

/* Returns the page on which the hook reports to the token server, or NULL if it has none. */
static struct gshare_client_page *client_page(void)
{
	char line[512];
	unsigned long long from;
	FILE *maps = fopen("/proc/self/maps", "r");
	struct gshare_client_page *page = NULL;
	while (!page && fgets(line, sizeof line, maps))
		if (strstr(line, "gshare-client") && sscanf(line, "%llx", &from) == 1)
			page = (void *)(uintptr_t)from;
	fclose(maps);
	return page;
}

/* Writes 0 to the reported use without end. */
static void *lie(void *unused)
{
	for (;; fakesim_sleep(option.lie)) {
		struct gshare_client_page *page = client_page();
		if (!page)
			continue;
		atomic_store(&page->busy, 0);
		atomic_store(&page->open, 0);
	}
	return unused;
}

/* Launches once in the way that was asked for. */
static CUresult launch(CUgraphExec exec, CUstream stream)
{
	if (exec)
		return cuGraphLaunch(exec, stream);
	if (strcmp(option.as, "cooperative") == 0)
		return cuLaunchCooperativeKernel(kernel, grid, 1, 1, 128, 1, 1, 0, stream, NULL);
	if (strcmp(option.as, "memset") == 0)
		return cuMemsetD8Async(0, 0, bytes, stream);
	if (strcmp(option.as, "copy") == 0)
		return cuMemcpyDtoDAsync_v2(0, 0, bytes, stream);
	if (strcmp(option.as, "upload") == 0)
		return cuMemcpyHtoDAsync_v2(0, NULL, bytes, stream);
	return cuLaunchKernel(kernel, grid, 1, 1, 128, 1, 1, 0, stream, NULL, NULL);
}

/* One thread of launches. */
static void *run(void *unused)
{
	CUstream streams[STREAMS_MAX];
	CUgraphExec exec = NULL;
	MUST(cuCtxSetCurrent(context));
	CUcontext other, green = NULL;
	if (strcmp(option.context, "green") == 0)
		MUST(cuGreenCtxCreate(&green, NULL, 0, 1));
	for (uint64_t i = 0; i < option.streams && i < STREAMS_MAX; i++)
		MUST(green ? cuGreenCtxStreamCreate(&streams[i], green, 1, 0) : cuStreamCreate(&streams[i], 1));
	if (strcmp(option.as, "graph") == 0)
		exec = capture(streams[0]);
	if (strcmp(option.context, "none") == 0)
		MUST(cuCtxSetCurrent(NULL));
	if (strcmp(option.context, "other") == 0)
		MUST(cuCtxCreate_v2(&other, 0, 0));
	if (fakesim_now() < option.from)
		fakesim_sleep(option.from - fakesim_now());
	uint64_t launches = 0, longest = 0;
	for (uint64_t start; (start = fakesim_now()) < option.until && launches < option.count;) {
		CUstream stream = streams[launches++ % option.streams];
		MUST(launch(exec, stream));
		if (option.sync && launches % option.sync == 0) {
			MUST(cuStreamSynchronize(stream));
			if (option.pause)
				fakesim_sleep(option.pause);
		}
		uint64_t took = fakesim_now() - start;
		if (took > longest)
			longest = took;
	}
	printf("launches %llu waits %llu\n", (unsigned long long)launches, (unsigned long long)longest);
	return unused;
}

int main(int count, char **arguments)
{
	pthread_t others[THREADS_MAX];
	CUmodule module;
	if (count < 2)
		return 2;
	for (int i = 2; i < count; i++)
		parse(arguments[i]);
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
	MUST(cuModuleLoadData(&module, ""));
	bytes = strtoull(arguments[1], NULL, 10);
	if (!bytes)
		MUST(cuModuleGetFunction(&kernel, module, arguments[1]));
	const char *blocks = strstr(arguments[1], "_blocks");
	if (blocks)
		grid = (unsigned)strtoul(blocks + 7, NULL, 10);
	pthread_t liar;
	if (option.lie)
		pthread_create(&liar, NULL, lie, NULL);
	for (uint64_t i = 1; i < option.threads && i < THREADS_MAX; i++)
		pthread_create(&others[i], NULL, run, NULL);
	run(NULL);
	fakesim_leave(); /* pthread_join does not release the virtual clock */
	for (uint64_t i = 1; i < option.threads && i < THREADS_MAX; i++)
		pthread_join(others[i], NULL);
	return 0;
}
