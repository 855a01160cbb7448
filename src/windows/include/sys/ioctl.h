#pragma once
struct winsize {
  unsigned short ws_col;
};
enum { TIOCGWINSZ = 1 };
int ioctl(int fd, int what, struct winsize *size);
