/* Who the agent is, what it inherited, and whether it can become somebody else. */
#define _GNU_SOURCE
#include "attack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

extern char **environ;

static void report_number(const char *name, const char *expected, long long number)
{
	char got[32];
	snprintf(got, sizeof got, "%lld", number);
	report(name, expected, got, 0);
}

static void report_status(void)
{
	static const char *const ZERO[] = {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigBlk", "SigIgn", "TracerPid"};
	char name[64];
	for (size_t i = 0; i < sizeof ZERO / sizeof *ZERO; i++) {
		/* The bounding set may keep PID 1's three: SETUID, SETGID, KILL. They cannot be gained without privileges. */
		const char *expected = strcmp(ZERO[i], "CapBnd") == 0 ? "0|224" : "0";
		snprintf(name, sizeof name, "status/%s", ZERO[i]);
		report_number(name, expected, status_number(getpid(), ZERO[i], 16));
	}
	report_number("status/NoNewPrivs", "1", status_number(getpid(), "NoNewPrivs", 10));
	report_number("status/Seccomp", "2", status_number(getpid(), "Seccomp", 10));
}

static void report_ids(void)
{
	uid_t real, effective, saved;
	gid_t real_group, effective_group, saved_group, groups[64];
	getresuid(&real, &effective, &saved);
	getresgid(&real_group, &effective_group, &saved_group);
	report("ids/uids", "same", real && real == effective && real == saved ? "same" : "differ", 0);
	report("ids/gids", "same", real_group == real && real_group == effective_group && real_group == saved_group ? "same" : "differ", 0);
	int count = getgroups(64, groups);
	report_number("ids/groups", "1", count);
	/* Block of 64: agent, worker, then the tags. */
	int is_tag = count == 1 && groups[0] > real + 1 && groups[0] < real + 64;
	report("ids/tag", "tag", is_tag ? "tag" : "other", 0);
}

static void regain(void)
{
	char path[64];
	gid_t group = 0;
	TRY("regain/setuid", "EPERM", SYS_setuid, 0);
	TRY("regain/setreuid", "EPERM", SYS_setreuid, 0, 0);
	TRY("regain/setresuid", "EPERM", SYS_setresuid, 0, 0, 0);
	TRY("regain/setgid", "EPERM", SYS_setgid, 0);
	TRY("regain/setregid", "EPERM", SYS_setregid, 0, 0);
	TRY("regain/setresgid", "EPERM", SYS_setresgid, 0, 0, 0);
	TRY("regain/setgroups", "EPERM", SYS_setgroups, 1, (long)&group);
	TRY("regain/setgroups-none", "EPERM", SYS_setgroups, 0, 0);
	report_number("regain/setfsuid", "0", syscall(SYS_setfsuid, 0) == getuid() && syscall(SYS_setfsuid, -1) == getuid() ? 0 : 1);
	struct {
		unsigned version;
		int pid;
	} header = {0x20080522, 0};
	unsigned data[6] = {~0u, ~0u, ~0u, ~0u, ~0u, ~0u};
	TRY("regain/capset", "EPERM", SYS_capset, (long)&header, (long)data);
	snprintf(path, sizeof path, "/tmp/attack-setuid.%d", getpid());
	int fd = open(path, O_CREAT | O_WRONLY, 0700);
	close(fd);
	report_result("regain/chown-root", "EPERM", chown(path, 0, 0));
	static const unsigned char EVERYTHING[20] = {1, 0, 0, 2, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255};
	report_result("regain/file-capabilities", "EPERM|EOPNOTSUPP", setxattr(path, "security.capability", EVERYTHING, 20, 0));
	unlink(path);
}

static void report_environment(void)
{
	/* The last three are the shell's own. */
	static const char *const EXPECTED[] = {"PATH", "HOME", "TMPDIR", "USER", "LANG", "TERM", "TZ", "PWD", "SHLVL", "_", "OLDPWD"};
	int unexpected = 0;
	for (char **variable = environ; *variable; variable++) {
		size_t length = strcspn(*variable, "="), i;
		for (i = 0; i < sizeof EXPECTED / sizeof *EXPECTED; i++)
			if (strlen(EXPECTED[i]) == length && strncmp(*variable, EXPECTED[i], length) == 0)
				break;
		if (i == sizeof EXPECTED / sizeof *EXPECTED) {
			unexpected++;
			reportf("absent", "present", 0, "env/%.*s", (int)length, *variable);
		}
	}
	report_number("env/unexpected", "0", unexpected);
	static const char *const VALUES[][2] = {
		{"HOME", "/tmp/home"}, {"TMPDIR", "/tmp"}, {"USER", "agent"}, {"LANG", "C.UTF-8"}, {"TERM", "dumb"},
	};
	for (size_t i = 0; i < sizeof VALUES / sizeof *VALUES; i++) {
		const char *value = getenv(VALUES[i][0]);
		reportf(VALUES[i][1], value ? value : "absent", 0, "env/%s", VALUES[i][0]);
	}
	report("env/PATH", "present", getenv("PATH") ? "present" : "absent", 0);
}

static void report_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int others = 0, standard = 0;
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		int fd = atoi(entry->d_name);
		if (entry->d_name[0] == '.' || fd == dirfd(folder))
			continue;
		*(fd <= 2 ? &standard : &others) += 1;
	}
	report_number("fds/standard", "3", standard);
	report_number("fds/others", "0", others);
	char link[128] = {0};
	ssize_t length = readlink("/proc/self/fd/0", link, sizeof link - 1);
	report("fds/0", "/dev/null", length > 0 ? link : "unreadable", 0);
	/* Pipes are made under the agent's file-system uid, or this fails. */
	try_open("fds/reopen-stdout", "opened", "/dev/stdout", O_WRONLY);
	try_open("fds/terminal", "ENXIO|EACCES|ENOENT", "/dev/tty", O_RDWR);
}

static void report_limits(void)
{
	static const struct {
		const char *name;
		int resource;
		rlim_t most;
	} LIMITS[] = {
		{"core", RLIMIT_CORE, 0},         {"nofile", RLIMIT_NOFILE, 1024},  {"memlock", RLIMIT_MEMLOCK, 65536},
		{"msgqueue", RLIMIT_MSGQUEUE, 0}, {"rtprio", RLIMIT_RTPRIO, 0},     {"nice", RLIMIT_NICE, 0},
		{"sigpending", RLIMIT_SIGPENDING, 512}, {"fsize", RLIMIT_FSIZE, 16ull << 30},
	};
	for (size_t i = 0; i < sizeof LIMITS / sizeof *LIMITS; i++) {
		struct rlimit limit, more;
		getrlimit(LIMITS[i].resource, &limit);
		int within = limit.rlim_cur <= LIMITS[i].most && limit.rlim_max <= LIMITS[i].most;
		reportf("within", within ? "within" : "above", 0, "limit/%s", LIMITS[i].name);
		more = (struct rlimit){limit.rlim_max + 1, limit.rlim_max + 1};
		int result = setrlimit(LIMITS[i].resource, &more), error = result < 0 ? errno : 0;
		reportf("EPERM", error ? errno_name(error) : "0", error, "limit/%s-raised", LIMITS[i].name);
	}
	struct sched_param realtime = {.sched_priority = 1};
	report_result("limit/realtime", "EPERM", sched_setscheduler(0, SCHED_FIFO, &realtime));
	report_result("limit/nice", "EACCES|EPERM", setpriority(PRIO_PROCESS, 0, -5));
	char text[32];
	slurp("/proc/self/oom_score_adj", text, sizeof text);
	report_number("limit/oom_score_adj", "1000", atoi(text));
	int fd = open("/proc/self/oom_score_adj", O_WRONLY);
	report_result("limit/oom_score_adj-lowered", "EACCES|EPERM", fd < 0 ? fd : write(fd, "-1000", 5));
	close(fd);
	report_number("umask", "18", umask(022));
}

/* PID 1's second filter; without it, each of these would get another answer. */
static void attack_second_filter(void)
{
	struct rlimit limit;
	TRY("second/prlimit-parent", "EPERM", SYS_prlimit64, getppid(), RLIMIT_NOFILE, 0, (long)&limit);
	TRY("second/tiocsti", "EPERM", SYS_ioctl, 0, TIOCSTI, (long)"x");
	TRY("second/tiocsti-high", "EPERM", SYS_ioctl, 0, (1L << 32) | TIOCSTI, (long)"x");
	TRY("second/seccomp", "EPERM", SYS_seccomp, 1, 0, 0);
	TRY("second/prctl-seccomp", "EPERM", SYS_prctl, PR_SET_SECCOMP, 2, 0);
}

void attack_identity(void)
{
	report_descriptors();
	report_status();
	report_ids();
	report_environment();
	report_limits();
	regain();
	attack_second_filter();
	report_number("session-leader-or-in-its-session", "1", getsid(0) == getpid() || getsid(0) == getppid());
}
