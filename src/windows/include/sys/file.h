#pragma once
enum { LOCK_SH = 1, LOCK_EX = 2, LOCK_NB = 4 };
int flock(int fd, int how);
