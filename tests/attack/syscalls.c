/* Every system call by its number, with arguments that make no sense: does the right party answer it? */
#define _GNU_SOURCE
#include "attack.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum verdict { ALLOWED, NEWER, BY_ARGUMENT, REFUSED, ABSENT, NOTHING, UNFILTERED };

static const struct {
	long number;
	const char *name;
	enum verdict verdict;
} SYSCALLS[] = {
#define SYSCALL(number, name, verdict) {number, #name, verdict},
#include "syscalls.h"
#undef SYSCALL
};

/* Calls that reach the kernel, which itself answers EPERM or ENOSYS to this caller or to these arguments. */
static const char *const KERNEL_REFUSES[] = {
	"futex",     /* ENOSYS: no such operation */
	"setgroups", /* EPERM: no CAP_SETGID */
	"prlimit64", /* EPERM: PID 1's second filter keeps it from other processes */
	"seccomp",   /* EPERM: PID 1's second filter */
};

static int kernel_refuses(const char *name)
{
	for (size_t i = 0; i < sizeof KERNEL_REFUSES / sizeof *KERNEL_REFUSES; i++)
		if (strcmp(name, KERNEL_REFUSES[i]) == 0)
			return 1;
	return 0;
}

static long fork_and_reap(void *argument)
{
	pid_t child = *(int *)argument ? vfork() : fork();
	if (child == 0)
		_exit(0);
	return child > 0 ? (waitpid(child, NULL, 0) == child ? 0 : -1) : -1;
}

/* What an allowed call answered, as one word: `answered`, or the errno or signal that says it did not get through. */
static int call_allowed(long number, char *got, size_t size)
{
	int is_vfork = number == SYS_vfork, error;
	if (number == SYS_fork || is_vfork)
		error = run_apart(got, size, fork_and_reap, &is_vfork);
	else
		error = call_apart(got, size, number, -1, -1, -1, -1, -1, -1);
	/* Without a signal frame on the stack, rt_sigreturn is a fault. */
	int fault = number == SYS_rt_sigreturn && strcmp(got, "SIGSEGV") == 0;
	if (strncmp(got, "SIG", 3) != 0 || fault)
		if (error != EPERM && error != ENOSYS)
			snprintf(got, size, "answered");
	return error;
}

void attack_syscalls(void)
{
	for (size_t i = 0; i < sizeof SYSCALLS / sizeof *SYSCALLS; i++) {
		char got[32];
		long number = SYSCALLS[i].number;
		const char *name = SYSCALLS[i].name, *expected;
		int error;
		switch (SYSCALLS[i].verdict) {
		case ALLOWED:
			expected = kernel_refuses(name) ? "EPERM|ENOSYS|answered" : "answered";
			error = call_allowed(number, got, sizeof got);
			break;
		case NEWER:
			expected = "answered|ENOSYS";
			error = call_allowed(number, got, sizeof got);
			break;
		case REFUSED:
			/* Some engines answer ENOSYS to what is newer than they are (runc: by number; 450 was known in 2022). */
			expected = number > 450 ? "EPERM|ENOSYS" : "EPERM";
			error = call_apart(got, sizeof got, number, -1, -1, -1, -1, -1, -1);
			break;
		case ABSENT:
			expected = "ENOSYS";
			error = call_apart(got, sizeof got, number, -1, -1, -1, -1, -1, -1);
			break;
		case NOTHING:
			expected = "0";
			error = call_apart(got, sizeof got, number, -1, -1, -1, -1, -1, -1);
			break;
		case UNFILTERED:
			expected = "EPERM|ENOSYS|ENXIO|EPROTO|SIGILL";
			error = call_apart(got, sizeof got, number, -1, -1, -1, -1, -1, -1);
			break;
		default:
			continue;
		}
		reportf(expected, got, error, "syscall/%s", name);
	}
	/* Numbers that no kernel had when this was written, and the x32 table without its bit. */
	TRY("syscall/337", "EPERM|ENOSYS", 337, -1, -1, -1, -1, -1, -1);
	TRY("syscall/423", "EPERM|ENOSYS", 423, -1, -1, -1, -1, -1, -1);
	TRY("syscall/600", "EPERM|ENOSYS", 600, -1, -1, -1, -1, -1, -1);
	for (long number = 512; number <= 547; number++) {
		char got[32];
		int error = call_apart(got, sizeof got, number, -1, -1, -1, -1, -1, -1);
		reportf("EPERM|ENOSYS", got, error, "syscall/%ld", number);
	}
}
