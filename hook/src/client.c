#define _GNU_SOURCE
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "frame.h"
#include "place.h"
#include "platform.h"

#define HOOK_VERSION 1
#define ANSWER_TIME 1000 /* ms for a WELCOME */

/* Guards the descriptor: nobody may send into a number that was closed and given to the application's next file. */
static pthread_mutex_t socket_lock = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static uint64_t session, generation, sequence;

#define MOUNTED "/run/gshare"

const char *gsh_directory_of(const char *mounted, const char *own) {
	char path[4096];
	int n = snprintf(path, sizeof path, "%s/policy", mounted);
	return !own || (n < (int)sizeof path && access(path, F_OK) == 0) ? mounted : own;
}

const char *gsh_directory(void) {
	static const char *directory;
	if (!directory) directory = gsh_directory_of(MOUNTED, getenv("GSHARE_DIR"));
	return directory;
}

uint64_t gsh_client_salt(void) { return (uint64_t)getpid() * 0x9e3779b97f4a7c15ull; }

/* A descriptor among the standard ones would get the application's output. */
static int above_standard(int fd) {
	if (fd < 0 || fd > 2) return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	close(fd);
	return moved;
}

#define SOCKET "/token.sock"

/* The variable outlives the descriptor, whose number the application may have given to a socket of its own. */
static bool to_server(int fd) {
	struct sockaddr_un peer = {0};
	socklen_t size = sizeof peer - 1, end = sizeof SOCKET - 1;
	int type = 0;
	socklen_t type_size = sizeof type;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_SEQPACKET) return false;
	if (getpeername(fd, (struct sockaddr *)&peer, &size) || peer.sun_family != AF_UNIX) return false;
	size_t length = strlen(peer.sun_path);
	return length >= end && !strcmp(peer.sun_path + length - end, SOCKET);
}

/* The connected socket that `gshare run` left us; only the first in this process gets it, and nobody in a container. */
static int inherited(void) {
	static bool taken;
	const char *text = getenv("GSHARE_FD");
	int fd = text ? atoi(text) : -1;
	if (taken || fd < 3 || !strcmp(gsh_directory(), MOUNTED) || !to_server(fd)) return -1;
	taken = true;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

static int dial(void) {
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path, sizeof to.sun_path, "%s" SOCKET, gsh_directory());
	if (n < 0 || n >= (int)sizeof to.sun_path) return -ENAMETOOLONG;
	int fd = above_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (fd < 0) return -errno;
	struct timeval second = {1, 0};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) return fd;
	int e = errno;
	close(fd);
	return -e;
}

static void add_devices(struct gsh_frame *f) {
	int devices = 0;
	CALL(cuDeviceGetCount, &devices);
	for (CUdevice d = 0; d < devices && d < GSHARE_VGPU_MAX; d++) {
		char uuid[GSHARE_UUID_SIZE];
		if (gsh_device_uuid(d, uuid)) gsh_frame_tlv(f, GSHARE_TLV_DEVICE, uuid, strlen(uuid));
	}
}

static int send_frame(int fd, struct gsh_frame *f, uint64_t of) {
	gsh_frame_end(f, ++sequence, of);
	return gsh_send(fd, f->bytes, f->length);
}

static int hello(int fd) {
	int driver = 0;
	CALL(cuDriverGetVersion, &driver);
	struct gshare_hello h = {HOOK_VERSION, (uint32_t)getpid(), (uint32_t)driver, GSHARE_KNOWS_BLOCKS};
	struct gsh_frame f;
	gsh_frame_begin(&f, GSHARE_HELLO, &h, sizeof h);
	if (session) gsh_frame_tlv(&f, GSHARE_TLV_SESSION, &session, sizeof session);
	add_devices(&f);
	sequence = 0;
	return send_frame(fd, &f, 0);
}

static int take_descriptors(struct msghdr *m, int *fds, int most) {
	int n = 0;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
		int count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)), fd;
		for (int i = 0; i < count; i++) {
			memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
			if (n < most)
				fds[n++] = fd;
			else
				close(fd);
		}
	}
	return n;
}

/* All are looked at before the first is used: half a WELCOME would leave pages of two servers. */
static bool good_pages(const struct gsh_welcome *w, const int *fds) {
	bool good = true;
	for (uint32_t i = 0; i < w->vgpus; i++) good = good && gsh_pages_good(fds + 3 * i);
	return good;
}

static void take_over(const struct gsh_welcome *w, const int *fds) {
	session = w->session;
	generation = w->generation;
	for (uint32_t i = 0; i < w->vgpus; i++) {
		struct gsh_vgpu *v = &gsh_vgpus[i];
		memcpy(v->uuid, w->vgpu[i].uuid, sizeof v->uuid);
		v->index = w->vgpu[i].index;
		gsh_pages_map(v, fds + 3 * i);
	}
	atomic_store(&gsh_vgpu_count, w->vgpus);
	atomic_store(&gsh_mode, w->mode);
}

static int welcome(int fd) {
	struct pollfd p = {fd, POLLIN, 0};
	if (poll(&p, 1, ANSWER_TIME) != 1) return -ETIMEDOUT;
	static _Alignas(8) unsigned char bytes[GSHARE_FRAME_MAX + 1]; /* one thread connects at a time */
	static _Alignas(struct cmsghdr) char control[CMSG_SPACE(3 * GSHARE_VGPU_MAX * sizeof(int))];
	struct iovec io = {bytes, sizeof bytes};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	ssize_t n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	if (n <= 0) return n < 0 ? -errno : -EPIPE;
	int fds[3 * GSHARE_VGPU_MAX], got = take_descriptors(&m, fds, 3 * GSHARE_VGPU_MAX);
	struct gsh_welcome w;
	bool good = gsh_welcome_parse(bytes, (size_t)n, &w) && got == (int)(3 * w.vgpus) && good_pages(&w, fds);
	if (good) take_over(&w, fds);
	for (int i = 0; i < got; i++) close(fds[i]);
	return good ? 0 : -EPROTO;
}

static void snapshot(int fd, struct gsh_vgpu *v) {
	struct gshare_snapshot s = {v->number, 0, atomic_load(&v->memory), atomic_load(&v->busy)};
	struct gsh_frame f;
	gsh_frame_begin(&f, GSHARE_SNAPSHOT, &s, sizeof s);
	send_frame(fd, &f, generation);
}

static void adopt(int fd, bool again) {
	pthread_mutex_lock(&socket_lock);
	connection = fd;
	for (uint32_t i = 0; again && i < atomic_load(&gsh_vgpu_count); i++) snapshot(fd, &gsh_vgpus[i]);
	pthread_mutex_unlock(&socket_lock);
	for (uint32_t i = 0; again && i < atomic_load(&gsh_vgpu_count); i++)
		if (atomic_load(&gsh_vgpus[i].waiting)) gsh_client_need(&gsh_vgpus[i]);
}

int gsh_client_connect(void) {
	bool again = session != 0;
	int fd = inherited();
	if (fd < 0) fd = dial();
	if (fd < 0) return fd;
	int r = hello(fd);
	if (!r) r = welcome(fd);
	if (r)
		close(fd);
	else
		adopt(fd, again);
	return r;
}

static void hang_up(void) {
	pthread_mutex_lock(&socket_lock);
	if (connection >= 0) close(connection);
	connection = -1;
	pthread_mutex_unlock(&socket_lock);
}

/* The server sends nothing after WELCOME but the reason for an end. */
bool gsh_client_alive(void) {
	char byte;
	if (connection < 0) return false;
	if (recv(connection, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR)) return true;
	hang_up();
	return false;
}

bool gsh_client_need(struct gsh_vgpu *v) {
	struct gshare_need need = {v->number, 0, 0, atomic_load(&v->waiting_since)};
	struct gsh_frame f;
	gsh_frame_begin(&f, GSHARE_NEED, &need, sizeof need);
	pthread_mutex_lock(&socket_lock);
	bool sent = connection >= 0 && send_frame(connection, &f, generation) == 0;
	pthread_mutex_unlock(&socket_lock);
	return sent;
}

void gsh_client_bye(void) {
	struct gsh_frame f;
	gsh_frame_begin(&f, GSHARE_BYE, NULL, 0);
	pthread_mutex_lock(&socket_lock);
	if (connection >= 0) send_frame(connection, &f, generation);
	pthread_mutex_unlock(&socket_lock);
}

/* The child's copy of the socket must not keep its parent's session alive. */
void gsh_client_fork(void) {
	pthread_mutex_init(&socket_lock, NULL);
	if (connection >= 0) close(connection);
	connection = -1;
	session = generation = sequence = 0;
}
