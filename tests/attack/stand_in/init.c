/*
 * Stands in for the toolbox as PID 1 until the harness runs the product: confines its commands as the toolbox does, and runs
 * those of /app/static/commands (each ended by a NUL) one after the other. After each it prints a NUL, the exit status and
 * a line feed. argv[0] alone, as the toolbox.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AGENT = 1900000000, WORKER = AGENT + 1, TAG = AGENT + 2 };

#define MUST(call)                                                                                                             \
	do {                                                                                                                   \
		if ((call) < 0) {                                                                                              \
			dprintf(2, "stand-in: %s: %s\n", #call, strerror(errno));                                              \
			_exit(120);                                                                                            \
		}                                                                                                              \
	} while (0)

static void second_filter(void)
{
	enum { NR = offsetof(struct seccomp_data, nr), ARG = offsetof(struct seccomp_data, args) };
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, NR),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_seccomp, 9, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prlimit64, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 7, 6),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 2),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG + 8),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TIOCSTI, 3, 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARG),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_SECCOMP, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = {sizeof program / sizeof *program, program};
	MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter));
}

static int landlock_rules(void)
{
	const unsigned long long write = 0xFFF0 | 0x2;
	struct {
		unsigned long long fs, net, scoped;
	} attributes = {write, 0, 3};
	int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
	MUST(rules);
	static const char *const FOLDERS[] = {"/tmp", "/dev/shm"};
	static const char *const FILES[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"};
	for (int i = 0; i < 8; i++) {
		struct landlock_path_beneath_attr rule = {.allowed_access = i < 2 ? write : 0x8002};
		MUST(rule.parent_fd = open(i < 2 ? FOLDERS[i] : FILES[i - 2], O_PATH | O_CLOEXEC));
		MUST(syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0));
		close(rule.parent_fd);
	}
	return rules;
}

static void drop(const char *command, int rules, int out)
{
	setsid();
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	struct rlimit core = {0, 0};
	MUST(setrlimit(RLIMIT_CORE, &core));
	int fd = open("/proc/self/oom_score_adj", O_WRONLY);
	MUST(write(fd, "1000", 4));
	close(fd);
	int null = open("/dev/null", O_RDONLY);
	dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	gid_t tag = TAG;
	MUST(setgroups(1, &tag));
	MUST(setresgid(AGENT, AGENT, AGENT));
	MUST(setresuid(AGENT, AGENT, AGENT));
	MUST(prctl(PR_SET_PDEATHSIG, SIGKILL));
	MUST(syscall(SYS_landlock_restrict_self, rules, 0));
	MUST(close_range(3, ~0u, 0));
	umask(022);
	mkdir("/tmp/home", 0700);
	MUST(chdir("/app/static"));
	char *words[] = {"bash", "-c", (char *)command, NULL};
	char *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp/home", "TMPDIR=/tmp",
		"USER=agent", "LANG=C.UTF-8", "TERM=dumb", "TZ=UTC", NULL};
	execve("/bin/bash", words, environment);
	_exit(127);
}

/* Kills whatever carries the tag, until nothing does; everybody when that does not help. */
static void sweep(void)
{
	int found = 1;
	for (int passes = 0; found; passes++) {
		found = 0;
		if (passes > 50)
			kill(-1, SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		DIR *folder = opendir("/proc");
		for (struct dirent *entry; (entry = readdir(folder));) {
			char path[300], text[4096], tag[32];
			snprintf(path, sizeof path, "/proc/%s/status", entry->d_name);
			int fd = atoi(entry->d_name) > 1 ? open(path, O_RDONLY) : -1;
			if (fd < 0)
				continue;
			ssize_t length = read(fd, text, sizeof text - 1);
			close(fd);
			text[length < 0 ? 0 : length] = 0;
			snprintf(tag, sizeof tag, "Groups:\t%d ", TAG);
			if (strstr(text, tag)) {
				kill(atoi(entry->d_name), SIGKILL);
				found = 1;
			}
		}
		closedir(folder);
	}
}

static void run(const char *command, int rules)
{
	int ends[2], status = 0;
	setfsuid(AGENT);
	MUST(pipe2(ends, O_CLOEXEC));
	setfsuid(0);
	pid_t child = fork();
	if (child == 0)
		drop(command, rules, ends[1]);
	close(ends[1]);
	MUST(waitpid(child, &status, 0));
	sweep();
	char buffer[65536];
	for (ssize_t length; (length = read(ends[0], buffer, sizeof buffer)) > 0;)
		MUST(write(1, buffer, (size_t)length));
	close(ends[0]);
	dprintf(1, "%c%d\n", 0, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int main(void)
{
	MUST(prctl(PR_SET_DUMPABLE, 0));
	MUST(chmod("/tmp", 01777));
	if (fork() == 0) {
		MUST(setgroups(0, NULL));
		MUST(setresgid(WORKER, WORKER, WORKER));
		setfsgid(AGENT);
		MUST(setresuid(WORKER, WORKER, WORKER));
		setfsuid(AGENT);
		MUST(prctl(PR_SET_DUMPABLE, 0));
		for (;;)
			pause();
	}
	second_filter();
	int rules = landlock_rules();
	static char commands[1 << 20];
	int fd = open("/app/static/commands", O_RDONLY);
	ssize_t length = read(fd, commands, sizeof commands - 1);
	close(fd);
	for (char *at = commands; at < commands + length; at += strlen(at) + 1)
		run(at, rules);
	return 0;
}
