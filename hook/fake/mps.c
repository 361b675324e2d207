/*
 * The client of programs/nvidia-cuda-mps-control.c. As with the real driver a program that does not find the daemon runs without it,
 * silently, and its errors come as results of its calls.
 */
#define _GNU_SOURCE
#include "fake.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECTION_FAILED = 805 };

CUresult fake_mps_error;
static int session = -1;

static int dial(const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	if (!dir || (size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir, name) >= sizeof a.sun_path)
		return -1;
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(s, (struct sockaddr *)&a, sizeof a) == 0)
		return s;
	close(s);
	return -1;
}

static int say(int s, const char *text, char *answer, size_t room)
{
	ssize_t n = send(s, text, strlen(text) + 1, MSG_NOSIGNAL) < 0 ? 0 : recv(s, answer, room - 1, 0);
	answer[n > 0 ? n : 0] = 0;
	return n > 0;
}

/* What comes after the welcome is an error for all later calls; so is the end of the server. */
static void *listen_to_server(void *unused)
{
	char text[16];
	ssize_t n = recv(session, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = 0;
	__atomic_store_n(&fake_mps_error, n > 0 ? atoi(text) : CONNECTION_FAILED, __ATOMIC_RELAXED);
	return unused;
}

static int admitted(void)
{
	char answer[16] = "";
	int s = dial("control");
	if (s < 0)
		return 0;
	int ok = say(s, "client", answer, sizeof answer);
	close(s);
	if (ok && strcmp(answer, "wait") == 0) {
		usleep(10000);
		return admitted();
	}
	return ok;
}

CUresult fake_mps_start(void)
{
	char answer[16];
	pthread_t thread;
	sigset_t all, before;
	if (!admitted())
		return CUDA_SUCCESS;
	if ((session = dial("server")) < 0 || !say(session, "hello", answer, sizeof answer))
		return CONNECTION_FAILED;
	if (atoi(answer) != 0)
		return atoi(answer);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&thread, NULL, listen_to_server, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failed ? CONNECTION_FAILED : pthread_detach(thread);
}
