/*
 * NVIDIA's MPS without a GPU: the control daemon (-d), its server, and the program that sends commands to the daemon, from its
 * standard input or, with version 3 (-p 3, of drivers from 615: -DDRIVER=615), from its arguments. The client is mps.c of the
 * fake driver. node/mps compares its answers to commands with those of NVIDIA's daemons, where they are installed.
 *
 * Drivers before 555 (-DDRIVER=535, 550) do not know -multiuser-server and take themselves for the program that sends commands;
 * their daemon serves the clients of one user at a time. 535 has no get_server_status, and lets any user change defaults.
 *
 * Signals make it fail as the real one does: SIGKILL of the daemon or the server, SIGSTOP of the daemon (it hangs), and SIGUSR1
 * to the server (a fault: all clients get an error, and new ones are refused until they have ended). Commands of version 3
 * that begin with the contents of the file "refuse" in the log directory are refused. Daemon and server end when their program
 * is removed.
 *
 * Version 3 supports one named server and its namespaces. A client that connects in a namespace's directory gets its limits;
 * one that connects in the daemon's directory gets none, as from the server that the real daemon starts for each user.
 */
#define _GNU_SOURCE
#include "../mps-wire.h"

#include <errno.h>
#include <fcntl.h>
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

enum { CLIENTS = 60, SPACES = 64, NAME = 65, ANSWER = 16384, DIRECTORY = 87, ERROR_FAULT = 719, ERROR_TERMINATED = 810 };
#ifndef DRIVER
#define DRIVER 580
#endif

static struct { int socket; pid_t pid; char space[NAME]; } clients[CLIENTS];
static int count, multiuser, protocol = 2;
static int failed; /* a server has ended with an error */
static pid_t server;
static volatile sig_atomic_t fault;
static char self[4096];

/* Returns the address of a socket in the pipe directory. */
static struct sockaddr_un named(const char *name)
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if ((size_t)snprintf(a.sun_path, sizeof a.sun_path, "%s/%s", dir ? dir : "/tmp/nvidia-mps", name) >= sizeof a.sun_path)
		exit(1);
	return a;
}

/* Returns the path of the file with the daemon's PID, which is too long a name for a socket in some directories. */
static const char *pid_file(void)
{
	static char path[4096];
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY");
	snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", dir ? dir : "/tmp/nvidia-mps");
	return path;
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

/* Listens on a socket that has these permissions. Returns its descriptor. */
static int serve(const char *name, mode_t mode)
{
	struct sockaddr_un a = named(name);
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlink(a.sun_path);
	if (bind(s, (struct sockaddr *)&a, sizeof a) || chmod(a.sun_path, mode) || listen(s, 64)) {
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

/* Adds a client, whose connection the daemon passed with "join NAMESPACE PERCENT BYTES". Before version 3, it must have the server's memory. */
static void join_space(int s, const char *text)
{
	char space[NAME] = "", welcome[96] = "0", memory[MPS_MEMORY] = "";
	double percent = 0;
	unsigned long long bytes = 0;
	sscanf(text, "join %64s %lf %llu", space, &percent, &bytes);
	if (!getenv("FAKE_MPS_SERVER"))
		mps_memory(memory);
	snprintf(welcome, sizeof welcome, "limits %g %llu %s", percent, bytes, memory);
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

/* Executes a message of the daemon. */
static void execute_message(int s, const char *text)
{
	static char answer[ANSWER];
	char server[NAME];
	int pid;
	answer[0] = 0;
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
	int listener = serve(name, 0666), passed;
	signal(SIGUSR1, on_fault);
	while (access(self, F_OK) == 0) {
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
				drop(i); /* a client sends no message, so this is its end */
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
	int status;
	if (server && waitpid(server, &status, WNOHANG) == server) {
		server = 0;
		failed |= status != 0;
	}
	return server != 0;
}

/* Returns the user at the other end. */
static uid_t peer_user(int s)
{
	struct ucred who = {.uid = (uid_t)-1};
	socklen_t length = sizeof who;
	getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &length);
	return who.uid;
}

/* Starts the server, whose program is beside the daemon's. A failure shows when it has ended. */
static void start_server(const char *own)
{
	char name[4200];
	snprintf(name, sizeof name, "%.*s/nvidia-cuda-mps-server", (int)(strrchr(self, '/') - self), self);
	if ((server = fork()) == 0) {
		if (own)
			setenv("FAKE_MPS_SERVER", own, 1);
		execl(name, name, (char *)NULL);
		_exit(1);
	}
}

/* Writes the status of the server of version 2 that runs: INITIALIZING while it does not listen. */
static void server_status(char *answer, size_t size)
{
	ask("server", "status", answer, size);
	if (!answer[0])
		snprintf(answer, size, "INITIALIZING\n");
}

/*
 * Reports whether a client belongs to another user than the present clients, and has to wait for their end. Otherwise its user
 * becomes the present one; the server of the last one is ended.
 */
static int other_user(int s)
{
	static uid_t user;
	char present[ANSWER] = "";
	if (multiuser || (alive() && peer_user(s) == user))
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
	user = peer_user(s);
	return 0;
}

static char server_name[NAME]; /* of version 3; empty: no server */

/* Passes a client's connection to the server, with its limits. */
static void pass_to_server(int s, const char *name, double percent, unsigned long long bytes)
{
	char text[256], socket_name[NAME + 8], rights[CMSG_SPACE(sizeof(int))] = {0};
	snprintf(text, sizeof text, "join %s %g %llu", name, percent, bytes);
	struct iovec part = {text, strlen(text) + 1};
	struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = rights, .msg_controllen = sizeof rights};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof s), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(c), &s, sizeof s);
	snprintf(socket_name, sizeof socket_name, server_name[0] ? "%s/server" : "server", server_name);
	int to = dial(socket_name);
	if (to < 0)
		return; /* the connection is closed, and the client runs without MPS */
	sendmsg(to, &m, MSG_NOSIGNAL);
	close(to);
}

/* Passes a client of version 2 to the server, or tells it to ask again: while another user has clients, or the server is starting. */
static void client(int s)
{
	char answer[16] = "";
	int other = other_user(s);
	if (!other && !alive())
		start_server(NULL);
	if (!other)
		ask("server", "status", answer, sizeof answer);
	if (answer[0])
		pass_to_server(s, "-", 0, 0);
	else
		reply(s, "wait");
}

#include "mps-commands.h"
#include "mps-version3.h"

/* Creates the pipes. Returns 0 if another daemon uses them; its pipes remain when it has quit. */
static int create_pipes(int listeners[2])
{
	const char *dir = getenv("CUDA_MPS_PIPE_DIRECTORY"), *log = getenv("CUDA_MPS_LOG_DIRECTORY");
	char pid[16];
	if (dir && strlen(dir) > DIRECTORY)
		exit(1);
	if (dir)
		mkdir(dir, 0755);
	int there = dial("control");
	if (there >= 0)
		return 0;
	listeners[0] = serve("control", 0666);
	listeners[1] = serve("control_privileged", 0755);
	umask(0);
	close(open(named("control_lock").sun_path, O_CREAT | O_WRONLY, 0666));
	if (log && mkdir(log, 0755) && errno != EEXIST)
		printf("Warning: Failed writing log files to directory [%s]. No logs will be available.", log);
	else
		mkfifo(named("log").sun_path, 0777);
	if (DRIVER >= 550) {
		int file = open(pid_file(), O_CREAT | O_WRONLY | O_TRUNC, 0666);
		snprintf(pid, sizeof pid, "%d\n", getpid());
		if (write(file, pid, strlen(pid)) < 0)
			perror(pid);
		close(file);
	}
	umask(022);
	return 1;
}

/* Accepts a connection. Like NVIDIA's, the daemon serves one session of commands at a time, and closes others. */
static void accept_connection(int listener, int by_privileged)
{
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	int32_t session = s < 0 ? 0 : mps_accept(s);
	if (session == MPS_COMMANDS && commands < 0) {
		commands = s;
		privileged = by_privileged;
		return;
	}
	if (session == MPS_CLIENT)
		protocol == 3 ? pass_to_server(s, "-", 0, 0) : client(s);
	if (s >= 0)
		close(s);
}

/* Main function of the daemon. */
static void run_daemon(void)
{
	int listeners[2];
	if (!create_pipes(listeners)) {
		puts("An instance of this daemon is already running");
		exit(1);
	}
	fflush(stdout);
	if (fork() != 0)
		_exit(0);
	setsid();
	if (!freopen("/dev/null", "r", stdin) || !freopen("/dev/null", "w", stdout) || !freopen("/dev/null", "w", stderr))
		exit(1);
	while (access(self, F_OK) == 0) {
		struct pollfd f[SPACES + 3] = {{.fd = listeners[0], .events = POLLIN}, {.fd = listeners[1], .events = POLLIN}, {.fd = commands, .events = POLLIN}};
		for (int i = 0; i < space_count; i++)
			f[i + 3] = (struct pollfd){.fd = spaces[i].listener, .events = POLLIN};
		if (poll(f, (nfds_t)space_count + 3, 500) <= 0)
			continue;
		for (int i = space_count - 1; i >= 0; i--)
			if (f[i + 3].revents)
				accept_client(&spaces[i]);
		if (f[2].revents)
			next_command();
		for (int i = 0; i < 2; i++)
			if (f[i].revents)
				accept_connection(listeners[i], i);
	}
	exit(0);
}

/* The program for commands. */

/* Opens a session of commands. Returns a descriptor, or -1 without a daemon. */
static int open_commands(void)
{
	int s = dial("control_privileged");
	if (s < 0)
		s = dial("control");
	if (s >= 0)
		mps_open(s, MPS_COMMANDS);
	return s;
}

/*
 * Prints the answers of a session. Returns its exit code. Like NVIDIA's, that of
 * version 2 does not see that a busy daemon has closed the session.
 */
static int print_answers(int s)
{
	static char answer[ANSWER];
	int32_t head[2] = {MPS_END, 0}, busy = protocol == 3;
	struct iovec parts[] = {{head, sizeof head[0]}, {answer, sizeof answer - 1}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	for (ssize_t n; (n = recvmsg(s, &m, 0)) >= (ssize_t)sizeof head[0];) {
		answer[n - (ssize_t)sizeof head[0]] = 0;
		if (head[0] == MPS_END) {
			memcpy(&head[1], answer, sizeof head[1]);
			return head[1];
		}
		puts(answer);
	}
	return busy;
}

/* Sends a command. Returns 0 if the daemon has closed the session. */
static int send_command(int s, const char *text)
{
	uint64_t length = strlen(text) + 1;
	return send(s, &length, sizeof length, MSG_NOSIGNAL) > 0 && send(s, text, length, MSG_NOSIGNAL) > 0;
}

/* Sends the given command, or those of the standard input. Returns the exit code. */
static int send_commands(const char *command)
{
	char line[256];
	uint64_t end = 0;
	int s = open_commands(), open = s >= 0;
	if (!open) {
		fprintf(stderr, "Cannot find MPS control daemon process\n");
		return 1;
	}
	if (command[0])
		open = send_command(s, command);
	while (!command[0] && open && fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		open = send_command(s, line);
	}
	if (!open)
		fprintf(stderr, "Cannot send command to MPS control daemon process\n");
	send(s, &end, sizeof end, MSG_NOSIGNAL);
	return print_answers(s);
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
	if (strcmp(strrchr(self, '/'), "/nvidia-cuda-mps-server") == 0)
		run_server();
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
			return send_commands("");
	}
	if (asked)
		return help();
	if (daemon)
		run_daemon();
	return send_commands(words);
}
