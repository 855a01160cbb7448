/* In place of base/system.c: the machine. Windows has no control groups, and no limits of a process on memory. */
#include "base/system.h"

#include "windows/internal.h"

#include <math.h>
#include <psapi.h>
#include <shellapi.h>

struct timespec system_modified(const struct stat *file) {
  return file->st_mtim;
}

/* Directories need no sync, and cannot be synced. */
int system_sync(int fd) {
  struct stat st;
  if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) return 0;
  return windows_result(FlushFileBuffers(windows_handle(fd)));
}

PathText system_program(void) {
  PathText out = {""};
  Wide name;
  if (GetModuleFileNameW(NULL, name.text, WINDOWS_NAME)) windows_narrow(name.text, out.text, sizeof out.text);
  windows_slashes(out.text);
  return out;
}

const char *system_open_page(const char *path) {
  enum { FAILED = 32 };
  return (INT_PTR)ShellExecuteW(NULL, L"open", windows_path(path).text, NULL, NULL, SW_SHOWNORMAL) > FAILED
             ? NULL
             : "Windows found no browser";
}

/* There is neither /proc nor /sys. */
double system_read_number(const char *path, const char *format, double otherwise) {
  return (void)path, (void)format, otherwise;
}

double system_free_memory(void) {
  MEMORYSTATUSEX status = {.dwLength = sizeof status};
  return GlobalMemoryStatusEx(&status) ? fmin((double)status.ullAvailPhys, (double)status.ullAvailPageFile) : INFINITY;
}

size_t system_peak_memory(void) {
  PROCESS_MEMORY_COUNTERS counters = {.cb = sizeof counters};
  return K32GetProcessMemoryInfo(GetCurrentProcess(), &counters, sizeof counters) ? counters.PeakWorkingSetSize : 0;
}

static void CALLBACK parent_died(void *number, BOOLEAN timeout) {
  (void)timeout;
  windows_deliver((int)(intptr_t)number);
}

void system_end_with_parent(int number) {
  HANDLE wait, parent = OpenProcess(SYNCHRONIZE, FALSE, (DWORD)getppid());
  if (parent)
    RegisterWaitForSingleObject(&wait, parent, parent_died, (void *)(intptr_t)number, INFINITE, WT_EXECUTEONLYONCE);
}

/* ---- control groups and limits ---- */

double control_group_number(const char *directory, const char *name, const char *format, double otherwise) {
  return (void)directory, (void)name, (void)format, otherwise;
}

void control_groups_take(const char *root, const char *controller, ControlGroupTake take, void *out) {
  (void)root, (void)controller, (void)take, (void)out;
}

AvailableMemory memory_available_in_groups(const char *root) {
  return (void)root, (AvailableMemory){INFINITY, INFINITY, NULL};
}

AvailableMemory memory_available(void) { return (AvailableMemory){system_free_memory(), INFINITY, NULL}; }

MemoryLimitText memory_limit_text(const AvailableMemory *available) { return (void)available, (MemoryLimitText){""}; }

/* ---- blocks ---- */

enum { LARGE = 2 << 20, LARGEST_ALIGNMENT = 1 << 16 /* of VirtualAlloc() */ };

void *memory_allocate(size_t alignment, size_t bytes) {
  if (bytes > SIZE_MAX / 2 || alignment > LARGEST_ALIGNMENT) return NULL;
  if (bytes >= LARGE) return VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
  void *memory = _aligned_malloc(bytes ? bytes : 1, alignment);
  return memory ? memset(memory, 0, bytes) : NULL;
}

void memory_release(void *memory, size_t bytes) {
  if (memory && bytes >= LARGE) VirtualFree(memory, 0, MEM_RELEASE);
  else _aligned_free(memory);
}
