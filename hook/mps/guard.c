/*
 * libgshare-mps.so keeps the clients of an MPS control daemon from sending it commands. The agent starts the daemon with it
 * (LD_PRELOAD).
 *
 * The daemon listens at two sockets, control and control_privileged. At both, a program can open a session as a client of CUDA
 * or one of commands, and the daemon judges commands by the user: uid 0 of a container may end everybody's work. Containers get
 * the socket control alone, and the guard ends sessions of commands there.
 *
 * The daemon also waits for each new connection in turn, so one that says nothing would stop it. The guard bounds that wait.
 *
 * What is known of the protocol is from daemons of drivers 535 to 555. A daemon with another one is not disturbed; the agent tries
 * whether it takes commands from clients, and reports it.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { COMMANDS = 4, PATIENCE = 250 /* ms for each of the two messages with which a connection begins */ };

static __thread int opening = -1; /* connection that the daemon has greeted and whose kind it does not know yet */

/* Reports whether a message begins with these bytes. */
static int begins(const struct msghdr *m, const char *text, size_t size)
{
	return m->msg_iovlen > 0 && m->msg_iov[0].iov_len >= size && memcmp(m->msg_iov[0].iov_base, text, size) == 0;
}

/* Reports whether a connection was made to the socket that containers get. */
static int is_public(int s)
{
	static const char name[] = "/control";
	struct sockaddr_un a = {0};
	socklen_t length = sizeof a;
	if (getsockname(s, (struct sockaddr *)&a, &length) != 0 || a.sun_family != AF_UNIX)
		return 0;
	size_t path = strnlen(a.sun_path, sizeof a.sun_path);
	return path >= sizeof name - 1 && memcmp(a.sun_path + path - (sizeof name - 1), name, sizeof name - 1) == 0;
}

/* Ends a connection. Returns what the daemon receives then. */
static ssize_t end(int s)
{
	opening = -1;
	shutdown(s, SHUT_RDWR);
	return 0;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int s, const struct msghdr *m, int flags)
{
	if (begins(m, "OUTBHELL", 8))
		opening = s;
	return syscall(SYS_sendmsg, s, m, flags);
}

__attribute__((visibility("default"))) ssize_t recvmsg(int s, struct msghdr *m, int flags)
{
	struct pollfd wait = {.fd = s, .events = POLLIN};
	int32_t session;
	if (s != opening)
		return syscall(SYS_recvmsg, s, m, flags);
	if (poll(&wait, 1, PATIENCE) == 0)
		return end(s);
	ssize_t n = syscall(SYS_recvmsg, s, m, flags);
	if (n == sizeof session && begins(m, (const char *)&(int32_t){COMMANDS}, sizeof session) && is_public(s))
		return end(s);
	if (n > 0 && !begins(m, "OUTBCRED", 8))
		opening = -1;
	return n;
}

/* The servers that the daemon starts do not need the guard. */
__attribute__((constructor)) static void start(void) { unsetenv("LD_PRELOAD"); }
