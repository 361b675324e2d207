/*
 * Ordinary programs that do something unusual, each of which has to run under the hook as it does without: innocent_test
 * SCENARIO. The scenario runs in a child process; its parent is the token server, so that the child may close all descriptors.
 * Prints "ok SCENARIO", or "not ok SCENARIO" after a failure or when the child has not ended after 120 s.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "driver.h"
#include "server.h"

#define MIB (1ull << 20)
#define KERNEL "spin_ns1000_sm100_blocks1"
#define SHORT_KERNEL "spin_ns100000_sm100_blocks8"
#define LONG_KERNEL "spin_ns60000000000_sm100_blocks8"

static CUfunction kernel;
static CUstream stream;
static _Atomic int *reached; /* shared with the parent: how far the scenario is */

/* Returns whether the program runs under the hook, by a limit that only the hook reports. */
static int hooked(void) {
	size_t left, total;
	return !cuMemGetInfo_v2(&left, &total) && total == 1024 * MIB;
}

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void launch(int times) {
	for (int i = 0; i < times; i++) CHECK_EQUAL(driver_launch(kernel, stream), CUDA_SUCCESS);
}

static void start(void) {
	kernel = driver_start(KERNEL);
	CHECK(kernel && !cuStreamCreate(&stream, 1));
	if (!kernel) exit(1);
}

/* Runs in exit(), after the hook's own handler, which was registered later. */
static void use_at_exit(void) {
	launch(1);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	CHECK_EQUAL(driver_launch(kernel, NULL), CUDA_SUCCESS);
	_exit(check_failures != 0);
}

static void at_exit(void) {
	atexit(use_at_exit);
	start();
	cuCtxSynchronize();
	launch(40);
}

/* Closes every descriptor, as daemons do, and uses the numbers for a file and sockets of its own. */
static void close_descriptors(void) {
	char text[16] = "";
	int pair[64], file, pairs = 0;
	start();
	launch(10);
	for (int fd = 3; fd < 1024; fd++) close(fd);
	file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	for (; pairs < 64; pairs += 2) CHECK_EQUAL(socketpair(AF_UNIX, SOCK_STREAM, 0, pair + pairs), 0);
	for (int i = 0; i < 64; i += 2) CHECK_EQUAL(write(pair[i], "hello", 5), 5);
	for (int i = 0; i < 30; i++) launch(10), usleep(50000);
	for (int i = 0; i < 64; i += 2) {
		memset(text, 0, sizeof text);
		CHECK_EQUAL(recv(pair[i + 1], text, sizeof text, MSG_DONTWAIT), 5);
		CHECK(!strcmp(text, "hello"));
		CHECK_EQUAL(recv(pair[i], text, sizeof text, MSG_DONTWAIT), -1);
	}
	CHECK_EQUAL(lseek(file, 0, SEEK_END), 0);
}

static void *launch_for_ever(void *context) {
	cuCtxSetCurrent(context);
	for (;;) driver_launch(kernel, NULL);
	return NULL;
}

static void *launch_once(void *context) {
	cuCtxSetCurrent(context);
	CHECK_EQUAL(driver_launch(kernel, NULL), CUDA_SUCCESS);
	*reached = 3;
	return NULL;
}

/* Cancels threads while they wait for a token; the parent grants the next one when it sees 2. */
static void cancel_threads(void) {
	pthread_t threads[4], last;
	CUcontext context;
	start();
	cuDevicePrimaryCtxRetain(&context, 0);
	*reached = 1; /* the parent withdraws the token */
	while (*reached == 1) usleep(1000);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, launch_for_ever, context);
		usleep(5000 + 997 * round);
		for (int i = 0; i < 4; i++) pthread_cancel(threads[i]);
		if (round == 10) *reached = 4; /* the parent grants a token */
		if (round < 10) usleep(1000);
	}
	while (*reached != 5) usleep(1000);
	pthread_create(&last, NULL, launch_once, context);
	pthread_join(last, NULL);
	CHECK_EQUAL(*reached, 3);
}

static void ignore_signal(int signal) { (void)signal; }

/* Starts while an interval timer interrupts every system call that blocks. */
static void interval_timer(void) {
	struct sigaction action = {.sa_handler = ignore_signal};
	struct itimerval often = {{0, 100}, {0, 100}}, never = {0};
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	start();
	launch(10);
	CHECK(!getenv("HOOKED") || hooked());
	setitimer(ITIMER_REAL, &never, NULL);
}

static void *instantiate(void *graph) {
	CUgraphExec e;
	CUcontext c;
	cuDevicePrimaryCtxRetain(&c, 0);
	cuCtxSetCurrent(c);
	CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, graph, 0), CUDA_SUCCESS);
	CHECK_EQUAL(cuGraphLaunch(e, NULL), CUDA_SUCCESS);
	return NULL;
}

/* Instantiates graphs within graphs on a thread with the smallest stack. */
static void small_stack(void) {
	CUgraph graph[10];
	CUgraphNode node;
	pthread_attr_t attributes;
	pthread_t thread;
	start();
	for (int i = 0; i < 10; i++) {
		CHECK_EQUAL(cuGraphCreate(&graph[i], 0), CUDA_SUCCESS);
		if (i) CHECK_EQUAL(cuGraphAddChildGraphNode(&node, graph[i], NULL, 0, graph[i - 1]), CUDA_SUCCESS);
	}
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 16384);
	CHECK_EQUAL(pthread_create(&thread, &attributes, instantiate, graph[9]), 0);
	pthread_join(thread, NULL);
}

/* Launches and sets memory beside a kernel of a minute in another stream, which may wait for what these calls do. Needs the simulation. */
static void beside_long_kernel(void) {
	CUfunction spin;
	CUmodule module;
	CUstream other;
	start();
	CHECK(!cuModuleLoadData(&module, "") && !cuModuleGetFunction(&spin, module, LONG_KERNEL) && !cuStreamCreate(&other, 1));
	CHECK(!cuModuleGetFunction(&kernel, module, SHORT_KERNEL));
	CHECK_EQUAL(driver_launch(spin, other), CUDA_SUCCESS);
	launch(8);
	for (int i = 0; i < 8; i++) CHECK_EQUAL(cuMemsetD32Async((CUdeviceptr)1 << 40, 1, 1024, stream), CUDA_SUCCESS);
	CHECK_EQUAL(cuStreamQuery(other), CUDA_ERROR_NOT_READY); /* the long kernel still runs */
	fflush(stdout);
	_exit(check_failures != 0); /* without waiting for it */
}

/* Resets the device, whose primary context a runtime has retained by functions that are not exported, and uses it again. */
static void reset_device(void) {
	CUresult fakecuda_retain_primary(CUcontext *c, CUdevice d);
	CUcontext c;
	CUdeviceptr p;
	CHECK_EQUAL(cuInit(0), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		CHECK_EQUAL(fakecuda_retain_primary(&c, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuCtxSetCurrent(c), CUDA_SUCCESS);
		CHECK_EQUAL(cuMemAlloc_v2(&p, 900 * MIB), CUDA_SUCCESS);
		CHECK_EQUAL(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	}
}

/* A process that forks workers before it uses CUDA, each of which starts it anew. */
static void fork_server(void) {
	for (int i = 0; i < 4; i++) {
		int status = 1;
		pid_t worker = fork();
		if (!worker) {
			start();
			launch(10);
			CHECK(!getenv("HOOKED") || hooked());
			exit(check_failures != 0); /* with the handlers of exit */
		}
		waitpid(worker, &status, 0);
		CHECK_EQUAL(status, 0);
	}
}

/* Becomes a daemon with all descriptors closed, also those of standard input and output, before it uses CUDA. */
static void closed_stdio(void) {
	for (int fd = 0; fd < 1024; fd++) close(fd);
	CHECK_EQUAL(setsid() < 0, 0);
	CHECK_EQUAL(chdir("/"), 0);
	start();
	launch(10);
	CHECK(!getenv("HOOKED") || hooked());
	for (int fd = 0; fd < 3; fd++) CHECK_EQUAL(open("/dev/null", O_RDWR), fd); /* all are still free */
}

/* Forks without the C library's knowledge. The child ends by exit, whose handlers find no thread but its own. */
static void fork_unseen(void) {
	int status = 1;
	start();
	launch(10);
	pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (!child) exit(0);
	waitpid(child, &status, 0);
	CHECK_EQUAL(status, 0);
	launch(300);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK(!getenv("HOOKED") || hooked());
}

/* Starts programs by vfork while it launches. */
static void spawn_programs(void) {
	char *const arguments[] = {"true", NULL};
	start();
	for (int i = 0; i < 20; i++) {
		int status = 1;
		pid_t child;
		launch(20);
		CHECK_EQUAL(posix_spawnp(&child, "true", NULL, NULL, arguments, environ), 0);
		waitpid(child, &status, 0);
		CHECK_EQUAL(status, 0);
	}
	CHECK(!getenv("HOOKED") || hooked());
}

static void *start_here(void *unused) {
	CUdeviceptr p;
	size_t left, total;
	start();
	launch(10);
	CHECK_EQUAL(cuMemAlloc_v2(&p, MIB), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFree_v2(p), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAllocAsync(&p, MIB, stream), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemFreeAsync(p, stream), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemGetInfo_v2(&left, &total), CUDA_SUCCESS);
	return unused;
}

/* Starts and uses CUDA on a thread with the smallest stack. */
static void start_on_small_stack(void) {
	pthread_attr_t attributes;
	pthread_t thread;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 16384);
	CHECK_EQUAL(pthread_create(&thread, &attributes, start_here, NULL), 0);
	pthread_join(thread, NULL);
}

/* Starts CUDA in many threads at once. */
static void start_in_threads(void) {
	pthread_t threads[16];
	for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, start_here, NULL);
	for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
	start();
	CHECK(!getenv("HOOKED") || hooked());
}

static void *launch_without_descriptors(void *context) {
	CHECK_EQUAL(unshare(CLONE_FILES), 0);
	for (int fd = 3; fd < 1024; fd++) close(fd);
	cuCtxSetCurrent(context);
	while (*reached != 2) usleep(1000);
	*reached = 4; /* the parent grants a token */
	CHECK_EQUAL(driver_launch(kernel, NULL), CUDA_SUCCESS);
	return NULL;
}

/* A thread with a table of descriptors of its own waits for a token. */
static void unshare_descriptors(void) {
	CUcontext context;
	pthread_t thread;
	start();
	cuDevicePrimaryCtxRetain(&context, 0);
	pthread_create(&thread, NULL, launch_without_descriptors, context);
	usleep(10000);
	*reached = 1; /* the parent withdraws the token */
	pthread_join(thread, NULL);
	launch(10);
}

static pthread_key_t key;

static void launch_at_end_of_thread(void *context) {
	cuCtxSetCurrent(context);
	launch(10);
}

static void *set_key(void *context) {
	pthread_setspecific(key, context);
	return NULL;
}

/* Launches in the destructors of threads, after its main thread has ended. */
static void *end_later(void *main_thread) {
	CUcontext context;
	pthread_t thread;
	pthread_join(*(pthread_t *)main_thread, NULL);
	cuDevicePrimaryCtxRetain(&context, 0);
	pthread_key_create(&key, launch_at_end_of_thread);
	for (int i = 0; i < 8; i++) pthread_create(&thread, NULL, set_key, context), pthread_join(thread, NULL);
	exit(check_failures != 0);
}

static void main_thread_ends(void) {
	static pthread_t self;
	pthread_t thread;
	start();
	self = pthread_self();
	pthread_create(&thread, NULL, end_later, &self);
	pthread_exit(NULL);
}

/* Looks functions up, present and missing ones. dlerror tells of the last lookup, as without the hook. */
static void look_up(void) {
	static const char *const odd[] = {"", "cu", "cuMemAlloc_v2_v2", "cuLaunchKernel_ptsz_ptsz", "cuMemAllo", "dlsym", "malloc"};
	void *f;
	int status;
	start();
	dlerror();
	CHECK(!dlsym(RTLD_DEFAULT, "cuNoSuchFunction"));
	CHECK(dlerror() != NULL);
	CHECK(dlsym(RTLD_DEFAULT, "cuLaunchKernel"));
	CHECK(dlerror() == NULL);
	for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
		for (int version = -1; version < 20000; version += 1001)
			for (unsigned long long flags = 0; flags < 5; flags++) {
				cuGetProcAddress_v2(odd[i], &f, version, flags, &status);
				cuGetProcAddress_v2(odd[i], &f, version, flags, NULL);
				cuGetProcAddress(odd[i], &f, version, flags);
			}
	cuGetProcAddress_v2("cuMemAlloc", &f, INT32_MAX, UINT64_MAX, &status);
	launch(10);
}

static void *use_context(void *context) {
	CUdeviceptr p;
	CHECK_EQUAL(cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
	CHECK_EQUAL(cuMemAlloc_v2(&p, MIB), CUDA_SUCCESS);
	CHECK_EQUAL(driver_launch(kernel, NULL), CUDA_SUCCESS);
	CHECK_EQUAL(cuCtxPopCurrent_v2(NULL), CUDA_SUCCESS);
	return NULL;
}

/* Makes contexts, uses each in another thread, and destroys them in the main thread. */
static void contexts_of_other_threads(void) {
	size_t before, after, total;
	start();
	CHECK_EQUAL(cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
	for (int round = 0; round < 4; round++) {
		CUcontext contexts[50];
		pthread_t threads[50];
		for (int i = 0; i < 50; i++) {
			CHECK_EQUAL(cuCtxCreate_v2(&contexts[i], 0, 0), CUDA_SUCCESS);
			cuCtxPopCurrent_v2(NULL);
			pthread_create(&threads[i], NULL, use_context, contexts[i]);
		}
		for (int i = 0; i < 50; i++) {
			pthread_join(threads[i], NULL);
			CHECK_EQUAL(cuCtxDestroy_v2(contexts[i]), CUDA_SUCCESS);
		}
	}
	CHECK_EQUAL(cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
	if (getenv("HOOKED")) CHECK_EQUAL(after, before);
}

static atomic_bool captured;

CUresult cuThreadExchangeStreamCaptureMode(int *mode);

static void *allocate_beside(void *context) {
	int relaxed = 2;
	CUdeviceptr p;
	cuCtxSetCurrent(context);
	cuThreadExchangeStreamCaptureMode(&relaxed);
	while (!captured) {
		if (cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS) cuMemFree_v2(p);
		driver_launch(kernel, stream);
		usleep(100);
	}
	return NULL;
}

/* Captures in every mode, for longer than the helper's rounds, while another thread allocates and launches. */
static void capture_beside_threads(void) {
	CUcontext context;
	CUstream origin;
	CUgraph graph;
	CUgraphExec e;
	pthread_t thread;
	start();
	cuDevicePrimaryCtxRetain(&context, 0);
	cuStreamCreate(&origin, 1);
	pthread_create(&thread, NULL, allocate_beside, context);
	for (int mode = 0; mode < 3; mode++) {
		CHECK_EQUAL(cuStreamBeginCapture_v2(origin, mode), CUDA_SUCCESS);
		for (int i = 0; i < 300; i++) {
			CHECK_EQUAL(driver_launch(kernel, origin), CUDA_SUCCESS);
			usleep(i % 100 ? 0 : 50000);
		}
		CHECK_EQUAL(cuStreamEndCapture(origin, &graph), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphInstantiateWithFlags(&e, graph, 0), CUDA_SUCCESS);
		CHECK_EQUAL(cuGraphLaunch(e, origin), CUDA_SUCCESS);
	}
	captured = true;
	pthread_join(thread, NULL);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
}

/* Allows itself no more descriptors, processes, or memory than it has. */
static void limited_resources(void) {
	struct rlimit none = {0, 0};
	CUdeviceptr p;
	start();
	launch(10);
	setrlimit(RLIMIT_NOFILE, &none);
	setrlimit(RLIMIT_NPROC, &none);
	setrlimit(RLIMIT_FSIZE, &none);
	setrlimit(RLIMIT_MEMLOCK, &none);
	for (int i = 0; i < 10; i++) launch(100), usleep(20000);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 900 * MIB), CUDA_SUCCESS);
	CHECK(!getenv("HOOKED") || hooked());
}

/* Allows itself less data than the hook has, which is too little for any real driver. It is told so. */
static void little_data(void) {
	struct rlimit data = {1 << 20, 1 << 20};
	char line[256] = "", file[] = "/tmp/innocent_test.XXXXXX";
	int fd = mkstemp(file), err = dup(2), ends[2];
	setenv("GSHARE_LOG", file, 1);
	CHECK(!pipe(ends) && dup2(ends[1], 2) == 2);
	setrlimit(RLIMIT_DATA, &data);
	while (getenv("HOOKED") && malloc(16)) continue; /* as at the start of a program, whose heap is empty */
	for (int i = 0; i < 2; i++) CHECK_EQUAL(cuInit(0), getenv("HOOKED") ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
	CHECK(dup2(err, 2) == 2 && !close(ends[1]));
	ssize_t said = read(ends[0], line, sizeof line - 1); /* one line, and nothing without the hook */
	CHECK(getenv("HOOKED") ? said > 0 && strstr(line, "(ulimit -d) is 1024 KiB") && strchr(line, '\n') == line + said - 1 : said == 0);
	memset(line, 0, sizeof line);
	CHECK(read(fd, line, sizeof line - 1) >= 0 && !strstr(line, "(ulimit -d) is 1024 KiB") == !getenv("HOOKED"));
	unlink(file);
}

static void *launch_in_thread(void *c) {
	CHECK_EQUAL(cuCtxSetCurrent(c), CUDA_SUCCESS);
	launch(200);
	return NULL;
}

/* Threads launch and end in a program that has used up all keys of values of its threads. */
static void no_keys_left(void) {
	pthread_key_t key;
	pthread_t t[4];
	CUcontext c;
	while (!pthread_key_create(&key, NULL)) continue;
	start();
	CHECK_EQUAL(cuCtxGetCurrent(&c), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++) CHECK_EQUAL(pthread_create(&t[i], NULL, launch_in_thread, c), 0);
	for (int i = 0; i < 4; i++) pthread_join(t[i], NULL);
	CHECK_EQUAL(cuCtxSynchronize(), CUDA_SUCCESS);
}

/* Clears its environment before it uses CUDA, as daemons do. */
static void cleared_environment(void) {
	CUdeviceptr p;
	bool expect = getenv("HOOKED");
	clearenv();
	start();
	launch(10);
	CHECK_EQUAL(cuMemAlloc_v2(&p, 900 * MIB), CUDA_SUCCESS);
	CHECK(!expect || hooked());
}

static const struct check_test scenarios[] = {
	{"at_exit", at_exit}, {"close_descriptors", close_descriptors}, {"cancel_threads", cancel_threads}, {"interval_timer", interval_timer},
	{"small_stack", small_stack}, {"beside_long_kernel", beside_long_kernel}, {"reset_device", reset_device},
	{"fork_server", fork_server}, {"closed_stdio", closed_stdio}, {"fork_unseen", fork_unseen}, {"spawn_programs", spawn_programs}, {"start_on_small_stack", start_on_small_stack}, {"start_in_threads", start_in_threads}, {"unshare_descriptors", unshare_descriptors}, {"main_thread_ends", main_thread_ends}, {"look_up", look_up}, {"contexts_of_other_threads", contexts_of_other_threads}, {"capture_beside_threads", capture_beside_threads}, {"limited_resources", limited_resources}, {"little_data", little_data}, {"no_keys_left", no_keys_left}, {"cleared_environment", cleared_environment}, {0}};

/*
 * Runs the program again with the directory of its server in its first environment, as under gshare run, behind variables that are
 * long or have similar names.
 */
static int run_with_directory(char **argv) {
	char directory[64], padding[10000];
	memset(padding, 'x', sizeof padding);
	padding[sizeof padding - 1] = 0;
	server_make_directory(directory);
	setenv("PADDING", padding, 1);
	setenv("GSHARE_DIRECTORY", "/nonexistent", 1);
	setenv("GSHARE_DI", "R=/nonexistent", 1);
	setenv("MY_GSHARE_DIR", "/nonexistent", 1);
	setenv("GSHARE_DIR", directory, 1);
	int status = 2;
	pid_t again;
	if (!posix_spawn(&again, "/proc/self/exe", NULL, NULL, argv, environ)) waitpid(again, &status, 0);
	return status != 0; /* this process removes the directory as it exits */
}

/* Changes the token as the scenario asks for it, until the child ends. Returns its wait status. */
static int serve(struct server *s, pid_t child) {
	int status = 0;
	for (double from = seconds(); !waitpid(child, &status, WNOHANG); usleep(1000)) {
		if (seconds() - from > 120) {
			printf("  still runs after 120 s\n");
			kill(child, SIGKILL);
		}
		if (*reached == 1) {
			if (s->sessions) server_state(&s->session[0], GSHARE_PAUSE);
			*reached = 2;
		} else if (*reached == 4) {
			if (s->sessions) server_state(&s->session[0], GSHARE_RUN);
			*reached = 5;
		}
	}
	return status;
}

int main(int argc, char **argv) {
	static struct server server = {.memory_limit = 1024 * MIB, .run_ahead = 1000000};
	const struct check_test *t = scenarios;
	while (t->name && (argc < 2 || strcmp(t->name, argv[1]))) t++;
	if (!t->name) return printf("usage: innocent_test SCENARIO\n"), 2;
	if (!getenv("PADDING")) return run_with_directory(argv);
	reached = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int ready[2];
	char byte;
	if (pipe(ready)) return perror("pipe"), 2;
	snprintf(server.directory, sizeof server.directory, "%s", getenv("GSHARE_DIR"));
	pid_t child = fork();
	if (!child) {
		if (read(ready[0], &byte, 1) != 1) _exit(2);
		close(ready[0]), close(ready[1]);
		t->run();
		exit(check_failures != 0);
	}
	server_start(&server);
	if (write(ready[1], "", 1) != 1) return 2;
	int status = serve(&server, child);
	printf("%s %s\n", status ? "not ok" : "ok", t->name);
	return status != 0;
}
