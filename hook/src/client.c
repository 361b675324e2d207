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

#include "device.h"
#include "environment.h"
#include "file.h"
#include "frame.h"
#include "platform.h"

#define HOOK_VERSION 1
#define WELCOME_TIMEOUT 1000    /* ms */
#define MOUNTED "/run/gshare"   /* where a container's socket and policy are */
#define SOCKET "/token.sock"    /* in that directory */
#define STORES "/run/gshare-store" /* where a container has the sockets of model stores */

/* Guards the descriptor: a frame must not be sent to a descriptor that has been closed and whose number the application has reused. */
static pthread_mutex_t socket_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gsh_file connection = {-1, 0, 0};
static uint64_t session, generation, sequence; /* session and generation of the last WELCOME; frames sent since HELLO */

const char *gsh_directory_choose(const char *mounted, const char *own) {
	char path[256]; /* the mounted one has a short name */
	int n = snprintf(path, sizeof path, "%s/policy", mounted);
	return !own || (n < (int)sizeof path && access(path, F_OK) == 0) ? mounted : own;
}

const char *gsh_directory(void) {
	static const char *directory;
	static char own[4096];
	if (!directory) directory = gsh_directory_choose(MOUNTED, gsh_environment("GSHARE_DIR", own, sizeof own) ? own : NULL);
	return directory;
}

bool gsh_store_path(char *path, size_t size, uint32_t vgpu) {
	const char *own = gsh_directory();
	int n = strcmp(own, MOUNTED) ? snprintf(path, size, "%s/store-%u.sock", own, vgpu) : snprintf(path, size, STORES "/%u/store.sock", vgpu);
	return n > 0 && (size_t)n < size;
}

uint64_t gsh_client_jitter(void) { return (uint64_t)getpid() * 0x9e3779b97f4a7c15ull; }

/* Moves a descriptor from 0 to 2, where it would receive the application's output, to a higher number. Returns it, or -1. */
static int move_above_stdio(int fd) {
	if (fd < 0 || fd > 2) return fd;
	int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	close(fd);
	return moved;
}

/*
 * Reports whether a descriptor is connected to a token server. GSHARE_FD stays set after the descriptor is closed, and
 * its number may then belong to a socket of the application.
 */
static bool is_token_socket(int fd) {
	struct sockaddr_un peer = {0};
	socklen_t size = sizeof peer - 1, end = sizeof SOCKET - 1;
	int type = 0;
	socklen_t type_size = sizeof type;
	if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_size) || type != SOCK_SEQPACKET) return false;
	if (getpeername(fd, (struct sockaddr *)&peer, &size) || peer.sun_family != AF_UNIX) return false;
	size_t length = strlen(peer.sun_path);
	return length >= end && !strcmp(peer.sun_path + length - end, SOCKET);
}

/* Returns the connected socket that `gshare run` passed on, or -1. Only the first connection uses it, and none in a container. */
static int inherited_socket(void) {
	static bool looked;
	char text[16];
	if (looked || !strcmp(gsh_directory(), MOUNTED)) return -1;
	looked = true;
	int fd = gsh_environment("GSHARE_FD", text, sizeof text) ? atoi(text) : -1;
	if (fd < 3 || !is_token_socket(fd)) return -1;
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
}

/* Connects to the socket in the directory. Returns a descriptor or a negative errno. */
static int dial(void) {
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path, sizeof to.sun_path, "%s" SOCKET, gsh_directory());
	if (n < 0 || n >= (int)sizeof to.sun_path) return -ENAMETOOLONG;
	int fd = move_above_stdio(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (fd < 0) return -errno;
	struct timeval second = {1, 0};
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
	int r;
	while ((r = connect(fd, (struct sockaddr *)&to, sizeof to)) && errno == EINTR) continue;
	if (!r) return fd;
	int e = errno;
	close(fd);
	return -e;
}

/* Adds the UUIDs of all visible devices to a HELLO. */
static void add_devices(struct gsh_frame *f) {
	int devices = 0;
	CALL(cuDeviceGetCount, &devices);
	for (CUdevice d = 0; d < devices && d < GSHARE_VGPU_MAX; d++) {
		char uuid[GSHARE_UUID_SIZE];
		if (gsh_device_uuid(d, uuid)) gsh_frame_tlv(f, GSHARE_TLV_DEVICE, uuid, strlen(uuid));
	}
}

/* Ends a frame and sends it without waiting. Returns 0 or a negative errno. */
static int send_frame(int fd, struct gsh_frame *f, uint64_t server_generation) {
	gsh_frame_end(f, ++sequence, server_generation);
	return gsh_send(fd, f->bytes, f->length);
}

/* Sends HELLO, with the previous session if this is a reconnect. Returns 0 or a negative errno. */
static int send_hello(int fd) {
	int driver = 0;
	CALL(cuDriverGetVersion, &driver);
	struct gshare_hello h = {HOOK_VERSION, (uint32_t)getpid(), (uint32_t)driver, GSHARE_KNOWS_BLOCKS};
	static struct gsh_frame f; /* not on the stack, which may have 16 KiB; one thread at a time connects */
	gsh_frame_begin(&f, GSHARE_HELLO, &h, sizeof h);
	if (session) gsh_frame_tlv(&f, GSHARE_TLV_SESSION, &session, sizeof session);
	add_devices(&f);
	sequence = 0;
	return send_frame(fd, &f, 0);
}

/* Tells the server that this process did not get its WELCOME, so that it can say why the process has nothing. */
static void send_bye(int fd) {
	static struct gsh_frame f; /* as in send_hello */
	gsh_frame_begin(&f, GSHARE_BYE, NULL, 0);
	send_frame(fd, &f, 0);
}

/* Copies the descriptors of a message and closes those beyond `most`. Returns how many were copied. */
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

/* Reports whether all pages of a WELCOME are valid. All are checked before the first is mapped, so that all are mapped or none. */
static bool pages_valid(const struct gsh_welcome *w, const int *fds) {
	bool valid = true;
	for (uint32_t i = 0; i < w->vgpus; i++) valid = valid && gsh_pages_valid(fds + 3 * i);
	return valid;
}

/*
 * Makes the session of a WELCOME the current one and maps its pages. Returns 0 or a negative errno, such as when the
 * program has no mappings left.
 */
static int apply_welcome(const struct gsh_welcome *w, const int *fds) {
	int r = 0;
	session = w->session;
	generation = w->generation;
	for (uint32_t i = 0; i < w->vgpus; i++) {
		struct gsh_vgpu *v = &gsh_vgpus[i];
		memcpy(v->uuid, w->vgpu[i].uuid, sizeof v->uuid);
		v->index = w->vgpu[i].index;
		if (!r) r = gsh_pages_map(v, fds + 3 * i);
	}
	atomic_store(&gsh_vgpu_count, w->vgpus);
	atomic_store(&gsh_mode, w->mode);
	return r;
}

/* Waits for a WELCOME and applies it. Returns 0 or a negative errno. Closes all descriptors that came with it. */
static int receive_welcome(int fd) {
	struct pollfd p = {fd, POLLIN, 0};
	uint64_t deadline = gsh_now() + WELCOME_TIMEOUT * GSH_MILLISECOND, now;
	int ready = 0;
	while (ready <= 0 && (now = gsh_now()) < deadline) { /* a simulated clock may stand still while poll's does not */
		ready = poll(&p, 1, (int)((deadline - now) / GSH_MILLISECOND + 1));
		if (ready < 0 && errno != EINTR) break;
	}
	if (ready != 1) return -ETIMEDOUT;
	static _Alignas(8) unsigned char bytes[GSHARE_FRAME_MAX + 1]; /* one thread connects at a time */
	static _Alignas(struct cmsghdr) char control[CMSG_SPACE(3 * GSHARE_VGPU_MAX * sizeof(int))];
	struct iovec io = {bytes, sizeof bytes};
	struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	ssize_t n;
	bool reset = false; /* by a server that had not read HELLO; what it sent before that can still be received */
	while ((n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC)) < 0 && (errno == EINTR || (errno == ECONNRESET && !reset))) reset = errno == ECONNRESET;
	if (n <= 0) return n < 0 ? -errno : -EPIPE;
	int fds[3 * GSHARE_VGPU_MAX], got = take_descriptors(&m, fds, 3 * GSHARE_VGPU_MAX);
	struct gsh_welcome w;
	int error = gsh_error_parse(bytes, (size_t)n);
	bool valid = !error && gsh_welcome_parse(bytes, (size_t)n, &w) && got == (int)(3 * w.vgpus) && pages_valid(&w, fds);
	int r = valid ? apply_welcome(&w, fds) : error ? -error : -EPROTO;
	for (int i = 0; i < got; i++) close(fds[i]);
	return r;
}

static struct gsh_frame outgoing; /* guarded by socket_lock; not on the stack, as threads that launch may have 16 KiB of it */

/* Sends a SNAPSHOT of what this process holds on a vGPU. The caller holds the lock. */
static void send_snapshot(int fd, struct gsh_vgpu *v) {
	struct gshare_snapshot s = {v->number, 0, atomic_load(&v->memory), atomic_load(&v->busy)};
	gsh_frame_begin(&outgoing, GSHARE_SNAPSHOT, &s, sizeof s);
	send_frame(fd, &outgoing, generation);
}

/* Makes fd the connection. After a reconnect it sends snapshots, then requests the tokens that threads still wait for. */
static void install_connection(int fd, bool again) {
	pthread_mutex_lock(&socket_lock);
	connection = gsh_file_of(fd);
	for (uint32_t i = 0; again && i < atomic_load(&gsh_vgpu_count); i++) send_snapshot(fd, &gsh_vgpus[i]);
	pthread_mutex_unlock(&socket_lock);
	for (uint32_t i = 0; again && i < atomic_load(&gsh_vgpu_count); i++)
		if (atomic_load(&gsh_vgpus[i].waiting)) gsh_client_request_token(&gsh_vgpus[i]);
}

int gsh_client_connect(void) {
	bool again = session != 0;
	int fd = inherited_socket();
	if (fd < 0) fd = dial();
	/* A refusal ends with the server. Any other failure is this process's own, such as no descriptors left, or a full backlog. */
	if (fd == -ECONNREFUSED || fd == -ENOENT) atomic_store(&gsh_refused, false);
	if (fd < 0) return fd;
	int r = send_hello(fd);
	if (!r || r == -EPIPE) r = receive_welcome(fd); /* EPIPE: the server has closed the connection, but may have sent the reason */
	if (!r || r == -EAGAIN || r == -EPERM || r == -EACCES) atomic_store(&gsh_refused, r != 0); /* else it said neither yes nor no */
	if (!r) {
		install_connection(fd, again);
		return 0;
	}
	send_bye(fd);
	close(fd);
	return r;
}

/* Closes the connection. */
static void disconnect(void) {
	pthread_mutex_lock(&socket_lock);
	gsh_file_close(&connection);
	pthread_mutex_unlock(&socket_lock);
}

/* After WELCOME the server sends nothing but the reason for closing the connection. */
bool gsh_client_alive(void) {
	char byte;
	if (gsh_file_valid(&connection) && recv(connection.fd, &byte, 1, MSG_DONTWAIT) < 0 && (errno == EAGAIN || errno == EINTR))
		return true;
	disconnect();
	return false;
}

bool gsh_client_request_token(struct gsh_vgpu *v) {
	struct gshare_need need = {v->number, 0, 0, atomic_load(&v->waiting_since)};
	pthread_mutex_lock(&socket_lock);
	gsh_frame_begin(&outgoing, GSHARE_NEED, &need, sizeof need);
	bool sent = gsh_file_valid(&connection) && send_frame(connection.fd, &outgoing, generation) == 0;
	pthread_mutex_unlock(&socket_lock);
	return sent;
}

void gsh_client_after_fork(void) {
	pthread_mutex_init(&socket_lock, NULL);
	gsh_file_close(&connection);
	session = generation = sequence = 0;
}
