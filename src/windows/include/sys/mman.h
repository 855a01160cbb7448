#pragma once
enum { PROT_READ = 1, PROT_WRITE = 2, MAP_PRIVATE = 2, MAP_ANONYMOUS = 32, MADV_DONTNEED = 4 };
enum { MADV_RANDOM = 1, MADV_WILLNEED = 3, POSIX_MADV_SEQUENTIAL = 2 };
#define posix_madvise madvise
#define MAP_FAILED ((void *)-1)
void *mmap(void *at, size_t size, int protection, int flags, int fd, int64_t offset); /* a whole file, to read */
int munmap(void *bytes, size_t size);
int madvise(void *bytes, size_t size, int advice);
