#include "base/system.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t peak_resident(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (size_t)usage.ru_maxrss;
}

double system_read_number(const char *path, const char *format, double otherwise) {
  FILE *file = fopen(path, "r");
  if (!file) return otherwise;
  char line[128];
  double number;
  bool found = false;
  while (!found && fgets(line, sizeof line, file)) found = sscanf(line, format, &number) == 1;
  fclose(file);
  return found ? number : otherwise;
}

#ifdef __APPLE__

#include <fcntl.h>
#include <mach-o/dyld.h>
#include <mach/mach.h>

struct timespec system_modified(const struct stat *file) {
  return file->st_mtimespec;
}

/* Not every file system has F_FULLFSYNC. */
int system_sync(int fd) { return fcntl(fd, F_FULLFSYNC) == 0 ? 0 : fsync(fd); }

PathText system_program(void) {
  PathText out;
  uint32_t size = sizeof out.text;
  if (_NSGetExecutablePath(out.text, &size) != 0) out.text[0] = '\0';
  return out;
}

/* Free pages, and those that the kernel drops when memory is needed: pages of files, purgeable pages. Pages that were
 * read ahead are counted as free and as pages of files. */
double system_free_memory(void) {
  vm_statistics64_data_t pages = {0};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&pages, &count) != KERN_SUCCESS)
    return INFINITY;
  return ((double)pages.free_count - pages.speculative_count + pages.external_page_count + pages.purgeable_count) *
         (double)vm_kernel_page_size;
}

size_t system_peak_memory(void) { return peak_resident(); }

void system_end_with_parent(int number) { (void)number; }

#else

#ifdef __linux__
#include <signal.h>
#include <sys/prctl.h>
#endif

struct timespec system_modified(const struct stat *file) {
  return file->st_mtim;
}

int system_sync(int fd) { return fsync(fd); }

PathText system_program(void) { return (PathText){"/proc/self/exe"}; }

double system_free_memory(void) { return 1024 * system_read_number("/proc/meminfo", "MemAvailable: %lf", INFINITY); }

size_t system_peak_memory(void) { return peak_resident() * 1024; }

void system_end_with_parent(int number) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, number);
#else
  (void)number;
#endif
}

#endif
