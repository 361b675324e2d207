/*
 * imports: processes that import memory read-only, as those that share weights do. Their owner is killed, then they are, one after the other.
 * It checks what the driver counts at each step, that reading works and writing does not, and that closed descriptors free the memory. Needs
 * FAKE_CUDA_SHARED. Prints "ok".
 */
#define _GNU_SOURCE
#include "../fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult cuInit(unsigned);
CUresult cuDevicePrimaryCtxRetain(CUcontext *, CUdevice);
CUresult cuCtxSetCurrent(CUcontext);
CUresult cuMemGetInfo_v2(size_t *, size_t *);
CUresult cuMemcpyHtoD_v2(CUdeviceptr, const void *, size_t);
CUresult cuMemcpyDtoH_v2(void *, CUdeviceptr, size_t);
CUresult cuMemsetD8_v2(CUdeviceptr, unsigned char, size_t);
CUresult cuMemCreate(unsigned long long *, size_t, const void *, unsigned long long);
CUresult cuMemRelease(unsigned long long);
CUresult cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
CUresult cuMemMap(CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long);
CUresult cuMemUnmap(CUdeviceptr, size_t);
CUresult cuMemSetAccess(CUdeviceptr, size_t, const void *, size_t);
CUresult cuMemExportToShareableHandle(void *, unsigned long long, int, unsigned long long);
CUresult cuMemImportFromShareableHandle(unsigned long long *, void *, int);

enum { SIZE = 4 << 20, READ = 1, READ_WRITE = 3 };

/* Exits with a message unless a value is this. */
static void want(uint64_t got, uint64_t wanted, const char *what)
{
	if (got == wanted)
		return;
	fprintf(stderr, "imports: %s: %llu, want %llu\n", what, (unsigned long long)got, (unsigned long long)wanted);
	exit(1);
}
#define MUST(call) want(call, CUDA_SUCCESS, #call)
#define USED(wanted, when) want(fakecuda_used_by_all(0), wanted, when)

static void start(void)
{
	CUcontext context;
	MUST(cuInit(0));
	MUST(cuDevicePrimaryCtxRetain(&context, 0));
	MUST(cuCtxSetCurrent(context));
}

static CUdeviceptr map(unsigned long long handle, int flags)
{
	CUdeviceptr p;
	int access[3] = {1, 0, flags};
	MUST(cuMemAddressReserve(&p, SIZE, 0, 0, 0));
	MUST(cuMemMap(p, SIZE, 0, handle, 0));
	MUST(cuMemSetAccess(p, SIZE, access, 1));
	return p;
}

/* Sends a descriptor with one byte; -1: the byte alone. */
static void send_file(int to, int file)
{
	char byte = 0, space[CMSG_SPACE(sizeof file)] = {0};
	struct iovec io = {&byte, 1};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = file < 0 ? 0 : sizeof space};
	if (file >= 0) {
		struct cmsghdr *c = CMSG_FIRSTHDR(&message);
		*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
		memcpy(CMSG_DATA(c), &file, sizeof file);
	}
	want((uint64_t)sendmsg(to, &message, 0), 1, "send");
}

/* Waits for a byte, and returns the descriptor that came with it, or -1. */
static int receive_file(int from)
{
	int file = -1;
	char byte, space[CMSG_SPACE(sizeof file)];
	struct iovec io = {&byte, 1};
	struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	want((uint64_t)recvmsg(from, &message, MSG_CMSG_CLOEXEC), 1, "receive");
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	if (c)
		memcpy(&file, CMSG_DATA(c), sizeof file);
	return file;
}

/* Has memory of which it sends a descriptor. When told to, it lets go of it; when told again, it looks at what is used. */
static void owner(int parent)
{
	int prop[8] = {1, 1, 1, 0}, file;
	unsigned long long handle;
	size_t left, total;
	start();
	MUST(cuMemCreate(&handle, SIZE, prop, 0));
	CUdeviceptr p = map(handle, READ_WRITE);
	MUST(cuMemcpyHtoD_v2(p, "weights", 8));
	MUST(cuMemExportToShareableHandle(&file, handle, 1, 0));
	send_file(parent, file);
	close(file);
	receive_file(parent);
	MUST(cuMemUnmap(p, SIZE));
	MUST(cuMemRelease(handle));
	send_file(parent, -1);
	receive_file(parent);
	MUST(cuMemGetInfo_v2(&left, &total));
	send_file(parent, -1);
	pause();
}

/* Reads the memory, and fails to write it. */
static void importer(int parent)
{
	unsigned long long handle;
	char text[8];
	start();
	int file = receive_file(parent);
	MUST(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)file, 1));
	close(file);
	CUdeviceptr p = map(handle, READ);
	MUST(cuMemRelease(handle));
	MUST(cuMemcpyDtoH_v2(text, p, sizeof text));
	want((uint64_t)strcmp(text, "weights"), 0, "contents");
	want(cuMemcpyHtoD_v2(p, "changed", 8), CUDA_ERROR_INVALID_VALUE, "a copy to read-only memory");
	want(cuMemsetD8_v2(p, 0, SIZE), CUDA_ERROR_INVALID_VALUE, "a memset of read-only memory");
	MUST(cuMemcpyDtoH_v2(text, p, sizeof text));
	want((uint64_t)strcmp(text, "weights"), 0, "contents after the writes");
	send_file(parent, -1);
	pause();
}

/* Starts a process, and returns the socket to it. */
static pid_t run(void (*what)(int), int *socket)
{
	int ends[2];
	want((uint64_t)socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0, "socketpair");
	pid_t child = fork();
	if (child == 0) {
		close(ends[0]);
		what(ends[1]);
		_exit(0);
	}
	close(ends[1]);
	*socket = ends[0];
	return child;
}

static void end(pid_t child)
{
	int status;
	kill(child, SIGKILL);
	want((uint64_t)waitpid(child, &status, 0), (uint64_t)child, "wait");
	want(WIFSIGNALED(status), 1, "killed");
}

int main(void)
{
	int sockets[4], file;
	alarm(60);
	pid_t first = run(owner, &sockets[0]), readers[2];
	file = receive_file(sockets[0]);
	USED(SIZE, "exported");
	for (int i = 0; i < 2; i++) {
		readers[i] = run(importer, &sockets[1 + i]);
		send_file(sockets[1 + i], file);
		receive_file(sockets[1 + i]);
		USED(SIZE, "imported"); /* once, however many have it */
	}
	close(file);
	end(first);
	USED(SIZE, "the owner is killed");
	end(readers[0]);
	USED(SIZE, "an importer is killed");
	end(readers[1]);
	USED(0, "all are killed");

	pid_t other = run(owner, &sockets[3]);
	file = receive_file(sockets[3]);
	send_file(sockets[3], -1);
	receive_file(sockets[3]);
	USED(SIZE, "the owner has let go, and a descriptor is open");
	close(file);
	send_file(sockets[3], -1);
	receive_file(sockets[3]);
	USED(0, "the descriptor is closed");
	end(other);
	puts("ok");
	return 0;
}
