#ifndef INKLING_WINDOWS_FTW_H
#define INKLING_WINDOWS_FTW_H
struct FTW {
  int base, level;
};
enum { FTW_DEPTH = 8, FTW_PHYS = 1 };
int nftw(const char *path, int (*visit)(const char *, const struct stat *, int, struct FTW *), int open, int flags);
#endif
