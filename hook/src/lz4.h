/* Decompression of blocks of LZ4, with which nvcc compresses the entries of fat binaries. No state. */
#ifndef GSHARE_LZ4_H
#define GSHARE_LZ4_H

#include <stdbool.h>
#include <stddef.h>

/* Decompresses a block; false unless it is valid and has exactly this size. */
bool gsh_lz4_decompress(const unsigned char *from, size_t length, unsigned char *to, size_t size);

#endif
