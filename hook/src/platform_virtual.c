/*
 * The platform on the virtual clock of the device simulation, for tests. The clock is that of the fake driver, with which
 * this library is linked; a thread waits by a call to the fake driver.
 */
#define _GNU_SOURCE
#include "platform.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

uint64_t fakesim_now(void);
void fakesim_sleep(uint64_t ns);
int fakesim_wait_word(const uint32_t *word, uint32_t seen, uint64_t timeout);
void fakesim_wake(void);
void fakesim_announce(void);
int fakesim_open(void);
void fakesim_adopt(int place);

uint64_t gsh_now(void) { return fakesim_now(); }
void gsh_sleep(uint64_t duration) { fakesim_sleep(duration); }

bool gsh_wait_word(const _Atomic uint32_t *word, uint32_t seen, uint64_t timeout)
{
	return fakesim_wait_word((const uint32_t *)word, seen, timeout) == 0;
}

void gsh_wake_word(_Atomic uint32_t *word)
{
	(void)word;
	fakesim_wake();
}

/* The clock is stopped from the announcement until the server has handled the frame. */
int gsh_send(int fd, const void *frame, size_t length)
{
	if (send(fd, frame, length, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return -errno;
	fakesim_announce();
	return 0;
}

/* What a new thread is started with. */
struct start {
	void *(*main)(void *);
	int place;
};

/* Entry of the new thread: takes the place on the virtual clock that its creator opened. */
static void *enter(void *argument)
{
	struct start start = *(struct start *)argument;
	free(argument);
	fakesim_adopt(start.place);
	return start.main(NULL);
}

int gsh_thread_start(void *(*main)(void *))
{
	struct start *start = malloc(sizeof *start);
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	if (!start)
		return -ENOMEM;
	*start = (struct start){main, fakesim_open()};
	pthread_attr_init(&attributes);
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int error = pthread_create(&thread, &attributes, enter, start);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (error)
		free(start);
	return -error;
}
