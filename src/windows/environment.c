/* The environment, and functions of strings that the C library lacks. */
#include "windows/internal.h"

#include <tlhelp32.h>

#undef strerror

/* What POSIX systems set: a directory for temporary files, and what the console can. */
static bool usual_value(const char *name, char *out, int size) {
  Wide path;
  *out = '\0';
  if (strcmp(name, "TMPDIR") == 0 && GetTempPathW(WINDOWS_NAME, path.text)) {
    windows_narrow(path.text, out, size);
    windows_slashes(out);
  } else if (strcmp(name, "LANG") == 0) strcpy(out, "C.UTF-8");
  else if (strcmp(name, "TERM") == 0 && windows_can_mark()) strcpy(out, "windows");
  return *out;
}

/* Values stay valid: each is kept once. */
char *win_getenv(const char *name) {
  enum { KEPT = 64 };
  static struct { char *name, *value; } kept[KEPT];
  static int count;
  char text[3 * WINDOWS_NAME] = "";
  const wchar_t *value = _wgetenv(windows_word(name).text);
  if (value) windows_narrow(value, text, sizeof text);
  else if (!usual_value(name, text, sizeof text)) return NULL;
  for (int i = 0; i < count; i++)
    if (strcmp(kept[i].name, name) == 0 && strcmp(kept[i].value, text) == 0) return kept[i].value;
  if (count == KEPT) return NULL;
  kept[count].name = strdup(name);
  return kept[count++].value = strdup(text);
}

int setenv(const char *name, const char *value, int replace) {
  (void)replace;
  if (*value && !*windows_word(value).text) return errno = E2BIG, -1;
  return _wputenv_s(windows_word(name).text, windows_word(value).text) == 0 ? 0 : -1;
}

BOOLEAN NTAPI SystemFunction036(PVOID bytes, ULONG size); /* RtlGenRandom() of advapi32 */

int getentropy(void *bytes, size_t size) { return SystemFunction036(bytes, (ULONG)size) ? 0 : (errno = EIO, -1); }

int win_gethostname(char *out, size_t size) {
  DWORD length = (DWORD)size;
  return windows_result(GetComputerNameA(out, &length));
}

pid_t getppid(void) {
  PROCESSENTRY32W entry = {.dwSize = sizeof entry};
  const HANDLE list = CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0);
  DWORD parent = 0;
  for (BOOL more = Process32FirstW(list, &entry); more && !parent; more = Process32NextW(list, &entry))
    if (entry.th32ProcessID == GetCurrentProcessId()) parent = entry.th32ParentProcessID;
  CloseHandle(list);
  return (pid_t)parent;
}

/* The processors that this process may use, at most the 64 of a group. */
static long processors(void) {
  DWORD_PTR mine = 0, all = 0;
  return GetProcessAffinityMask(GetCurrentProcess(), &mine, &all) ? __builtin_popcountll(mine) : 1;
}

long sysconf(int what) { return what == _SC_PAGESIZE ? 4096 : processors(); }

/* ---- strings ---- */

const char *win_strerror(int cause) { return cause == EBUSY ? "another program has it open" : strerror(cause); }

char *strndup(const char *text, size_t size) {
  const size_t length = strnlen(text, size);
  char *out = calloc(length + 1, 1);
  return out ? memcpy(out, text, length) : NULL;
}

char *strsep(char **rest, const char *separators) {
  char *word = *rest;
  if (!word) return NULL;
  *rest = word + strcspn(word, separators);
  if (**rest) *(*rest)++ = '\0';
  else *rest = NULL;
  return word;
}

void *memmem(const void *bytes, size_t size, const void *wanted, size_t length) {
  const char *at = bytes, *end = at + size;
  if (!length) return (void *)(uintptr_t)at;
  for (; (size_t)(end - at) >= length; at++) {
    at = memchr(at, *(const char *)wanted, (size_t)(end - at) - length + 1);
    if (!at) return NULL;
    if (memcmp(at, wanted, length) == 0) return (void *)(uintptr_t)at;
  }
  return NULL;
}
