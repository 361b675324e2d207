/* Device memory that processes share by file descriptors (virtual memory management). Functions return a CUresult, or a number below 0. */
#include <stddef.h>

enum {
	MEMORY_ABSENT = -1,  /* there is no libcuda.so.1 */
	MEMORY_TOO_OLD = -2, /* it lacks a function */
};

typedef unsigned long long memory_handle;
typedef unsigned long long memory_address;

int memory_open(void);                                          /* initialises the driver, without a context */
int memory_create(memory_handle *handle, size_t bytes);         /* allocates memory of the first device that can be exported */
int memory_export(int *file, memory_handle handle);             /* returns a new descriptor of it */
int memory_import(memory_handle *handle, int file);             /* returns a handle of a descriptor's memory, which the caller releases */
int memory_release(memory_handle handle);
int memory_map(memory_address *to, memory_handle handle, size_t bytes, int writable); /* creates the primary context at the first call */
int memory_unmap(memory_address at, size_t bytes);
int memory_read(void *to, memory_address from, size_t bytes);
int memory_write(memory_address to, const void *from, size_t bytes);
const char *memory_error(int result);
