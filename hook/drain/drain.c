/*
 * gshare-drain ends the CUDA work of the container in which it runs, and returns when that is done: a client of MPS that is killed in mid-kernel
 * can take the others of its server with it. It is for preStop hooks, for which the kubelet waits before it has a container stopped.
 *
 *   gshare-drain [SOCKET]
 *
 * The node agent listens at SOCKET. It knows the container by the process that connects, ends the work, writes why it could not, if so, and closes
 * the connection. An agent that has just ended has a successor soon, so an attempt to connect is repeated for a second.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ATTEMPTS = 20, PAUSE = 50 /* ms */, PATIENCE = 3000 /* ms; the agent takes less */ };

/* Connects to the agent. Returns -1 if nobody listens. */
static int dial(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof a.sun_path)
		return -1;
	strcpy(a.sun_path, path);
	for (int i = 0; i < ATTEMPTS; i++) {
		int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof a) == 0)
			return s;
		close(s);
		usleep(PAUSE * 1000);
	}
	return -1;
}

int main(int argc, char **argv)
{
	const char *path = argc > 1 ? argv[1] : "/usr/lib/gshare/drain/socket";
	char text[512];
	size_t size = 0;
	int s = dial(path);
	if (s < 0) {
		fprintf(stderr, "gshare-drain: nobody listens at %s\n", path);
		return 1;
	}
	for (;;) {
		struct pollfd wait = {.fd = s, .events = POLLIN};
		if (poll(&wait, 1, PATIENCE) <= 0) {
			fprintf(stderr, "gshare-drain: the node agent does not answer\n");
			return 1;
		}
		ssize_t n = read(s, text + size, sizeof text - size);
		if (n <= 0)
			break;
		size += (size_t)n;
		if (size == sizeof text)
			break;
	}
	if (size > 0)
		fprintf(stderr, "gshare-drain: %.*s\n", (int)size, text);
	return size > 0;
}
