/* Processes of one container that no token server serves. Runs under the hook, which this program and its child processes load. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define MIB (1ull << 20)

/* A process of the container, which allocates as it is told. */
struct process {
	pid_t pid;
	int orders, answers;
};

/* Makes connect fail, as if no server listened. */
static void refuse_connect(void) {
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ECONNREFUSED),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) perror("seccomp");
}

static CUcontext shared_context;

/* Allocates from the pool of the device. Returns the address, or NULL. */
static void *allocate_from_pool(void *unused) {
	CUdeviceptr p = 0;
	cuCtxSetCurrent(shared_context);
	return cuMemAllocAsync(&p, 32 * MIB, NULL) ? unused : (void *)p;
}

/* Allocates in 8 threads at once and frees everything. Returns how many allocations succeeded. */
static int allocate_in_threads(CUcontext context) {
	pthread_t t[8];
	void *p[8];
	int got = 0;
	shared_context = context;
	for (int i = 0; i < 8; i++) pthread_create(&t[i], NULL, allocate_from_pool, NULL);
	for (int i = 0; i < 8; i++) pthread_join(t[i], &p[i]);
	for (int i = 0; i < 8; i++)
		if (p[i]) got += !cuMemFreeAsync((CUdeviceptr)p[i], NULL);
	return got;
}

/*
 * The main function of a process: obeys orders from descriptor 3 and answers on 4. A positive number allocates so many MiB, -1 frees
 * the last, -2 closes all other descriptors, -3 leaves a child process for 10 s, -4 makes the pool of device 0 reserve 32 MiB, -5 allocates
 * 32 MiB there in each of 8 threads at once and frees them, and answers how many it got.
 */
static int obey(int argc, char **argv) {
	CUcontext context;
	CUdeviceptr last = 0;
	int order, answer = 0;
	fcntl(3, F_DUPFD, 100);
	fcntl(4, F_DUPFD, 101); /* above those that -2 closes */
	if (argc > 2 && !strcmp(argv[2], "unserved")) refuse_connect();
	answer = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
	if (write(101, &answer, sizeof answer) < 0) return 1;
	while (read(100, &order, sizeof order) == sizeof order) {
		if (order > 0) answer = cuMemAlloc_v2(&last, (size_t)order * MIB);
		if (order == -1) answer = cuMemFree_v2(last);
		for (int fd = 3; order == -2 && fd < 100; fd++) close(fd);
		if (order == -3 && !fork()) {
			close(0), close(1), close(2), close(100), close(101);
			alarm(10); /* ends it */
			for (;;) pause();
		}
		if (order == -4) answer = cuMemAllocAsync(&last, 32 * MIB, NULL) || cuMemFreeAsync(last, NULL);
		if (order == -5) answer = allocate_in_threads(context);
		if (write(101, &answer, sizeof answer) < 0) return 1;
	}
	return 0;
}

/* Waits for the answer to the last order. */
static int answer_of(struct process *p) {
	int answer = -1;
	return read(p->answers, &answer, sizeof answer) == sizeof answer ? answer : -1;
}

static int tell(struct process *p, int order) { return write(p->orders, &order, sizeof order) < 0 ? -1 : answer_of(p); }

/* Starts a process and waits until it has a context. */
static struct process start(const char *kind) {
	int orders[2], answers[2];
	if (pipe2(orders, O_CLOEXEC) || pipe2(answers, O_CLOEXEC)) perror("pipe");
	struct process p = {fork(), orders[1], answers[0]};
	if (!p.pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int in = fcntl(orders[0], F_DUPFD, 50), out = fcntl(answers[1], F_DUPFD, 50);
		dup2(in, 3), dup2(out, 4), close(in), close(out);
		execl("/proc/self/exe", "peers_test", "obey", kind, NULL);
		_exit(1);
	}
	close(orders[0]), close(answers[1]);
	CHECK_EQUAL(answer_of(&p), 0);
	return p;
}

static void end(struct process *p) {
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->orders), close(p->answers);
}

/* Orders an allocation until it has the wanted result, for at most 5 s. One that succeeds too early is freed. */
static void eventually(struct process *p, int mib, int want) {
	int got = tell(p, mib);
	for (int i = 0; i < 500 && got != want; i++) {
		if (!got) tell(p, -1);
		usleep(10000);
		got = tell(p, mib);
	}
	CHECK_EQUAL(got, want);
}

/* Makes a directory with a policy of 100 MiB and the lock file. */
static void new_container(void) {
	char directory[64], path[96];
	server_make_directory(directory);
	for (int i = 0; i < 2; i++) {
		snprintf(path, sizeof path, "%s/%s", directory, i ? "processes-1" : "policy");
		FILE *file = fopen(path, "w");
		if (!i) fputs("version 1\nvgpu 0 none memory 104857600 quota 300 sm 1000\n", file);
		fclose(file);
	}
	setenv("GSHARE_DIR", directory, 1);
}

/* Two processes hold the limit together, and a process that was killed holds nothing. */
TEST(limit_holds_over_all_processes) {
	new_container();
	struct process a = start(""), b = start("");
	CHECK_EQUAL(tell(&a, 60), CUDA_SUCCESS);
	CHECK_EQUAL(tell(&b, 60), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(tell(&b, 40), CUDA_SUCCESS);
	CHECK_EQUAL(tell(&a, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(tell(&a, -1), CUDA_SUCCESS); /* frees */
	CHECK_EQUAL(tell(&a, 60), CUDA_SUCCESS);
	end(&a);
	CHECK_EQUAL(tell(&b, 60), CUDA_SUCCESS);
	end(&b);
}

/* The negative control of the test above: processes of different containers have a limit each. */
TEST(containers_have_limits_of_their_own) {
	new_container();
	struct process a = start("");
	new_container();
	struct process b = start("");
	CHECK_EQUAL(tell(&a, 60), CUDA_SUCCESS);
	CHECK_EQUAL(tell(&b, 60), CUDA_SUCCESS);
	end(&a), end(&b);
}

/* A program that closes all descriptors that it does not know holds its memory all the same. */
TEST(closed_descriptors_free_nothing) {
	new_container();
	struct process a = start(""), b = start("");
	CHECK_EQUAL(tell(&a, 60), CUDA_SUCCESS);
	tell(&a, -2);
	eventually(&b, 60, CUDA_ERROR_OUT_OF_MEMORY); /* once the helper has noticed */
	end(&a), end(&b);
}

/* A forked child does not hold what its parent held. */
TEST(child_process_holds_nothing) {
	new_container();
	struct process a = start(""), b = start("");
	CHECK_EQUAL(tell(&a, 60), CUDA_SUCCESS);
	tell(&a, -3);
	CHECK_EQUAL(tell(&b, 60), CUDA_ERROR_OUT_OF_MEMORY);
	end(&a);
	eventually(&b, 60, CUDA_SUCCESS); /* once the child has closed its copies */
	end(&b);
}

/* Reports whether a process of the container says that it has no session, as the server reads it. */
static int one_is_unserved(void) {
	char path[96];
	snprintf(path, sizeof path, "%s/processes-1", getenv("GSHARE_DIR"));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = GSHARE_UNSERVED_START, .l_len = GSHARE_UNSERVED_LENGTH};
	CHECK_EQUAL(fcntl(fd, F_OFD_GETLK, &l), 0);
	close(fd);
	return l.l_type != F_UNLCK;
}

/* Locks or unlocks, for this program, the byte by which a process of the container says that it has a session. */
static void say_served(int fd, short type) {
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
	CHECK_EQUAL(fcntl(fd, F_OFD_SETLK, &l), 0);
}

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/*
 * An allocation waits a while for a process that has not noticed yet that the server is gone, and fails if it never does. This program
 * may stand still for as long as an allocation waits, but not each time.
 */
TEST(allocation_waits_for_processes_that_are_served) {
	char path[96];
	new_container();
	snprintf(path, sizeof path, "%s/processes-1", getenv("GSHARE_DIR"));
	int fd = open(path, O_RDONLY | O_CLOEXEC), order = 60, got = -1;
	struct process a = start("");
	say_served(fd, F_RDLCK);
	uint64_t from = now();
	CHECK_EQUAL(tell(&a, order), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(now() - from >= 900000000u);
	for (int i = 0; i < 10 && got; i++) {
		say_served(fd, F_RDLCK);
		CHECK_EQUAL(write(a.orders, &order, sizeof order), sizeof order);
		usleep(50000);
		say_served(fd, F_UNLCK);
		got = answer_of(&a);
	}
	CHECK_EQUAL(got, CUDA_SUCCESS);
	close(fd);
	end(&a);
}

/* Threads that wait at once do not all count on the same 32 MiB that the pool has left. Without a wait too long, some get memory. */
TEST(threads_that_wait_share_the_pool) {
	char path[96];
	new_container();
	snprintf(path, sizeof path, "%s/processes-1", getenv("GSHARE_DIR"));
	int fd = open(path, O_RDONLY | O_CLOEXEC), order = -5, got = 0;
	struct process a = start("");
	CHECK_EQUAL(tell(&a, -4), 0);
	for (int i = 0; i < 10 && !got; i++) {
		say_served(fd, F_RDLCK);
		CHECK_EQUAL(write(a.orders, &order, sizeof order), sizeof order);
		usleep(200000);
		say_served(fd, F_UNLCK);
		got = answer_of(&a);
	}
	CHECK(got >= 1 && got <= 3);
	close(fd);
	end(&a);
}

static struct server server = {.memory_limit = 100 * MIB};

/* While the server serves one process, another one that does not reach it has nothing; what the first holds counts when the server is gone. */
TEST(unserved_process_has_nothing_beside_a_served_one) {
	new_container();
	strcpy(server.directory, getenv("GSHARE_DIR"));
	server_start(&server);
	struct process a = start("");
	CHECK_EQUAL(server.sessions, 1);
	CHECK(!one_is_unserved());
	struct process b = start("unserved");
	CHECK(one_is_unserved());
	CHECK_EQUAL(tell(&b, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(tell(&a, 60), CUDA_SUCCESS);
	server_stop(&server);
	eventually(&b, 40, CUDA_SUCCESS);
	CHECK_EQUAL(tell(&b, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_EQUAL(tell(&a, 1), CUDA_ERROR_OUT_OF_MEMORY);
	end(&a), end(&b);
}

/*
 * A process that is refused holds no more than before. Its container page counts a process that ended after the server; that of a
 * new process does not.
 */
TEST(refused_process_states_no_more_than_it_holds) {
	static struct server gone = {.memory_limit = 100 * MIB};
	new_container();
	strcpy(gone.directory, getenv("GSHARE_DIR"));
	server_start(&gone);
	struct process a = start(""), b = start("");
	CHECK_EQUAL(gone.sessions, 2);
	server_stop(&gone);
	end(&a);
	for (int i = 0; i < 3000 && (gone.session[0].connected || gone.session[1].connected); i++) usleep(10000);
	gone.container[0]->memory += 60 * MIB; /* of a, which no server takes off */
	for (int i = 0; i < 3000 && !one_is_unserved(); i++) usleep(10000);
	eventually(&b, 30, CUDA_SUCCESS);
	CHECK_EQUAL(tell(&b, 50), CUDA_ERROR_OUT_OF_MEMORY);
	struct process c = start("");
	eventually(&c, 70, CUDA_SUCCESS);
	end(&b), end(&c);
}

int main(int argc, char **argv) {
#define T(name) {#name, name}
	static const struct check_test tests[] = {T(limit_holds_over_all_processes), T(containers_have_limits_of_their_own), T(closed_descriptors_free_nothing),
						  T(child_process_holds_nothing), T(allocation_waits_for_processes_that_are_served),
						  T(threads_that_wait_share_the_pool), T(unserved_process_has_nothing_beside_a_served_one),
						  T(refused_process_states_no_more_than_it_holds), {0}};
	if (argc > 1 && !strcmp(argv[1], "obey")) return obey(argc, argv);
	return check_run(tests, argc, argv);
}
