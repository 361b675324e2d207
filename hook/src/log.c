#define _GNU_SOURCE
#include "log.h"

#include "environment.h"
#include "file.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct gsh_file file = {-1, 0, 0}; /* without a descriptor nothing is logged */

void gsh_log_open(void) {
	static char name[4096];
	if (file.fd >= 0 || !gsh_environment("GSHARE_LOG", name, sizeof name) || !*name) return;
	int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	file = gsh_file_of(fd >= 0 && fd <= 2 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : fd);
}

void gsh_log(const char *format, ...) {
	if (!gsh_file_valid(&file)) return;
	char line[256];
	int head = snprintf(line, sizeof line, "gshare %d: ", (int)getpid());
	va_list args;
	va_start(args, format);
	int n = vsnprintf(line + head, sizeof line - head - 1, format, args);
	va_end(args);
	n = n < 0 ? 0 : n >= (int)sizeof line - head - 1 ? (int)sizeof line - head - 2 : n;
	line[head + n] = '\n';
	if (write(file.fd, line, head + n + 1) < 0) return;
}
