/* The images of modules and libraries: which device memory their variables will take. */
#ifndef GSHARE_IMAGE_H
#define GSHARE_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Returns the bytes of the variables (__device__, __managed__) that an image declares: a cubin, PTX, a fat binary of these, or what
 * nvcc registers for one. For a fat binary it returns the bytes of the largest entry, since the driver selects one; cubins of
 * another major compute capability do not count, unless major is 0. UINT64_MAX if the image cannot be read. The image is trusted to
 * be as long as it says, as the driver trusts it.
 */
uint64_t gsh_image_bytes(const void *image, unsigned major);

/* Returns the same for PTX in memory of the given length. */
uint64_t gsh_ptx_bytes(const char *text, size_t length);

#endif
