/*
 * Fuzzes a whole reply of the token server: frame, descriptors of every kind, and the contents of the pages. Whatever it is,
 * the hook survives: it accepts all of it or nothing, enforces the limit on the page, and leaks no descriptor.
 *
 * Input: one byte for the number of descriptors, one for the kind of each, 4 x 64 bytes for the pages, then the frame's body.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../../src/client.h"
#include "../../src/frame.h"
#include "../../src/token.h"
#include "fuzz.h"

#define DESCRIPTORS_MAX 52 /* more than the most that a WELCOME may carry */
#define WORDS 256

static struct {
	const uint8_t *at;
	size_t left;
} input;

static uint8_t next(void) { return input.left ? input.left--, *input.at++ : 0; }

static const uint8_t *words(void) {
	static uint8_t page[WORDS];
	size_t n = input.left < WORDS ? input.left : WORDS;
	memset(page, 0, sizeof page);
	memcpy(page, input.at, n);
	input.at += n;
	input.left -= n;
	return page;
}

/* Mostly a valid page; else one that is short, not sealed or without its header, or no page at all. */
static int descriptor(uint8_t kind, const uint8_t *page) {
	static const struct gshare_server_page head = {.magic = GSHARE_PAGE_MAGIC, .major = GSHARE_WIRE_MAJOR};
	if (kind == 1) return open("/dev/null", O_RDWR | O_CLOEXEC);
	int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(fd, kind == 2 ? 100 : kind == 3 ? 0 : GSHARE_PAGE_SIZE)) return fd;
	if (kind == 3) return fd;
	REQUIRE(pwrite(fd, page, kind == 2 ? 100 : WORDS, 0) > 0);
	if (kind != 4) REQUIRE(pwrite(fd, &head, 8, 0) == 8);
	if (kind != 5) fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | (kind & 1 ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL);
	return fd;
}

static int listener;

/* Returns the lowest free descriptor, which a leak raises sooner or later. */
static int lowest_descriptor(void) {
	int fd = dup(listener);
	close(fd);
	return fd;
}

static void answer(int fd) {
	int fds[DESCRIPTORS_MAX], n = next() % (DESCRIPTORS_MAX + 1);
	uint8_t kinds[DESCRIPTORS_MAX];
	for (int i = 0; i < n; i++) kinds[i] = next();
	const uint8_t *page = words();
	for (int i = 0; i < n; i++) fds[i] = descriptor(kinds[i], page);
	unsigned char frame[GSHARE_FRAME_MAX + 64];
	size_t body = input.left < sizeof frame - 32 ? input.left : sizeof frame - 32;
	struct gshare_header h = {GSHARE_WIRE_MAGIC, GSHARE_WIRE_MAJOR, 0, GSHARE_WELCOME, 0, (uint32_t)body, 1, 1};
	memcpy(frame, &h, sizeof h);
	memcpy(frame + sizeof h, input.at, body);
	static char control[CMSG_SPACE(sizeof fds)];
	struct iovec io = {frame, sizeof h + body};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
	if (n) {
		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE((size_t)n * sizeof fds[0]);
		*CMSG_FIRSTHDR(&m) =
			(struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((size_t)n * sizeof fds[0])};
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, (size_t)n * sizeof fds[0]);
	}
	REQUIRE(sendmsg(fd, &m, MSG_NOSIGNAL) >= 0 || errno == EPIPE); /* EPIPE: the hook's timeout passed on a slow machine */
	for (int i = 0; i < n; i++) close(fds[i]);
}

static sem_t served;

/* Accepts one connection for each input. */
static void *serve(void *unused) {
	char hello[GSHARE_FRAME_MAX];
	for (;;) {
		poll(&(struct pollfd){listener, POLLIN, 0}, 1, -1); /* since accept reserves a descriptor while it waits */
		int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0 && recv(fd, hello, sizeof hello, 0) > 0) answer(fd);
		close(fd);
		sem_post(&served);
	}
	return unused;
}

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerInitialize(int *count, char ***arguments) {
	(void)count, (void)arguments;
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	char directory[] = "/tmp/gshare-fuzz-XXXXXX";
	pthread_t t;
	REQUIRE(mkdtemp(directory));
	snprintf(at.sun_path, sizeof at.sun_path, "%s/token.sock", directory);
	setenv("GSHARE_DIR", directory, 1);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	REQUIRE(!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, 8));
	sem_init(&served, 0, 0);
	pthread_create(&t, NULL, serve, NULL);
	return 0;
}

static void use(struct gsh_vgpu *v) {
	uint64_t limit = v->server->memory_limit;
	REQUIRE(memchr(v->uuid, 0, sizeof v->uuid));
	gsh_token_permits(v);
	gsh_token_disabled(v);
	if (v->server->state != GSHARE_OFF && gsh_memory_used(v) <= limit) {
		REQUIRE(!gsh_memory_reserve(v, limit - gsh_memory_used(v) + 1) || limit == UINT64_MAX);
		REQUIRE(gsh_memory_reserve(v, limit - gsh_memory_used(v)));
	}
	gsh_publish(v);
	gsh_client_request_token(v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	int before = lowest_descriptor();
	gsh_client_after_fork(); /* as in a new process */
	gsh_account_after_fork();
	input.at = data;
	input.left = size;
	int r = gsh_client_connect();
	REQUIRE(r <= 0);
	for (uint32_t i = 0; !r && i < gsh_vgpu_count; i++) use(&gsh_vgpus[i]);
	while (!r && gsh_client_alive()) usleep(20);
	while (sem_wait(&served)) continue;
	REQUIRE(lowest_descriptor() == before);
	return 0;
}
