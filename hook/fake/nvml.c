/* libnvidia-ml.so.1: a dozen calls. Memory in use is what this process itself has allocated through the fake driver. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_FOUND = 6,
       NVML_ERROR_INSUFFICIENT_SIZE = 7 };
#define DEVICES_MAX 16

typedef struct { int index; } *nvmlDevice_t;
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
struct utilisation { unsigned gpu, memory; };

static int initialised;
static struct { int index; } devices[DEVICES_MAX];

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 0) : otherwise;
}

static unsigned count(void) { return (unsigned)number("FAKE_CUDA_DEVICES", 1); }
static uint64_t total(void) { return number("FAKE_CUDA_MEMORY", 16ull << 30); }

static uint64_t used(int device)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
	uint64_t (*ask)(int) = cuda ? (uint64_t (*)(int))dlsym(cuda, "fakecuda_used") : NULL;
	return ask ? ask(device) : 0;
}

EXPORT int nvmlInit_v2(void) { initialised = 1; return NVML_SUCCESS; }
EXPORT int nvmlInit(void) { return nvmlInit_v2(); }
EXPORT int nvmlShutdown(void) { initialised = 0; return NVML_SUCCESS; }
EXPORT const char *nvmlErrorString(int code) { return code == NVML_SUCCESS ? "Success" : "Error"; }

EXPORT int nvmlSystemGetDriverVersion(char *to, unsigned length)
{
	snprintf(to, length, "580.00");
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *to)
{
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	*to = count();
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	if (!initialised)
		return NVML_ERROR_UNINITIALIZED;
	if (index >= count() || index >= DEVICES_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	devices[index].index = (int)index;
	*device = (nvmlDevice_t)&devices[index];
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) { *index = (unsigned)device->index; return NVML_SUCCESS; }

EXPORT int nvmlDeviceGetName(nvmlDevice_t device, char *to, unsigned length)
{
	snprintf(to, length, "Fake GPU %d", device->index);
	return NVML_SUCCESS;
}

/* The same bytes as cuDeviceGetUuid gives. */
EXPORT int nvmlDeviceGetUUID(nvmlDevice_t device, char *to, unsigned length)
{
	if (length < 41)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	snprintf(to, length, "GPU-00000000-0000-0000-0000-%012x", (unsigned)device->index);
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	char own[48];
	for (unsigned i = 0; i < count(); i++)
		if (nvmlDeviceGetHandleByIndex_v2(i, device) == NVML_SUCCESS &&
		    nvmlDeviceGetUUID(*device, own, sizeof own) == NVML_SUCCESS && strcmp(own, uuid) == 0)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_FOUND;
}

EXPORT int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *m)
{
	*m = (struct memory){total(), total() - used(device->index), used(device->index)};
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *m)
{
	*m = (struct memory_v2){m->version, total(), 0, total() - used(device->index), used(device->index)};
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *room, struct process *to)
{
	if (!used(device->index)) {
		*room = 0;
		return NVML_SUCCESS;
	}
	if (*room < 1 || !to) {
		*room = 1;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*room = 1;
	*to = (struct process){(unsigned)getpid(), used(device->index), ~0u, ~0u};
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilisation *u)
{
	*u = (struct utilisation){0, (unsigned)(used(device->index) * 100 / total())};
	return NVML_SUCCESS;
}
