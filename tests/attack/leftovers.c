/* Processes that want to outlive their command, and the count of those that did. */
#define _GNU_SOURCE
#include "attack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void ignore_signals(void)
{
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int number = 1; number < 65; number++)
		signal(number, SIG_IGN);
}

static void stay(void)
{
	for (;;)
		pause();
}

/* Forks twice, in a session of its own, with every signal ignored. */
static void daemonize(int keep_descriptors)
{
	if (fork() != 0) {
		wait(NULL);
		return;
	}
	setsid();
	if (fork() != 0)
		_exit(0);
	ignore_signals();
	if (!keep_descriptors)
		close_range(0, ~0u, 0);
	stay();
}

void leave_processes(void)
{
	daemonize(0);
	/* This one holds the command's output open. */
	daemonize(1);
	if (fork() == 0) {
		setpgid(0, 0);
		ignore_signals();
		stay();
	}
	if (fork() == 0) {
		/* Stopped: it cannot act on anything but SIGKILL. */
		raise(SIGSTOP);
		stay();
	}
	if (fork() == 0) {
		/* A parent of orphans of its own. */
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		for (int i = 0; i < 20; i++)
			if (fork() == 0) {
				setsid();
				ignore_signals();
				stay();
			}
		stay();
	}
	if (fork() == 0) {
		/* Lies about its name and its arguments. */
		prctl(PR_SET_NAME, "toolbox");
		ignore_signals();
		stay();
	}
	if (vfork() == 0)
		execl("/bin/sh", "sh", "-c", "trap '' TERM HUP INT; (setsid sleep 1000 &) ; exec sleep 1000", NULL);
	report("leave/started", "started", "started", 0);
}

/* Processes of the agent that are neither this one nor one of its ancestors, zombies included. */
void count_processes(void)
{
	pid_t ancestors[64];
	int depth = 0, left = 0;
	for (pid_t pid = getpid(); pid > 1 && depth < 64; pid = (pid_t)status_number(pid, "PPid", 10))
		ancestors[depth++] = pid;
	DIR *folder = opendir("/proc");
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		pid_t pid = atoi(entry->d_name);
		if (pid <= 0 || status_number(pid, "Uid", 10) != getuid())
			continue;
		int ours = 0;
		for (int i = 0; i < depth; i++)
			ours |= ancestors[i] == pid;
		left += !ours;
	}
	char got[32];
	snprintf(got, sizeof got, "%d", left);
	report("left/processes", "0", folder ? got : "no /proc", 0);
}
