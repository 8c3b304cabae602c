/*
 * Fork bombs (bug 13). `bombs KIND` lights one and exits with 0 a tenth of a second later, so that the command is over while
 * the bomb goes on; only the sandbox can end it.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static void ignore_signals(void)
{
	sigset_t all;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	for (int number = 1; number < 65; number++)
		signal(number, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, 0);
}

/* Every process in a session of its own, deaf to every signal, and forking for ever. */
static void sessions(void)
{
	for (;;) {
		if (fork() == 0) {
			setsid();
			ignore_signals();
		}
	}
}

/* Sixteen chains: each process forks its successor and exits, so that no pid lives long enough to be hit. */
static void chains(void)
{
	for (int i = 0; i < 16; i++)
		if (fork() == 0)
			break;
	ignore_signals();
	for (;;) {
		pid_t successor = fork();
		/* At the process limit it tries again; the place of one that was killed becomes free. */
		if (successor > 0)
			_exit(0);
		if (successor == 0)
			setsid();
	}
}

/* A new program each time, whose parent sleeps in vfork until it runs. */
static void programs(void)
{
	static char *words[] = {"bombs", "programs-on", NULL};
	ignore_signals();
	for (;;) {
		if (vfork() == 0) {
			setsid();
			execv("/proc/self/exe", words);
			_exit(1);
		}
	}
}

/* No bomb: forty daemons that only want to stay. */
static void daemons(void)
{
	for (int i = 0; i < 40; i++) {
		if (fork() == 0) {
			setsid();
			if (fork() != 0)
				_exit(0);
			ignore_signals();
			close_range(0, ~0u, 0);
			for (;;)
				pause();
		}
	}
	_exit(0);
}

static const struct {
	const char *name;
	void (*burn)(void);
} BOMBS[] = {{"sessions", sessions}, {"chains", chains}, {"programs", programs}, {"daemons", daemons}};

int main(int count, char **words)
{
	if (count == 2 && strcmp(words[1], "programs-on") == 0)
		programs();
	for (size_t i = 0; count == 2 && i < sizeof BOMBS / sizeof *BOMBS; i++) {
		if (strcmp(words[1], BOMBS[i].name) == 0) {
			if (fork() == 0)
				BOMBS[i].burn();
			nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
			return 0;
		}
	}
	fprintf(stderr, "usage: bombs sessions|chains|programs|daemons\n");
	return 2;
}
