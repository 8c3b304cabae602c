/* Attacks on PID 1 and on the file worker, which run as other users than the agent. */
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
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define DENIED "EPERM|EACCES"

/* Signals, limits and scheduling of a process that the agent must have no power over. */
static void attack_control(const char *who, pid_t pid)
{
	static const int SIGNALS[] = {0, SIGHUP, SIGUSR1, SIGTERM, SIGCHLD, SIGCONT, SIGSTOP, SIGKILL, 34};
	char got[32], name[64];
	int error, priority = 0;
	siginfo_t info = {.si_code = SI_QUEUE};
	struct rlimit limit = {4, 4};
	struct sched_param parameter = {0};
	cpu_set_t cpus;
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++) {
		error = call_apart(got, sizeof got, SYS_kill, pid, SIGNALS[i], 0, 0, 0, 0);
		reportf("EPERM", got, error, "%s/kill-%d", who, SIGNALS[i]);
	}
#define ON(what, expected, number, ...)                                                                                        \
	snprintf(name, sizeof name, "%s/%s", who, what);                                                                       \
	TRY(name, expected, number, __VA_ARGS__)
	if (pid != 1) { /* kill(-1) means everybody */
		ON("kill-group", "EPERM|ESRCH", SYS_kill, -pid, SIGSTOP);
	}
	ON("tkill", "EPERM", SYS_tkill, pid, SIGSTOP);
	ON("tgkill", "EPERM", SYS_tgkill, pid, pid, SIGSTOP);
	ON("sigqueue", "EPERM", SYS_rt_sigqueueinfo, pid, SIGUSR1, (long)&info);
	ON("tgsigqueue", "EPERM", SYS_rt_tgsigqueueinfo, pid, pid, SIGUSR1, (long)&info);
	ON("prlimit-read", "EPERM", SYS_prlimit64, pid, RLIMIT_NOFILE, 0, (long)&limit);
	ON("prlimit-nofile", "EPERM", SYS_prlimit64, pid, RLIMIT_NOFILE, (long)&limit, 0);
	ON("prlimit-cpu", "EPERM", SYS_prlimit64, pid, RLIMIT_CPU, (long)&limit, 0);
	ON("prlimit-high", "EPERM", SYS_prlimit64, (1L << 32) | pid, RLIMIT_CPU, (long)&limit, 0);
	ON("affinity", "EPERM", SYS_sched_setaffinity, pid, sizeof cpus, (long)&cpus);
	ON("priority", "EPERM", SYS_setpriority, PRIO_PROCESS, pid, 19);
	ON("scheduler", "EPERM", SYS_sched_setscheduler, pid, SCHED_IDLE, (long)&parameter);
	ON("schedparam", "EPERM", SYS_sched_setparam, pid, (long)&parameter);
	ON("schedattr", "EPERM", SYS_sched_setattr, pid, 0, 0);
	ON("ioprio", "EPERM", SYS_ioprio_set, 1, pid, 3 << 13);
	ON("setpgid", "ESRCH", SYS_setpgid, pid, getpid());
	ON("ptrace-attach", "EPERM", SYS_ptrace, PTRACE_ATTACH, pid, 0, 0);
	ON("ptrace-seize", "EPERM", SYS_ptrace, PTRACE_SEIZE, pid, 0, 0);
	ON("move-pages", "ENOSYS", SYS_move_pages, pid, 0, 0, 0, 0, 0);
	ON("migrate-pages", "ENOSYS", SYS_migrate_pages, pid, 0, 0, 0);
	ON("kcmp", "EPERM", SYS_kcmp, pid, getpid(), 1, 0, 0);
	ON("robust-list", "EPERM", SYS_get_robust_list, pid, (long)&parameter, (long)&cpus);
	ON("vfork-clone-parent", "EPERM|EINVAL", SYS_clone, 0x7E020000, 0);
	struct iovec here = {&priority, sizeof priority}, there = {(void *)0x400000, sizeof priority};
	ON("vm-read", "EPERM", SYS_process_vm_readv, pid, (long)&here, 1, (long)&there, 1, 0);
	ON("vm-write", "EPERM", SYS_process_vm_writev, pid, (long)&here, 1, (long)&there, 1, 0);
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	ON("pidfd-signal", "EPERM|EBADF", SYS_pidfd_send_signal, pidfd, SIGSTOP, 0, 0);
	ON("pidfd-kill", "EPERM|EBADF", SYS_pidfd_send_signal, pidfd, SIGKILL, 0, 0);
	for (int fd = 0; fd < 8; fd++) {
		error = call_apart(got, sizeof got, SYS_pidfd_getfd, pidfd, fd, 0, 0, 0, 0);
		reportf("EPERM", got, error, "%s/pidfd-getfd-%d", who, fd);
	}
	ON("pidfd-madvise", "EPERM", SYS_process_madvise, pidfd, (long)&there, 1, 21, 0);
	ON("pidfd-mrelease", "EPERM", SYS_process_mrelease, pidfd, 0);
	ON("pidfd-setns", "EPERM", SYS_setns, pidfd, 0x20000);
	ON("waitid", "ECHILD", SYS_waitid, P_PID, pid, (long)&info, WEXITED, 0);
#undef ON
	if (pidfd >= 0)
		close(pidfd);
}

/* Everything that /proc offers of the process beyond what `ps` shows. */
static void attack_proc(const char *who, pid_t pid)
{
	static const char *const READ[] = {"mem", "environ", "maps", "smaps", "numa_maps", "auxv", "pagemap", "io", "syscall",
		"stack", "fd", "fdinfo", "map_files", "smaps_rollup", "personality", "patch_state", "timerslack_ns", "seccomp_cache",
		"task/%d/mem", "task/%d/environ", "task/%d/maps", "task/%d/fd", "task/%d/children"};
	static const char *const LINK[] = {"root", "cwd", "exe", "fd/0", "fd/1", "fd/2", "fd/3", "fd/4", "ns/mnt", "ns/pid", "ns/net",
		"ns/user", "ns/ipc", "ns/uts", "ns/cgroup"};
	static const char *const WRITE[] = {"mem", "oom_score_adj", "oom_adj", "clear_refs", "comm", "coredump_filter", "autogroup",
		"setgroups", "uid_map", "gid_map", "projid_map", "attr/current", "attr/exec", "loginuid", "make-it-fail", "timens_offsets",
		"timerslack_ns", "sched", "latency"};
	char path[128], target[128], rest[64];
	for (size_t i = 0; i < sizeof READ / sizeof *READ; i++) {
		snprintf(rest, sizeof rest, READ[i], pid);
		snprintf(path, sizeof path, "/proc/%d/%s", pid, rest);
		int fd = open(path, O_RDONLY | O_NONBLOCK), error = errno;
		const char *got = "read";
		char text[64];
		if (fd < 0) {
			got = errno_name(error);
		} else {
			/* Some are checked when they are read. */
			ssize_t length = read(fd, text, sizeof text);
			error = length < 0 ? errno : 0;
			got = length < 0 ? errno_name(error) : length == 0 ? "empty" : "read";
			close(fd);
		}
		/* Its children's ids stand in every `ps`. */
		int harmless = strcmp(READ[i], "task/%d/children") == 0;
		reportf(harmless ? "read|empty|ENOENT" : DENIED "|ENOENT|empty", got, fd < 0 || error ? error : 0, "%s/proc-%s", who, rest);
	}
	for (size_t i = 0; i < sizeof LINK / sizeof *LINK; i++) {
		snprintf(path, sizeof path, "/proc/%d/%s", pid, LINK[i]);
		ssize_t length = readlink(path, target, sizeof target);
		int error = errno;
		reportf(DENIED "|ENOENT", length < 0 ? errno_name(error) : "followed", length < 0 ? error : 0, "%s/link-%s", who, LINK[i]);
		int fd = open(path, O_RDONLY | O_NONBLOCK);
		error = errno;
		reportf(DENIED "|ENOENT", fd < 0 ? errno_name(error) : "opened", fd < 0 ? error : 0, "%s/open-%s", who, LINK[i]);
	}
	snprintf(path, sizeof path, "/proc/%d/root/etc/passwd", pid);
	reportf(DENIED, access(path, F_OK) < 0 ? errno_name(errno) : "found", 0, "%s/root-etc-passwd", who);
	for (size_t i = 0; i < sizeof WRITE / sizeof *WRITE; i++) {
		snprintf(path, sizeof path, "/proc/%d/%s", pid, WRITE[i]);
		int fd = open(path, O_WRONLY);
		ssize_t length = fd < 0 ? -1 : write(fd, "1", 1);
		int error = errno;
		reportf(DENIED "|ENOENT|EINVAL|EROFS", length < 0 ? errno_name(error) : "written", length < 0 ? error : 0, "%s/write-%s", who,
			WRITE[i]);
	}
}

void attack_init(void)
{
	attack_control("init", 1);
	attack_proc("init", 1);
	struct stat facts;
	report("init/owner", "root", stat("/proc/1/status", &facts) == 0 && facts.st_uid == 0 ? "root" : "other", 0);
	char text[4096];
	ssize_t length = slurp("/proc/1/cmdline", text, sizeof text);
	report("init/cmdline", "/app/toolbox", length > 0 ? text : "empty", 0);
	report("init/cmdline-length", "13", length == 13 ? "13" : "other", 0);

	/* The link's socket: its folder lets nobody in but the runner's group. */
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/app/link/sock"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	report_result("init/link-connect", "EACCES", connect(fd, (struct sockaddr *)&address, sizeof address));
	close(fd);
	fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	report_result("init/link-connect-datagram", "EACCES|EPROTOTYPE", connect(fd, (struct sockaddr *)&address, sizeof address));
	close(fd);
	report("init/link-stat", "EACCES", stat("/app/link/sock", &facts) < 0 ? errno_name(errno) : "found", 0);
	report("init/link-list", "EACCES", opendir("/app/link") ? "listed" : errno_name(errno), 0);

	/* No process here listens on an abstract name, and none of another namespace can be seen. */
	int abstract = 0;
	slurp("/proc/net/unix", text, sizeof text);
	for (char *at = text; (at = strchr(at, '@')); at++)
		abstract++;
	snprintf(text, sizeof text, "%d", abstract);
	report("init/abstract-sockets", "0", text, 0);

	/* Signals in bulk, and those that the kernel sends on another's behalf. */
	TRY("init/kill-all-0", "0|EPERM|ESRCH", SYS_kill, -1, 0);
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) {
		fcntl(pair[0], F_SETSIG, SIGKILL);
		fcntl(pair[0], F_SETOWN, 1);
		fcntl(pair[0], F_SETFL, O_ASYNC);
		report_result("init/async-signal", "1", write(pair[1], "x", 1));
		close(pair[0]);
		close(pair[1]);
	}
	report_result("init/alive", "EPERM", kill(1, 0));
	/* The kernel pretends that PID 1 is nobody's child and nobody can be its. */
	report("init/parent", "0", status_number(1, "PPid", 10) == 0 ? "0" : "other", 0);
}

/* The first process that is neither root's nor the agent's, or -1. */
static pid_t find_worker(void)
{
	DIR *folder = opendir("/proc");
	pid_t found = -1;
	for (struct dirent *entry; folder && found < 0 && (entry = readdir(folder));) {
		pid_t pid = atoi(entry->d_name);
		long long uid = pid > 0 ? status_number(pid, "Uid", 10) : -1;
		if (uid > 0 && uid != getuid())
			found = pid;
	}
	if (folder)
		closedir(folder);
	return found;
}

void attack_worker(void)
{
	pid_t worker = find_worker();
	report("worker/found", "found", worker > 0 ? "found" : "missing", 0);
	if (worker < 0)
		return;
	attack_control("worker", worker);
	attack_proc("worker", worker);
	struct stat facts;
	char path[64];
	/* The folder itself shows the uid; what is in it belongs to root when the process is undumpable. */
	snprintf(path, sizeof path, "/proc/%d/status", worker);
	report("worker/undumpable", "root", stat(path, &facts) == 0 && facts.st_uid == 0 ? "root" : "other", 0);
	report("worker/capabilities", "0", status_number(worker, "CapEff", 16) == 0 ? "0" : "some", 0);
	report("worker/no-new-privs", "1", status_number(worker, "NoNewPrivs", 10) == 1 ? "1" : "0", 0);
	report_result("worker/alive", "EPERM", kill(worker, 0));
	int status;
	report_result("worker/not-ours", "ECHILD", waitpid(worker, &status, WNOHANG));
}
