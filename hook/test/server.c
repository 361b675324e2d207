#define _GNU_SOURCE
#include "server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t server_now(void) {
	const char *ahead = getenv("SERVER_AHEAD");
	return now() + (ahead ? strtoull(ahead, NULL, 10) : 0);
}

#define DIRECTORIES 16
static char directories[DIRECTORIES][64]; /* that the process `maker` has made */
static int directory_count;
static pid_t maker;

void server_remove_directories(void) {
	for (int i = 0; i < directory_count && getpid() == maker; i++) {
		DIR *d = opendir(directories[i]);
		for (struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
		if (d) closedir(d);
		rmdir(directories[i]);
	}
}

void server_make_directory(char path[64]) {
	strcpy(path, "/tmp/gshare-test-XXXXXX");
	if (!mkdtemp(path)) {
		perror("mkdtemp");
		exit(1);
	}
	if (!maker) atexit(server_remove_directories);
	if (maker != getpid()) directory_count = 0; /* those of the process that this one was forked from */
	maker = getpid();
	if (directory_count < DIRECTORIES) strcpy(directories[directory_count++], path);
}

/* Creates a page and stores its descriptor; sealed: the client cannot map it writable. */
static void *create_page(int *fd, int sealed) {
	*fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (ftruncate(*fd, GSHARE_PAGE_SIZE)) perror("ftruncate");
	struct gshare_server_page *p = mmap(NULL, GSHARE_PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	p->magic = GSHARE_PAGE_MAGIC;
	p->major = GSHARE_WIRE_MAJOR;
	fcntl(*fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | (sealed ? F_SEAL_FUTURE_WRITE : 0) | F_SEAL_SEAL);
	return p;
}

/* Writes the first state of a server page. */
static void fill_server_page(const struct server *s, struct gshare_server_page *p) {
	p->generation = 1;
	p->state = s->first_state ? s->first_state : GSHARE_RUN;
	p->window = 100000000;
	p->run_ahead = s->run_ahead;
	p->guaranteed = 1000;
	p->memory_limit = s->memory_limit;
	p->import_allowance = s->import_allowance;
	p->unit = s->tokens ? GSHARE_UNIT_BLOCKS : GSHARE_UNIT_TIME;
	p->amount = p->credit = s->tokens;
	p->heartbeat = server_now();
}

/* Sends WELCOME with the pages of a new session. Returns 0 if the client has gone: on a busy machine it may have given up waiting, and dial again. */
static int send_welcome(struct server *s, struct server_session *c, int fd) {
	struct {
		struct gshare_header h;
		struct gshare_welcome w;
		unsigned char tlvs[GSHARE_VGPU_MAX * (sizeof(struct gshare_tlv) + sizeof(struct gshare_vgpu))];
	} f = {{GSHARE_WIRE_MAGIC, GSHARE_WIRE_MAJOR, 0, GSHARE_WELCOME, 0, 0, 1, 9}, {77, s->mode, s->vgpus}, {0}};
	unsigned char *at = f.tlvs;
	int fds[3 * GSHARE_VGPU_MAX];
	for (uint32_t i = 0; i < s->vgpus; i++) {
		struct gshare_tlv t = {GSHARE_TLV_VGPU, sizeof(struct gshare_vgpu)};
		struct gshare_vgpu v = {"", i, 0, s->memory_limit};
		if (s->uuid) snprintf(v.uuid, sizeof v.uuid, "%s", s->uuid);
		memcpy(at, &t, sizeof t);
		memcpy(at + sizeof t, &v, sizeof v);
		at += sizeof t + sizeof v;
		fill_server_page(s, c->server[i] = create_page(&fds[3 * i], 1));
		c->container[i] = s->container[i];
		fds[3 * i + 1] = s->container_fd[i];
		c->client[i] = create_page(&fds[3 * i + 2], 0);
	}
	f.h.length = (uint32_t)(at - (unsigned char *)&f.w);
	char control[CMSG_SPACE(sizeof fds)];
	struct iovec io = {&f, sizeof f.h + f.h.length};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control,
			   .msg_controllen = CMSG_SPACE(3 * s->vgpus * sizeof(int))};
	struct cmsghdr *cm = CMSG_FIRSTHDR(&m);
	*cm = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(3 * s->vgpus * sizeof(int))};
	memcpy(CMSG_DATA(cm), fds, 3 * s->vgpus * sizeof(int));
	s->sessions++; /* before the client can see it */
	int sent = sendmsg(fd, &m, MSG_NOSIGNAL) >= 0;
	if (!sent) perror("welcome");
	for (uint32_t i = 0; i < s->vgpus; i++) close(fds[3 * i]), close(fds[3 * i + 2]);
	return sent;
}

/* Sends ERROR. */
static void send_error(int fd, uint32_t code) {
	struct {
		struct gshare_header h;
		struct gshare_error e;
	} f = {{GSHARE_WIRE_MAGIC, GSHARE_WIRE_MAJOR, 0, GSHARE_ERROR, 0, sizeof f.e, 1, 9}, {code, 0}};
	if (send(fd, &f, sizeof f, MSG_NOSIGNAL) < 0) perror("error");
}

/* Counts a frame of the client. */
static void count_frame(struct server_session *c, const unsigned char *bytes) {
	const struct gshare_header *h = (const void *)bytes;
	c->needs += h->type == GSHARE_NEED;
	c->byes += h->type == GSHARE_BYE;
	if (h->type != GSHARE_SNAPSHOT) return;
	c->snapshot_memory += ((const struct gshare_snapshot *)(h + 1))->memory;
	c->snapshots++;
}

struct arguments {
	struct server *s;
	int fd;
};

/* Serves one session. At a hang-up the client's memory is read by exchange and subtracted, as gshare_wire.h says. */
static void *serve(void *arg) {
	struct arguments a = *(struct arguments *)arg;
	_Alignas(8) unsigned char bytes[GSHARE_FRAME_MAX];
	free(arg);
	if (recv(a.fd, bytes, sizeof bytes, 0) <= 0) return close(a.fd), NULL;
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER; /* welcomed at a time: the number of sessions is the next one's place */
	pthread_mutex_lock(&one);
	struct server_session *c = &a.s->session[a.s->sessions];
	memcpy(&c->hello, bytes + sizeof(struct gshare_header), sizeof c->hello);
	c->fd = a.fd;
	c->connected = 1;
	int welcomed = send_welcome(a.s, c, a.fd);
	if (!welcomed) {
		c->connected = 0;
		a.s->sessions--;
	}
	pthread_mutex_unlock(&one);
	if (!welcomed) return close(a.fd), NULL;
	while (recv(a.fd, bytes, sizeof bytes, 0) > 0) count_frame(c, bytes);
	for (uint32_t i = 0; i < a.s->vgpus; i++) {
		c->container[i]->memory -= atomic_exchange(&c->client[i]->memory, 0);
		c->container[i]->imported -= atomic_exchange(&c->client[i]->imported, 0);
	}
	c->connected = 0;
	close(a.fd);
	return NULL;
}

/* Starts a detached thread. */
static void start_thread(void *(*run)(void *), void *arg) {
	pthread_t t;
	pthread_create(&t, NULL, run, arg);
	pthread_detach(t);
}

/* Accepts connections; one HELLO at a time, so that sessions are numbered in order. */
static void *listen_loop(void *arg) {
	struct server *s = arg;
	int listener = s->listener;
	for (int fd; (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
		int before = s->sessions;
		if (s->silent) {
			s->unanswered++;
			continue;
		}
		if (s->refuse) { /* at once, before HELLO is read, as the token server does */
			send_error(fd, s->refuse);
			close(fd);
			continue;
		}
		if (before == SERVER_SESSIONS) { /* a client that cannot read its welcome dials again and again */
			close(fd);
			continue;
		}
		struct arguments *a = malloc(sizeof *a);
		*a = (struct arguments){s, fd};
		start_thread(serve, a);
		for (int i = 0; i < 200 && s->sessions == before; i++) usleep(1000);
	}
	return NULL;
}

/* Writes a heartbeat on all pages every 50 ms. */
static void *send_heartbeats(void *arg) {
	struct server *s = arg;
	for (;; usleep(50000))
		for (int i = 0; s->heartbeats && i < s->sessions; i++)
			for (uint32_t v = 0; v < s->vgpus; v++) s->session[i].server[v]->heartbeat = server_now();
	return NULL;
}

void server_start(struct server *s) {
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int again = s->container[0] != NULL;
	if (!s->directory[0]) server_make_directory(s->directory);
	strcpy(at.sun_path, s->directory);
	strcat(at.sun_path, "/token.sock");
	unlink(at.sun_path);
	char processes[96];
	snprintf(processes, sizeof processes, "%s/processes-1", s->directory);
	close(open(processes, O_RDONLY | O_CREAT | O_CLOEXEC, 0444));
	setenv("GSHARE_DIR", s->directory, 1);
	if (!s->mode) s->mode = s->tokens ? GSHARE_MODE_BLOCKS : GSHARE_MODE_TIME;
	if (!s->vgpus) s->vgpus = 1;
	for (uint32_t i = 0; i < s->vgpus; i++) s->container[i] = create_page(&s->container_fd[i], 0);
	s->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (bind(s->listener, (struct sockaddr *)&at, sizeof at) || listen(s->listener, 64)) perror("listen");
	if (!again) start_thread(send_heartbeats, s);
	s->heartbeats = 1;
	start_thread(listen_loop, s);
}

void server_stop(struct server *s) {
	s->heartbeats = 0;
	shutdown(s->listener, SHUT_RDWR);
	close(s->listener);
	for (int i = 0; i < s->sessions; i++)
		if (s->session[i].connected) shutdown(s->session[i].fd, SHUT_RDWR);
}

void server_state(struct server_session *c, uint32_t state) {
	for (int i = 0; i < GSHARE_VGPU_MAX && c->server[i]; i++) {
		c->server[i]->state = state;
		c->server[i]->generation++;
		c->server[i]->wake++;
		syscall(SYS_futex, &c->server[i]->wake, FUTEX_WAKE, 1 << 20, NULL, NULL, 0);
	}
}
