#ifndef INKLING_WINDOWS_POLL_H
#define INKLING_WINDOWS_POLL_H
struct pollfd {
  int fd;
  short events, revents;
};
enum { POLLIN = 1, POLLOUT = 4, POLLERR = 8, POLLHUP = 16 };
int poll(struct pollfd *files, unsigned long count, int milliseconds);
#endif
