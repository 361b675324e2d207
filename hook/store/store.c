/* The client of the model store. The frames are those of vgpu/api/storewire. */
#define _GNU_SOURCE
#include "gshare_store.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { VERSION = 1, GET = 1, PUT = 2, COMMIT = 3, LAYOUT = 48 };

struct request {
	uint16_t version, operation;
	uint32_t layout_length;
	uint64_t bytes;
	unsigned char digest[32];
	char layout[LAYOUT];
};

struct response {
	uint16_t version, status;
	uint32_t zero;
	uint64_t bytes, size;
};

_Static_assert(sizeof(struct request) == 96 && sizeof(struct response) == 24, "the frames have no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers in frames are little-endian");

EXPORT int gshare_store_open(const char *socket_name)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (!socket_name || strlen(socket_name) >= sizeof address.sun_path)
		return -EINVAL;
	strcpy(address.sun_path, socket_name);
	int store = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), failed;
	if (store < 0)
		return -errno;
	while ((failed = connect(store, (struct sockaddr *)&address, sizeof address)) != 0 && errno == EINTR)
		;
	if (!failed)
		return store;
	int error = -errno;
	close(store);
	return error;
}

EXPORT void gshare_store_close(int store)
{
	if (store >= 0)
		close(store);
}

/* Receives a response, and the descriptor that comes with it, or -1. */
static int receive(int store, struct response *response, int *file)
{
	union {
		struct cmsghdr header; /* aligns the bytes */
		char bytes[CMSG_SPACE(sizeof *file)];
	} space;
	struct iovec io = {response, sizeof *response};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
	ssize_t n;
	*file = -1;
	while ((n = recvmsg(store, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
		;
	if (n < 0)
		return -errno;
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof *file))
		memcpy(file, CMSG_DATA(c), sizeof *file);
	if (n == 0)
		return -ECONNRESET;
	if (n >= 4 && response->version != VERSION)
		return GSHARE_STORE_VERSION;
	return n == sizeof *response && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ? response->status : -EPROTO;
}

/* Asks the store. weights is NULL where no memory is to come. */
static int ask(int store, int operation, const unsigned char *digest, const char *layout, uint64_t bytes, struct gshare_weights *weights)
{
	struct request request = {.version = VERSION, .operation = (uint16_t)operation, .bytes = bytes};
	struct response response = {0};
	size_t length = layout ? strlen(layout) : 0;
	int file;
	if (length > LAYOUT || !digest)
		return -EINVAL;
	request.layout_length = (uint32_t)length;
	memcpy(request.digest, digest, sizeof request.digest);
	if (length)
		memcpy(request.layout, layout, length);
	ssize_t sent;
	while ((sent = send(store, &request, sizeof request, MSG_NOSIGNAL)) < 0 && errno == EINTR)
		;
	if (sent < 0)
		return -errno;
	int status = receive(store, &response, &file);
	if (!status && (file >= 0) != (weights != NULL))
		status = -EPROTO;
	if (status) {
		if (file >= 0)
			close(file);
		return status;
	}
	if (weights)
		*weights = (struct gshare_weights){file, response.bytes, response.size};
	return 0;
}

EXPORT int gshare_store_get(int store, const unsigned char digest[32], const char *layout, struct gshare_weights *weights)
{
	return weights ? ask(store, GET, digest, layout, 0, weights) : -EINVAL;
}

EXPORT int gshare_store_put(int store, const unsigned char digest[32], const char *layout, uint64_t bytes, struct gshare_weights *weights)
{
	return weights ? ask(store, PUT, digest, layout, bytes, weights) : -EINVAL;
}

EXPORT int gshare_store_commit(int store, const unsigned char digest[32], const char *layout)
{
	return ask(store, COMMIT, digest, layout, 0, NULL);
}

EXPORT const char *gshare_store_error(int error)
{
	static const char *const texts[] = {
		"success", "the store does not know this version of the protocol", "the store did not understand the request",
		"the store failed, see its log", "the store belongs to another namespace", "the store does not have these weights",
		"another program is storing these weights", "the store has these weights already",
		"the size is 0, or more than the store may have", "the weights in use leave no room for these",
		"only the program that stores the weights may commit them, and once", "the weights have another digest than they were stored under",
	};
	static __thread char text[64];
	if (error < 0)
		return strerror(-error);
	if ((size_t)error < sizeof texts / sizeof *texts)
		return texts[error];
	snprintf(text, sizeof text, error > GSHARE_STORE_CUDA ? "CUDA error %d" : "status %d of the store",
		 error > GSHARE_STORE_CUDA ? error - GSHARE_STORE_CUDA : error);
	return text;
}
