/* Initialisation and devices. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fake_devices = 1;
static int gpus[DEVICES_MAX]; /* by device: the GPU that the process sees as it */
uint64_t fake_memory = 16ull << 30;

/*
 * The GPUs that can be modelled. The bandwidth of the memory is that of the data sheets. That of the link is 0.76 of what the PCIe generation's
 * 16 lanes transfer in one direction (15.75, 31.5 and 63 GB/s), the rest of which packets and their flow control take.
 */
static const struct model models[] = {
	{"V100", 900, 12}, {"T4", 320, 12}, {"A100-40GB", 1555, 24}, {"A100-80GB", 1935, 24}, {"L4", 300, 24}, {"H100", 3350, 48}, {"H200", 4800, 48},
};
const struct model *fake_model = models; /* FAKE_CUDA_MODEL */
int fake_initialised;
CUresult fake_broken;

static int driver_version = DRIVER_VERSION; /* FAKE_CUDA_VERSION */

/* Returns the number in an environment variable, or the default. */
static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);
	return text ? strtoull(text, NULL, 0) : otherwise;
}

#define UUID "GPU-00000000-0000-0000-0000-%012x" /* of a GPU, by its number */

/*
 * Restricts the devices to those in CUDA_VISIBLE_DEVICES, a list of UUIDs, up to the first that does not exist. Lists that do not
 * begin with the UUID of a fake GPU are ignored: tests of other things have them.
 */
static void restrict_devices(const char *visible)
{
	int all = fake_devices, seen = 0;
	unsigned gpu;
	for (int i = 0; i < all; i++)
		gpus[i] = i;
	while (seen < all && sscanf(visible, UUID, &gpu) == 1 && gpu < (unsigned)all) {
		gpus[seen++] = (int)gpu;
		visible += strcspn(visible, ",");
		visible += *visible == ',';
	}
	if (seen)
		fake_devices = seen;
}

int fake_gpu(CUdevice device) { return device >= 0 && device < DEVICES_MAX ? gpus[device] : device; }

/* The driver of a forked child does not work, if its parent had initialised it. */
static void after_fork(void)
{
	if (fake_initialised)
		fake_broken = CUDA_ERROR_NOT_INITIALIZED;
}

/* Reads the environment when the library is loaded. */
__attribute__((constructor)) static void configure(void)
{
	pthread_atfork(NULL, NULL, after_fork);
	fake_devices = (int)number("FAKE_CUDA_DEVICES", 1);
	if (fake_devices > DEVICES_MAX)
		fake_devices = DEVICES_MAX;
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	restrict_devices(visible ? visible : "");
	const char *model = getenv("FAKE_CUDA_MODEL");
	for (size_t i = 0; model && i < sizeof models / sizeof *models; i++)
		if (strcmp(models[i].name, model) == 0)
			fake_model = &models[i];
	fake_memory = number("FAKE_CUDA_MEMORY", fake_memory);
	driver_version = (int)number("FAKE_CUDA_VERSION", DRIVER_VERSION);
}

FN(cuInit, , 2000, unsigned flags)
{
	ENTER(cuInit);
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (fake_devices == 0)
		return CUDA_ERROR_NO_DEVICE;
	pthread_mutex_lock(&fake_lock);
	CUresult result = fake_initialised ? CUDA_SUCCESS : fake_mps_start();
	if (result == CUDA_SUCCESS && !fake_initialised)
		result = fake_sim_start();
	fake_initialised = result == CUDA_SUCCESS;
	pthread_mutex_unlock(&fake_lock);
	return result;
}

FN(cuDriverGetVersion, , 2020, int *version)
{
	COUNT(cuDriverGetVersion);
	NEED(version);
	*version = driver_version;
	return CUDA_SUCCESS;
}

FN(cuDeviceGetCount, , 2000, int *count)
{
	ENTER(cuDeviceGetCount);
	NEED(count);
	if (!fake_initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	*count = fake_devices;
	return CUDA_SUCCESS;
}

FN(cuDeviceGet, , 2000, CUdevice *device, int ordinal)
{
	ENTER(cuDeviceGet);
	NEED(device);
	NEED_DEVICE(ordinal);
	*device = ordinal;
	return CUDA_SUCCESS;
}

FN(cuDeviceGetName, , 2000, char *name, int length, CUdevice device)
{
	ENTER(cuDeviceGetName);
	NEED(name);
	NEED_DEVICE(device);
	snprintf(name, (size_t)length, "Fake GPU %d", fake_gpu(device));
	return CUDA_SUCCESS;
}

/* Stores the UUID: zeros and the number of the GPU. */
static CUresult uuid(void *to, CUdevice device)
{
	NEED(to);
	NEED_DEVICE(device);
	memset(to, 0, 16);
	((unsigned char *)to)[15] = (unsigned char)fake_gpu(device);
	return CUDA_SUCCESS;
}

FN(cuDeviceGetUuid, , 9020, void *to, CUdevice device) { ENTER(cuDeviceGetUuid); return uuid(to, device); }
FN(cuDeviceGetUuid, _v2, 11040, void *to, CUdevice device) { ENTER(cuDeviceGetUuid_v2); return uuid(to, device); }

FN(cuDeviceTotalMem, _v2, 3020, size_t *bytes, CUdevice device)
{
	ENTER(cuDeviceTotalMem_v2);
	NEED(bytes);
	NEED_DEVICE(device);
	*bytes = fake_memory;
	return CUDA_SUCCESS;
}

/* The attributes that programs read; the others are 0. Numbers are those of CUdevice_attribute. */
FN(cuDeviceGetAttribute, , 2000, int *value, int attribute, CUdevice device)
{
	static const struct { int attribute, value; } known[] = {
		{1, 1024}, {2, 1024}, {3, 1024}, {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, {8, 49152}, {10, 32},
		{12, 65536}, {13, 1500000}, {16, 100}, {31, 1}, {36, 1000000}, {37, 4096}, {38, 50 << 20}, {39, 2048},
		{40, 2}, {41, 1}, {75, 9}, {76, 0}, {78, 1}, {79, 1}, {81, 233472}, {82, 65536}, {83, 1}, {89, 1}, {95, 1},
		{96, 1}, {97, 232448}, {102, 1}, {103, 1}, {115, 1}, {119, 9},
	};
	ENTER(cuDeviceGetAttribute);
	NEED(value);
	NEED_DEVICE(device);
	*value = 0;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (known[i].attribute == attribute)
			*value = known[i].value;
	if (attribute == 33) /* the PCI bus */
		*value = fake_gpu(device) + 1;
	if (attribute == 16)
		*value = fake_mps_sms(*value);
	return CUDA_SUCCESS;
}

FN(cuDeviceComputeCapability, , 2000, int *major, int *minor, CUdevice device)
{
	ENTER(cuDeviceComputeCapability);
	NEED(major);
	NEED(minor);
	NEED_DEVICE(device);
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

FN(cuDeviceGetPCIBusId, , 4010, char *id, int length, CUdevice device)
{
	ENTER(cuDeviceGetPCIBusId);
	NEED(id);
	NEED_DEVICE(device);
	snprintf(id, (size_t)length, "0000:%02X:00.0", fake_gpu(device) + 1);
	return CUDA_SUCCESS;
}

FN(cuDeviceGetByPCIBusId, , 4010, CUdevice *device, const char *id)
{
	unsigned domain = 0, bus, slot;
	ENTER(cuDeviceGetByPCIBusId);
	if (!device || !id || (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3 && sscanf(id, "%x:%x", &bus, &slot) != 2))
		return CUDA_ERROR_INVALID_VALUE;
	for (int d = 0; d < fake_devices; d++)
		if (!domain && !slot && (unsigned)fake_gpu(d) + 1 == bus) {
			*device = d;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

FN(cuDeviceCanAccessPeer, , 4000, int *can, CUdevice a, CUdevice b)
{
	ENTER(cuDeviceCanAccessPeer);
	NEED(can);
	NEED_DEVICE(a);
	NEED_DEVICE(b);
	*can = a != b;
	return CUDA_SUCCESS;
}

FN(cuGetErrorName, , 6000, CUresult code, const char **name)
{
	COUNT(cuGetErrorName);
	NEED(name);
	static THREAD_LOCAL char text[32];
	snprintf(text, sizeof text, code == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_%d", code);
	*name = text;
	return CUDA_SUCCESS;
}

FN(cuGetErrorString, , 6000, CUresult code, const char **text) { COUNT(cuGetErrorString); return cuGetErrorName(code, text); }

STUB(cuProfilerStart, , 4000, void)
STUB(cuProfilerStop, , 4000, void)
STUB(cuCheckpointProcessLock, , 12080, int pid __attribute__((unused)), void *arguments __attribute__((unused)))
STUB(cuCheckpointProcessCheckpoint, , 12080, int pid __attribute__((unused)), void *arguments __attribute__((unused)))
STUB(cuCheckpointProcessRestore, , 12080, int pid __attribute__((unused)), void *arguments __attribute__((unused)))
STUB(cuCheckpointProcessUnlock, , 12080, int pid __attribute__((unused)), void *arguments __attribute__((unused)))
