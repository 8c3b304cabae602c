/* The unconfined twin of the toolbox: PID 1 of a container that has the agent's image and limits, but runs commands
 * bare. For every byte that arrives on the socket it runs `SHELL -c true` by vfork, exec and wait, and answers with
 * that byte: the floor that a confined command is held against.
 * Usage: twin SOCKET SHELL */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(argv[1]) >= sizeof address.sun_path)
        return 2;
    strcpy(address.sun_path, argv[1]);
    int link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (link < 0 || connect(link, (struct sockaddr *)&address, sizeof address) < 0) {
        perror("connect");
        return 1;
    }
    char byte;
    while (read(link, &byte, 1) == 1) {
        pid_t child = vfork();
        if (child == 0) {
            execl(argv[2], argv[2], "-c", "true", (char *)0);
            _exit(127);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) < 0 || status != 0)
            return 1;
        if (write(link, &byte, 1) != 1)
            return 1;
    }
    return 0;
}
