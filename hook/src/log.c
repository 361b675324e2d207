#define _GNU_SOURCE
#include "log.h"

#include "environment.h"
#include "file.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct gsh_file file = {-1, 0, 0}; /* without a descriptor nothing is logged */

void gsh_log_open(void) {
	static char name[4096];
	if (file.fd >= 0 || !gsh_environment("GSHARE_LOG", name, sizeof name) || !*name) return;
	int fd = open(name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	file = gsh_file_of(fd >= 0 && fd <= 2 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : fd);
}

/* Writes the line into the room, and returns its length. */
static int compose(char *line, size_t room, const char *format, va_list args) {
	int head = snprintf(line, room, "gshare %d: ", (int)getpid());
	int n = vsnprintf(line + head, room - head - 1, format, args);
	n = n < 0 ? 0 : n >= (int)room - head - 1 ? (int)room - head - 2 : n;
	line[head + n] = '\n';
	return head + n + 1;
}

static void append(const char *line, int length) {
	if (gsh_file_valid(&file) && write(file.fd, line, length) < 0) return;
}

void gsh_log(const char *format, ...) {
	char line[256];
	va_list args;
	if (!gsh_file_valid(&file)) return;
	va_start(args, format);
	append(line, compose(line, sizeof line, format, args));
	va_end(args);
}

void gsh_log_loudly(const char *format, ...) {
	char line[256];
	struct stat s;
	va_list args;
	va_start(args, format);
	int length = compose(line, sizeof line, format, args);
	va_end(args);
	append(line, length);
	if (isatty(2) || (!syscall(SYS_fstat, 2, &s) && S_ISFIFO(s.st_mode)))
		if (write(2, line, length) < 0) return;
}
