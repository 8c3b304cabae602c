/* What the parts of the attack program share. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/*
 * Prints `name expected got errno`, separated by tabs. `expected` lists what may come, `got` what came, by the same words:
 * an errno's name, a signal's name, a number, or a word of the attack's own. `errno` is the number behind an errno's name,
 * else 0. The attack failed to do harm when `got` is one of `expected`, which are separated by `|`.
 */
void report(const char *name, const char *expected, const char *got, int error);

/* `report` for the result of a system call: an errno's name when it is -1, else the number. */
void report_result(const char *name, const char *expected, long result);

/* `report` with a formatted name. */
void reportf(const char *expected, const char *got, int error, const char *name, ...) __attribute__((format(printf, 4, 5)));

/* The name of an errno, such as `EPERM`. */
const char *errno_name(int error);

/*
 * Makes one system call in a child of its own, which dies with it, and writes the errno's name, the signal's name or the
 * number it returned to `got`. Returns the errno, 0 without one.
 */
int call_apart(char *got, size_t size, long number, long a, long b, long c, long d, long e, long f);

/* Runs `attack(argument)` in a child of its own and writes what became of it as `call_apart` does. */
int run_apart(char *got, size_t size, long (*attack)(void *), void *argument);

/* `call_apart` and `report` in one; arguments that are not given are 0. */
#define TRY(name, expected, number, ...) try_call(name, expected, number, (long[6]){__VA_ARGS__})
void try_call(const char *name, const char *expected, long number, const long arguments[6]);

/* Opens a path; reports the errno's name or `opened`. */
void try_open(const char *name, const char *expected, const char *path, int flags);

/* Reads a file into `text` and ends it with NUL; returns its length or -1. */
ssize_t slurp(const char *path, char *text, size_t size);

/* The number that follows `key` in /proc/PID/status in the given base, or -1. */
long long status_number(pid_t pid, const char *key, int base);

/* The sections of the program; each is one command. */
void attack_syscalls(void);
void attack_arguments(void);
void attack_features(void);
void attack_identity(void);
void attack_init(void);
void attack_worker(void);
void attack_paths(void);
void attack_writes(void);
void attack_network(void);
void leave_processes(void);
void count_processes(void);
