#pragma once
enum { WNOHANG = 1 };
#define WIFEXITED(status) 1
#define WEXITSTATUS(status) (status)
#define WTERMSIG(status) 0
pid_t waitpid(pid_t id, int *status, int flags);
int kill(pid_t id, int number);
