#ifndef INKLING_WINDOWS_FILE_H
#define INKLING_WINDOWS_FILE_H
enum { LOCK_SH = 1, LOCK_EX = 2, LOCK_NB = 4 };
int flock(int fd, int how);
#endif
