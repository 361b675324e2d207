/* The connection that `gshare run` passes in GSHARE_FD, by which the server identifies the process. Runs under the hook. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define MIB (1ull << 20)

static struct server server = {.memory_limit = 100 * MIB};
static int inherited; /* the descriptor in GSHARE_FD */

/* Connects to the server. Returns a descriptor or -1. */
static int dial(void) {
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	snprintf(to.sun_path, sizeof to.sun_path, "%s/token.sock", server.directory);
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	return connect(fd, (struct sockaddr *)&to, sizeof to) ? -1 : fd;
}

/* The only session uses it, since GSHARE_DIR has no server. */
TEST(connection_is_used) {
	size_t free_bytes, total;
	CHECK_EQUAL(server.sessions, 1);
	CHECK_EQUAL(server.session[0].hello.pid, getpid());
	CHECK_EQUAL(cuMemGetInfo_v2(&free_bytes, &total), CUDA_SUCCESS);
	CHECK_EQUAL(total, 100 * MIB);
}

/* A program that this one executes must not keep the session open, nor use it. */
TEST(connection_is_not_passed_on) { CHECK(fcntl(inherited, F_GETFD) & FD_CLOEXEC); }

TEST(limit_holds) {
	CUdeviceptr p, q;
	CHECK_EQUAL(cuMemAlloc_v2(&p, 60 * MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&q, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(server.container[0]->memory, 60 * MIB);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
}

/* Runs in a program of its own. Returns exit code 0 if the descriptor is unchanged. */
static int with(const char *fd) {
	int n = atoi(fd), flags = fcntl(n, F_GETFD);
	char byte = 'x';
	if (!driver_start("spin_ns1_sm1_blocks1") || fcntl(n, F_GETFD) != flags) return 1;
	return n > 2 && flags >= 0 && send(n, &byte, 1, 0) != 1;
}

/* Starts this program again, with GSHARE_FD set. */
static pid_t start(const char *fd) {
	pid_t child = fork();
	if (child) return child;
	setenv("GSHARE_DIR", server.directory, 1);
	setenv("GSHARE_FD", fd, 1);
	execl("/proc/self/exe", "with", fd, NULL);
	_exit(9);
}

/* Waits for a child and returns its status. */
static int status_of(pid_t child) {
	int status = -1;
	waitpid(child, &status, 0);
	return status;
}

/* Descriptors that are no such connection are ignored, and the server is found by its path. */
TEST(invalid_descriptors_are_ignored) {
	static const char *numbers[] = {"0", "1", "2", "-1", "77", "no", ""};
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		int before = server.sessions;
		CHECK_EQUAL(status_of(start(numbers[i])), 0);
		CHECK_EQUAL(server.sessions, before + 1);
	}
}

/* The application's own socket may have the number that GSHARE_FD names. */
TEST(other_sockets_are_not_used) {
	static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET};
	for (int i = 0; i < 2; i++) {
		int pair[2], before = server.sessions;
		char text[16], got[64];
		CHECK_EQUAL(socketpair(AF_UNIX, types[i], 0, pair), 0);
		snprintf(text, sizeof text, "%d", pair[1]);
		pid_t child = start(text);
		close(pair[1]);
		CHECK(recv(pair[0], got, sizeof got, 0) == 1 && got[0] == 'x'); /* only the application has written to it */
		CHECK_EQUAL(status_of(child), 0);
		CHECK_EQUAL(server.sessions, before + 1);
		close(pair[0]);
	}
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(connection_is_used), T(connection_is_not_passed_on), T(limit_holds),
						  T(invalid_descriptors_are_ignored), T(other_sockets_are_not_used), {0}};
	char text[16];
	if (!strcmp(argv[0], "with")) return with(argv[1]);
	server_start(&server);
	if ((inherited = dial()) < 0) return printf("cannot connect to the token server\n"), 1;
	snprintf(text, sizeof text, "%d", inherited);
	setenv("GSHARE_FD", text, 1);
	setenv("GSHARE_DIR", "/nonexistent", 1);
	if (!driver_start("spin_ns1_sm1_blocks1") || server.sessions != 1) return printf("no session with the token server\n"), 1;
	return check_run(tests, argc, argv);
}
