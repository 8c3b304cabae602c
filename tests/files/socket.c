/* Leaves a Unix socket at the path that it is given. */
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int count, char **words)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	if (count != 2)
		return 2;
	strncpy(name.sun_path, words[1], sizeof name.sun_path - 1);
	return bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&name, sizeof name) != 0;
}
