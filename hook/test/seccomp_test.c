/*
 * A program in a sandbox: the thread that starts CUDA may make only the system calls whose names are the arguments; others fail with EPERM.
 * Prints what works. Runs under the hook; the token server is in threads that are not in the sandbox.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

/* Numbers of system calls by their names. */
static const struct {
	const char *name;
	int number;
} calls[] = {
#define NUMBER(name) {#name, SYS_##name}
#ifdef SYS_access
	NUMBER(access),
#endif
#ifdef SYS_poll
	NUMBER(poll),
#endif
	NUMBER(faccessat), NUMBER(ppoll), NUMBER(openat), NUMBER(read), NUMBER(write), NUMBER(close), NUMBER(lseek), NUMBER(mmap), NUMBER(munmap), NUMBER(mprotect),
	NUMBER(madvise), NUMBER(fcntl), NUMBER(fstat), NUMBER(getpid), NUMBER(rt_sigprocmask), NUMBER(clock_gettime), NUMBER(clock_nanosleep), NUMBER(socket),
	NUMBER(connect), NUMBER(getsockopt), NUMBER(setsockopt), NUMBER(getpeername), NUMBER(sendto), NUMBER(recvmsg), NUMBER(recvfrom), NUMBER(clone), NUMBER(clone3),
	NUMBER(set_robust_list), NUMBER(rseq), NUMBER(prctl), NUMBER(futex), NUMBER(exit), NUMBER(exit_group), NUMBER(brk), NUMBER(newfstatat), NUMBER(getrandom),
};

static struct server server = {.memory_limit = 100 << 20};
static _Atomic int step, resumed, helpers; /* of the operator, see operate */

/* Permits the named system calls to this thread and those that it creates, and makes others fail. */
static int enter_sandbox(char **names, int n) {
	struct sock_filter filter[256] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	int length = 1;
	for (int i = 0; i < n; i++) {
		size_t c = 0;
		while (c < sizeof calls / sizeof *calls && strcmp(calls[c].name, names[i])) c++;
		if (c == sizeof calls / sizeof *calls) return printf("unknown system call %s\n", names[i]), 0;
		filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[c].number, 0, 1);
		filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	struct sock_fprog program = {(unsigned short)length, filter};
	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* Returns how many threads of this process have the helper's name. */
static int count_helpers(void) {
	char path[300], name[32];
	int n = 0;
	DIR *tasks = opendir("/proc/self/task");
	for (struct dirent *d; tasks && (d = readdir(tasks));) {
		snprintf(path, sizeof path, "/proc/self/task/%s/comm", d->d_name);
		FILE *comm = fopen(path, "r");
		if (comm && fgets(name, sizeof name, comm)) n += !strcmp(name, "gshare\n");
		if (comm) fclose(comm);
	}
	if (tasks) closedir(tasks);
	return n;
}

/* Waits until the program has reached a step. */
static void await(int wanted) {
	while (step < wanted) usleep(1000);
}

/* What the program cannot do in the sandbox: counts helpers, lets a held launch pass, replaces the server. */
static void *operate(void *unused) {
	await(1);
	for (int i = 0; i < 2000 && !(helpers = count_helpers()); i++) usleep(1000);
	step = 2;
	await(3);
	usleep(50000);
	resumed = 1;
	if (server.sessions) server_state(&server.session[0], GSHARE_RUN);
	await(4);
	server_stop(&server);
	server_start(&server);
	for (int i = 0; i < 3000 && server.sessions < 2; i++) usleep(1000);
	step = 5;
	return unused;
}

/* Writes the files that the agent puts into a container's directory. */
static void write_policy(void) {
	char path[96];
	snprintf(path, sizeof path, "%s/policy", server.directory);
	FILE *policy = fopen(path, "w");
	fputs("version 1\nvgpu 0 none memory 104857600 quota 1000 sm 1000\n", policy);
	fclose(policy);
}

int main(int argc, char **argv) {
	pthread_t operator;
	CUcontext context;
	CUdeviceptr p;
	CUmodule module;
	CUfunction kernel;
	int held = 0;
	server_start(&server);
	write_policy();
	pthread_create(&operator, NULL, operate, NULL);
	if (!enter_sandbox(argv + 1, argc - 1)) return 1;
	CUresult init = cuInit(0);
	if (cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context) || cuModuleLoadData(&module, "") ||
	    cuModuleGetFunction(&kernel, module, "spin_ns1000_sm100_blocks1"))
		return 1;
	CUresult allocated = cuMemAlloc_v2(&p, 1 << 20);
	step = 1;
	await(2);
	if (!allocated && server.sessions == 1) { /* else nothing holds the launch, or it is held for ever */
		server.session[0].server[0]->state = GSHARE_PAUSE;
		server.session[0].server[0]->generation++;
		step = 3;
		held = !driver_launch(kernel, NULL) && resumed;
	}
	int sessions = server.sessions;
	step = 4;
	await(5);
	printf("init %d allocated %d session %d helper %d held %d again %d\n", init, allocated, sessions, helpers, held, server.sessions > sessions);
	return 0;
}
