/*
 * The commands of MPS version 3 that gshare uses, after NVIDIA's page "MPS v3 Interface" of release 615. A reply that begins
 * with '!' is an error.
 */

/* A namespace. */
static struct space {
	char name[NAME], percent[16], memory[24], priority[4]; /* as set by commands */
	int listener;
} spaces[SPACES];
static int space_count;

/* Returns the bytes of a size such as 512M. */
static unsigned long long bytes_of(const char *text)
{
	char *unit;
	unsigned long long n = strtoull(text, &unit, 10);
	return n << (*unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0);
}

/* Accepts a client of a namespace. */
static void accept_client(struct space *space)
{
	int s = accept4(space->listener, NULL, NULL, SOCK_CLOEXEC);
	if (s < 0)
		return;
	if (mps_accept(s) == MPS_CLIENT) {
		if (other_user(s))
			reply(s, "800"); /* not permitted */
		else
			pass_to_server(s, space->name, strtod(space->percent, NULL), bytes_of(space->memory));
	}
	close(s);
}

/* Returns the namespace of a name, or NULL. */
static struct space *find_space(const char *name)
{
	for (int i = 0; i < space_count; i++)
		if (strcmp(spaces[i].name, name) == 0)
			return &spaces[i];
	return NULL;
}

/* Writes the path of a namespace's file, relative to the pipe directory. */
static void path_of(const char *name, const char *file, char *to, size_t size)
{
	snprintf(to, size, "%s/%s%s", server_name, name, file);
}

/* Creates a namespace. Returns the reply. */
static const char *add_space(const char *name)
{
	char path[2 * NAME + 16];
	if (!server_name[0] || find_space(name) || space_count == SPACES)
		return server_name[0] ? "!the namespace exists, or there are too many" : "!no such server";
	struct space *space = &spaces[space_count];
	*space = (struct space){.percent = "-", .memory = "-", .priority = "0"};
	strcpy(space->name, name);
	path_of(name, "", path, sizeof path);
	mkdir(named(path).sun_path, 0755);
	path_of(name, "/control", path, sizeof path);
	space->listener = serve(path, 0666);
	space_count++;
	return " ";
}

/* Removes a namespace. */
static void drop_space(struct space *space, int directory)
{
	char path[2 * NAME + 16];
	close(space->listener);
	path_of(space->name, "/control", path, sizeof path);
	unlink(named(path).sun_path);
	path_of(space->name, "", path, sizeof path);
	if (directory)
		rmdir(named(path).sun_path);
	*space = spaces[--space_count];
}

/* Removes a server that has ended, with its namespaces. */
static void remove_ended_server(void)
{
	if (!server_name[0] || alive())
		return;
	while (space_count)
		drop_space(&spaces[0], 0);
	server_name[0] = 0;
}

/* Starts the server and waits until it replies. Returns the reply of `server create`. */
static const char *add_server(const char *name)
{
	char listener[NAME + 8], status[16] = "";
	if (server_name[0])
		return "!only one server is supported";
	strcpy(server_name, name);
	mkdir(named(name).sun_path, 0755);
	start_server(name);
	snprintf(listener, sizeof listener, "%s/server", name);
	while (!status[0] && alive()) {
		usleep(1000);
		ask(listener, "status", status, sizeof status);
	}
	return add_space("default");
}

/* Deletes a namespace by name. Returns the reply. */
static const char *drop_named(const char *name, const char *words)
{
	static char answer[ANSWER];
	char socket_name[NAME + 8], order[NAME + 8], mark[NAME + 4];
	struct space *space = find_space(name);
	if (!space)
		return "!no such namespace";
	snprintf(socket_name, sizeof socket_name, "%s/server", server_name);
	snprintf(order, sizeof order, "list %s", server_name);
	snprintf(mark, sizeof mark, ",%s,", name);
	ask(socket_name, order, answer, sizeof answer);
	if (strstr(answer, mark) && !strstr(words, "--force"))
		return "!the namespace has clients";
	drop_space(space, 1);
	return " ";
}

/* Copies the value of --key=value, if the words contain it. */
static void option(const char *words, const char *key, char *to, size_t size)
{
	const char *at = strstr(words, key);
	if (at)
		snprintf(to, size, "%.*s", (int)strcspn(at + strlen(key), " "), at + strlen(key));
}

/* Sets the limits of a namespace. Returns the reply. */
static const char *set_space(const char *name, const char *words)
{
	struct space *space = find_space(name);
	if (!space)
		return "!no such namespace";
	option(words, "--active-thread-percentage=", space->percent, sizeof space->percent);
	option(words, "--pinned-memory-limit=", space->memory, sizeof space->memory);
	option(words, "--client-priority=", space->priority, sizeof space->priority);
	return " ";
}

/* Returns the reply of `namespace list`. */
static const char *list_spaces(void)
{
	static char answer[ANSWER];
	if (!server_name[0])
		return "!no such server";
	answer[0] = 0;
	for (int i = 0; i < space_count; i++)
		sprintf(answer + strlen(answer), "%s,%s,Ready,%s,%s,%s,%s/%s\n", spaces[i].name, server_name, spaces[i].memory, spaces[i].percent,
			spaces[i].priority, server_name, spaces[i].name);
	return answer;
}

/* Returns the reply of `server list`. */
static const char *list_servers(void)
{
	static char answer[256];
	char socket_name[NAME + 8], status[16];
	if (!server_name[0])
		return " ";
	snprintf(socket_name, sizeof socket_name, "%s/server", server_name);
	ask(socket_name, "status", status, sizeof status);
	snprintf(answer, sizeof answer, "%s,%d,%d,%s,%s,-,-\n", server_name, getuid(), server, strncmp(status, "FAULT", 5) ? "Ready" : "Fault", server_name);
	return answer;
}

/* Forwards a command to the server and returns its reply. */
static const char *ask_server(const char *order)
{
	static char answer[ANSWER];
	char socket_name[NAME + 8];
	snprintf(socket_name, sizeof socket_name, "%s/server", server_name);
	ask(socket_name, order, answer, sizeof answer);
	return answer[0] ? answer : "!no such server";
}

/* Reports whether the file "refuse" of the log directory names this command. */
static int refused(const char *text)
{
	char order[128] = "", path[512];
	const char *dir = getenv("CUDA_MPS_LOG_DIRECTORY");
	snprintf(path, sizeof path, "%s/refuse", dir ? dir : "");
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	if (!fgets(order, sizeof order, f))
		order[0] = 0;
	fclose(f);
	order[strcspn(order, "\n")] = 0;
	return order[0] && strncmp(text, order, strlen(order)) == 0;
}

/* Executes a command of version 3. An error ends the session with exit code 1. */
static void execute3(int s, const char *text)
{
	char name[NAME] = "", order[NAME + 16];
	const char *answer = "!unknown command";
	remove_ended_server();
	if (refused(text))
		answer = "!refused";
	else if (strcmp(text, "-q") == 0) {
		while (space_count)
			drop_space(&spaces[0], 0);
		execute(s, "quit");
	} else if (sscanf(text, "server create %64s", name) == 1)
		answer = add_server(name);
	else if (strncmp(text, "server list", 11) == 0)
		answer = list_servers();
	else if (sscanf(text, "client list --server=%64s", name) == 1) {
		snprintf(order, sizeof order, "list %s", name);
		answer = ask_server(order);
	} else if (sscanf(text, "client terminate %64s", name) == 1) {
		snprintf(order, sizeof order, "end %s", name);
		answer = ask_server(order);
	} else if (sscanf(text, "namespace create %64s", name) == 1)
		answer = add_space(name);
	else if (sscanf(text, "namespace delete %64s", name) == 1)
		answer = drop_named(name, text);
	else if (sscanf(text, "namespace set %64s", name) == 1)
		answer = set_space(name, text);
	else if (strncmp(text, "namespace list", 14) == 0)
		answer = list_spaces();
	if (strcmp(answer, " ") != 0)
		answer_with(s, answer[0] == '!' ? answer + 1 : answer);
	if (answer[0] == '!')
		end_commands(1);
}
