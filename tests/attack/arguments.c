/* The calls that are judged by their arguments, and the two other doors into the kernel: int 0x80 and x32. */
#define _GNU_SOURCE
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The kernel looks at the lower half of an int argument only; so must the filter. */
#define HIGH (1L << 32)

static const struct {
	const char *name;
	unsigned long flag;
} NAMESPACES[] = {
	{"newns", CLONE_NEWNS},   {"newcgroup", CLONE_NEWCGROUP}, {"newuts", CLONE_NEWUTS}, {"newipc", CLONE_NEWIPC},
	{"newuser", CLONE_NEWUSER}, {"newpid", CLONE_NEWPID},     {"newnet", CLONE_NEWNET},
};

static void attack_clone(void)
{
	char got[32];
	int error;
	for (size_t i = 0; i < sizeof NAMESPACES / sizeof *NAMESPACES; i++) {
		unsigned long flag = NAMESPACES[i].flag;
		error = call_apart(got, sizeof got, SYS_clone, (long)(flag | SIGCHLD), 0, 0, 0, 0, 0);
		reportf("EPERM", got, error, "clone/%s", NAMESPACES[i].name);
		error = call_apart(got, sizeof got, SYS_clone, (long)(flag | CLONE_NEWUSER | SIGCHLD) | HIGH, 0, 0, 0, 0, 0);
		reportf("EPERM", got, error, "clone/%s+newuser+high", NAMESPACES[i].name);
		error = call_apart(got, sizeof got, SYS_unshare, (long)flag, 0, 0, 0, 0, 0);
		reportf("EPERM", got, error, "unshare/%s", NAMESPACES[i].name);
	}
	TRY("unshare/newtime", "EPERM", SYS_unshare, 0x80);
	TRY("unshare/nothing", "EPERM", SYS_unshare, 0);
	/* A thread's flags without the memory to make one: refused by the kernel, so they reached it. */
	TRY("clone/sighand-without-vm", "EINVAL", SYS_clone, CLONE_SIGHAND | SIGCHLD);
}

static void attack_personality(void)
{
	static const long REFUSED[] = {0x0008, 0x20000, 0x20008, 0x40000, 0x400000, 0x800000, 0x8000000, 1, HIGH | 0x40000};
	TRY("personality/linux", "0", SYS_personality, 0);
	TRY("personality/ask", "0", SYS_personality, 0xffffffff);
	TRY("personality/ask-signed", "0", SYS_personality, -1);
	for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
		char got[32];
		int error = call_apart(got, sizeof got, SYS_personality, REFUSED[i], 0, 0, 0, 0, 0);
		reportf("EPERM", got, error, "personality/%#lx", REFUSED[i]);
	}
}

/* One line a family: how many of its types and protocols got another answer than they must. */
static void attack_socket_family(int family)
{
	static const int PROTOCOLS[] = {0, 1, 2, 4, 6, 9, 17, 33, 41, 47, 50, 58, 89, 103, 132, 136, 137, 143, 255, 256, 262, 300};
	int opened = 0, refused = 0, wrong = 0;
	char got[64];
	for (int type = 0; type < 16; type++) {
		for (size_t i = 0; i < sizeof PROTOCOLS / sizeof *PROTOCOLS; i++) {
			int protocol = PROTOCOLS[i], ip = family == AF_INET || family == AF_INET6;
			int may_stream = type == SOCK_STREAM && (protocol == 0 || protocol == 6);
			int may_datagram = type == SOCK_DGRAM && (protocol == 0 || protocol == 17);
			int reaches = family == AF_UNIX || (family == AF_NETLINK && protocol == 0) || (ip && (may_stream || may_datagram));
			int fd = socket(family, type, protocol);
			if (fd >= 0) {
				opened++;
				close(fd);
			} else if (errno == EPERM) {
				refused++;
			}
			wrong += reaches ? fd < 0 && errno == EPERM : fd >= 0 || errno != EPERM;
		}
	}
	snprintf(got, sizeof got, "%s", wrong ? "wrong" : opened ? "some" : refused ? "none" : "wrong");
	const char *expected = family == AF_UNIX || family == AF_NETLINK || family == AF_INET ? "some"
			     : family == AF_INET6                                             ? "some|none"
											      : "none";
	reportf(expected, got, 0, "socket/family-%d", family);
}

static void attack_sockets(void)
{
	for (int family = 0; family <= 64; family++)
		attack_socket_family(family);
	for (int protocol = 1; protocol <= 32; protocol++) {
		char got[32];
		int error = call_apart(got, sizeof got, SYS_socket, AF_NETLINK, SOCK_RAW, protocol, 0, 0, 0);
		reportf("EPERM", got, error, "socket/netlink-%d", protocol);
	}
	TRY("socket/raw", "EPERM", SYS_socket, AF_INET, SOCK_RAW, 6);
	TRY("socket/ping", "EPERM", SYS_socket, AF_INET, SOCK_DGRAM, 1);
	TRY("socket/ping6", "EPERM", SYS_socket, AF_INET6, SOCK_DGRAM, 58);
	TRY("socket/mptcp", "EPERM", SYS_socket, AF_INET, SOCK_STREAM, 262);
	TRY("socket/sctp", "EPERM", SYS_socket, AF_INET, SOCK_SEQPACKET, 0);
	TRY("socket/dccp", "EPERM", SYS_socket, AF_INET, 6, 0);
	TRY("socket/packet-high", "EPERM", SYS_socket, HIGH | AF_PACKET, SOCK_RAW, 0);
	TRY("socket/vsock-high", "EPERM", SYS_socket, HIGH | AF_VSOCK, SOCK_STREAM, 0);
	TRY("socket/alg-high", "EPERM", SYS_socket, HIGH | AF_ALG, SOCK_SEQPACKET, 0);
	TRY("socket/ping-high", "EPERM", SYS_socket, AF_INET, SOCK_DGRAM, HIGH | 1);
	TRY("socket/raw-high", "EPERM", SYS_socket, AF_INET, HIGH | SOCK_RAW, 6);
	for (int family = 0; family <= 46; family++) {
		int fds[2];
		long result = syscall(SYS_socketpair, family, SOCK_STREAM, 0, fds);
		int error = errno;
		const char *got = result == 0 ? "0" : errno_name(error);
		reportf(family == AF_UNIX ? "0" : "EPERM", got, result == 0 ? 0 : error, "socketpair/family-%d", family);
		if (result == 0) {
			close(fds[0]);
			close(fds[1]);
		}
	}
}

static void attack_mknod(void)
{
	static const struct {
		const char *name;
		long type;
		const char *expected;
	} TYPES[] = {
		{"regular", 0, "0"},          {"ifreg", S_IFREG, "0"},      {"fifo", S_IFIFO, "0"},       {"char", S_IFCHR, "EPERM"},
		{"block", S_IFBLK, "EPERM"},  {"sock", S_IFSOCK, "EPERM"},  {"folder", S_IFDIR, "EPERM"}, {"link", S_IFLNK, "EPERM"},
		{"char-high", HIGH | S_IFCHR, "EPERM"},
	};
	char path[64], got[32];
	snprintf(path, sizeof path, "/tmp/attack-node.%d", getpid());
	for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
		int error = call_apart(got, sizeof got, SYS_mknod, (long)path, TYPES[i].type | 0600, 0x103, 0, 0, 0);
		reportf(TYPES[i].expected, got, error, "mknod/%s", TYPES[i].name);
		unlink(path);
		error = call_apart(got, sizeof got, SYS_mknodat, AT_FDCWD, (long)path, TYPES[i].type | 0600, 0x103, 0, 0);
		reportf(TYPES[i].expected, got, error, "mknodat/%s", TYPES[i].name);
		unlink(path);
	}
}

static void attack_prctl(void)
{
	char name[16] = "attack";
	TRY("prctl/set-name", "0", SYS_prctl, PR_SET_NAME, (long)name);
	TRY("prctl/set-name-high", "0", SYS_prctl, HIGH | PR_SET_NAME, (long)name);
	TRY("prctl/set-dumpable", "0", SYS_prctl, PR_SET_DUMPABLE, 0);
	TRY("prctl/pdeathsig", "0", SYS_prctl, PR_SET_PDEATHSIG, 0);
	TRY("prctl/subreaper", "0", SYS_prctl, PR_SET_CHILD_SUBREAPER, 1);
	TRY("prctl/no-new-privs", "1", SYS_prctl, PR_GET_NO_NEW_PRIVS);
	TRY("prctl/sched-core", "EPERM", SYS_prctl, 62, 1, 0, 0, 0);
	TRY("prctl/sched-core-high", "EPERM", SYS_prctl, HIGH | 62, 1, 0, 0, 0);
	TRY("prctl/set-mm", "EPERM", SYS_prctl, PR_SET_MM, PR_SET_MM_MAP_SIZE, (long)name);
	TRY("prctl/user-dispatch", "EPERM", SYS_prctl, 59, 0);
	TRY("prctl/io-flusher", "EPERM", SYS_prctl, 57, 1);
	TRY("prctl/ptracer", "EPERM", SYS_prctl, PR_SET_PTRACER, -1);
	TRY("prctl/mce-kill", "EPERM", SYS_prctl, PR_MCE_KILL, 1, 1);
	TRY("prctl/tsc", "EPERM", SYS_prctl, PR_SET_TSC, 1);
	TRY("prctl/keep-caps-gives-nothing", "EPERM", SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, 7, 0, 0);
	TRY("prctl/capbset-drop", "EPERM", SYS_prctl, PR_CAPBSET_DROP, 7);
	TRY("prctl/securebits", "EPERM", SYS_prctl, PR_SET_SECUREBITS, 1);
}

static long int80_getpid(void *argument)
{
	(void)argument;
	long result;
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
	return result;
}

static long sysenter_getpid(void *argument)
{
	(void)argument;
	long result;
	__asm__ volatile("sysenter" : "=a"(result) : "a"(20L) : "memory");
	return result;
}

static void attack_other_doors(void)
{
	char got[32];
	int error = run_apart(got, sizeof got, int80_getpid, NULL);
	report("door/int80", "SIGSYS", got, error);
	error = run_apart(got, sizeof got, sysenter_getpid, NULL);
	report("door/sysenter", "SIGSYS|SIGILL|SIGSEGV", got, error);
	TRY("door/x32-getpid", "SIGSYS", 0x40000000 | SYS_getpid);
	TRY("door/x32-ptrace", "SIGSYS", 0x40000000 | 521, -1, -1);
	TRY("door/x32-execve", "SIGSYS", 0x40000000 | 520, 0, 0, 0);
	TRY("door/x32-beyond", "SIGSYS", 0x40000000 | 600);
	/* The kernel takes the lower half of the number, and so does the filter. */
	TRY("door/high-ptrace", "EPERM|ENOSYS", HIGH | SYS_ptrace, -1, -1);
}

void attack_arguments(void)
{
	attack_clone();
	attack_personality();
	attack_sockets();
	attack_mknod();
	attack_prctl();
	attack_other_doors();
}
