#define _DEFAULT_SOURCE /* madvise */
#include "base/system.h"

#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what differs between Linux and macOS ---- */

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

extern char **environ;

/* Starts a program that prints nothing, with signals as a shell would leave them. Returns 0 or errno. */
static int start_quietly(char *const *words, pid_t *id) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, ignored;
  sigemptyset(&none);
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  sigaddset(&ignored, SIGXFSZ);
  if (posix_spawn_file_actions_init(&files) != 0) return ENOMEM;
  int failed = posix_spawnattr_init(&attributes);
  for (int fd = 0; fd <= STDERR_FILENO && !failed; fd++)
    failed = posix_spawn_file_actions_addopen(&files, fd, "/dev/null", fd ? O_WRONLY : O_RDONLY, 0);
  if (!failed) {
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &ignored);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    failed = posix_spawnp(id, words[0], &files, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
  }
  posix_spawn_file_actions_destroy(&files);
  return failed;
}

#ifdef __APPLE__
#define PAGE_OPENER "open"
#else
#define PAGE_OPENER "xdg-open"
#endif

const char *system_open_page(const char *path) {
  enum { ATTEMPTS = 30 };
  pid_t id;
  int status = 0;
  const PathText shown = path_in(*path == '/' ? "" : ".", path); /* no option */
  if (start_quietly((char *[]){PAGE_OPENER, (char *)(uintptr_t)shown.text, NULL}, &id) != 0)
    return "there is no program " PAGE_OPENER;
  for (int i = 0; i < ATTEMPTS; i++) {
    if (waitpid(id, &status, WNOHANG) == id) return status ? PAGE_OPENER " found no browser" : NULL;
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
  }
  return NULL; /* it runs the browser itself */
}

#ifdef __APPLE__

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

/* ---- control groups ---- */

double control_group_number(const char *directory, const char *name, const char *format, double otherwise) {
  char path[PATH_MAX + 64];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  return system_read_number(path, format, otherwise);
}

/* Takes `directory` and its ancestors, up to the mount, which is its first `top` bytes. If the group of a container has
 * a name that exists only on the host, its directory is missing and the container's own group is at the mount. */
static void take_all(char *directory, size_t top, int version, ControlGroupTake take, void *out) {
  for (;;) {
    take(directory, version, out);
    char *slash = strrchr(directory + top, '/');
    if (!slash) return;
    *slash = '\0';
  }
}

static bool is_listed(char *controllers, const char *name) {
  char *rest = NULL;
  for (char *one = strtok_r(controllers, ",", &rest); one; one = strtok_r(NULL, ",", &rest))
    if (strcmp(one, name) == 0) return true;
  return false;
}

/* Parses a line of the list of groups: "0::/path" of version 2, "4:cpu,cpuacct:/path" of version 1. Returns the
 * version; 0: another group. */
static int read_membership(char *line, const char *controller, const char **path) {
  line[strcspn(line, "\n")] = '\0';
  char *controllers = strchr(line, ':'), *colon = controllers ? strchr(controllers + 1, ':') : NULL;
  if (!colon) return 0;
  *colon = '\0';
  *path = colon + 1;
  return !controllers[1] ? 2 : is_listed(controllers + 1, controller);
}

void control_groups_take(const char *root, const char *controller, ControlGroupTake take, void *out) {
  char line[PATH_MAX], directory[PATH_MAX];
  snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
  FILE *file = fopen(line, "r");
  if (!file) return;
  while (fgets(line, sizeof line, file)) {
    const char *path;
    const int version = read_membership(line, controller, &path);
    if (!version) continue;
    const size_t top = (size_t)snprintf(directory, sizeof directory, "%s/sys/fs/cgroup%s%s", root,
                                        version == 1 ? "/" : "", version == 1 ? controller : "");
    if (top + strlen(path) >= sizeof directory) continue;
    strcpy(directory + top, path);
    take_all(directory, top, version, take, out);
  }
  fclose(file);
}

/* ---- available memory ---- */

static void take_least(AvailableMemory *least, double limit, double used, const char *set_by) {
  if (limit - used < least->bytes) *least = (AvailableMemory){limit - used, limit, set_by};
}

static double read_status(const char *format) { return 1024 * system_read_number("/proc/self/status", format, 0); }

static void take_resource(AvailableMemory *least, int resource, const char *used, const char *set_by) {
  struct rlimit limit;
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  take_least(least, (double)limit.rlim_cur, read_status(used), set_by);
}

/* Does not count inactive pages of files, because the kernel frees them when memory is needed. The limit of a group
 * without one is "max", or a number far above any memory. */
static void take_group(const char *directory, int version, void *least) {
  static const struct GroupFiles {
    const char *limit, *used, *cached;
  } files[] = {{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file %lf"},
               {"memory.max", "memory.current", "inactive_file %lf"}};
  const struct GroupFiles *f = &files[version - 1];
  const double NONE = 0x1p60;
  const double limit = control_group_number(directory, f->limit, "%lf", INFINITY);
  if (limit >= NONE) return;
  const double used = control_group_number(directory, f->used, "%lf", 0);
  take_least(least, limit, fmax(0, used - control_group_number(directory, "memory.stat", f->cached, 0)), "cgroup");
}

AvailableMemory memory_available_in_groups(const char *root) {
  AvailableMemory least = {INFINITY, INFINITY, NULL};
  control_groups_take(root, "memory", take_group, &least);
  return least;
}

AvailableMemory memory_available(void) {
  AvailableMemory least = memory_available_in_groups("");
  const double machine = system_free_memory();
  take_resource(&least, RLIMIT_AS, "VmSize: %lf", "ulimit -v");
  take_resource(&least, RLIMIT_DATA, "VmData: %lf", "ulimit -d");
  if (machine < least.bytes) least = (AvailableMemory){machine, INFINITY, NULL};
  return least;
}

MemoryLimitText memory_limit_text(const AvailableMemory *available) {
  MemoryLimitText out = {""};
  if (available->set_by)
    snprintf(out.text, sizeof out.text, "this process may use %s (%s)", text_bytes(available->limit).text,
             available->set_by);
  return out;
}

/* ---- blocks ---- */

enum { HUGE_PAGE = 2 << 20 };

/* Whether a block is mapped: fresh pages are already zero. Not under AddressSanitizer, which does not check the ends of
 * mapped blocks. */
static bool is_mapped(size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  return (void)bytes, false;
#else
  return bytes >= HUGE_PAGE;
#endif
}

static size_t whole_pages(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE; }

/* Maps whole huge pages; the address is a multiple of their size. */
static void *map(size_t bytes) {
  const size_t size = whole_pages(bytes);
  uint8_t *memory = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  const size_t before = (HUGE_PAGE - (uintptr_t)memory % HUGE_PAGE) % HUGE_PAGE;
  if (before) munmap(memory, before);
  if (before < HUGE_PAGE) munmap(memory + before + size, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
  madvise(memory + before, size, MADV_HUGEPAGE);
#endif
  return memory + before;
}

void *memory_allocate(size_t alignment, size_t bytes) {
  if (bytes > SIZE_MAX / 2 || alignment > HUGE_PAGE) return NULL;
  if (is_mapped(bytes)) return map(bytes);
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  return memory ? memset(memory, 0, bytes) : NULL;
}

void memory_release(void *memory, size_t bytes) {
  if (memory && is_mapped(bytes)) munmap(memory, whole_pages(bytes));
  else free(memory);
}
