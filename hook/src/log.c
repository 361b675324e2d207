#define _GNU_SOURCE
#include "log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int file = -1; /* -1: log nothing */

void gsh_log_open(void) {
	const char *name = getenv("GSHARE_LOG");
	if (file >= 0 || !name || !*name) return;
	int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	file = fd >= 0 && fd <= 2 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : fd;
}

void gsh_log(const char *format, ...) {
	if (file < 0) return;
	char line[256];
	int head = snprintf(line, sizeof line, "gshare %d: ", (int)getpid());
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line + head, sizeof line - head - 1, format, args);
	va_end(args);
	n = n < 0 ? 0 : n >= (int)sizeof line - head - 1 ? (int)sizeof line - head - 2 : n;
	line[head + n] = '\n';
	if (write(file, line, head + n + 1) < 0) return;
}
