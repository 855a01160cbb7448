#pragma once
struct pollfd {
  int fd;
  short events, revents;
};
enum { POLLIN = 1, POLLOUT = 4, POLLERR = 8, POLLHUP = 16 };
int poll(struct pollfd *files, unsigned long count, int milliseconds);
