/*
 * NVIDIA's MPS without a GPU: the control daemon (-d), its server, and the program that gives the daemon commands from its standard
 * input. mps.c of the fake driver is the client.
 *
 * Signals make it fail as the real one does: SIGKILL of the daemon or the server, SIGSTOP of the daemon (it hangs), and SIGUSR1 to
 * the server (a fault: all clients get an error, and no new one is served until they have ended). Both end when their pipe
 * directory is gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 60, ERROR_FAULT = 719, ERROR_TERMINATED = 810 };

static struct { int socket; pid_t pid; } clients[CLIENTS];
static int count, multiuser;
static pid_t server;
static volatile sig_atomic_t fault;
static char self[4096];

static struct sockaddr_un named(const char *name)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if ((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir ? dir : "/tmp/nvidia-mps", name) >= sizeof a.sun_path) {
		fprintf(stderr, "the pipe directory has too long a name\n");
		exit(1);
	}
	return a;
}

static int dial(const char *name)
{
	struct sockaddr_un a = named(name);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(s, (struct sockaddr *)&a, sizeof a) == 0)
		return s;
	close(s);
	return -1;
}

static int serve(const char *name)
{
	struct sockaddr_un a = named(name);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlink(a.sun_path);
	if (bind(s, (struct sockaddr *)&a, sizeof a) || chmod(a.sun_path, 0666) || listen(s, 64)) {
		perror(a.sun_path);
		exit(1);
	}
	return s;
}

/* Gives an answer of one packet; empty where nobody answers. */
static void ask(const char *name, const char *text, char *answer, size_t room)
{
	int s = dial(name);
	answer[0] = 0;
	if (s < 0)
		return;
	ssize_t n = send(s, text, strlen(text) + 1, MSG_NOSIGNAL) < 0 ? 0 : recv(s, answer, room - 1, 0);
	answer[n > 0 ? n : 0] = 0;
	close(s);
}

static void reply(int s, const char *text) { send(s, text, strlen(text) + 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

static int read_command(int s, char *text, size_t room)
{
	ssize_t n = recv(s, text, room - 1, 0);
	text[n > 0 ? n : 0] = 0;
	return n > 0;
}

static pid_t peer(int s)
{
	struct ucred who = {0};
	socklen_t length = sizeof who;
	getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &length);
	return who.pid;
}

/* The server. */

static void drop(int i)
{
	close(clients[i].socket);
	clients[i] = clients[--count];
}

static void tell(int i, int error)
{
	char text[16];
	snprintf(text, sizeof text, "%d", error);
	reply(clients[i].socket, text);
}

static void join_server(int s)
{
	if (fault || count == CLIENTS) {
		reply(s, fault ? "807" : "808");
		close(s);
		return;
	}
	clients[count].socket = s;
	clients[count++].pid = peer(s);
	reply(s, "0");
}

static void order(int s, const char *text)
{
	char answer[CLIENTS * 12 + 1] = "";
	int pid;
	if (strcmp(text, "hello") == 0) {
		join_server(s);
		return;
	}
	if (strcmp(text, "status") == 0)
		strcpy(answer, fault ? "FAULT\n" : "ACTIVE\n");
	else if (strcmp(text, "list") == 0)
		for (int i = 0; i < count; i++)
			sprintf(answer + strlen(answer), "%d\n", clients[i].pid);
	else if (sscanf(text, "end %d", &pid) == 1)
		for (int i = count - 1; i >= 0; i--)
			if (clients[i].pid == pid) {
				tell(i, ERROR_TERMINATED);
				drop(i);
			}
	reply(s, answer[0] ? answer : " ");
	close(s);
}

static void on_fault(int number) { (void)number; fault = 2; }

static void be_server(void)
{
	int door = serve("server");
	struct sockaddr_un a = named("server");
	signal(SIGUSR1, on_fault);
	while (access(a.sun_path, F_OK) == 0) {
		struct pollfd f[CLIENTS + 1] = {{.fd = door, .events = POLLIN}};
		int before = count;
		for (int i = 0; i < before; i++)
			f[i + 1] = (struct pollfd){.fd = clients[i].socket, .events = POLLIN};
		int ready = poll(f, (nfds_t)before + 1, 500);
		if (fault == 2) {
			fault = 1;
			for (int i = 0; i < count; i++)
				tell(i, ERROR_FAULT);
		}
		for (int i = before - 1; ready > 0 && i >= 0; i--)
			if (f[i + 1].revents)
				drop(i); /* a client says nothing after its first word */
		if (count == 0)
			fault = 0;
		char text[256];
		int s = ready > 0 && f[0].revents ? accept4(door, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (s >= 0 && read_command(s, text, sizeof text))
			order(s, text);
		else if (s >= 0)
			close(s);
	}
	exit(0);
}

/* The daemon. */

static int alive(void)
{
	if (server && waitpid(server, NULL, WNOHANG) == server)
		server = 0;
	return server != 0;
}

static void start_server(void)
{
	char name[4200], answer[16] = "";
	snprintf(name, sizeof name, "%s/nvidia-cuda-mps-server", self);
	if ((server = fork()) == 0) {
		execl(name, name, (char *)NULL);
		_exit(1);
	}
	while (!answer[0] && alive()) {
		usleep(1000);
		ask("server", "status", answer, sizeof answer);
	}
}

static void client(int s)
{
	struct ucred who = {0};
	socklen_t length = sizeof who;
	getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &length);
	if (!multiuser && who.uid != getuid()) {
		reply(s, "wait"); /* for the other user to leave */
		return;
	}
	if (!alive())
		start_server();
	reply(s, "ok");
}

static void obey(int s, const char *text, int door)
{
	char answer[1024] = "", to[64];
	int pid, of;
	if (strcmp(text, "client") == 0) {
		client(s);
		return;
	}
	if (strcmp(text, "get_server_list") == 0 && alive())
		snprintf(answer, sizeof answer, "%d\n", server);
	else if (sscanf(text, "get_server_status %d", &pid) == 1 && alive() && pid == server)
		ask("server", "status", answer, sizeof answer);
	else if (sscanf(text, "get_client_list %d", &pid) == 1 && alive() && pid == server)
		ask("server", "list", answer, sizeof answer);
	else if (sscanf(text, "terminate_client %d %d", &pid, &of) == 2 && alive() && pid == server) {
		snprintf(to, sizeof to, "end %d", of);
		ask("server", to, answer, sizeof answer);
	} else if (strncmp(text, "quit", 4) == 0) {
		if (alive())
			kill(server, SIGKILL);
		unlink(named("control").sun_path);
		reply(s, " ");
		close(door);
		exit(0);
	}
	reply(s, answer[0] ? answer : " ");
}

static void be_daemon(void)
{
	int there = dial("control");
	if (there >= 0) {
		fprintf(stderr, "An instance of this daemon is already running\n");
		exit(1);
	}
	int door = serve("control");
	struct sockaddr_un a = named("control");
	if (fork() != 0)
		_exit(0);
	setsid();
	if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
		exit(1);
	while (access(a.sun_path, F_OK) == 0) {
		struct pollfd f = {.fd = door, .events = POLLIN};
		char text[256];
		int s = poll(&f, 1, 500) > 0 ? accept4(door, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (s < 0)
			continue;
		if (read_command(s, text, sizeof text))
			obey(s, text, door);
		close(s);
	}
	exit(0);
}

/* The program for commands. */

static int give_commands(void)
{
	char line[256], answer[4096];
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		ask("control", line, answer, sizeof answer);
		if (!answer[0]) {
			fprintf(stderr, "Cannot find MPS control daemon process\n");
			return 1;
		}
		if (strcmp(answer, " ") != 0)
			fputs(answer, stdout);
	}
	return 0;
}

int main(int n, char **arguments)
{
	int daemon = 0;
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	if (length < 0)
		return 1;
	self[length] = 0;
	char *slash = strrchr(self, '/');
	if (strcmp(slash, "/nvidia-cuda-mps-server") == 0)
		be_server();
	*slash = 0;
	for (int i = 1; i < n; i++) {
		daemon |= strcmp(arguments[i], "-d") == 0;
		multiuser |= strcmp(arguments[i], "-multiuser-server") == 0;
	}
	if (daemon)
		be_daemon();
	return give_commands();
}
