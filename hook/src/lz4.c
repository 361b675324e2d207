#include "lz4.h"

#include <string.h>

/* Adds the bytes that extend a length of 15 to it. Returns false at the end of the input. */
static bool extend(const unsigned char **from, const unsigned char *end, size_t *length) {
	unsigned char byte;
	if (*length != 15) return true;
	do {
		if (*from == end) return false;
		byte = *(*from)++;
		*length += byte;
	} while (byte == 255);
	return true;
}

/* A block is a sequence of: token, literals, and a match, which copies earlier output; the last one has literals only. */
bool gsh_lz4_decompress(const unsigned char *from, size_t length, unsigned char *to, size_t size) {
	const unsigned char *end = from + length;
	size_t written = 0;
	while (from < end) {
		unsigned token = *from++;
		size_t literals = token >> 4, match = token & 15;
		if (!extend(&from, end, &literals) || literals > (size_t)(end - from) || literals > size - written) return false;
		memcpy(to + written, from, literals);
		from += literals;
		written += literals;
		if (from == end) break;
		if (end - from < 2) return false;
		size_t distance = from[0] | (size_t)from[1] << 8;
		from += 2;
		if (!extend(&from, end, &match) || !distance || distance > written || (match += 4) > size - written) return false;
		for (; match; match--, written++) to[written] = to[written - distance]; /* may overlap what it writes */
	}
	return written == size;
}
