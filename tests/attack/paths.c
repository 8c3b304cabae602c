/* What can be seen: masked paths, mounts, devices. */
#define _GNU_SOURCE
#include "attack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

static const char *const MASKED[] = {
	"/proc/acpi", "/proc/asound", "/proc/bus", "/proc/cmdline", "/proc/config.gz", "/proc/crypto", "/proc/diskstats",
	"/proc/driver", "/proc/dynamic_debug", "/proc/fs", "/proc/interrupts", "/proc/iomem", "/proc/ioports", "/proc/irq",
	"/proc/kallsyms", "/proc/kcore", "/proc/key-users", "/proc/keys", "/proc/kmsg", "/proc/kpagecount", "/proc/kpageflags",
	"/proc/kpagecgroup", "/proc/latency_stats", "/proc/locks", "/proc/misc", "/proc/modules", "/proc/mtrr",
	"/proc/pagetypeinfo", "/proc/partitions", "/proc/pressure", "/proc/sched_debug", "/proc/schedstat", "/proc/scsi",
	"/proc/slabinfo", "/proc/softirqs", "/proc/swaps", "/proc/sysvipc", "/proc/timer_list", "/proc/timer_stats", "/proc/tty",
	"/proc/vmallocinfo", "/proc/vmstat", "/proc/zoneinfo", "/proc/buddyinfo", "/sys/block", "/sys/bus", "/sys/class", "/sys/dev",
	"/sys/devices/virtual", "/sys/firmware", "/sys/hypervisor", "/sys/kernel", "/sys/module", "/sys/power", "/sys/fs/bpf",
	"/sys/fs/cgroup",
};

/* `absent`, `empty`, the errno's name that opening it gave, or `readable`. */
static const char *visibility(const char *path)
{
	struct stat facts;
	char byte;
	if (stat(path, &facts) < 0)
		return errno == ENOENT ? "absent" : errno_name(errno);
	if (S_ISDIR(facts.st_mode)) {
		DIR *folder = opendir(path);
		if (!folder)
			return errno_name(errno);
		int entries = 0;
		while (readdir(folder))
			entries++;
		closedir(folder);
		return entries <= 2 ? "empty" : "readable";
	}
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return errno_name(errno);
	ssize_t length = read(fd, &byte, 1);
	int error = errno;
	close(fd);
	return length > 0 ? "readable" : length == 0 ? "empty" : errno_name(error);
}

static void report_masked(void)
{
	for (size_t i = 0; i < sizeof MASKED / sizeof *MASKED; i++)
		reportf("absent|empty|EACCES|EPERM", visibility(MASKED[i]), 0, "masked%s", MASKED[i]);
	/* Another way to the same: relative to a task, and through the magic links. */
	report("masked-via-self-root", "absent|empty|EACCES|EPERM", visibility("/proc/self/root/proc/kallsyms"), 0);
	report("masked-via-task", "absent|empty|EACCES|EPERM", visibility("/proc/thread-self/root/sys/firmware"), 0);
}

/* Below these two, only the engine mounts: masks (empty, read-only) and read-only views. */
static int is_kernel_path(const char *path)
{
	return strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0;
}

/* Every mount is one that was ordered, and read-only unless it is one of the few that must be written. */
static void report_mount(const char *point, int writable, int is_null)
{
	static const char *const READ_ONLY[] = {"/", "/app", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/hostname", "/sys"};
	static const char *const WRITABLE[] = {"/tmp", "/dev/shm", "/proc", "/dev", "/dev/pts", "/dev/mqueue"};
	/* A masked file is the /dev/null of /dev, which is writable and swallows everything. */
	int known = is_kernel_path(point), may_write = known && is_null;
	for (size_t i = 0; i < sizeof READ_ONLY / sizeof *READ_ONLY; i++)
		known |= strcmp(point, READ_ONLY[i]) == 0;
	for (size_t i = 0; i < sizeof WRITABLE / sizeof *WRITABLE; i++)
		may_write |= strcmp(point, WRITABLE[i]) == 0;
	const char *got = !known && !may_write ? "unexpected" : writable && !may_write ? "writable" : "expected";
	reportf("expected", got, 0, "mount%s", point);
}

static void report_mounts(void)
{
	static struct mount {
		char point[256];
		int writable, is_null;
	} seen[512];
	FILE *mounts = fopen("/proc/self/mountinfo", "r");
	char line[4096], root[1024], options[512];
	int count = 0;
	while (mounts && count < 512 && fgets(line, sizeof line, mounts)) {
		if (sscanf(line, "%*d %*d %*s %1023s %255s %511s", root, seen[count].point, options) != 3)
			continue;
		seen[count].writable = strncmp(options, "rw", 2) == 0;
		seen[count++].is_null = strcmp(root, "/null") == 0;
	}
	for (int i = 0; i < count; i++) {
		int covered = 0;
		for (int later = i + 1; later < count; later++)
			covered |= strcmp(seen[i].point, seen[later].point) == 0;
		if (!covered)
			report_mount(seen[i].point, seen[i].writable, seen[i].is_null);
	}
	report("mounts/some", "some", count > 5 && count < 512 ? "some" : "none", 0);
	if (mounts)
		fclose(mounts);
	struct statvfs facts;
	statvfs("/tmp", &facts);
	unsigned long must = ST_NOSUID | ST_NODEV;
	report("mounts/tmp-flags", "right", (facts.f_flag & (must | ST_NOEXEC)) == must ? "right" : "wrong", 0);
	statvfs("/dev/shm", &facts);
	must = ST_NOSUID | ST_NODEV | ST_NOEXEC;
	report("mounts/shm-flags", "right", (facts.f_flag & must) == must ? "right" : "wrong", 0);
	struct stat mode;
	stat("/tmp", &mode);
	report("mounts/tmp-mode", "1777", (mode.st_mode & 07777) == 01777 ? "1777" : "other", 0);
}

static void report_devices(void)
{
	static const char *const EXPECTED[] = {"core", "fd", "full", "mqueue", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin",
		"stdout", "tty", "urandom", "zero"};
	DIR *folder = opendir("/dev");
	int unexpected = 0;
	for (struct dirent *entry; folder && (entry = readdir(folder));) {
		size_t i;
		for (i = 0; i < sizeof EXPECTED / sizeof *EXPECTED; i++)
			if (strcmp(entry->d_name, EXPECTED[i]) == 0)
				break;
		if (i == sizeof EXPECTED / sizeof *EXPECTED && entry->d_name[0] != '.') {
			unexpected++;
			reportf("absent", "present", 0, "device/%s", entry->d_name);
		}
	}
	report("device/unexpected", "0", folder && unexpected == 0 ? "0" : "some", 0);
	static const char *const NEEDED[] = {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"};
	for (size_t i = 0; i < sizeof NEEDED / sizeof *NEEDED; i++) {
		char name[64];
		snprintf(name, sizeof name, "device%s", NEEDED[i]);
		try_open(name, "opened", NEEDED[i], O_RDWR);
	}
	try_open("device/kmsg", "ENOENT|EACCES|EPERM", "/dev/kmsg", O_RDONLY);
	try_open("device/console", "ENOENT|EACCES|EPERM|ENXIO|EIO", "/dev/console", O_RDWR);
	/* What other containers and the host look like from here. */
	char text[8192];
	int others = 0;
	DIR *processes = opendir("/proc");
	for (struct dirent *entry; processes && (entry = readdir(processes));)
		others += atoi(entry->d_name) > 100000;
	report("proc/own-pid-namespace", "own", slurp("/proc/1/status", text, sizeof text) > 0 && !others ? "own" : "host", 0);
	ssize_t length = slurp("/proc/self/cgroup", text, sizeof text);
	report("proc/cgroup-hides-the-id", "hidden", length >= 0 && !strstr(text, "docker") ? "hidden" : "shown", 0);
	length = slurp("/etc/hosts", text, sizeof text);
	report("etc/hosts", "localhost", length > 0 && strstr(text, "localhost") ? "localhost" : "missing", 0);
	length = slurp("/etc/resolv.conf", text, sizeof text);
	report("etc/resolv.conf", "no-server", length > 0 && strstr(text, "nameserver") ? "server" : "no-server", 0);
}

void attack_paths(void)
{
	report_masked();
	report_mounts();
	report_devices();
}
