/* The calls of the CUDA driver that the model server makes. The library is opened at run time. All return a CUresult; 0 is success. */
#ifndef GSHARE_MODEL_DRIVER_H
#define GSHARE_MODEL_DRIVER_H

#include <stddef.h>

enum { DRIVER_ABSENT = -1, DRIVER_TOO_OLD = -2 }; /* in addition to the driver's own results */

int driver_open(void); /* opens the library and makes the primary context of device 0 the calling thread's */
int driver_enter(void); /* makes the context of driver_open the calling thread's */
int driver_attribute(int *value, int attribute);
int driver_allocate(unsigned long long *address, size_t bytes);
int driver_free(unsigned long long address);
int driver_allocate_host(void **memory, size_t bytes);
int driver_free_host(void *memory);
int driver_stream(void **stream);
int driver_upload(unsigned long long to, const void *from, size_t bytes, void *stream);
int driver_download(void *to, unsigned long long from, size_t bytes, void *stream);
int driver_kernel(void **kernel, const char *ptx, const char *name);
int driver_launch(void *kernel, unsigned blocks, unsigned threads, void *stream);
int driver_wait(void *stream);
const char *driver_error(int result); /* returns the name of a result */

#endif
