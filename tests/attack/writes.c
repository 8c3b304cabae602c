/* Attempts to change anything outside /tmp and /dev/shm, and tricks with links, setuid bits and mounts inside. */
#define _GNU_SOURCE
#include "attack.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DENIED "EROFS|EACCES|EPERM|ENOENT|ENOTDIR"

static int found;

/* Tries to create a file in every folder below `path`, and to open every file for writing; reports each success. */
static void walk(const char *path, int depth)
{
	DIR *folder = opendir(path);
	if (!folder || depth > 12) {
		if (folder)
			closedir(folder);
		return;
	}
	char inner[4096];
	snprintf(inner, sizeof inner, "%s/.attack", path);
	int fd = open(inner, O_CREAT | O_EXCL | O_WRONLY, 0600);
	if (fd >= 0) {
		close(fd);
		unlink(inner);
		found++;
		reportf("refused", "created", 0, "create-in%s", path);
	}
	for (struct dirent *entry; (entry = readdir(folder));) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		snprintf(inner, sizeof inner, "%s/%s", strcmp(path, "/") == 0 ? "" : path, entry->d_name);
		struct stat facts;
		if (lstat(inner, &facts) < 0)
			continue;
		int skipped = strcmp(inner, "/tmp") == 0 || strcmp(inner, "/dev") == 0 || strcmp(inner, "/proc") == 0;
		if (S_ISDIR(facts.st_mode) && !skipped) {
			walk(inner, depth + 1);
		} else if (S_ISREG(facts.st_mode) && (fd = open(inner, O_WRONLY | O_NONBLOCK)) >= 0) {
			close(fd);
			found++;
			reportf("refused", "opened", 0, "write-to%s", inner);
		}
	}
	closedir(folder);
}

static void attack_everywhere(void)
{
	char got[32];
	walk("/", 0);
	walk("/proc/sys", 1);
	walk("/proc/fs", 1);
	walk("/proc/irq", 1);
	walk("/proc/bus", 1);
	snprintf(got, sizeof got, "%d", found);
	report("writes/everywhere", "0", got, 0);
}

static void attack_named(void)
{
	static const char *const FILES[] = {"/etc/passwd", "/etc/group", "/etc/hosts", "/etc/shadow", "/bin/sh", "/app/toolbox",
		"/app/link/sock", "/app/static/SKILL.md", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern",
		"/proc/sys/kernel/hostname", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/shmmax", "/proc/sys/kernel/msgmni",
		"/proc/sys/kernel/ns_last_pid", "/proc/sys/fs/mqueue/queues_max", "/proc/sys/net/ipv4/ip_forward",
		"/proc/sys/net/ipv4/ping_group_range", "/proc/sys/vm/overcommit_memory", "/sys/kernel/uevent_helper",
		"/sys/fs/cgroup/release_agent", "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/cgroup.procs"};
	static const char *const FOLDERS[] = {"/", "/app", "/app/link", "/app/static", "/bin", "/dev", "/dev/mqueue", "/dev/pts", "/etc",
		"/home", "/lib", "/mnt", "/opt", "/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/usr", "/usr/bin", "/var",
		"/var/tmp", "/run/lock"};
	char name[128], path[128];
	for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
		snprintf(name, sizeof name, "write%s", FILES[i]);
		try_open(name, DENIED, FILES[i], O_WRONLY);
		snprintf(name, sizeof name, "truncate%s", FILES[i]);
		report_result(name, DENIED, truncate(FILES[i], 0));
		snprintf(name, sizeof name, "chmod%s", FILES[i]);
		report_result(name, DENIED, chmod(FILES[i], 0777));
		snprintf(name, sizeof name, "unlink%s", FILES[i]);
		report_result(name, DENIED "|EBUSY", unlink(FILES[i]));
		snprintf(name, sizeof name, "rename%s", FILES[i]);
		report_result(name, DENIED "|EXDEV|EBUSY", rename(FILES[i], "/tmp/attack-renamed"));
		snprintf(name, sizeof name, "link%s", FILES[i]);
		report_result(name, DENIED "|EXDEV", link(FILES[i], "/tmp/attack-linked"));
	}
	for (size_t i = 0; i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
		/* runner/minimal has /var/tmp as a link to /tmp, where it may be written. */
		char real[PATH_MAX];
		if (realpath(FOLDERS[i], real) && strcmp(real, "/tmp") == 0)
			continue;
		snprintf(path, sizeof path, "%s/attack-new", FOLDERS[i]);
		snprintf(name, sizeof name, "create-in%s", FOLDERS[i]);
		try_open(name, DENIED, path, O_CREAT | O_WRONLY);
		snprintf(name, sizeof name, "mkdir-in%s", FOLDERS[i]);
		report_result(name, DENIED, mkdir(path, 0700));
		snprintf(name, sizeof name, "symlink-in%s", FOLDERS[i]);
		report_result(name, DENIED, symlink("/tmp", path));
	}
}

/* Writes through mappings and descriptors of read-only files. */
static void attack_mappings(void)
{
	int fd = open("/etc/passwd", O_RDONLY);
	void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	report("mapping/shared", "EACCES", map == MAP_FAILED ? errno_name(errno) : "mapped", 0);
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	try_open("mapping/reopened", DENIED, path, O_WRONLY);
	report_result("mapping/fchmod", DENIED, fchmod(fd, 0777));
	close(fd);
}

/* Links in /tmp that point where the agent may not look: its own calls gain nothing. */
static void attack_links(void)
{
	static const char *const TARGETS[] = {"/proc/1/environ", "/proc/1/mem", "/proc/1/root/etc/passwd", "/app/link/sock", "/etc/shadow"};
	for (size_t i = 0; i < sizeof TARGETS / sizeof *TARGETS; i++) {
		char name[128];
		unlink("/tmp/attack-link");
		symlink(TARGETS[i], "/tmp/attack-link");
		snprintf(name, sizeof name, "symlink-to%s", TARGETS[i]);
		try_open(name, "EACCES|EPERM|ENOENT|ENXIO", "/tmp/attack-link", O_RDONLY);
		snprintf(name, sizeof name, "hardlink-to%s", TARGETS[i]);
		report_result(name, "EACCES|EPERM|ENOENT|EXDEV", link(TARGETS[i], "/tmp/attack-hard"));
	}
	unlink("/tmp/attack-link");
	report_result("links/to-own-magic", "EXDEV|ENOENT|EPERM|EACCES",
		linkat(AT_FDCWD, "/proc/self/exe", AT_FDCWD, "/tmp/attack-hard", AT_SYMLINK_FOLLOW) == 0 && unlink("/tmp/attack-hard") == 0
			? (errno = EXDEV, -1) /* the program itself lies in /tmp and is the agent's own */
			: -1);
}

static long exec_shm(void *unused)
{
	(void)unused;
	int source = open("/proc/self/exe", O_RDONLY), target = open("/dev/shm/attack", O_CREAT | O_WRONLY | O_CLOEXEC, 0700);
	char buffer[65536];
	for (ssize_t length; (length = read(source, buffer, sizeof buffer)) > 0;)
		if (write(target, buffer, (size_t)length) != length)
			return -1;
	close(target);
	char *words[] = {"attack", NULL};
	execv("/dev/shm/attack", words);
	int error = errno;
	unlink("/dev/shm/attack");
	errno = error;
	return -1;
}

static void attack_mounts(void)
{
	TRY("mount/tmpfs", "EPERM", SYS_mount, (long)"none", (long)"/tmp", (long)"tmpfs", 0, 0);
	TRY("mount/remount", "EPERM", SYS_mount, 0, (long)"/", 0, 32 | 4096, 0);
	TRY("mount/proc", "EPERM", SYS_mount, (long)"proc", (long)"/tmp", (long)"proc", 0, 0);
	TRY("umount/proc-kcore", "EPERM", SYS_umount2, (long)"/proc/kcore", 2);
	TRY("mount/fsopen", "EPERM", SYS_fsopen, (long)"tmpfs", 0);
	TRY("mount/open-tree", "EPERM", SYS_open_tree, -100, (long)"/", 1);
	TRY("mount/chroot", "EPERM", SYS_chroot, (long)"/tmp");
	TRY("mount/pivot-root", "EPERM", SYS_pivot_root, (long)"/tmp", (long)"/tmp");
	TRY("mount/swapon", "EPERM", SYS_swapon, (long)"/tmp/attack", 0);
	TRY("mount/sethostname", "EPERM", SYS_sethostname, (long)"host", 4);
	char got[32];
	int error = run_apart(got, sizeof got, exec_shm, NULL);
	report("shm/exec", "EACCES", got, error);
	unlink("/dev/shm/attack");
}

void attack_writes(void)
{
	attack_everywhere();
	attack_named();
	attack_mappings();
	attack_links();
	attack_mounts();
}
