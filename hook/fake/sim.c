/*
 * The client of the device simulation. Each thread has a connection, so that the simulation sees which threads wait. Work is
 * collected for the whole process and sent with the next request of any thread; batches are numbered, since messages of two
 * connections have no order.
 *
 * On the virtual clock a thread's time is that of its last reply plus the host time spent since: the clock is stopped while a
 * thread runs. Host time is reported when it adds up to PIECE.
 */
#include "fake.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PIECE 100000u /* ns */

int fake_simulated;
uint64_t fake_host_launch = 5000;

static const char *path;      /* FAKE_CUDA_SOCKET; NULL: no simulation */
static int is_virtual;        /* whether the simulation has a virtual clock */
static pthread_key_t closing; /* closes the connection of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static pthread_mutex_t collecting = PTHREAD_MUTEX_INITIALIZER; /* guards the four below */
static struct fakesim_work works[SIM_WORKS_MAX];
static uint32_t collected; /* entries of works */
static uint64_t batches;   /* sent so far */
static uint64_t simulation; /* number of the simulation that the process uses; 0: none yet */

static THREAD_LOCAL int connection = -1;       /* the calling thread's */
static THREAD_LOCAL struct fakesim_reply last; /* received on it */
static THREAD_LOCAL uint64_t spent; /* ns of host time since last.now */

/* Returns the ns of CLOCK_MONOTONIC. */
static uint64_t machine_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Closes the calling thread's connection; also runs when a thread ends. */
static void leave(void *unused)
{
	(void)unused;
	if (connection >= 0)
		close(connection);
	connection = -1;
}

/* Resets the state in a forked child, which is another process for the simulation. */
static void after_fork(void)
{
	leave(NULL);
	collected = 0;
	batches = 0;
	simulation = 0;
	spent = 0;
}

/* Reads the environment. Called once. */
static void prepare(void)
{
	path = getenv("FAKE_CUDA_SOCKET");
	const char *host = getenv("FAKE_CUDA_LAUNCH_NS");
	if (host)
		fake_host_launch = strtoull(host, NULL, 10);
	pthread_key_create(&closing, leave);
	pthread_atfork(NULL, NULL, after_fork);
}

/* Returns the process's limit, per-mille of the SMs. */
static uint64_t cap(void) { return (uint64_t)(fake_mps_percent() * 10 + 0.5); }

/* Closes the connection after an error. Returns -1. */
static int connection_error(const char *what)
{
	if (getenv("FAKE_CUDA_DEBUG"))
		fprintf(stderr, "fake cuda: %s: %s\n", what, strerror(errno));
	leave(NULL);
	return -1;
}

/*
 * Ends the process when the simulation has ended, as the loss of a device ends programs: those that a killed test had started
 * would run for ever. The socket is closed with the simulation's process, in whatever way that ends.
 */
static void simulation_ended(const char *what)
{
	static const char message[] = "fake cuda: the simulation of the GPUs has ended\n";
	connection_error(what);
	if (write(STDERR_FILENO, message, sizeof message - 1) < 0)
		errno = 0; /* there is nobody to tell */
	_exit(1);
}

/* Sends a request with work and receives the reply. */
static void exchange(struct fakesim_request *request, const struct fakesim_work *work, int answered)
{
	struct iovec parts[2] = {{request, sizeof *request}, {(void *)work, request->works * sizeof *work}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	while (sendmsg(connection, &message, MSG_NOSIGNAL) < 0)
		if (errno != EINTR)
			simulation_ended("send");
	if (!answered)
		return;
	if ((request->op == SIM_WAIT_STREAM || request->op == SIM_WAIT_DEVICE) && !is_virtual && !fake_mps_await(connection)) {
		close(connection); /* the reply is not for a later request */
		connection = -1;
		last.status = 0;
		return;
	}
	ssize_t got;
	uint64_t own = last.now + spent;
	while ((got = recv(connection, &last, sizeof last, 0)) < 0 && errno == EINTR)
		;
	if (got != sizeof last)
		simulation_ended("receive");
	spent = own > last.now ? own - last.now : 0; /* a reply without a wait leaves the thread ahead of the clock */
}

/*
 * Greets the simulation. It has to be the one that the process uses: another one, on the same path, does not know the streams
 * and events of the process.
 */
static void greet(void)
{
	struct fakesim_request hello = {.op = SIM_HELLO, .a = cap(), .b = (uint64_t)fake_mps_has_low_priority()};
	last.now = spent = 0;
	pthread_mutex_lock(&collecting);
	hello.batch = batches;
	pthread_mutex_unlock(&collecting);
	exchange(&hello, NULL, 1);
	is_virtual = (int)last.is_virtual;
	pthread_mutex_lock(&collecting);
	int other = simulation && simulation != last.value;
	simulation = last.value;
	pthread_mutex_unlock(&collecting);
	if (other)
		simulation_ended("greet");
}

/* Connects the calling thread. Returns 0 on failure; ends the process if an earlier thread was connected. */
static int connect_thread(void)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	if (strlen(path) >= sizeof to.sun_path)
		return 0;
	strcpy(to.sun_path, path);
	connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connection < 0 || connect(connection, (struct sockaddr *)&to, sizeof to) != 0) {
		if (fake_simulated && connection >= 0)
			simulation_ended("connect");
		return connection_error("connect") == 0;
	}
	greet();
	return 1;
}

/* Reports whether the calling thread has a connection; connects it if there is a simulation. */
static int connected(void)
{
	pthread_once(&once, prepare);
	if (connection >= 0)
		return 1;
	if (!path || !connect_thread())
		return 0;
	pthread_setspecific(closing, &closing);
	return 1;
}

/* Sends all work and one request. Returns the reply; without a simulation one of status 0, done. */
static struct fakesim_reply *call(uint32_t op, uint64_t a, uint64_t b)
{
	static THREAD_LOCAL struct fakesim_reply none;
	struct fakesim_work batch[SIM_WORKS_MAX];
	if (!connected())
		return &none;
	struct fakesim_request request = {.op = op, .at = is_virtual ? last.now + spent : 0, .a = a, .b = b};
	pthread_mutex_lock(&collecting);
	request.works = collected;
	if (collected) {
		memcpy(batch, works, collected * sizeof *works);
		collected = 0;
		batches++;
	}
	request.batch = batches;
	pthread_mutex_unlock(&collecting);
	exchange(&request, batch, op != SIM_ANNOUNCE);
	return &last;
}

CUresult fake_sim_start(void)
{
	pthread_once(&once, prepare);
	if (!path)
		return CUDA_SUCCESS;
	if (!connected())
		return CUDA_ERROR_NO_DEVICE;
	fake_simulated = 1;
	__atomic_add_fetch(&fake_checks, 1, __ATOMIC_RELAXED);
	return CUDA_SUCCESS;
}

uint64_t fake_now(void) { return connected() && is_virtual ? last.now + spent : machine_now(); }

void fake_spend(uint64_t ns)
{
	if (!fake_simulated || !connected() || !is_virtual)
		return;
	spent += ns;
	if (spent >= PIECE)
		call(SIM_SLEEP, last.now + spent, 0);
}

void fake_sim_work(int kind, struct stream *stream, uint64_t duration, uint32_t width, uint32_t waves, uint64_t event)
{
	uint64_t at = fake_now();
	pthread_mutex_lock(&collecting);
	while (collected == SIM_WORKS_MAX) {
		pthread_mutex_unlock(&collecting);
		call(SIM_FLUSH, 0, 0);
		pthread_mutex_lock(&collecting);
	}
	works[collected++] = (struct fakesim_work){(uint32_t)kind, (uint32_t)fake_gpu(stream->context->device), stream->id, at, duration,
						   event, width, waves};
	pthread_mutex_unlock(&collecting);
	/* On the real clock the device starts at once; on the virtual one work carries its time and may be sent later. */
	if (!is_virtual)
		call(SIM_FLUSH, 0, 0);
}

int fake_sim_wait_stream(struct stream *stream) { return (int)call(SIM_WAIT_STREAM, stream->id, 0)->status; }
int fake_sim_wait_device(CUdevice device) { return (int)call(SIM_WAIT_DEVICE, (uint64_t)fake_gpu(device), 0)->status; }

int fake_sim_query_stream(struct stream *stream)
{
	return (int)call(SIM_QUERY_STREAM, stream->id, 0)->status;
}

int fake_sim_event(struct event *event, int wait)
{
	struct fakesim_reply *reply = call(wait ? SIM_WAIT_EVENT : SIM_QUERY_EVENT, event->id, 0);
	if (reply->status != 0)
		return 0;
	event->time = reply->value;
	return 1;
}

uint64_t fakesim_now(void) { return fake_now(); }
void fakesim_announce(void) { call(SIM_ANNOUNCE, 0, 0); }
void fakesim_leave(void) { call(SIM_FLUSH, 0, 0); leave(NULL); }

void fakesim_wake(void) { call(SIM_WAKE, 0, 0); }

/* The caller's own time is kept: the clock is stopped, so the reply on the new connection has the same time. */
int fakesim_open(void)
{
	if (!connected())
		return -1;
	int own = connection;
	uint64_t owed = spent;
	struct fakesim_reply reply = last;
	int opened = connect_thread() ? connection : -1;
	connection = own;
	spent = owed;
	last = reply;
	return opened;
}

void fakesim_adopt(int opened)
{
	connection = opened;
	if (opened >= 0)
		pthread_setspecific(closing, &closing);
	call(SIM_FLUSH, 0, 0);
}

void fakesim_sleep(uint64_t ns)
{
	struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
	if (connected() && is_virtual)
		call(SIM_SLEEP, last.now + spent + ns, 0);
	else
		nanosleep(&t, NULL);
}

/* The number of wake-ups is read before the word, so that one between the check and the request ends the wait at once. */
int fakesim_wait_word(const uint32_t *word, uint32_t seen, uint64_t timeout_ns)
{
	uint64_t until = fake_now() + timeout_ns;
	for (;;) {
		uint64_t wakes = last.wakes;
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != seen)
			return 0;
		if (fake_now() >= until)
			return ETIMEDOUT;
		if (!connected())
			return ETIMEDOUT;
		call(SIM_WAIT_WORD, until, wakes);
	}
}
