/*
 * libnvidia-ml.so.1: the calls that gshare makes, but for MIG's, and some that programs make. Memory in use is what processes
 * have allocated through the fake driver: all of them with FAKE_CUDA_SHARED, else this one. In the list of processes each has
 * FAKE_NVML_CONTEXT bytes more, for its context.
 *
 * FAKE_NVML_FAULTS names a file that is read at each call. A line "call@device code" (any device: *) makes that call return
 * the code; with "hang" as code it blocks while the line is there, after creating the file <name>.hanging. A line "xid@device
 * number" is a critical error, which is delivered to waiters for events; "recovery@device action" is the recovery action that
 * the driver reports.
 */
#define _GNU_SOURCE
#include "account.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
/* nvmlReturn_t */
enum { NVML_SUCCESS = 0, NVML_ERROR_UNINITIALIZED = 1, NVML_ERROR_INVALID_ARGUMENT = 2, NVML_ERROR_NOT_FOUND = 6,
       NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_INSUFFICIENT_SIZE = 7, NVML_ERROR_TIMEOUT = 10,
       NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25 };
/* Values of the file of faults, and numbers of nvml.h. */
enum { HANG = -1, NONE = -2, XID_EVENT = 8, RECOVERY_ACTION = 230 };
#define DEVICES_MAX ACCOUNT_DEVICES

/* Structures of nvml.h. */
typedef struct { int index; } *nvmlDevice_t;
struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process_v1 { unsigned pid; unsigned long long used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
struct utilisation { unsigned gpu, memory; };
struct event { nvmlDevice_t device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
struct field { unsigned id, scope; long long timestamp, latency; unsigned type; int result; unsigned long long value; };
typedef struct { unsigned delivered[DEVICES_MAX]; /* the last Xid of each device */ } *nvmlEventSet_t;

static int initialised; /* calls of nvmlInit less calls of nvmlShutdown */
/* The handles that are returned. */
static struct { int index; } devices[DEVICES_MAX];

/* Returns the number in an environment variable, or the default. */
static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* Return the number of devices, and the memory of each. */
static unsigned count(void) { return (unsigned)number("FAKE_CUDA_DEVICES", 1); }
static uint64_t total(void) { return number("FAKE_CUDA_MEMORY", 16ull << 30); }

/* Returns the bytes in use on a device. */
static uint64_t used(int device)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
	uint64_t (*own)(int) = cuda ? (uint64_t (*)(int))dlsym(cuda, "fakecuda_used") : NULL;
	return account_used(device, own ? own(device) : 0);
}

/* Returns the code of a call on a device in the file of faults, HANG, or NONE. */
static int fault_now(const char *call, int device)
{
	char line[128], own[64], any[64], code[16], where[64];
	const char *name = getenv("FAKE_NVML_FAULTS");
	FILE *file = name ? fopen(name, "re") : NULL;
	int found = NONE;
	snprintf(own, sizeof own, "%s@%d", call, device);
	snprintf(any, sizeof any, "%s@*", call);
	while (file && found == NONE && fgets(line, sizeof line, file))
		if (sscanf(line, "%63s %15s", where, code) == 2 && (!strcmp(where, own) || !strcmp(where, any)))
			found = strcmp(code, "hang") ? atoi(code) : HANG;
	if (file)
		fclose(file);
	return found;
}

/* Creates the file by which a test notices that a call hangs. */
static void signal_hang(void)
{
	char name[4096];
	snprintf(name, sizeof name, "%s.hanging", getenv("FAKE_NVML_FAULTS"));
	close(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
}

/* Returns the injected error of a call, after hanging if that is injected. */
static int fault(const char *call, int device)
{
	int code;
	while ((code = fault_now(call, device)) == HANG) {
		signal_hang();
		usleep(1000);
	}
	return code == NONE ? NVML_SUCCESS : code;
}

/* Returns the injected error of the calling function, if any. */
#define ENTER(device)                                                                                                   \
	do {                                                                                                            \
		int code = !initialised ? NVML_ERROR_UNINITIALIZED : fault(__func__, device);                           \
		if (code)                                                                                               \
			return code;                                                                                    \
	} while (0)
#define ON(device) ENTER((device)->index)

EXPORT int nvmlInit_v2(void)
{
	int code = fault(__func__, 0);
	initialised += code == NVML_SUCCESS;
	return code;
}

EXPORT int nvmlInit(void) { return nvmlInit_v2(); }
EXPORT int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }

EXPORT int nvmlShutdown(void)
{
	ENTER(0);
	initialised--;
	return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(int code) { return code == NVML_SUCCESS ? "Success" : "Error"; }

EXPORT int nvmlSystemGetDriverVersion(char *to, unsigned length)
{
	snprintf(to, length, "580.00");
	return NVML_SUCCESS;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = (int)number("FAKE_CUDA_VERSION", 13030);
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *to)
{
	ENTER(0);
	*to = count();
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
	ENTER((int)index);
	if (index >= count() || index >= DEVICES_MAX)
		return NVML_ERROR_INVALID_ARGUMENT;
	devices[index].index = (int)index;
	*device = (nvmlDevice_t)&devices[index];
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) { *index = (unsigned)device->index; return NVML_SUCCESS; }

EXPORT int nvmlDeviceGetName(nvmlDevice_t device, char *to, unsigned length)
{
	ON(device);
	snprintf(to, length, "Fake GPU %d", device->index);
	return NVML_SUCCESS;
}

/* The same bytes as those of cuDeviceGetUuid. */
EXPORT int nvmlDeviceGetUUID(nvmlDevice_t device, char *to, unsigned length)
{
	ON(device);
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

/* The PCI bus is that of cuDeviceGetPCIBusId. */
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
	unsigned domain, bus, slot;
	if (!id || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return NVML_ERROR_INVALID_ARGUMENT;
	return domain || slot || !bus || bus > count() ? NVML_ERROR_NOT_FOUND : nvmlDeviceGetHandleByIndex_v2(bus - 1, device);
}

EXPORT int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *m)
{
	ON(device);
	*m = (struct memory){total(), total() - used(device->index), used(device->index)};
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *m)
{
	ON(device);
	*m = (struct memory_v2){m->version, total(), 0, total() - used(device->index), used(device->index)};
	return NVML_SUCCESS;
}

/* Stores the processes that have memory of the device, at most *entries, and sets it to their number. */
static int processes(int device, unsigned *entries, struct process *to)
{
	struct account_use all[ACCOUNT_PROCESSES];
	int n = account_list(all);
	unsigned found = 0, most = *entries;
	if (n < 0) {
		all[0].process.pid = getpid();
		all[0].bytes[device] = used(device);
		n = 1;
	}
	for (int i = 0; i < n; i++)
		if (all[i].bytes[device]) {
			if (to && found < most)
				to[found] = (struct process){(unsigned)all[i].process.pid, all[i].bytes[device] + number("FAKE_NVML_CONTEXT", 0), ~0u, ~0u};
			found++;
		}
	*entries = found;
	return found > 0 && (found > most || !to) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *entries, struct process *to)
{
	ON(device);
	return processes(device->index, entries, to);
}

/* Version 1 has processes without the ids of MIG. */
EXPORT int nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned *entries, struct process_v1 *to)
{
	struct process all[ACCOUNT_PROCESSES];
	unsigned most = *entries, n = ACCOUNT_PROCESSES;
	ON(device);
	int code = processes(device->index, &n, all);
	for (unsigned i = 0; to && i < n && i < most; i++)
		to[i] = (struct process_v1){all[i].pid, all[i].used};
	*entries = n;
	return code ? code : n > 0 && (n > most || !to) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *entries, struct process *to)
{
	(void)to;
	ON(device);
	*entries = 0;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *entries, struct process *to)
{
	(void)to;
	ON(device);
	*entries = 0;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, struct utilisation *u)
{
	*u = (struct utilisation){0, (unsigned)(used(device->index) * 100 / total())};
	return NVML_SUCCESS;
}

/* 100 SMs of 128 cores, as in device.c. */
EXPORT int nvmlDeviceGetNumGpuCores(nvmlDevice_t device, unsigned *cores)
{
	ON(device);
	*cores = 100 * 128;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	ON(device);
	*major = 9;
	*minor = 0;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
	ON(device);
	*corrected = *uncorrected = *pending = *failed = 0;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
	ON(device);
	*minor = (unsigned)device->index;
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *now, unsigned *next)
{
	ON(device);
	*now = *next = 0;
	return NVML_ERROR_NOT_SUPPORTED;
}

/* The fake has no NUMA nodes and no NVLink. */
EXPORT int nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words, unsigned long *nodes, unsigned scope)
{
	(void)words;
	(void)nodes;
	(void)scope;
	ON(device);
	return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, int caps, int *status)
{
	(void)other;
	(void)caps;
	ON(device);
	*status = 5; /* NVML_P2P_STATUS_NOT_SUPPORTED */
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, int *type)
{
	(void)link;
	(void)type;
	ON(device);
	return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, void *info)
{
	(void)link;
	(void)info;
	ON(device);
	return NVML_ERROR_NOT_SUPPORTED;
}

/* Nor has it a fabric: all is 0 behind the version, whose low 24 bits are the size of the structure. */
EXPORT int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, unsigned *info)
{
	ON(device);
	size_t size = *info & 0xffffff;
	if (size < sizeof *info)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memset(info + 1, 0, size - sizeof *info);
	return NVML_SUCCESS;
}

EXPORT int nvmlEventSetCreate(nvmlEventSet_t *set)
{
	ENTER(0);
	*set = calloc(1, sizeof **set);
	return NVML_SUCCESS;
}

EXPORT int nvmlEventSetFree(nvmlEventSet_t set)
{
	free(set);
	return NVML_SUCCESS;
}

EXPORT int nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	(void)types;
	(void)set;
	ON(device);
	return NVML_SUCCESS;
}

/* Delivers each error once to each set; checks the file of faults every 10 ms. */
EXPORT int nvmlEventSetWait_v2(nvmlEventSet_t set, struct event *to, unsigned milliseconds)
{
	ENTER(0);
	for (unsigned waited = 0; waited <= milliseconds; waited += 10, usleep(10000))
		for (unsigned i = 0; i < count(); i++) {
			int xid = fault_now("xid", (int)i);
			if (xid <= 0 || set->delivered[i] == (unsigned)xid)
				continue;
			set->delivered[i] = (unsigned)xid;
			*to = (struct event){(nvmlDevice_t)&devices[i], XID_EVENT, (unsigned)xid, ~0u, ~0u};
			return NVML_SUCCESS;
		}
	return NVML_ERROR_TIMEOUT;
}

EXPORT int nvmlDeviceGetFieldValues(nvmlDevice_t device, int n, struct field *values)
{
	ON(device);
	for (int i = 0; i < n; i++) {
		int action = fault_now("recovery", device->index);
		values[i].result = values[i].id == RECOVERY_ACTION ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		values[i].value = action > 0 ? (unsigned)action : 0;
	}
	return NVML_SUCCESS;
}
