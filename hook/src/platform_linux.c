#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "libc.h"

#define STACK (128 * 1024) /* bytes, of the helper thread */

uint64_t gsh_now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * GSH_SECOND + (uint64_t)t.tv_nsec;
}

/* Converts nanoseconds to a timespec. */
static struct timespec timespec_of(uint64_t ns) {
	return (struct timespec){(time_t)(ns / GSH_SECOND), (long)(ns % GSH_SECOND)};
}

bool gsh_wait_word(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout) {
	struct timespec t = timespec_of(timeout);
	int saved = errno;
	long r = syscall(SYS_futex, word, FUTEX_WAIT, seen, &t, NULL, 0);
	bool in_time = r == 0 || errno != ETIMEDOUT;
	errno = saved;
	return in_time;
}

void gsh_wake_word(_Atomic uint32_t *word) {
	int saved = errno;
	syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
	errno = saved;
}

void gsh_sleep(uint64_t duration) {
	struct timespec t = timespec_of(duration);
	int saved = errno;
	syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &t, NULL); /* unlike nanosleep not a cancellation point */
	errno = saved;
}

int gsh_send(int fd, const void *frame, size_t length) {
	int saved = errno;
	long r = syscall(SYS_sendto, fd, frame, length, MSG_NOSIGNAL | MSG_DONTWAIT, NULL, 0) < 0 ? -errno : 0;
	errno = saved;
	return (int)r;
}

/* Both are found at run time: the versions that the linker would bind need a glibc newer than 2.17. */
typedef int (*create_fn)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
typedef int (*stack_fn)(pthread_attr_t *, size_t);

/* Returns the function that creates threads, or NULL. */
static create_fn thread_create(void) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	return pthread_create; /* the sanitizer's, which has to see every thread */
#else
	return (create_fn)gsh_libc_symbol("pthread_create");
#endif
}

/* Entry of the helper thread: names it and sets its timer slack, then runs its main function. */
static void *run(void *main) {
	prctl(PR_SET_NAME, "gshare");
	prctl(PR_SET_TIMERSLACK, 50000ul);
	return ((void *(*)(void *))main)(NULL);
}

int gsh_thread_start(void *(*main)(void *)) {
	create_fn create = thread_create();
	stack_fn set_stack = (stack_fn)gsh_libc_symbol("pthread_attr_setstacksize");
	pthread_attr_t attributes;
	pthread_t thread;
	sigset_t all, before;
	if (!create || !set_stack || pthread_attr_init(&attributes)) return -ENOSYS;
	set_stack(&attributes, STACK);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &before); /* the calling thread's on Linux; inherited by the new one */
	int r = create(&thread, &attributes, run, (void *)main);
	sigprocmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return -r;
}
