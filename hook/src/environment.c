#define _GNU_SOURCE
#include "environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#define MOST (64 << 20) /* bytes read of an environment; the kernel has a lower limit unless the stack is very large */

/*
 * The kernel keeps where the strings of the first environment are; clearenv and unsetenv leave them there. Programs that write their title
 * over them have lost them, and the kernel refuses the file to a process that has changed its user.
 */
static bool initial(const char *name, char *value, size_t size) {
	static char bytes[4096];
	size_t length = strlen(name), at = 0; /* at: bytes of the entry so far */
	bool matches = true, found = false;
	int fd = open("/proc/self/environ", O_RDONLY | O_CLOEXEC);
	for (size_t sum = 0; fd >= 0 && sum < MOST && !found;) {
		ssize_t n = read(fd, bytes, sizeof bytes);
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) break;
		sum += (size_t)n;
		for (ssize_t i = 0; i < n && !found; i++, at++) {
			if (at <= length)
				matches = matches && bytes[i] == (at < length ? name[at] : '=');
			else if (matches && at - length - 1 < size)
				value[at - length - 1] = bytes[i];
			if (bytes[i]) continue;
			found = matches && at > length && at - length - 1 < size;
			matches = true;
			at = (size_t)-1; /* the loop adds one */
		}
	}
	if (fd >= 0) close(fd);
	return found;
}

bool gsh_environment(const char *name, char *value, size_t size) {
	const char *now = secure_getenv(name);
	if (!now) return !getauxval(AT_SECURE) && initial(name, value, size);
	size_t length = strlen(now);
	if (length >= size) return false;
	memcpy(value, now, length + 1);
	return true;
}
