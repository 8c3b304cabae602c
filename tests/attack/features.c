/* What must work under the profile, for the agent's programs and for PID 1: done for real, in a few lines each. */
#define _GNU_SOURCE
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static char place[64];

static const char *in_place(const char *name)
{
	static char paths[4][128];
	static int next;
	char *path = paths[next++ % 4];
	snprintf(path, 128, "%s/%s", place, name);
	return path;
}

/* A step that must not fail; the caller's line then shows the errno. */
#define MUST(call)                                                                                                             \
	if ((call) < 0)                                                                                                        \
	return -1

static void *increment(void *number)
{
	(*(int *)number)++;
	return NULL;
}

static long threads(void *unused)
{
	(void)unused;
	int number = 0;
	pthread_t thread;
	if (pthread_create(&thread, NULL, increment, &number) || pthread_join(thread, NULL))
		return -1;
	return number;
}

static int exit_7(void *unused)
{
	(void)unused;
	_exit(7);
}

/* The way PID 1 starts a command: clone(VM|VFORK|PIDFD), then waitid on the pidfd. */
static long clone_pidfd(void *unused)
{
	(void)unused;
	static char stack[65536] __attribute__((aligned(16)));
	int pidfd = -1;
	MUST(clone(exit_7, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, NULL, &pidfd));
	/* P_PIDFD; C libraries before 2.36 do not name it. */
	idtype_t by_pidfd = (idtype_t)3;
	siginfo_t info;
	MUST(waitid(by_pidfd, (id_t)pidfd, &info, WEXITED | WNOWAIT));
	MUST(waitid(by_pidfd, (id_t)pidfd, &info, WEXITED));
	return info.si_status;
}

static long pidfd_kill(void *unused)
{
	(void)unused;
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	int pidfd = (int)syscall(SYS_pidfd_open, child, 0), status;
	MUST(pidfd);
	MUST(syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0));
	MUST(waitpid(child, &status, 0));
	return WTERMSIG(status);
}

static long exec_memfd(void *unused)
{
	(void)unused;
	int status, memfd = memfd_create("attack", 0), self = open("/proc/self/exe", O_RDONLY);
	struct stat facts;
	MUST(memfd);
	MUST(fstat(self, &facts));
	MUST(sendfile(memfd, self, NULL, (size_t)facts.st_size));
	pid_t child = fork();
	if (child == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, 2);
		char *words[] = {"attack", NULL};
		syscall(SYS_execveat, memfd, "", words, NULL, AT_EMPTY_PATH);
		_exit(99);
	}
	MUST(waitpid(child, &status, 0));
	return WEXITSTATUS(status);
}

static long event_loop(void *unused)
{
	(void)unused;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	MUST(sigprocmask(SIG_BLOCK, &set, NULL));
	int poll = epoll_create1(EPOLL_CLOEXEC), signals = signalfd(-1, &set, SFD_CLOEXEC);
	int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC), counter = eventfd(1, EFD_CLOEXEC);
	struct itimerspec soon = {.it_value = {.tv_nsec = 1}};
	MUST(timerfd_settime(timer, 0, &soon, NULL));
	int fds[] = {signals, timer, counter};
	for (int i = 0; i < 3; i++)
		MUST(epoll_ctl(poll, EPOLL_CTL_ADD, fds[i], &(struct epoll_event){.events = EPOLLIN}));
	MUST(kill(getpid(), SIGUSR1));
	struct epoll_event events[8];
	int ready = 0;
	for (int tries = 0; ready < 3 && tries < 100; tries++)
		MUST(ready = epoll_wait(poll, events, 8, 1000));
	return ready;
}

static long files(void *unused)
{
	(void)unused;
	int one = open(in_place("one"), O_CREAT | O_RDWR, 0600), two = open(in_place("two"), O_CREAT | O_RDWR, 0600);
	MUST(write(one, "hello", 5));
	MUST(fallocate(two, 0, 0, 4096));
	off_t from = 0, to = 0;
	MUST(copy_file_range(one, &from, two, &to, 5, 0));
	MUST(fsync(two));
	MUST(fdatasync(two));
	MUST(link(in_place("one"), in_place("three")));
	MUST(symlink("one", in_place("four")));
	MUST(rename(in_place("two"), in_place("five")));
	MUST(fchmodat(AT_FDCWD, in_place("five"), 0644, 0));
	MUST(utimensat(AT_FDCWD, in_place("five"), NULL, 0));
	MUST(mkfifo(in_place("fifo"), 0600));
	struct statx facts;
	MUST(statx(AT_FDCWD, in_place("five"), 0, STATX_ALL, &facts));
	struct statfs system;
	MUST(statfs(place, &system));
	struct {
		uint64_t flags, mode, resolve;
	} how = {O_RDONLY, 0, 0x08 | 0x02};
	int dir = open(place, O_PATH | O_DIRECTORY);
	MUST(syscall(SYS_openat2, dir, "five", &how, sizeof how));
	return (long)facts.stx_size;
}

static long watch(void *unused)
{
	(void)unused;
	int fd = inotify_init1(IN_CLOEXEC);
	MUST(inotify_add_watch(fd, place, IN_CREATE));
	MUST(open(in_place("watched"), O_CREAT | O_RDWR, 0600));
	char event[512];
	return read(fd, event, sizeof event) > 0 ? 0 : -1;
}

/* What Python's multiprocessing needs: a semaphore and a segment in /dev/shm, a Unix socket that hands over a descriptor. */
static long multiprocessing(void *unused)
{
	(void)unused;
	char name[64];
	snprintf(name, sizeof name, "/attack.%d", getpid());
	sem_t *semaphore = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
	if (semaphore == SEM_FAILED)
		return -1;
	MUST(sem_unlink(name));
	MUST(sem_wait(semaphore));
	int memory = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
	MUST(memory);
	MUST(shm_unlink(name));
	MUST(ftruncate(memory, 4096));
	if (mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0) == MAP_FAILED)
		return -1;
	int pair[2];
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	char byte = 'x', space[CMSG_SPACE(sizeof(int))] = {0};
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	*header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
	memcpy(CMSG_DATA(header), &memory, sizeof memory);
	MUST(sendmsg(pair[0], &message, 0));
	MUST(recvmsg(pair[1], &message, 0));
	return 0;
}

static long unix_server(void *unused)
{
	(void)unused;
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%s", in_place("socket"));
	int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
	MUST(bind(server, (struct sockaddr *)&address, sizeof address));
	MUST(listen(server, 1));
	MUST(connect(client, (struct sockaddr *)&address, sizeof address));
	MUST(accept4(server, NULL, NULL, SOCK_CLOEXEC));
	struct ucred peer;
	socklen_t size = sizeof peer;
	MUST(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &peer, &size));
	return peer.pid == getpid() ? 0 : -2;
}

static long landlock(void *unused)
{
	(void)unused;
	struct landlock_ruleset_attr attributes = {.handled_access_fs = LANDLOCK_ACCESS_FS_WRITE_FILE};
	int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
	if (rules < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		return 0; /* a kernel without Landlock */
	MUST(rules);
	MUST(syscall(SYS_landlock_restrict_self, rules, 0));
	return open(in_place("locked"), O_CREAT | O_WRONLY, 0600) < 0 && errno == EACCES ? 0 : -2;
}

static long lower_limits(void *unused)
{
	(void)unused;
	struct rlimit limit;
	MUST(getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = 64;
	MUST(setrlimit(RLIMIT_NOFILE, &limit));
	/* Commands may run at the lowest priority already, from where there is no way up. */
	MUST(setpriority(PRIO_PROCESS, 0, 19));
	cpu_set_t cpus;
	MUST(sched_getaffinity(0, sizeof cpus, &cpus));
	MUST(sched_setaffinity(0, sizeof cpus, &cpus));
	return 0;
}

static long terminal(void *unused)
{
	(void)unused;
	int controller = posix_openpt(O_RDWR | O_NOCTTY);
	MUST(controller);
	MUST(unlockpt(controller));
	return open(ptsname(controller), O_RDWR | O_NOCTTY) < 0 ? -1 : 0;
}

static long attributes(void *unused)
{
	(void)unused;
	MUST(open(in_place("attributes"), O_CREAT | O_RDWR, 0600));
	char names[256];
	return listxattr(in_place("attributes"), names, sizeof names) < 0 ? -1 : 0;
}

static void try_feature(const char *name, const char *expected, long (*feature)(void *))
{
	char got[32];
	int error = run_apart(got, sizeof got, feature, NULL);
	report(name, expected, got, error);
}

void attack_features(void)
{
	snprintf(place, sizeof place, "/tmp/attack.XXXXXX");
	if (!mkdtemp(place))
		place[0] = 0;
	try_feature("feature/threads", "1", threads);
	try_feature("feature/clone-pidfd", "7", clone_pidfd);
	try_feature("feature/pidfd-kill", "9", pidfd_kill);
	try_feature("feature/exec-memfd", "2", exec_memfd);
	try_feature("feature/event-loop", "3", event_loop);
	try_feature("feature/files", "4096", files);
	try_feature("feature/inotify", "0", watch);
	try_feature("feature/multiprocessing", "0", multiprocessing);
	try_feature("feature/unix-server", "0", unix_server);
	try_feature("feature/landlock", "0", landlock);
	try_feature("feature/lower-limits", "0", lower_limits);
	try_feature("feature/xattr", "0", attributes);
	/* Landlock may keep the terminals from commands: they have no use for one. */
	try_feature("feature/terminal", "0|EACCES", terminal);
	char removal[128];
	snprintf(removal, sizeof removal, "rm -rf '%s'", place);
	report_result("feature/system", "0", system(removal));
}
