/*
 * How programs begin a connection with an MPS control daemon, as NVIDIA's of drivers 535 to 555 do: the daemon sends HELLO, the
 * program its credentials and what it wants. The rest of the protocol is the fake's own, except for command sessions: each
 * command is its length (8 bytes; 0 ends the session) and its text, each answer ANSWER and a text, or END and an exit code.
 */
#ifndef GSHARE_FAKE_MPS_WIRE_H
#define GSHARE_FAKE_MPS_WIRE_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum mps_session { MPS_SERVER = 1, MPS_CLIENT, MPS_DEBUGGER, MPS_COMMANDS };
enum mps_reply { MPS_ANSWER, MPS_END };
enum { MPS_MEMORY = 40 }; /* bytes of a name of mps_memory */

#define MPS_HELLO "OUTBHELL"
#define MPS_CREDENTIALS "OUTBCRED"

/* Sends the credentials and the kind of session to a daemon. Returns 0 if the daemon does not take them. */
static inline int mps_open(int s, int32_t session)
{
	char text[16], space[CMSG_SPACE(sizeof(struct ucred))] = {0};
	struct ucred own = {getpid(), geteuid(), getegid()};
	struct iovec part = {(char *)MPS_CREDENTIALS, sizeof MPS_CREDENTIALS};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof own), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS};
	memcpy(CMSG_DATA(c), &own, sizeof own);
	return recv(s, text, sizeof text, 0) == sizeof MPS_HELLO && sendmsg(s, &m, MSG_NOSIGNAL) > 0 &&
	       send(s, &session, sizeof session, MSG_NOSIGNAL) == sizeof session;
}

/* Writes a name of the process's /dev/shm, which is that of another process only if both have the same directory there. */
static inline void mps_memory(char name[MPS_MEMORY])
{
	struct stat s = {0};
	stat("/dev/shm", &s);
	snprintf(name, MPS_MEMORY, "%llx:%llx", (unsigned long long)s.st_dev, (unsigned long long)s.st_ino);
}

/* Begins a program's connection in the daemon. Returns what it wants, or 0. Like NVIDIA's, it waits for the program. */
static inline int32_t mps_accept(int s)
{
	char text[16];
	int32_t session = 0;
	struct iovec part = {(char *)MPS_HELLO, sizeof MPS_HELLO};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
	if (sendmsg(s, &m, MSG_NOSIGNAL) < 0)
		return 0;
	part = (struct iovec){text, sizeof text};
	if (recvmsg(s, &m, 0) != sizeof MPS_CREDENTIALS)
		return 0;
	part = (struct iovec){&session, sizeof session};
	return recvmsg(s, &m, 0) == sizeof session ? session : 0;
}

#endif
