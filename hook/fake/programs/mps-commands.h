/* The commands of version 2 and the sessions in which a program sends them. Texts are those of NVIDIA's daemons. */

static int commands = -1; /* the session of commands; -1: none */
static int privileged; /* it came by control_privileged */
static uid_t commander; /* the user at its other end */
static void execute3(int s, const char *text);

/* Sends an answer, or the end of the session. */
static void send_reply(int s, int32_t kind, const void *data, size_t size)
{
	struct iovec parts[] = {{&kind, sizeof kind}, {(void *)data, size}};
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
	sendmsg(s, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends a text, whose last newline the program adds. */
static void answer_with(int s, const char *text)
{
	size_t length = strlen(text);
	send_reply(s, MPS_ANSWER, text, length > 0 && text[length - 1] == '\n' ? length - 1 : length);
}

/* Ends the session with the program's exit code. */
static void end_commands(int32_t code)
{
	send_reply(commands, MPS_END, &code, sizeof code);
	close(commands);
	commands = -1;
}

/* What the commands set. */
static double default_percent = 100;
static char default_memory[24];
static int default_priority;

/* Writes why the user may not change defaults, and returns 0, or returns 1. */
static int may_set(char *answer)
{
	if (DRIVER < 550 || privileged)
		return 1;
	sprintf(answer, "Insufficient privileges for UID %u. Control deamon settings can only be modified by the user started it or by the root user.\n", commander);
	return 0;
}

static void set_default_percent(const char *value, char *answer)
{
	double percent = strtod(value, NULL);
	if (!may_set(answer))
		return;
	if (percent > 0 && percent <= 100)
		default_percent = percent;
	sprintf(answer, "%.1f\n", default_percent);
}

/* Sets the memory of device 0. Without a unit it is in MiB. */
static void set_default_memory(const char *value, char *answer)
{
	char device[NAME], amount[16] = "";
	if (may_set(answer) && sscanf(value, "%64s %15s", device, amount) == 2 && strcmp(device, "0") == 0)
		sprintf(default_memory, "%s%s", amount, strpbrk(amount, "KMGkmg") ? "" : "M");
}

static void set_default_priority(int priority, char *answer)
{
	if (!may_set(answer))
		return;
	if (priority == 0 || priority == 1)
		default_priority = priority;
	else
		strcpy(answer, "Invalid priority value - must be 0 or 1!\n");
}

/* Executes start_server -uid USER. */
static void start_for(const char *words, char *answer)
{
	unsigned user;
	if (sscanf(words, " -uid %u", &user) != 1)
		strcpy(answer, "A user id (UID) is required to start a new server\n");
	else if (commander != 0 && user != commander)
		sprintf(answer, "Insufficient privileges for UID %u%s\n", commander,
			DRIVER < 550 ? "" : ". Only the root user may start server for another user.");
	else if (!alive())
		start_server(NULL);
}

/* Terminates a client. The last line is a result, not a PID. */
static void terminate(int pid, int of, char *answer)
{
	char order[32], present[ANSWER] = "", mark[16];
	if (!alive() || pid != server)
		sprintf(answer, "Server %d not found\n", pid);
	else
		ask("server", "list", present, sizeof present);
	sprintf(mark, "%d\n", of);
	if (!strstr(present, mark)) {
		sprintf(answer + strlen(answer), "Server %d not found!\n1\n", pid);
		return;
	}
	snprintf(order, sizeof order, "end %d", of);
	ask("server", order, present, sizeof present);
}

/* Executes a command for the server of a PID. Returns 0 if it is none. */
static int execute_for_server(const char *text, char *answer)
{
	static const char *const names[] = {"get_client_list", "get_server_status", "get_active_thread_percentage", "set_active_thread_percentage",
		"get_device_pinned_mem_limit", "shutdown_server"};
	char name[NAME] = "";
	int pid = 0, known = 0, fields = sscanf(text, "%64s %d", name, &pid);
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		known |= strcmp(name, names[i]) == 0;
	int status = strcmp(name, "get_server_status") == 0;
	if (!known || (status && DRIVER < 550))
		return 0;
	if (status && fields < 2)
		strcpy(answer, "A server PID is required\n");
	else if (!alive() || pid != server)
		sprintf(answer, "Server %d not found\n", pid);
	else if (status)
		server_status(answer, ANSWER);
	else if (strcmp(name, "get_client_list") == 0)
		ask("server", "list", answer, ANSWER);
	return 1;
}

/* Ends daemon and server. The exit code is 1 if a server has failed, as with NVIDIA's; pipes remain, except for the log. */
static void quit(void)
{
	int32_t code;
	uint64_t rest; /* closing with it unread would reset the connection */
	recv(commands, &rest, sizeof rest, 0);
	if (alive())
		kill(server, SIGKILL);
	code = failed;
	unlink(named("log").sun_path);
	unlink(pid_file());
	end_commands(code);
	exit(code);
}

/* Executes a command of version 2. */
static void execute(int s, const char *text)
{
	static char answer[ANSWER];
	int pid = 0, of = 0;
	answer[0] = 0;
	if (strcmp(text, "get_server_list") == 0) {
		if (alive())
			sprintf(answer, "%d\n", server);
	} else if (execute_for_server(text, answer))
		;
	else if (strncmp(text, "terminate_client", 16) == 0) {
		sscanf(text + 16, "%d %d", &pid, &of);
		terminate(pid, of, answer);
	} else if (strcmp(text, "ps") == 0)
		strcpy(answer, "Server not found\n");
	else if (strncmp(text, "get_default_active_thread_percentage", 36) == 0)
		sprintf(answer, "%.1f\n", default_percent);
	else if (strncmp(text, "set_default_active_thread_percentage", 36) == 0)
		set_default_percent(text + 36, answer);
	else if (strncmp(text, "get_default_device_pinned_mem_limit", 35) == 0)
		sprintf(answer, default_memory[0] ? "%s\n" : "", default_memory);
	else if (strncmp(text, "set_default_device_pinned_mem_limit", 35) == 0)
		set_default_memory(text + 35, answer);
	else if (strcmp(text, "get_default_client_priority") == 0)
		sprintf(answer, "%d\n", default_priority);
	else if (strncmp(text, "set_default_client_priority", 27) == 0)
		set_default_priority(atoi(text + 27), answer);
	else if (strncmp(text, "start_server", 12) == 0)
		start_for(text + 12, answer);
	else if (strncmp(text, "get_device_client_list", 22) == 0)
		;
	else if (strncmp(text, "quit", 4) == 0 && privileged)
		quit();
	else if (strncmp(text, "quit", 4) == 0)
		strcpy(answer, "Not enough privilege to execute quit command\n");
	else
		sprintf(answer, "Unknown command \"%.*s\"\n", (int)strcspn(text, " "), text);
	if (answer[0])
		answer_with(s, answer);
}

/* Executes the next command of the session, or ends it. */
static void next_command(void)
{
	static char text[512];
	uint64_t length = 0;
	commander = peer_user(commands);
	ssize_t n = recv(commands, &length, sizeof length, 0);
	if (n != sizeof length || length == 0 || (n = recv(commands, text, sizeof text - 1, 0)) <= 0) {
		end_commands(0);
		return;
	}
	text[n] = 0;
	protocol == 3 ? execute3(commands, text) : execute(commands, text);
}
