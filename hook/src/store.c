/* The frames are defined in vgpu/api/storewire. */
#define _GNU_SOURCE
#include "store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "client.h"

enum { VERSION = 1, OWN = 4, PATIENCE = 2 /* s */ };

struct request {
	uint16_t version, operation;
	unsigned char zero[92];
};

struct response {
	uint16_t version, status;
	uint32_t zero;
	uint64_t bytes, size;
};

_Static_assert(sizeof(struct request) == 96 && sizeof(struct response) == 24, "the frames have no padding");

/* Connects to the store. Returns a descriptor, or -1. */
static int dial(const struct gsh_vgpu *v) {
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	struct timeval patience = {PATIENCE, 0};
	if (!gsh_store_path(at.sun_path, sizeof at.sun_path, v->number)) return -1;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), failed;
	if (fd < 0) return -1;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
	while ((failed = connect(fd, (struct sockaddr *)&at, sizeof at)) && errno == EINTR);
	if (!failed) return fd;
	close(fd);
	return -1;
}

/* Sends a request with a descriptor. */
static bool ask(int store, int fd) {
	struct request r = {.version = VERSION, .operation = OWN};
	union {
		struct cmsghdr header; /* aligns the bytes */
		char bytes[CMSG_SPACE(sizeof fd)];
	} space = {{0}};
	struct iovec io = {&r, sizeof r};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	ssize_t sent;
	while ((sent = sendmsg(store, &m, MSG_NOSIGNAL)) < 0 && errno == EINTR);
	return sent == sizeof r;
}

enum gsh_owned gsh_store_owned(const struct gsh_vgpu *v, int fd) {
	if (!v || !atomic_load(&v->server->import_allowance)) return GSH_OWNED_NOT;
	struct response r = {0};
	int store = dial(v);
	if (store < 0) return GSH_OWNED_NOT;
	ssize_t n = -1;
	if (ask(store, fd))
		while ((n = recv(store, &r, sizeof r, 0)) < 0 && errno == EINTR);
	close(store);
	if (n != sizeof r || r.version != VERSION || r.status) return GSH_OWNED_NOT;
	return r.bytes ? GSH_OWNED_READ : GSH_OWNED_WRITE;
}
