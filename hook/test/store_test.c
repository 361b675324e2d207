/* Memory of the model store under the hook: free within the allowance, charged beyond, and read-only but for its writer. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <stdlib.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define MIB (1ull << 20)
#define LIMIT (64 * MIB)
#define ALLOWANCE (32 * MIB)
#define WEIGHTS (16 * MIB)

static struct server server = {.memory_limit = LIMIT, .import_allowance = ALLOWANCE};

/* The store of this program's vGPU: it knows one descriptor. */
static _Atomic int known = -1, writing, silent, asked;

static uint64_t charged(void) { return server.container[0]->memory; }
static uint64_t imported(void) { return server.container[0]->imported; }

/* Answers one request: 96 bytes with a descriptor, as vgpu/api/storewire says. */
static void answer(int conn) {
	unsigned char request[96], response[24] = {1, 0, 5};
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec io = {request, sizeof request};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	if (recvmsg(conn, &m, MSG_CMSG_CLOEXEC) != sizeof request || request[0] != 1 || request[2] != 4 || !CMSG_FIRSTHDR(&m)) return;
	int fd;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	if (!syscall(SYS_kcmp, getpid(), getpid(), 0, fd, known)) {
		response[2] = 0;
		response[8] = !writing; /* bytes */
	}
	close(fd);
	asked++;
	if (!silent && send(conn, response, sizeof response, MSG_NOSIGNAL) < 0) perror("send");
}

static void *serve_store(void *listener) {
	for (int conn; (conn = accept4((int)(intptr_t)listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; close(conn)) answer(conn);
	return NULL;
}

static void start_store(void) {
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	pthread_t t;
	snprintf(at.sun_path, sizeof at.sun_path, "%s/store-0.sock", server.directory);
	int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&at, sizeof at) || listen(listener, 8)) perror("listen");
	pthread_create(&t, NULL, serve_store, (void *)(intptr_t)listener);
}

/* Descriptors of memory of another process. */
static int exported[2];

/* Memory that is imported and mapped. */
struct mapped {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	CUresult result; /* of the mapping */
};

static struct mapped map(int fd) {
	struct mapped m = {0};
	CHECK_EQUAL(cuMemImportFromShareableHandle(&m.handle, (void *)(intptr_t)fd, 1), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAddressReserve(&m.at, WEIGHTS, 0, 0, 0), CUDA_SUCCESS);
	m.result = cuMemMap(m.at, WEIGHTS, 0, m.handle, 0);
	return m;
}

static void unmap(struct mapped *m) {
	if (m->result == CUDA_SUCCESS) CHECK_EQUAL(cuMemUnmap(m->at, WEIGHTS), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemRelease(m->handle), CUDA_SUCCESS);
}

/* Gives access to mapped memory: 1 to read, 3 to write, too. */
static CUresult access_by(const struct mapped *m, int flags) {
	CUmemAccessDesc list[] = {{{1, 0}, flags}};
	return cuMemSetAccess(m->at, WEIGHTS, list, 1);
}

TEST(free_within_the_allowance) {
	known = exported[0];
	struct mapped first = map(exported[0]), second = map(exported[0]);
	CHECK_EQUAL(charged(), 0);
	CHECK_EQUAL(imported(), ALLOWANCE);
	struct mapped third = map(exported[0]); /* another mapping is more than what is declared */
	CHECK_EQUAL(third.result, CUDA_SUCCESS);
	CHECK_EQUAL(charged(), WEIGHTS);
	CHECK_EQUAL(imported(), ALLOWANCE);
	unmap(&first);
	CHECK_EQUAL(imported(), ALLOWANCE - WEIGHTS);
	CHECK_EQUAL(charged(), WEIGHTS);
	unmap(&third);
	unmap(&second);
	CHECK_EQUAL(imported(), 0);
	CHECK_EQUAL(charged(), 0);
}

TEST(charged_beyond_the_allowance) {
	known = exported[0];
	server.session[0].server[0]->import_allowance = WEIGHTS / 2;
	struct mapped m = map(exported[0]);
	CHECK_EQUAL(charged(), WEIGHTS / 2);
	CHECK_EQUAL(imported(), WEIGHTS / 2);
	unmap(&m);
	CHECK_EQUAL(charged() + imported(), 0);
	server.session[0].server[0]->import_allowance = ALLOWANCE;
}

/* What no store has passed on is charged as before: another descriptor, also one of the same memory, and all without an allowance or an answer. */
TEST(other_memory_is_charged) {
	known = exported[0];
	struct mapped other = map(exported[1]);
	CHECK_EQUAL(charged(), WEIGHTS);
	CHECK_EQUAL(imported(), 0);
	CHECK_EQUAL(access_by(&other, 3), CUDA_SUCCESS);
	unmap(&other);
	silent = 1;
	struct mapped unanswered = map(exported[0]);
	CHECK_EQUAL(charged(), WEIGHTS);
	unmap(&unanswered);
	silent = 0;
	server.session[0].server[0]->import_allowance = 0;
	int before = asked;
	struct mapped undeclared = map(exported[0]);
	CHECK_EQUAL(charged(), WEIGHTS);
	CHECK_EQUAL(asked, before);
	unmap(&undeclared);
	server.session[0].server[0]->import_allowance = ALLOWANCE;
	CHECK_EQUAL(charged(), 0);
}

TEST(read_only_but_for_the_writer) {
	known = exported[0];
	struct mapped reader = map(exported[0]);
	CHECK_EQUAL(access_by(&reader, 3), CUDA_ERROR_NOT_PERMITTED);
	CHECK_EQUAL(access_by(&reader, 2), CUDA_ERROR_NOT_PERMITTED);
	CHECK_EQUAL(access_by(&reader, 1), CUDA_SUCCESS);
	unmap(&reader);
	writing = 1;
	struct mapped writer = map(exported[0]);
	CHECK_EQUAL(access_by(&writer, 3), CUDA_SUCCESS);
	unmap(&writer);
	writing = 0;
	CHECK_EQUAL(charged() + imported(), 0);
}

/* A mapping that does not fit beside the limit takes nothing of the allowance. */
TEST(refused_mapping_takes_nothing) {
	CUdeviceptr p;
	known = exported[0];
	server.session[0].server[0]->import_allowance = WEIGHTS / 2;
	CHECK_EQUAL(cuMemAlloc_v2(&p, LIMIT - 2 * MIB), CUDA_SUCCESS);
	struct mapped m = map(exported[0]);
	CHECK_EQUAL(m.result, CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(imported(), 0);
	CHECK_EQUAL(charged(), LIMIT - 2 * MIB);
	unmap(&m);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
	server.session[0].server[0]->import_allowance = ALLOWANCE;
}

/* A process that reconnects to another server takes its part of the allowance along. */
TEST(kept_over_a_restart) {
	known = exported[0];
	struct mapped m = map(exported[0]);
	int before = server.sessions;
	server_stop(&server);
	server_start(&server);
	for (int i = 0; i < 2000 && (server.sessions == before || !server.session[server.sessions - 1].snapshots); i++) usleep(1000);
	CHECK_EQUAL(imported(), WEIGHTS);
	CHECK_EQUAL(charged(), 0);
	unmap(&m);
	CHECK_EQUAL(imported(), 0);
}

/* What this program does as another process, without the hook: exports memory by the socket, and lives until that is closed. */
static int run_exporter(int socket) {
	int fds[2];
	char control[CMSG_SPACE(sizeof fds)] = {0}, byte = 0;
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	CUmemAllocationProp p = {.type = 1, .requestedHandleTypes = 1, .location = {1, 0}};
	CUmemGenericAllocationHandle h;
	if (!driver_start("spin_ns1_sm1_blocks1")) return 1;
	for (int i = 0; i < 2; i++)
		if (cuMemCreate(&h, WEIGHTS, &p, 0) || cuMemExportToShareableHandle(&fds[i], h, 1, 0)) return 2;
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fds)};
	memcpy(CMSG_DATA(c), fds, sizeof fds);
	return sendmsg(socket, &m, 0) < 0 || read(socket, &byte, 1) < 0;
}

/* Starts the exporter. Returns whether its descriptors have come. */
static int start_exporter(void) {
	int pair[2];
	char control[CMSG_SPACE(sizeof exported)] = {0}, byte = 0, number[16];
	struct iovec io = {&byte, 1};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 0;
	if (fork() == 0) {
		unsetenv("LD_PRELOAD");
		close(pair[0]);
		snprintf(number, sizeof number, "%d", pair[1]);
		execl("/proc/self/exe", "exporter", "exporter", number, NULL);
		_exit(1);
	}
	close(pair[1]);
	if (recvmsg(pair[0], &m, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&m)) return 0;
	memcpy(exported, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof exported);
	return 1;
}

int main(int argc, char **argv) {
	static const struct check_test tests[] = {
		{"free_within_the_allowance", free_within_the_allowance},
		{"charged_beyond_the_allowance", charged_beyond_the_allowance},
		{"other_memory_is_charged", other_memory_is_charged},
		{"read_only_but_for_the_writer", read_only_but_for_the_writer},
		{"refused_mapping_takes_nothing", refused_mapping_takes_nothing},
		{"kept_over_a_restart", kept_over_a_restart},
		{NULL, NULL},
	};
	if (argc > 2) return run_exporter(atoi(argv[2]));
	if (!start_exporter()) return 2;
	server_start(&server);
	start_store();
	if (!driver_start("spin_ns1_sm1_blocks1")) return 3;
	return check_run(tests, argc, argv);
}
