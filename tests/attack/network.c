/* What is left of the network: a loopback at most. */
#define _GNU_SOURCE
#include "attack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void try_connect(const char *name, int type, const char *host, int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
	inet_pton(AF_INET, host, &address.sin_addr);
	int fd = socket(AF_INET, type, 0);
	report_result(name, "ENETUNREACH|EACCES|EPERM", connect(fd, (struct sockaddr *)&address, sizeof address));
	close(fd);
}

void attack_network(void)
{
	struct if_nameindex *interfaces = if_nameindex();
	int others = 0;
	for (struct if_nameindex *i = interfaces; i && i->if_index; i++)
		others += strcmp(i->if_name, "lo") != 0;
	report("network/interfaces", "lo", !interfaces ? errno_name(errno) : others ? "more" : "lo", 0);
	char text[8192], got[32];
	int lines = 0;
	slurp("/proc/net/route", text, sizeof text);
	for (char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	snprintf(got, sizeof got, "%d", lines - (lines > 0));
	report("network/routes", "0", got, 0);
	try_connect("network/internet-tcp", SOCK_STREAM, "1.1.1.1", 53);
	try_connect("network/internet-udp", SOCK_DGRAM, "8.8.8.8", 53);
	try_connect("network/bridge", SOCK_STREAM, "172.17.0.1", 80);
	try_connect("network/metadata", SOCK_STREAM, "169.254.169.254", 80);
	struct sockaddr_un engine = {.sun_family = AF_UNIX, .sun_path = "/var/run/docker.sock"};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	report_result("network/engine-socket", "ENOENT|EACCES", connect(fd, (struct sockaddr *)&engine, sizeof engine));
	close(fd);
	/* Abstract names belong to the network namespace, which is the container's own. */
	static const char *const NAMES[] = {"/containerd-shim", "/tmp/.X11-unix/X0", "/org/freedesktop/systemd1/notify", "/run/dbus"};
	for (size_t i = 0; i < sizeof NAMES / sizeof *NAMES; i++) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		size_t length = strlen(NAMES[i]);
		memcpy(address.sun_path + 1, NAMES[i], length);
		fd = socket(AF_UNIX, SOCK_STREAM, 0);
		int result = connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length));
		int error = errno;
		reportf("ECONNREFUSED|EPERM|EACCES", result < 0 ? errno_name(error) : "connected", result < 0 ? error : 0, "network/abstract%s",
			NAMES[i]);
		close(fd);
	}
	/* Changes of the namespace need a capability over it. */
	fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq request = {.ifr_name = "lo", .ifr_flags = 0};
	report_result("network/lo-down", "EPERM", ioctl(fd, SIOCSIFFLAGS, &request));
	report_result("network/bind-device", "0|EPERM", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	close(fd);
}
