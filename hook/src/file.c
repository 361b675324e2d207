#define _GNU_SOURCE
#include "file.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct gsh_file gsh_file_of(int fd) {
	struct stat s; /* by the system call, as fstat is a symbol of a newer C library than the hook asks for */
	if (fd < 0 || syscall(SYS_fstat, fd, &s)) return (struct gsh_file){-1, 0, 0};
	return (struct gsh_file){fd, s.st_dev, s.st_ino};
}

bool gsh_file_valid(const struct gsh_file *f) {
	struct gsh_file now = gsh_file_of(f->fd);
	return f->fd >= 0 && now.fd == f->fd && now.device == f->device && now.inode == f->inode;
}

void gsh_file_close(struct gsh_file *f) {
	if (gsh_file_valid(f)) close(f->fd);
	f->fd = -1;
}
