/*
 * NVIDIA's MPS without a GPU: the control daemon (-d), its server, and the program that sends commands to the daemon, from its
 * standard input or, with version 3 (-p 3, of drivers from 615: -DDRIVER=615), from its arguments. The client is mps.c of the
 * fake driver. Drivers before 555 (-DDRIVER=535) do not know -multiuser-server and take themselves for the program that sends
 * commands; their daemon serves the clients of one user at a time. Those before 550 do not know get_server_status.
 *
 * Signals make it fail as the real one does: SIGKILL of the daemon or the server, SIGSTOP of the daemon (it hangs), and SIGUSR1
 * to the server (a fault: all clients get an error, and new ones are refused until they have ended). Commands of version 3
 * that begin with the contents of the file "refuse" in the log directory are refused. Daemon and server end when their pipe
 * directory is removed.
 *
 * Version 3 supports one named server and its namespaces. A client that connects in a namespace's directory gets its limits;
 * one that connects in the daemon's directory gets none, as from the server that the real daemon starts for each user.
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

enum { CLIENTS = 60, SPACES = 64, NAME = 65, ANSWER = 16384, ERROR_FAULT = 719, ERROR_TERMINATED = 810 };
#ifndef DRIVER
#define DRIVER 580
#endif

static struct { int socket; pid_t pid; char space[NAME]; } clients[CLIENTS];
static int count, multiuser, protocol = 2;
static pid_t server;
static volatile sig_atomic_t fault;
static char self[4096];

/* Returns the address of a socket in the pipe directory. */
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

/* Connects to a socket. Returns a descriptor or -1. */
static int dial(const char *name)
{
	struct sockaddr_un a = named(name);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(s, (struct sockaddr *)&a, sizeof a) == 0)
		return s;
	close(s);
	return -1;
}

/* Listens on a socket. Returns its descriptor. */
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

/* Sends a message and stores the reply, which is empty if there is none. */
static void ask(const char *name, const char *text, char *answer, size_t size)
{
	int s = dial(name);
	answer[0] = 0;
	if (s < 0)
		return;
	ssize_t n = send(s, text, strlen(text) + 1, MSG_NOSIGNAL) < 0 ? 0 : recv(s, answer, size - 1, 0);
	answer[n > 0 ? n : 0] = 0;
	close(s);
}

static void reply(int s, const char *text) { send(s, text, strlen(text) + 1, MSG_NOSIGNAL | MSG_DONTWAIT); }

/* Receives a command and the descriptor passed with it, or -1. Returns 0 at the end of the connection. */
static int read_with(int s, char *text, size_t size, int *passed)
{
	char space[CMSG_SPACE(sizeof(int))];
	struct iovec part = {text, size - 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	ssize_t n = recvmsg(s, &m, MSG_CMSG_CLOEXEC);
	text[n > 0 ? n : 0] = 0;
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	*passed = -1;
	if (c && c->cmsg_type == SCM_RIGHTS)
		memcpy(passed, CMSG_DATA(c), sizeof *passed);
	return n > 0;
}

/* Receives a command. */
static int read_command(int s, char *text, size_t size)
{
	int none;
	return read_with(s, text, size, &none);
}

/* Returns the process at the other end. */
static pid_t peer(int s)
{
	struct ucred who = {0};
	socklen_t length = sizeof who;
	getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &length);
	return who.pid;
}

/* The server. */

/* Closes a client's connection. */
static void drop(int i)
{
	close(clients[i].socket);
	clients[i] = clients[--count];
}

/* Sends an error to a client. */
static void send_error(int i, int error)
{
	char text[16];
	snprintf(text, sizeof text, "%d", error);
	reply(clients[i].socket, text);
}

/* Adds a client, or refuses it. */
static void join_server(int s, const char *space, const char *welcome)
{
	if (fault || count == CLIENTS) {
		reply(s, fault ? "807" : "808");
		close(s);
		return;
	}
	clients[count].socket = s;
	snprintf(clients[count].space, NAME, "%s", space);
	clients[count++].pid = peer(s);
	reply(s, welcome);
}

/* Adds a client of version 3, whose connection the daemon passed with "join NAMESPACE PERCENT BYTES". */
static void join_space(int s, const char *text)
{
	char space[NAME] = "", welcome[96] = "0";
	double percent = 0;
	unsigned long long bytes = 0;
	sscanf(text, "join %64s %lf %llu", space, &percent, &bytes);
	snprintf(welcome, sizeof welcome, "limits %g %llu", percent, bytes);
	join_server(s, space, welcome);
}

/* Writes the list of clients, in the format of version 3 if a server is named. */
static void list_clients(char *answer, const char *server)
{
	for (int i = 0; i < count; i++)
		if (server)
			sprintf(answer + strlen(answer), "%d,%s,0,%s,client\n", clients[i].pid, server, clients[i].space);
		else
			sprintf(answer + strlen(answer), "%d\n", clients[i].pid);
}

/* Executes a message of the daemon or a client. */
static void execute_message(int s, const char *text)
{
	static char answer[ANSWER];
	char server[NAME];
	int pid;
	answer[0] = 0;
	if (strcmp(text, "hello") == 0) {
		join_server(s, "", "0");
		return;
	}
	if (strcmp(text, "status") == 0)
		strcpy(answer, fault ? "FAULT\n" : "ACTIVE\n");
	else if (strcmp(text, "list") == 0)
		list_clients(answer, NULL);
	else if (sscanf(text, "list %64s", server) == 1)
		list_clients(answer, server);
	else if (sscanf(text, "end %d", &pid) == 1)
		for (int i = count - 1; i >= 0; i--)
			if (clients[i].pid == pid) {
				send_error(i, ERROR_TERMINATED);
				drop(i);
			}
	reply(s, answer[0] ? answer : " ");
	close(s);
}

static void on_fault(int number) { (void)number; fault = 2; }

/* Main function of the server. */
static void run_server(void)
{
	char name[NAME + 8];
	const char *own = getenv("FAKE_MPS_SERVER");
	snprintf(name, sizeof name, own ? "%s/server" : "server", own);
	int listener = serve(name), passed;
	struct sockaddr_un a = named(name);
	signal(SIGUSR1, on_fault);
	while (access(a.sun_path, F_OK) == 0) {
		struct pollfd f[CLIENTS + 1] = {{.fd = listener, .events = POLLIN}};
		int before = count;
		for (int i = 0; i < before; i++)
			f[i + 1] = (struct pollfd){.fd = clients[i].socket, .events = POLLIN};
		int ready = poll(f, (nfds_t)before + 1, 500);
		if (fault == 2) {
			fault = 1;
			for (int i = 0; i < count; i++)
				send_error(i, ERROR_FAULT);
		}
		for (int i = before - 1; ready > 0 && i >= 0; i--)
			if (f[i + 1].revents)
				drop(i); /* a client sends only one message, so this is its end */
		if (count == 0)
			fault = 0;
		char text[256];
		int s = ready > 0 && f[0].revents ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (s >= 0 && read_with(s, text, sizeof text, &passed)) {
			if (passed >= 0)
				join_space(passed, text), close(s);
			else
				execute_message(s, text);
		} else if (s >= 0)
			close(s);
	}
	exit(0);
}

/* The daemon. */

/* Reports whether the server runs. */
static int alive(void)
{
	if (server && waitpid(server, NULL, WNOHANG) == server)
		server = 0;
	return server != 0;
}

/* Starts the server and waits until it replies. */
static void start_server(const char *own)
{
	char name[4200], listener[NAME + 8], answer[16] = "";
	snprintf(name, sizeof name, "%s/nvidia-cuda-mps-server", self);
	snprintf(listener, sizeof listener, own ? "%s/server" : "server", own);
	if ((server = fork()) == 0) {
		if (own)
			setenv("FAKE_MPS_SERVER", own, 1);
		execl(name, name, (char *)NULL);
		_exit(1);
	}
	while (!answer[0] && alive()) {
		usleep(1000);
		ask(listener, "status", answer, sizeof answer);
	}
}

/*
 * Reports whether a client belongs to another user than the present clients, and has to wait for their end. Otherwise its user
 * becomes the present one; the server of the last one is ended.
 */
static int other_user(int s)
{
	static uid_t user;
	struct ucred who = {0};
	socklen_t length = sizeof who;
	char present[ANSWER] = "";
	getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &length);
	if (multiuser || (alive() && who.uid == user))
		return 0;
	if (alive())
		ask("server", "list", present, sizeof present);
	if (strpbrk(present, "0123456789"))
		return 1;
	if (alive()) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
		server = 0;
	}
	user = who.uid;
	return 0;
}

/* Admits a client of version 2. */
static void client(int s)
{
	if (other_user(s)) {
		reply(s, "wait"); /* until the present user has no clients */
		return;
	}
	char answer[16] = "";
	if (alive())
		ask("server", "status", answer, sizeof answer);
	if (alive() && !answer[0]) { /* the server is ending */
		waitpid(server, NULL, 0);
		server = 0;
	}
	if (!alive())
		start_server(NULL);
	reply(s, "ok");
}

/* Executes a command of version 2, from which 3 inherits "quit". */
static void execute(int s, const char *text, int listener)
{
	static char answer[ANSWER];
	char to[64];
	int pid, of;
	answer[0] = 0;
	if (strcmp(text, "client") == 0) {
		client(s);
		return;
	}
	if (strcmp(text, "get_server_list") == 0 && alive())
		snprintf(answer, sizeof answer, "%d\n", server);
	else if (DRIVER < 550 && strncmp(text, "get_server_status", 17) == 0)
		snprintf(answer, sizeof answer, "Unknown command \"get_server_status\"\n");
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
		close(listener);
		exit(0);
	}
	reply(s, answer[0] ? answer : " ");
}

#include "mps-version3.h"

/* Main function of the daemon. */
static void run_daemon(void)
{
	int there = dial("control");
	if (there >= 0) {
		fprintf(stderr, "An instance of this daemon is already running\n");
		exit(1);
	}
	int listener = serve("control");
	struct sockaddr_un a = named("control");
	if (fork() != 0)
		_exit(0);
	setsid();
	if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
		exit(1);
	while (access(a.sun_path, F_OK) == 0) {
		struct pollfd f[SPACES + 1] = {{.fd = listener, .events = POLLIN}};
		char text[512];
		for (int i = 0; i < space_count; i++)
			f[i + 1] = (struct pollfd){.fd = spaces[i].listener, .events = POLLIN};
		int ready = poll(f, (nfds_t)space_count + 1, 500);
		for (int i = space_count; ready > 0 && i > 0; i--)
			if (f[i].revents)
				accept_client(&spaces[i - 1]);
		int s = ready > 0 && f[0].revents ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
		if (s < 0)
			continue;
		if (read_command(s, text, sizeof text))
			protocol == 3 ? execute3(s, text, listener) : execute(s, text, listener);
		close(s);
	}
	exit(0);
}

/* The program for commands. */

/* Sends a command and prints the reply. Returns the exit code. */
static int send_command(const char *line)
{
	static char answer[ANSWER];
	ask("control", line, answer, sizeof answer);
	if (!answer[0] || answer[0] == '!') {
		fprintf(stderr, "%s\n", answer[0] ? answer + 1 : "Cannot find MPS control daemon process");
		return 1;
	}
	if (strcmp(answer, " ") != 0)
		fputs(answer, stdout);
	return 0;
}

/* Sends the commands of the standard input. */
static int send_commands(void)
{
	char line[256];
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (send_command(line))
			return 1;
	}
	return 0;
}

static int help(void)
{
	puts(protocol == 3 ? "Usage: nvidia-cuda-mps-control <module> <verb>; modules: server namespace client" : "Usage: nvidia-cuda-mps-control [-d]");
	return 0;
}

int main(int n, char **arguments)
{
	int daemon = 0, asked = 0;
	char words[512] = "";
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	if (length < 0)
		return 1;
	self[length] = 0;
	char *slash = strrchr(self, '/');
	if (strcmp(slash, "/nvidia-cuda-mps-server") == 0)
		run_server();
	*slash = 0;
	for (int i = 1; i < n; i++) {
		size_t used = strlen(words);
		if (strcmp(arguments[i], "-d") == 0)
			daemon = 1;
		else if (DRIVER >= 555 && (strcmp(arguments[i], "-multiuser-server") == 0 || strcmp(arguments[i], "-m") == 0))
			multiuser = 1;
		else if (strcmp(arguments[i], "-h") == 0)
			asked = 1;
		else if (DRIVER >= 615 && strcmp(arguments[i], "-p") == 0 && i + 1 < n)
			protocol = atoi(arguments[++i]);
		else if (DRIVER >= 615)
			snprintf(words + used, sizeof words - used, "%s%s", used ? " " : "", arguments[i]);
		else if (DRIVER >= 555)
			return help(), 1;
		else
			return send_command("");
	}
	if (asked)
		return help();
	if (daemon)
		run_daemon();
	return words[0] ? send_command(words) : send_commands();
}
