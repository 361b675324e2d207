/*
 * The client of programs/nvidia-cuda-mps-control.c. As with the real driver, a program that does not find the daemon runs
 * without MPS and without a message, and MPS errors are returned by its CUDA calls.
 *
 * Limits are those of the environment. In a namespace (MPS version 3) its percentage has precedence, and its memory limit is
 * an upper bound; but one entry for a device that the program does not see removes every memory limit, as with driver 615.71
 * (NVIDIA Dynamo's guide, "Client-Side Per-GPU Limits").
 */
#define _GNU_SOURCE
#include "fake.h"
#include "mps-wire.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECTION_FAILED = 805 }; /* CUDA_ERROR_MPS_CONNECTION_FAILED */

uint64_t fake_mps_memory = UINT64_MAX;
static int session = -1; /* connection to the server; -1: without MPS */
static double percent; /* of the namespace; 0: none */

/* Connects to a socket of the pipe directory. Returns a descriptor or -1. */
static int connect_to(const char *name)
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

/*
 * Thread: a later message, or the end of the server, is the error of all later calls, and of those that wait. These poll the session, whose end
 * stays readable.
 */
static void *listen_to_server(void *unused)
{
	char text[16];
	ssize_t n = recv(session, text, sizeof text - 1, 0);
	text[n > 0 ? n : 0] = 0;
	__atomic_store_n(&fake_broken, n > 0 ? atoi(text) : CONNECTION_FAILED, __ATOMIC_RELEASE);
	shutdown(session, SHUT_RD);
	return unused;
}

int fake_mps_await(int fd)
{
	struct pollfd wait[2] = {{.fd = fd, .events = POLLIN}, {.fd = session, .events = POLLIN}};
	if (session < 0)
		return 1;
	while (poll(wait, 2, -1) < 0 || (!(wait[0].revents | wait[1].revents)))
		;
	if (wait[0].revents)
		return 1;
	while (!__atomic_load_n(&fake_broken, __ATOMIC_ACQUIRE))
		usleep(100); /* the thread above is about to store it */
	return 0;
}

/* Applies one entry, such as 0=1536M. Returns 0 if it names a device that does not exist. */
static int limit_of(const char *entry, uint64_t *bytes)
{
	char *rest, *unit;
	unsigned long device = strtoul(entry, &rest, 10);
	if (rest == entry || *rest != '=' || device >= (unsigned long)fake_devices)
		return 0;
	uint64_t n = strtoull(rest + 1, &unit, 10) << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0);
	if (device == 0 && n < *bytes)
		*bytes = n;
	return 1;
}

/* Sets the memory limit from the environment, at most `bytes`. */
static void limit_memory(uint64_t bytes)
{
	const char *own = getenv("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT");
	for (; own && *own; own += strcspn(own, ","), own += *own == ',')
		if (!limit_of(own, &bytes)) {
			bytes = UINT64_MAX;
			break;
		}
	fake_mps_memory = bytes;
}

double fake_mps_percent(void)
{
	const char *own = getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
	return percent > 0 ? percent : own ? strtod(own, NULL) : 100;
}

int fake_mps_has_low_priority(void)
{
	const char *own = getenv("CUDA_MPS_CLIENT_PRIORITY");
	return own && strcmp(own, "1") == 0;
}

/* Rounds to pairs of SMs, as the hardware does; all SMs without MPS. */
int fake_mps_sms(int sms)
{
	int some = (int)(sms * fake_mps_percent() / 100) / 2 * 2;
	return session < 0 ? sms : some < 2 ? 2 : some;
}

/*
 * Asks the daemon for admission. Returns 1 if admitted, 0 without a daemon, else a CUDA error. Before version 3, the server says
 * what it has at /dev/shm; the real one exchanges files with its clients there.
 */
static int admit(void)
{
	char answer[96] = "", memory[MPS_MEMORY] = "", own[MPS_MEMORY];
	unsigned long long bytes = 0;
	int s = connect_to("control");
	if (s < 0)
		return 0;
	ssize_t n = mps_open(s, MPS_CLIENT) ? recv(s, answer, sizeof answer - 1, 0) : 0;
	answer[n > 0 ? n : 0] = 0;
	mps_memory(own);
	int fields = sscanf(answer, "limits %lf %llu %39s", &percent, &bytes, memory);
	if (fields == 3 && strcmp(memory, own) != 0) {
		close(s);
		return CONNECTION_FAILED;
	}
	if (fields >= 2) {
		limit_memory(bytes ? bytes : UINT64_MAX);
		session = s;
		return 1;
	}
	close(s);
	if (strcmp(answer, "wait") == 0) {
		usleep(10000);
		return admit();
	}
	return atoi(answer);
}

CUresult fake_mps_start(void)
{
	pthread_t thread;
	sigset_t all, before;
	int in = admit();
	if (in != 1)
		return in; /* 0: without MPS */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int failed = pthread_create(&thread, NULL, listen_to_server, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return failed ? CONNECTION_FAILED : pthread_detach(thread);
}
