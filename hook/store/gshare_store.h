/*
 * libgshare_store.so: weights that the programs of a namespace have once on a GPU, in the model store of its slice (gshare-node store). It
 * needs libc alone, and opens libcuda.so.1 for the functions that map.
 *
 * A program asks for weights by their SHA-256. If the store does not have them, it gets memory, maps it for writing, fills it, unmaps it and
 * commits; the store computes the digest and refuses other contents. From then on they are only read.
 *
 * Functions return 0, or what has gone wrong: a number below 0 is that of errno, negated; one from 1 to 999 is a status of the store; above
 * GSHARE_STORE_CUDA it is that plus a CUresult.
 */
#ifndef GSHARE_STORE_H
#define GSHARE_STORE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the store answers. */
enum {
	GSHARE_STORE_VERSION = 1,   /* it does not know this library's version of the protocol */
	GSHARE_STORE_MALFORMED = 2,
	GSHARE_STORE_FAILED = 3,    /* it has failed, see its log */
	GSHARE_STORE_NAMESPACE = 4, /* it belongs to another namespace */
	GSHARE_STORE_ABSENT = 5,    /* it does not have the weights: put them */
	GSHARE_STORE_BUSY = 6,      /* another program is storing them: ask again a little later */
	GSHARE_STORE_PRESENT = 7,   /* it has them already: get them */
	GSHARE_STORE_SIZE = 8,      /* there are 0 bytes, or more than the store may have */
	GSHARE_STORE_FULL = 9,      /* other weights, which are in use, leave no room */
	GSHARE_STORE_WRITER = 10,   /* this program is not storing them */
	GSHARE_STORE_DIGEST = 11,   /* they have another digest, and are gone */
	GSHARE_STORE_CUDA = 1000,
};

/* Memory of the store. */
struct gshare_weights {
	int file;       /* of the memory, close it once it is mapped */
	uint64_t bytes; /* of the weights */
	uint64_t size;  /* of the memory */
};

/* Connects to a store. Returns the connection, which is the lease of all that it gives, or an error below 0. Use it in one thread at a time. */
int gshare_store_open(const char *socket);

/* Ends all leases. Unmap before: memory that is mapped afterwards is not the store's any more. */
void gshare_store_close(int store);

/* Takes a lease of weights. layout is the name of how they lie in memory, of at most 48 bytes of printable ASCII, or NULL. */
int gshare_store_get(int store, const unsigned char digest[32], const char *layout, struct gshare_weights *weights);

/* Gets memory to store weights of so many bytes. */
int gshare_store_put(int store, const unsigned char digest[32], const char *layout, uint64_t bytes, struct gshare_weights *weights);

/* Ends the storing, and waits until the digest is verified. The connection has a lease of the weights then. */
int gshare_store_commit(int store, const unsigned char digest[32], const char *layout);

/* Maps weights at an address of the current context's device, for reading, or for writing too. The descriptor may be closed afterwards. */
int gshare_store_map(const struct gshare_weights *weights, int writable, unsigned long long *address);

/* Removes a mapping of so many bytes of memory. */
int gshare_store_unmap(unsigned long long address, uint64_t size);

/* Returns a text for an error, which lives until the next call in the thread. */
const char *gshare_store_error(int error);

#ifdef __cplusplus
}
#endif
#endif
