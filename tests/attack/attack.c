/*
 * Attacks on the sandbox, run as the agent inside a real container. `attack SECTION` makes the attacks of one section and
 * prints a line each, as `report` says; tests/attack/mod.rs judges them. Built statically, so that it runs in any image.
 */
#define _GNU_SOURCE
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

void report(const char *name, const char *expected, const char *got, int error)
{
	printf("%s\t%s\t%s\t%d\n", name, expected, got, error);
	fflush(stdout);
}

void reportf(const char *expected, const char *got, int error, const char *name, ...)
{
	char text[256];
	va_list arguments;
	va_start(arguments, name);
	vsnprintf(text, sizeof text, name, arguments);
	va_end(arguments);
	report(text, expected, got, error);
}

void report_result(const char *name, const char *expected, long result)
{
	int error = errno;
	char got[32];
	if (result == -1) {
		report(name, expected, errno_name(error), error);
	} else {
		snprintf(got, sizeof got, "%ld", result);
		report(name, expected, got, 0);
	}
}

const char *errno_name(int error)
{
	const char *name = strerrorname_np(error);
	return name ? name : "E?";
}

/* What a child reports to its parent through the pipe. */
struct end {
	long result;
	int error;
};

static void nothing(int signal)
{
	(void)signal;
}

int run_apart(char *got, size_t size, long (*attack)(void *), void *argument)
{
	int pipe_fds[2];
	if (pipe(pipe_fds) < 0) {
		snprintf(got, size, "no pipe");
		return errno;
	}
	pid_t child = fork();
	if (child == 0) {
		struct end end;
		/* A call that waits comes back with EINTR; one that waits for ever is killed. */
		struct sigaction action = {.sa_handler = nothing};
		struct itimerval soon = {.it_value = {.tv_usec = 50000}, .it_interval = {.tv_usec = 50000}};
		sigaction(SIGALRM, &action, NULL);
		setitimer(ITIMER_REAL, &soon, NULL);
		/* The call may close or break every other descriptor. */
		int out = fcntl(pipe_fds[1], F_DUPFD, 700);
		errno = 0;
		end.result = attack(argument);
		end.error = errno;
		ssize_t written = write(out, &end, sizeof end);
		_exit(written == sizeof end ? 0 : 1);
	}
	close(pipe_fds[1]);
	struct end end = {0};
	int status = 0;
	ssize_t length = read(pipe_fds[0], &end, sizeof end);
	close(pipe_fds[0]);
	if (child < 0 || waitpid(child, &status, 0) < 0) {
		snprintf(got, size, "no child");
		return errno;
	}
	if (WIFSIGNALED(status)) {
		snprintf(got, size, "SIG%s", sigabbrev_np(WTERMSIG(status)));
	} else if (length != sizeof end) {
		snprintf(got, size, "exited");
	} else if (end.result == -1) {
		snprintf(got, size, "%s", errno_name(end.error));
		return end.error;
	} else {
		snprintf(got, size, "%ld", end.result);
	}
	return 0;
}

struct call {
	long number;
	long a, b, c, d, e, f;
};

static long make_call(void *argument)
{
	struct call *call = argument;
	return syscall(call->number, call->a, call->b, call->c, call->d, call->e, call->f);
}

int call_apart(char *got, size_t size, long number, long a, long b, long c, long d, long e, long f)
{
	struct call call = {number, a, b, c, d, e, f};
	return run_apart(got, size, make_call, &call);
}

void try_call(const char *name, const char *expected, long number, const long arguments[6])
{
	char got[32];
	const long *a = arguments;
	int error = call_apart(got, sizeof got, number, a[0], a[1], a[2], a[3], a[4], a[5]);
	report(name, expected, got, error);
}

void try_open(const char *name, const char *expected, const char *path, int flags)
{
	int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
	int error = errno;
	if (fd >= 0) {
		close(fd);
		report(name, expected, "opened", 0);
	} else {
		report(name, expected, errno_name(error), error);
	}
}

ssize_t slurp(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t length = 0;
	ssize_t got = 0;
	while (length < size - 1 && (got = read(fd, text + length, size - 1 - length)) > 0)
		length += (size_t)got;
	int error = errno;
	close(fd);
	text[length] = 0;
	errno = error;
	return length == 0 && got < 0 ? -1 : (ssize_t)length;
}

long long status_number(pid_t pid, const char *key, int base)
{
	char path[64], text[8192];
	snprintf(path, sizeof path, "/proc/%d/status", pid);
	if (slurp(path, text, sizeof text) < 0)
		return -1;
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		size_t length = strlen(key);
		if (strncmp(line, key, length) == 0 && line[length] == ':')
			return strtoll(line + length + 1, NULL, base);
	}
	return -1;
}

static const struct {
	const char *name;
	void (*run)(void);
} SECTIONS[] = {
	{"syscalls", attack_syscalls}, {"arguments", attack_arguments}, {"features", attack_features},
	{"identity", attack_identity}, {"init", attack_init},           {"worker", attack_worker},
	{"paths", attack_paths},       {"writes", attack_writes},       {"network", attack_network},
	{"leave", leave_processes},    {"left", count_processes},
};

int main(int count, char **words)
{
	for (size_t i = 0; count == 2 && i < sizeof SECTIONS / sizeof *SECTIONS; i++) {
		if (strcmp(words[1], SECTIONS[i].name) == 0) {
			SECTIONS[i].run();
			/* A section that died half-way must not look complete. */
			report("end", "end", "end", 0);
			return 0;
		}
	}
	fprintf(stderr, "usage: attack SECTION\n");
	return 2;
}
