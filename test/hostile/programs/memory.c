/*
 * Programs with several processes, which share the memory limit of a container under a real token server: memory NAME LIMIT, in MiB. Each
 * process allocates a part of the limit, and then does something that could make the server lose track of it. The fake driver counts the
 * memory of all processes. A hostile program fails (exit code 1) if its processes together get more than the limit; an innocent one fails
 * if it does not get what it is entitled to.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../../hook/test/driver.h"

#define MIB (1ull << 20)
#define PART (400 * MIB) /* the limit has room for one */
#define PATIENT "PATIENT" /* the environment variable of a process that is to get memory */

uint64_t fakecuda_used_by_all(CUdevice d);

static uint64_t limit;
static const char *program; /* its first argument */

static int patience = 20; /* how often an allocation is tried, 10 ms apart */

/* Allocates, and retries for a while, since the server may not have noticed yet that another process has ended. */
static CUdeviceptr allocate(uint64_t bytes) {
	CUdeviceptr p = 0;
	for (int n = 0; n < patience && cuMemAlloc_v2(&p, bytes) != CUDA_SUCCESS; n++) usleep(10000);
	return p;
}

/* Tells the first process whether this one has got what it wanted. */
static void report(int ok) {
	if (write(1, ok ? "y" : "n", 1) != 1) _exit(2);
}

/* Waits until the first process ends. */
static void stay(void) {
	char byte;
	while (read(0, &byte, 1) > 0) continue;
	_exit(0);
}

static void close_all(void) {
	if (syscall(SYS_close_range, 3, ~0u, 0))
		for (int fd = 3; fd < 1024; fd++) close(fd);
}

static void allow_no_descriptors(void) { setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, 0}); }

/* What hostile processes do once they have their part. The process that remains reports. */

static void just_stays(void) {
	report(1);
	stay();
}

static void closes_descriptors(void) {
	close_all();
	allow_no_descriptors();
	just_stays();
}

/* Makes itself unable to reconnect after the server is restarted. */
static void stays_behind(void) {
	allow_no_descriptors();
	just_stays();
}

/* Sends an invalid message on all sockets, so that the server closes the connection. */
static void breaks_protocol(void) {
	allow_no_descriptors();
	for (int fd = 3; fd < 64; fd++) send(fd, "?", 1, MSG_NOSIGNAL);
	just_stays();
}

static void *closes_later(void *main_thread) {
	pthread_join(*(pthread_t *)main_thread, NULL);
	closes_descriptors();
	return NULL;
}

/* Ends its main thread, so that /proc shows no memory of the process. */
static void main_thread_ends(void) {
	static pthread_t self;
	pthread_t t;
	self = pthread_self();
	pthread_create(&t, NULL, closes_later, &self);
	pthread_exit(NULL);
}

/* Exits, and leaves a child that has inherited the driver's file descriptors. */
static void leaves_child(void) {
	if (fork()) _exit(0);
	just_stays();
}

static void leaves_child_unseen(void) {
	if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) syscall(SYS_exit_group, 0);
	just_stays();
}

static int stays_in_memory(void *unused) {
	(void)unused;
	just_stays();
	return 0;
}

/* Exits, and leaves a child that shares its address space. */
static void leaves_address_space(void) {
	static char stack[65536] __attribute__((aligned(16)));
	clone(stays_in_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	_exit(0);
}

/* Is killed by the child that it waits for, which shares its address space. */
static void killed_in_vfork(void) {
	if (!vfork()) {
		kill(getppid(), SIGKILL);
		just_stays();
	}
}

/* Executes this program again, as a process of the named attempt. */
static void becomes(const char *name) {
	char text[32];
	snprintf(text, sizeof text, "%llu", (unsigned long long)(limit / MIB));
	execl("/proc/self/exe", program, "part", name, text, NULL);
	_exit(3);
}

static char *filling;
static size_t filled;

/* Uses up the memory mappings that the kernel allows a process, except as many as the process's number. */
static void fill_mappings(int number) {
	long most = 65530, page = sysconf(_SC_PAGESIZE);
	void *spare[32];
	FILE *f = fopen("/proc/sys/vm/max_map_count", "r");
	if (!f || fscanf(f, "%ld", &most) != 1 || fclose(f)) _exit(2);
	for (int i = 0; i < number; i++) spare[i] = mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	filled = 2 * (size_t)(most + 2) * (size_t)page;
	filling = mmap(NULL, filled, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	for (long i = 1; i < most && !mprotect(filling + 2 * i * page, (size_t)page, PROT_READ); i++) continue;
	for (int i = 0; i < number; i++) munmap(spare[i], (size_t)page);
}

static void release_mappings(void) { munmap(filling, filled); }

/* What innocent processes do. */

static void becomes_another(void) {
	setenv(PATIENT, "1", 1);
	becomes("just_stays");
}

static void closes_and_becomes_another(void) {
	close_all();
	becomes_another();
}

/* Returns whether one of the lowest descriptors is a socket of the kind that the hook uses. */
static int connected(void) {
	int type = 0, found = 0;
	for (int fd = 3; fd < 64; fd++) found |= !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) && type == SOCK_SEQPACKET;
	return found;
}

/* Closes all descriptors and goes on. Its memory must be counted once, and it must be able to free and allocate. */
static void closes_and_goes_on(void) {
	CUdeviceptr p, q;
	size_t left = 0, total;
	int ok = connected();
	close_all();
	for (int n = 0; n < 500 && !connected(); n++) usleep(10000);
	q = allocate(100 * MIB);
	ok = ok && connected() && q != 0 && cuMemAlloc_v2(&p, 100 * MIB) == CUDA_ERROR_OUT_OF_MEMORY;
	ok = ok && cuMemGetInfo_v2(&left, &total) == CUDA_SUCCESS && left == limit - PART - 100 * MIB;
	ok = ok && cuMemFree_v2(q) == CUDA_SUCCESS && allocate(100 * MIB) != 0;
	report(ok);
	stay();
}

/* Exits while a child is alive that has executed another program, such as a server that it started. */
static void leaves_program(void) {
	if (!vfork()) {
		execl("/bin/cat", "cat", NULL); /* until the first process ends */
		_exit(3);
	}
	report(1);
	_exit(0);
}

static void ends(void) {
	report(1);
	_exit(0);
}

static const struct attempt {
	const char *name;
	void (*then)(void);
	int parts, granted; /* number of processes, and how many of them get memory */
	int restart;        /* the server is restarted after the first process */
	void (*before)(int number), (*after)(void); /* called in each process before and after CUDA is initialized */
} attempts[] = {
	{"just_stays", just_stays, 4, 1},
	{"closes_descriptors", closes_descriptors, 4, 1},
	{"breaks_protocol", breaks_protocol, 4, 1},
	{"main_thread_ends", main_thread_ends, 4, 1},
	{"leaves_child", leaves_child, 4, 1},
	{"leaves_child_unseen", leaves_child_unseen, 4, 1},
	{"leaves_address_space", leaves_address_space, 4, 1},
	{"killed_in_vfork", killed_in_vfork, 4, 1},
	{"becomes_another", becomes_another, 1, 1},
	{"closes_and_becomes_another", closes_and_becomes_another, 1, 1},
	{"closes_and_goes_on", closes_and_goes_on, 1, 1},
	{"leaves_program", leaves_program, 4, 4},
	{"ends", ends, 30, 30},
	{"has_few_mappings", just_stays, 8, 1, .before = fill_mappings, .after = release_mappings},
	{"stays_behind", stays_behind, 4, 1, .restart = 1},
	{0}};

static const struct attempt *find(const char *name) {
	const struct attempt *a = attempts;
	while (a->name && strcmp(a->name, name)) a++;
	return a;
}

/* Runs one process: it allocates its part and then does what the attempt specifies. */
static int part(const char *name) {
	const struct attempt *a = find(name);
	if (a->granted == a->parts || getenv(PATIENT)) patience = 2000; /* each is to get memory */
	if (a->before) a->before(getenv("NUMBER") ? atoi(getenv("NUMBER")) : 0);
	int ok = driver_start("k") != NULL;
	if (a->after) a->after();
	ok = ok && allocate(PART);
	if (!ok) {
		report(0);
		stay();
	}
	a->then();
	return 0;
}

int main(int argc, char **argv) {
	int hold[2], granted = 0;
	if (argc < 3) {
		for (const struct attempt *a = attempts; a->name; a++) puts(a->name);
		return 0;
	}
	alarm(60);
	program = argv[0];
	limit = strtoull(argv[argc - 1], NULL, 10) * MIB;
	if (!strcmp(argv[1], "part")) return part(argv[2]);
	const struct attempt *a = find(argv[1]);
	if (!a->name || pipe2(hold, O_CLOEXEC)) return 2;
	for (int i = 0; i < a->parts; i++) {
		char answer = 0, number[16];
		int answers[2];
		if (pipe2(answers, O_CLOEXEC)) return 2;
		pid_t child = fork();
		if (!child) {
			snprintf(number, sizeof number, "%d", i);
			setenv("NUMBER", number, 1);
			dup2(hold[0], 0);
			dup2(answers[1], 1);
			becomes(a->name);
		}
		close(answers[1]);
		if (read(answers[0], &answer, 1) < 0) return 2;
		granted += answer == 'y';
		close(answers[0]);
		if (!i && a->restart && (puts("restart"), fflush(stdout), read(0, &answer, 1) != 1)) return 2;
		waitpid(child, NULL, a->granted == a->parts && a->parts > 1 ? 0 : WNOHANG);
	}
	uint64_t all = fakecuda_used_by_all(0);
	printf("%d of %d processes have memory, %llu of %llu MiB\n", granted, a->parts, (unsigned long long)(all / MIB), (unsigned long long)(limit / MIB));
	fflush(stdout);
	_exit(granted != a->granted || all > limit);
}
