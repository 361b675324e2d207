/*
 * The functions for bytes and strings that the hook, or code that the compiler makes for it, would otherwise import from the C library. The
 * runtimes of sanitizers replace those of the C library: they would see these accesses of the hook but not its locks, and report races that
 * are none. An empty asm statement keeps the compiler from making a loop a call of the same function.
 */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

#define BARRIER() __asm__ volatile("" ::: "memory")

/* Copies upwards, byte by byte. */
static void *copy(char *to, const char *from, size_t n) {
	for (size_t i = 0; i < n; i++) {
		to[i] = from[i];
		BARRIER();
	}
	return to;
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) { return copy(to, from, n); }

void *memmove(void *to, const void *from, size_t n) {
	if ((const char *)to <= (const char *)from) return copy(to, from, n);
	while (n-- > 0) {
		((char *)to)[n] = ((const char *)from)[n];
		BARRIER();
	}
	return to;
}

void *memset(void *to, int value, size_t n) {
	for (size_t i = 0; i < n; i++) {
		((char *)to)[i] = (char)value;
		BARRIER();
	}
	return to;
}

int memcmp(const void *a, const void *b, size_t n) {
	const unsigned char *x = a, *y = b;
	for (; n && *x == *y; n--, x++, y++) BARRIER();
	return n ? *x - *y : 0;
}

size_t strnlen(const char *s, size_t n) {
	size_t i = 0;
	for (; i < n && s[i]; i++) BARRIER();
	return i;
}

size_t strlen(const char *s) { return strnlen(s, PTRDIFF_MAX); }

int strncmp(const char *a, const char *b, size_t n) {
	for (; n && *a && *a == *b; n--, a++, b++) BARRIER();
	return n ? (unsigned char)*a - (unsigned char)*b : 0;
}

int strcmp(const char *a, const char *b) { return strncmp(a, b, PTRDIFF_MAX); }

/* Returns a letter of ASCII as a small one. */
static int small(char c) { return c >= 'A' && c <= 'Z' ? c + 32 : (unsigned char)c; }

int strcasecmp(const char *a, const char *b) {
	for (; *a && small(*a) == small(*b); a++, b++) BARRIER();
	return small(*a) - small(*b);
}
