/* A process that the token server refuses has nothing, although there is a policy file. Runs under the hook. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define MIB (1ull << 20)

static struct server server = {.memory_limit = 100 * MIB, .refuse = EAGAIN};
static CUcontext context;
static CUfunction kernel;
static _Atomic int launched;

static void *launch(void *unused) {
	cuCtxSetCurrent(context);
	driver_launch(kernel, NULL);
	launched = 1;
	return unused;
}

TEST(refused_process_has_nothing) {
	CUmodule module;
	CUdeviceptr p;
	pthread_t thread;
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
	CHECK_EQUAL(cuInit(0), CUDA_ERROR_MPS_MAX_CLIENTS_REACHED);
	CHECK(!cuDevicePrimaryCtxRetain(&context, 0) && !cuCtxSetCurrent(context) && !cuModuleLoadData(&module, ""));
	CHECK(!cuModuleGetFunction(&kernel, module, "spin_ns1000_sm100_blocks1"));
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	pthread_create(&thread, NULL, launch, NULL);
	usleep(300000);
	CHECK_EQUAL(launched, 0);
	CHECK_EQUAL(server.sessions, 0);
	server.silent = 1;
	for (int i = 0; i < 6000 && server.unanswered < 2; i++) usleep(10000);
	CHECK(server.unanswered >= 2); /* so the process has given up waiting for the first */
	CHECK_EQUAL(cuMemAlloc_v2(&p, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(launched, 0);
	server.silent = 0;
	server.refuse = 0; /* another process has ended */
	pthread_join(thread, NULL);
	CHECK_EQUAL(launched, 1);
	CHECK_EQUAL(server.sessions, 1);
	CHECK_EQUAL(cuInit(0), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 50 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(refused_process_has_nothing), {0}};
	server_start(&server);
	char path[128];
	snprintf(path, sizeof path, "%s/policy", server.directory);
	FILE *policy = fopen(path, "w");
	if (!policy || fputs("version 1\nvgpu 0 none memory 104857600 quota 300 sm 1000\n", policy) < 0 || fclose(policy)) return 1;
	return check_run(tests, argc, argv);
}
