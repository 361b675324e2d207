/*
 * The contents of device memory: memory of the host that an allocation gets when a memset or copy first touches it, so that
 * allocations of any size take no more than what has been written. Memory that other processes may have is in a file without a name.
 *
 * Bytes move when the call is made, not when the stream comes to it. A program cannot tell, unless it uses the memory before it has waited
 * for the stream: it makes the calls in an order in which the device may run them. Kernels read and write nothing.
 *
 * An address that is in no allocation is ignored, so that loads need no memory. A range that leaves its allocation is an error, as is a
 * mapping whose access forbids the copy; the driver's documents do not say with which code a copy fails then.
 */
#define _GNU_SOURCE
#include "memory.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE ((size_t)2 << 20)

static pthread_rwlock_t moving = PTHREAD_RWLOCK_INITIALIZER; /* held for writing while contents are put into a file */
static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;    /* guards `bytes` and `file` of all blocks */

/* Maps the contents of a block, of its file if it has one. Returns NULL without memory. */
static unsigned char *map(struct block *block)
{
	int flags = block->file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *bytes = mmap(NULL, block->length, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, block->file, 0);
	return bytes == MAP_FAILED ? NULL : bytes;
}

unsigned char *block_contents(struct block *block)
{
	pthread_mutex_lock(&first);
	if (!block->bytes && block->length)
		block->bytes = map(block);
	unsigned char *bytes = block->bytes;
	pthread_mutex_unlock(&first);
	return bytes;
}

/* Copies what is not 0. */
static void copy_used(unsigned char *to, const unsigned char *from, size_t n)
{
	for (size_t at = 0, piece; at < n; at += piece) {
		piece = n - at < PIECE ? n - at : PIECE;
		if (from[at] || memcmp(from + at, from + at + 1, piece - 1) != 0)
			memcpy(to + at, from + at, piece);
	}
}

/* Moves the contents of a block into a file, with a page behind them; the caller holds both locks. */
static void put_into_file(struct block *block)
{
	int file = memfd_create("device memory", MFD_CLOEXEC);
	if (file < 0 || ftruncate(file, (off_t)(ROUND(block->length, PAGE) + PAGE)) != 0) {
		close(file);
		return;
	}
	unsigned char *old = block->bytes;
	block->file = file;
	if (!old)
		return;
	if (!(block->bytes = map(block))) {
		block->bytes = old;
		block->file = -1;
		close(file);
		return;
	}
	copy_used(block->bytes, old, block->length);
	munmap(old, block->length);
}

int block_file(struct block *block)
{
	pthread_rwlock_wrlock(&moving);
	pthread_mutex_lock(&first);
	if (block->file < 0 && !block->managed)
		put_into_file(block);
	int file = block->file;
	pthread_mutex_unlock(&first);
	pthread_rwlock_unlock(&moving);
	return file;
}

static int managed; /* whether there is managed memory, whose addresses are those of the host */

/* Returns the block that an address is in, or NULL. */
static struct block *block_at(uint64_t address)
{
	struct block *block = block_find(address);
	if (!block && (address >= FIRST_ADDRESS || __atomic_load_n(&managed, __ATOMIC_RELAXED)))
		block = block_containing(address);
	return block && block->length && (address >= FIRST_ADDRESS || block->managed) ? block : NULL;
}

void fake_has_managed(void) { __atomic_store_n(&managed, 1, __ATOMIC_RELAXED); }

/* Returns the contents at an address of a block, and lowers *n to what follows in it. */
static unsigned char *contents_at(struct block *block, uint64_t address, size_t *n)
{
	uint64_t offset = address - block->key;
	if (*n > block->length - offset)
		*n = block->length - offset;
	unsigned char *bytes = block_contents(block->backs ? block->backs : block);
	return bytes ? bytes + block->offset + offset : NULL;
}

/* Returns how many bytes a move uses from the address of a place on. */
static size_t extent(const struct move *move, const struct place *place)
{
	return (move->layers - 1) * place->layer + (move->rows - 1) * place->pitch + move->width;
}

/* Checks that a range of device memory may be used so. Ranges may consist of several mappings. */
static CUresult check(uint64_t address, size_t n, int access)
{
	for (size_t piece; n; address += piece, n -= piece) {
		struct block *block = block_at(address);
		if (!block || (block->backs && (block->access & access) != access))
			return CUDA_ERROR_INVALID_VALUE;
		piece = n;
		if (!contents_at(block, address, &piece))
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

enum { READ = 1, READ_WRITE = 3 }; /* CUmemAccess_flags */

CUresult fake_move_check(struct move *move)
{
	struct place *places[] = {&move->to, &move->from};
	int ignored = !move->width || !move->rows || !move->layers, sides = move->unit ? 1 : 2;
	for (int i = 0, known = 0; i < sides; i++)
		if (places[i]->where == EITHER) {
			known = block_at(places[i]->address) != NULL;
			places[i]->where = known || !block_at(places[!i]->address) ? DEVICE : HOST;
		}
	for (int i = 0; i < sides; i++)
		ignored |= places[i]->where == NOWHERE || (places[i]->where == DEVICE && !block_at(places[i]->address));
	if (ignored)
		move->to.where = NOWHERE;
	CUresult result = CUDA_SUCCESS;
	for (int i = 0; i < sides && !ignored && !result; i++)
		if (places[i]->where == DEVICE)
			result = check(places[i]->address, extent(move, places[i]), i == 0 ? READ_WRITE : READ);
		else if (!places[i]->address)
			result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

/* Returns the memory at an address, and lowers *n to what is in one piece. */
static unsigned char *memory_at(enum where where, uint64_t address, size_t *n)
{
	struct block *block = where == DEVICE ? block_at(address) : NULL;
	return block ? contents_at(block, address, n) : (unsigned char *)(uintptr_t)address;
}

/* Fills a row with a value. */
static void fill(const struct move *move, uint64_t to)
{
	for (size_t left = move->width, n; left; to += n, left -= n) {
		unsigned char *at = memory_at(DEVICE, to, (n = left, &n));
		const unsigned char *value = (const unsigned char *)&move->value;
		if (move->unit == 1 || !move->value) {
			memset(at, move->value, n);
			continue;
		}
		for (size_t i = 0; i < n; i++)
			at[i] = value[i % move->unit];
	}
}

/* Copies a row. Rows may overlap. */
static void copy(const struct move *move, uint64_t to, uint64_t from)
{
	for (size_t left = move->width, n; left; to += n, from += n, left -= n) {
		n = left;
		unsigned char *source = memory_at(move->from.where, from, &n), *target = memory_at(move->to.where, to, &n);
		memmove(target, source, n);
	}
}

void fake_move(const struct move *move)
{
	if (move->to.where == NOWHERE)
		return;
	struct block *touched = move->unit ? block_at(move->to.address) : NULL; /* by the device; copies may be made by the host */
	if (touched)
		block_populate(touched, touched->device);
	pthread_rwlock_rdlock(&moving);
	for (size_t layer = 0; layer < move->layers; layer++)
		for (size_t row = 0; row < move->rows; row++) {
			uint64_t to = move->to.address + layer * move->to.layer + row * move->to.pitch;
			if (move->unit)
				fill(move, to);
			else
				copy(move, to, move->from.address + layer * move->from.layer + row * move->from.pitch);
		}
	pthread_rwlock_unlock(&moving);
}
