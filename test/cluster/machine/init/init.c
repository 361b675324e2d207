/*
 * Process 1 of a machine, and of a pod's sandbox: it reaps ended processes and does nothing else.
 *
 * "init machine" makes its mounts private, mounts its own /proc, reports that on standard output, and exits when
 * its standard input ends. The kernel then kills everything else in the machine. Without an argument it is a pod's
 * pause program, and exits on SIGTERM.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_signal(int signal)
{
	if (signal != SIGCHLD)
		_exit(0);
	int saved = errno;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	errno = saved;
}

static int prepare_machine(void)
{
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -1;
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return -1;
	return write(STDOUT_FILENO, "\n", 1) == 1 ? 0 : -1;
}

static void wait_for_end_of_input(void)
{
	char byte;
	ssize_t n;
	do
		n = read(STDIN_FILENO, &byte, 1);
	while (n > 0 || (n < 0 && errno == EINTR));
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	sigaction(SIGCHLD, &action, NULL);
	if (argc > 1 && strcmp(argv[1], "machine") == 0) {
		if (prepare_machine() < 0) {
			perror("init");
			return 1;
		}
		wait_for_end_of_input();
		return 0;
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	for (;;)
		pause();
}
