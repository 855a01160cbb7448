/* Names, files and mapped files. */
#include "windows/internal.h"

#include <sys/file.h>
#include <sys/mman.h>

#undef open
#undef access
#undef rename
#undef unlink
#undef remove
#undef rmdir
#undef mkdir

/* ---- errors ---- */

static int cause_of(DWORD code) {
  static const struct {
    DWORD code;
    int cause;
  } causes[] = {{ERROR_FILE_NOT_FOUND, ENOENT},    {ERROR_PATH_NOT_FOUND, ENOENT},
                {ERROR_INVALID_NAME, ENOENT},      {ERROR_PIPE_NOT_CONNECTED, EPIPE},
                {ERROR_BAD_PATHNAME, ENOENT},      {ERROR_INVALID_DRIVE, ENOENT},
                {ERROR_ACCESS_DENIED, EACCES},     {ERROR_SHARING_VIOLATION, EBUSY},
                {ERROR_USER_MAPPED_FILE, EBUSY},   {ERROR_LOCK_VIOLATION, EWOULDBLOCK},
                {ERROR_FILE_EXISTS, EEXIST},       {ERROR_ALREADY_EXISTS, EEXIST},
                {ERROR_DIR_NOT_EMPTY, ENOTEMPTY},  {ERROR_DIRECTORY, ENOTDIR},
                {ERROR_DISK_FULL, ENOSPC},         {ERROR_HANDLE_DISK_FULL, ENOSPC},
                {ERROR_NOT_ENOUGH_MEMORY, ENOMEM}, {ERROR_OUTOFMEMORY, ENOMEM},
                {ERROR_COMMITMENT_LIMIT, ENOMEM},  {ERROR_TOO_MANY_OPEN_FILES, EMFILE},
                {ERROR_WRITE_PROTECT, EROFS},      {ERROR_FILENAME_EXCED_RANGE, ENAMETOOLONG},
                {ERROR_BROKEN_PIPE, EPIPE},        {ERROR_NO_DATA, EPIPE},
                {ERROR_NOT_SAME_DEVICE, EXDEV},    {ERROR_INVALID_HANDLE, EBADF},
                {ERROR_INVALID_FUNCTION, EINVAL},  {ERROR_NOT_SUPPORTED, EINVAL},
                {ERROR_PRIVILEGE_NOT_HELD, EPERM}, {ERROR_CANT_ACCESS_FILE, EACCES}};
  for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
    if (causes[i].code == code) return causes[i].cause;
  return EIO;
}

int windows_failed(void) { return errno = cause_of(GetLastError()), -1; }

/* ---- names ---- */

Wide windows_word(const char *text) {
  Wide out = {{0}};
  if (!MultiByteToWideChar(CP_UTF8, 0, text, -1, out.text, WINDOWS_NAME)) *out.text = L'\0';
  return out;
}

Wide windows_path(const char *path) {
  enum { SHORT = 240 };
  Wide out = windows_word(strcmp(path, "/dev/null") == 0 ? "NUL" : path);
  for (wchar_t *c = out.text; *c; c++)
    if (*c == L'/') *c = L'\\';
  Wide full = {L"\\\\?\\UNC"};
  const DWORD room = WINDOWS_NAME - 8, length = GetFullPathNameW(out.text, room, full.text + 8, NULL);
  wchar_t *const path_of_server = wcsncmp(full.text + 8, L"\\\\", 2) == 0 ? full.text + 9 : NULL;
  if (length < SHORT || length >= room || (path_of_server && wcschr(L"?.", path_of_server[1]))) return out;
  memmove(full.text + (path_of_server ? 7 : 4), path_of_server ? path_of_server : full.text + 8,
          (length + 1) * sizeof(wchar_t));
  return full;
}

void windows_narrow(const wchar_t *text, char *out, int size) {
  if (!WideCharToMultiByte(CP_UTF8, 0, text, -1, out, size, NULL, NULL)) *out = '\0';
}

void windows_slashes(char *path) {
  for (; *path; path++)
    if (*path == '\\') *path = '/';
}

static DWORD attributes(const char *path) { return GetFileAttributesW(windows_path(path).text); }

/* ---- opening and describing ---- */

HANDLE windows_handle(int fd) { return (HANDLE)_get_osfhandle(fd); }

HANDLE windows_open(const char *path, DWORD access, DWORD how, DWORD flags) {
  return CreateFileW(windows_path(path).text, access, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, NULL, how,
                     flags | FILE_FLAG_BACKUP_SEMANTICS, NULL); /* the last flag: directories, too */
}

static DWORD disposition(int flags) {
  if (!(flags & O_CREAT)) return flags & O_TRUNC ? TRUNCATE_EXISTING : OPEN_EXISTING;
  return flags & O_EXCL ? CREATE_NEW : flags & O_TRUNC ? CREATE_ALWAYS : OPEN_ALWAYS;
}

int win_open(const char *path, int flags, ...) {
  const bool writes = flags & (O_WRONLY | O_RDWR), reads = !(flags & O_WRONLY);
  const DWORD access = (reads ? GENERIC_READ : 0) | (writes ? GENERIC_WRITE : 0);
  if (writes && windows_is_directory(attributes(path))) return errno = EISDIR, -1;
  const HANDLE file = windows_open(path, access, disposition(flags), FILE_ATTRIBUTE_NORMAL);
  if (file == INVALID_HANDLE_VALUE) return windows_failed();
  if (flags & O_APPEND) SetFilePointer(file, 0, NULL, FILE_END);
  return _open_osfhandle((intptr_t)file, (flags & O_APPEND) | O_BINARY);
}

int fcntl(int fd, int what) { return (void)what, _get_osfhandle(fd) < 0 ? -1 : 0; }

static struct timespec unix_time(FILETIME t) {
  const uint64_t ticks = (uint64_t)t.dwHighDateTime << 32 | t.dwLowDateTime; /* of 100 ns, since 1601 */
  const uint64_t since = ticks - 116444736000000000u, second = 10000000;
  return (struct timespec){(time_t)(since / second), (long)(since % second * 100)};
}

static int describe(HANDLE file, struct win_stat *out) {
  BY_HANDLE_FILE_INFORMATION i;
  *out = (struct win_stat){0};
  switch (GetFileType(file)) {
  case FILE_TYPE_PIPE: return out->st_mode = S_IFIFO, 0;
  case FILE_TYPE_CHAR: return out->st_mode = S_IFCHR, 0;
  default: break;
  }
  if (!GetFileInformationByHandle(file, &i)) return windows_failed();
  *out = (struct win_stat){.st_size = (int64_t)((uint64_t)i.nFileSizeHigh << 32 | i.nFileSizeLow),
                           .st_ino = (uint64_t)i.nFileIndexHigh << 32 | i.nFileIndexLow,
                           .st_dev = i.dwVolumeSerialNumber,
                           .st_mode = windows_is_directory(i.dwFileAttributes) ? S_IFDIR : S_IFREG,
                           .st_mtim = unix_time(i.ftLastWriteTime)};
  return 0;
}

static int describe_path(const char *path, struct win_stat *out, DWORD flags) {
  const HANDLE file = windows_open(path, FILE_READ_ATTRIBUTES, OPEN_EXISTING, flags);
  if (file == INVALID_HANDLE_VALUE) return windows_failed();
  const int status = describe(file, out);
  FILE_ATTRIBUTE_TAG_INFO tag;
  const bool link = flags && GetFileInformationByHandleEx(file, FileAttributeTagInfo, &tag, sizeof tag) &&
                    tag.FileAttributes & FILE_ATTRIBUTE_REPARSE_POINT && IsReparseTagNameSurrogate(tag.ReparseTag);
  if (!status && link) out->st_mode = S_IFLNK; /* other reparse points: files of OneDrive */
  CloseHandle(file);
  return status;
}

int win_stat(const char *path, struct win_stat *out) { return describe_path(path, out, 0); }

int win_lstat(const char *path, struct win_stat *out) { return describe_path(path, out, FILE_FLAG_OPEN_REPARSE_POINT); }

int win_fstat(int fd, struct win_stat *out) { return describe(windows_handle(fd), out); }

/* Permissions of directories are not checked: creating a file there says the same. */
int win_access(const char *path, int mode) {
  const DWORD found = attributes(path);
  if (found == INVALID_FILE_ATTRIBUTES) return windows_failed();
  return mode & W_OK && found & FILE_ATTRIBUTE_READONLY && !windows_is_directory(found) ? (errno = EACCES, -1) : 0;
}

char *realpath(const char *path, char *out) {
  Wide found;
  const HANDLE file = windows_open(path, 0, OPEN_EXISTING, 0);
  if (file == INVALID_HANDLE_VALUE) return windows_failed(), NULL;
  const DWORD length = GetFinalPathNameByHandleW(file, found.text, WINDOWS_NAME, 0);
  CloseHandle(file);
  if (!length || length >= WINDOWS_NAME) return windows_failed(), NULL;
  wchar_t *start = found.text; /* \\?\C:\..., or \\?\UNC\server\... */
  if (wcsncmp(start, L"\\\\?\\UNC\\", 8) == 0) *(start += 6) = L'\\';
  else if (wcsncmp(start, L"\\\\?\\", 4) == 0) start += 4;
  const int size = WideCharToMultiByte(CP_UTF8, 0, start, -1, NULL, 0, NULL, NULL);
  if (!out) out = malloc((size_t)size); /* a caller's has PATH_MAX bytes, and more */
  if (!out) return NULL;
  windows_narrow(start, out, size);
  windows_slashes(out);
  return out;
}

/* ---- new names, and deleting ---- */

/* Virus scanners and indexers hold new files open for a moment. */
static bool try_again(int attempt) {
  enum { ATTEMPTS = 20, MILLISECONDS = 10 };
  const DWORD code = GetLastError();
  if (attempt >= ATTEMPTS || (code != ERROR_SHARING_VIOLATION && code != ERROR_ACCESS_DENIED)) return false;
  Sleep(MILLISECONDS);
  return true;
}

/* FILE_RENAME_INFO with a new name, and what Windows 10 1607 has of POSIX: a file that is open is replaced or deleted, too. */
typedef struct Renaming {
  DWORD flags;
  HANDLE root;
  DWORD bytes;
  wchar_t name[WINDOWS_NAME];
} Renaming;
enum { RENAME_EX = 22, REPLACE = 1, DELETE_EX = 21, DELETE_IT = 1, IGNORE_READONLY = 16, AS_POSIX = 2 };

static bool rename_open(const char *from, const Wide *to) {
  Renaming r = {.flags = REPLACE | AS_POSIX};
  const DWORD length = GetFullPathNameW(to->text, WINDOWS_NAME, r.name, NULL);
  const HANDLE file = windows_open(from, DELETE | SYNCHRONIZE, OPEN_EXISTING, 0);
  if (file == INVALID_HANDLE_VALUE) return false;
  r.bytes = length * (DWORD)sizeof *r.name;
  const BOOL ok = length && length < WINDOWS_NAME &&
                  SetFileInformationByHandle(file, (FILE_INFO_BY_HANDLE_CLASS)RENAME_EX, &r, sizeof r);
  CloseHandle(file);
  return ok;
}

int win_rename(const char *from, const char *to) {
  const Wide target = windows_path(to);
  if (rename_open(from, &target)) return 0;
  for (int attempt = 0;; attempt++) {
    if (MoveFileExW(windows_path(from).text, target.text, MOVEFILE_REPLACE_EXISTING)) return 0;
    if (!try_again(attempt)) return windows_failed();
  }
}

static bool delete_open(const char *path) {
  DWORD flags = DELETE_IT | AS_POSIX | IGNORE_READONLY;
  const HANDLE file = windows_open(path, DELETE, OPEN_EXISTING, FILE_FLAG_OPEN_REPARSE_POINT);
  if (file == INVALID_HANDLE_VALUE) return false;
  const BOOL ok = SetFileInformationByHandle(file, (FILE_INFO_BY_HANDLE_CLASS)DELETE_EX, &flags, sizeof flags);
  CloseHandle(file);
  return ok;
}

int win_unlink(const char *path) {
  if (windows_is_directory(attributes(path))) return errno = EISDIR, -1;
  if (delete_open(path)) return 0;
  for (int attempt = 0; !DeleteFileW(windows_path(path).text); attempt++)
    if (!try_again(attempt)) return windows_failed();
  return 0;
}

int win_rmdir(const char *path) { return windows_result(RemoveDirectoryW(windows_path(path).text)); }
int win_remove(const char *path) { return windows_is_directory(attributes(path)) ? win_rmdir(path) : win_unlink(path); }

/* Of a directory that exists, such as the root of a drive, Windows may say that access is denied. */
int win_mkdir(const char *path, int mode) {
  const bool server = strncmp(path, "//", 2) == 0 && !strchr(path + 2, '/');
  if (!server && CreateDirectoryW(windows_path(path).text, NULL)) return (void)mode, 0;
  const int status = windows_failed();
  if (server || windows_is_directory(attributes(path))) errno = EEXIST;
  return status;
}

int link(const char *from, const char *to) {
  return windows_result(CreateHardLinkW(windows_path(to).text, windows_path(from).text, NULL));
}

/* ---- parts of files ---- */

int win_ftruncate(int fd, int64_t size) {
  FILE_END_OF_FILE_INFO end = {.EndOfFile.QuadPart = size};
  return windows_result(SetFileInformationByHandle(windows_handle(fd), FileEndOfFileInfo, &end, sizeof end));
}

static OVERLAPPED place_of(int64_t offset) {
  return (OVERLAPPED){.Offset = (DWORD)offset, .OffsetHigh = (DWORD)(offset >> 32)};
}

ssize_t pread(int fd, void *bytes, size_t size, int64_t offset) {
  DWORD done = 0;
  OVERLAPPED at = place_of(offset);
  const BOOL ok = ReadFile(windows_handle(fd), bytes, (DWORD)size, &done, &at);
  return ok || GetLastError() == ERROR_HANDLE_EOF ? (ssize_t)done : windows_failed();
}

ssize_t pwrite(int fd, const void *bytes, size_t size, int64_t offset) {
  DWORD done = 0;
  OVERLAPPED at = place_of(offset);
  return WriteFile(windows_handle(fd), bytes, (DWORD)size, &done, &at) ? (ssize_t)done : windows_failed();
}

/* Locks a byte far behind the end, because nobody may read locked bytes. */
int flock(int fd, int how) {
  OVERLAPPED at = place_of(INT64_MAX - 1);
  const DWORD flags = (how & LOCK_EX ? LOCKFILE_EXCLUSIVE_LOCK : 0) | (how & LOCK_NB ? LOCKFILE_FAIL_IMMEDIATELY : 0);
  return windows_result(LockFileEx(windows_handle(fd), flags, 0, 1, 0, &at));
}

/* ---- mapped files ---- */

void *mmap(void *at, size_t size, int protection, int flags, int fd, int64_t offset) {
  (void)at, (void)size, (void)protection, (void)flags, (void)offset;
  const HANDLE map = CreateFileMappingW(windows_handle(fd), NULL, PAGE_READONLY, 0, 0, NULL);
  void *bytes = map ? MapViewOfFile(map, FILE_MAP_READ, 0, 0, 0) : NULL;
  if (!bytes) windows_failed();
  if (map) CloseHandle(map);
  return bytes ? bytes : MAP_FAILED;
}

int munmap(void *bytes, size_t size) { return (void)size, windows_result(UnmapViewOfFile(bytes)); }
int madvise(void *bytes, size_t size, int advice) { return (void)bytes, (void)size, (void)advice, 0; }
