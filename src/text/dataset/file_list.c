#include "text/dataset/file_list.h"

#include "base/array.h"
#include "base/hash.h"
#include "base/path.h"
#include "base/system.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_SHOWN = 250 }; /* bytes of a path in a message */

static bool cannot_read(const char *path, int cause, Error *error) {
  return fail(error, EXIT_INPUT, "cannot read %s: %s", text_one_line(path, NAME_SHOWN).text, strerror(cause));
}

static bool is_model(const FileList *list, const char *dir) { return list->is_model && list->is_model(dir); }

/* Like text_ends_with(), but ignores case. */
static bool ends_in(const char *name, const char *ending) {
  size_t length = strlen(name), tail = strlen(ending);
  return length >= tail && strcasecmp(name + length - tail, ending) == 0;
}

/* The first ending of a format is the one that messages name. */
static const struct {
  const char *ending;
  TextFormat format;
} endings[] = {{".txt", FORMAT_TEXT},  {".jsonl", FORMAT_JSONL}, {".tsv", FORMAT_TSV},
               {".fa", FORMAT_FASTA},  {".fasta", FORMAT_FASTA}, {".fna", FORMAT_FASTA},
               {".faa", FORMAT_FASTA}, {".json", FORMAT_JSON},   {".chat", FORMAT_CHAT}};

/* *named: whether the name has the ending of a format; another file is text. */
static TextFormat format_of(const char *path, bool *named) {
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    if ((*named = ends_in(path, endings[i].ending))) return endings[i].format;
  return FORMAT_TEXT;
}

TextFormat text_format_of(const char *path) {
  bool named;
  return format_of(path, &named);
}

bool text_has_ending(const char *path) {
  bool named;
  format_of(path, &named);
  return named;
}

const char *text_ending(TextFormat format) {
  size_t i = 0;
  while (endings[i].format != format) i++;
  return endings[i].ending;
}

/* ---- the list ---- */

/* Takes ownership of the path; NULL: memory is out. */
static TextFile *append(FileList *list, char *path, TextFormat format, Error *error) {
  if (!path || list->count == INT_MAX ||
      !array_reserve(&list->files, &list->capacity, (size_t)list->count + 1, sizeof *list->files)) {
    free(path);
    error_memory(error, "a list of files");
    return NULL;
  }
  TextFile *file = &list->files[list->count++];
  *file = (TextFile){.path = path, .format = format};
  return file;
}

void file_list_free(FileList *list) {
  for (int i = 0; i < list->count; i++) free(list->files[i].path);
  for (size_t i = 0; i < list->skipped_count; i++) free(list->skipped[i]);
  free(list->skipped);
  free(list->files);
  *list = (FileList){0};
}

static bool measure(FileList *list, TextFile *file, const struct stat *st, Error *error) {
  if (faccessat(AT_FDCWD, file->path, R_OK, AT_EACCESS) != 0) return cannot_read(file->path, errno, error);
  if (st->st_size > INT64_MAX - list->bytes) return cannot_read(file->path, EOVERFLOW, error);
  file->size = st->st_size;
  file->modified = system_modified(st);
  file->device = (uint64_t)st->st_dev;
  file->inode = st->st_ino;
  list->bytes += file->end = file->size;
  return true;
}

int file_list_reserve(FileList *list, const char *path, TextFormat format, Error *error) {
  return append(list, strdup(path), format, error) ? list->count - 1 : -1;
}

bool file_list_measure(FileList *list, int index, Error *error) {
  struct stat st;
  TextFile *file = &list->files[index];
  if (stat(file->path, &st) != 0) return cannot_read(file->path, errno, error);
  return measure(list, file, &st, error);
}

bool file_list_part(FileList *out, const FileList *list, int64_t begin, int64_t end, Error *error) {
  int64_t before = 0;
  for (const TextFile *file = list->files; file < list->files + list->count; before += file++->size) {
    const int64_t from = begin > before ? begin - before : 0,
                  to = end - before < file->size ? end - before : file->size;
    if (from >= to) continue;
    TextFile *part = append(out, strdup(file->path), file->format, error);
    if (!part) return false;
    char *path = part->path;
    *part = *file;
    part->path = path;
    part->begin = from;
    part->end = to;
    out->bytes += to - from;
  }
  return true;
}

bool file_list_unchanged(const TextFile *file, Error *error) {
  struct stat st;
  const char *path = file->path;
  if (stat(path, &st) != 0) return cannot_read(path, errno, error);
  if (st.st_size != file->size)
    return fail(error, EXIT_INPUT, "%s was changed while it was read: it had %lld bytes, now it has %lld; start again",
                text_one_line(path, NAME_SHOWN).text, (long long)file->size, (long long)st.st_size);
  const struct timespec time = system_modified(&st);
  const bool same = time.tv_sec == file->modified.tv_sec && time.tv_nsec == file->modified.tv_nsec &&
                    (uint64_t)st.st_dev == file->device && st.st_ino == file->inode;
  return same ||
         fail(error, EXIT_INPUT, "%s was changed while it was read; start again", text_one_line(path, NAME_SHOWN).text);
}

/* ---- directories ---- */

typedef struct DirectoryId {
  dev_t device;
  ino_t inode;
} DirectoryId;

typedef struct Walk {
  FileList *found;
  FileList directories; /* those found so far, read or not */
  void *seen;           /* search tree of the DirectoryIds of those read */
} Walk;

static int compare_paths(const void *a, const void *b) {
  return strcmp(((const TextFile *)a)->path, ((const TextFile *)b)->path);
}

static void sort_from(FileList *list, int first) {
  if (list->count > first)
    qsort(list->files + first, (size_t)(list->count - first), sizeof *list->files, compare_paths);
}

static int compare_ids(const void *a, const void *b) {
  const DirectoryId *x = a, *y = b;
  if (x->device != y->device) return x->device < y->device ? -1 : 1;
  return (x->inode > y->inode) - (x->inode < y->inode);
}

/* Remembers a directory; *again: whether it was read before. */
static bool remember(Walk *walk, const struct stat *st, bool *again, Error *error) {
  DirectoryId *id = malloc(sizeof *id);
  if (!id) return error_memory(error, "a list of files");
  *id = (DirectoryId){st->st_dev, st->st_ino};
  DirectoryId **node = tsearch(id, &walk->seen, compare_ids);
  *again = node && *node != id;
  if (!node || *again) free(id);
  return node || error_memory(error, "a list of files");
}

static void forget(Walk *walk) {
  while (walk->seen) {
    DirectoryId *id = *(DirectoryId **)walk->seen; /* the root's */
    tdelete(id, &walk->seen, compare_ids);
    free(id);
  }
}

/* Takes ownership of the path. */
static bool skip(FileList *list, char *path, Error *error) {
  if (!array_reserve(&list->skipped, &list->skipped_capacity, list->skipped_count + 1, sizeof *list->skipped)) {
    free(path);
    return error_memory(error, "a list of files");
  }
  list->skipped[list->skipped_count++] = path;
  return true;
}

static bool may_be_text(const char *path) {
  static const char *const others[] = {".md",  ".markdown", ".text", ".rst", ".tex", ".org",  ".html", ".htm",
                                       ".rtf", ".doc",      ".docx", ".odt", ".pdf", ".epub", ".fb2",  ".mobi",
                                       ".csv", ".json",     ".pgn",  ".gz",  ".xz",  ".bz2",  ".zst",  ".zip"};
  const bool hidden = path_base(path)[0] == '.';
  for (size_t i = 0; !hidden && i < sizeof others / sizeof *others; i++)
    if (ends_in(path, others[i])) return true;
  return false;
}

/* Those that may be texts come first. */
static int compare_skipped(const void *a, const void *b) {
  const char *x = *(char *const *)a, *y = *(char *const *)b;
  const int texts = may_be_text(y) - may_be_text(x);
  return texts ? texts : strcmp(x, y);
}

OneLine file_list_skipped(const FileList *list, size_t from, bool texts) {
  enum { NAMED = 3, PATH_BYTES = 80 };
  OneLine out = {""};
  size_t count = 0;
  for (size_t i = from; i < list->skipped_count; i++) {
    const char *path = list->skipped[i];
    if ((!texts || may_be_text(path)) && count++ < NAMED)
      text_append(out.text, sizeof out.text, "%s%s", *out.text ? ", " : "", text_one_line(path, PATH_BYTES).text);
  }
  if (count > NAMED) text_append(out.text, sizeof out.text, " and %zu more", count - NAMED);
  return out;
}

/* Adds a directory entry. Takes ownership of the path. */
static bool take_entry(Walk *walk, char *path, Error *error) {
  struct stat st;
  bool wanted;
  const TextFormat format = format_of(path, &wanted);
  bool there = stat(path, &st) == 0;
  int cause = errno;
  bool directory = there && S_ISDIR(st.st_mode); /* a model's has samples and settings, not text */
  if (directory && !is_model(walk->found, path)) return append(&walk->directories, path, FORMAT_TEXT, error);
  if (there && S_ISREG(st.st_mode) && wanted) {
    TextFile *file = append(walk->found, path, format, error);
    return file && measure(walk->found, file, &st, error);
  }
  /* A broken link is an error only if its name is that of a text file. */
  if (there || !(wanted || (cause != ENOENT && cause != ELOOP))) return skip(walk->found, path, error);
  cannot_read(path, cause, error);
  free(path);
  return false;
}

static bool read_entries(Walk *walk, DIR *entries, const char *dir, Error *error) {
  for (;;) {
    errno = 0;
    const struct dirent *entry = readdir(entries);
    if (!entry) return errno == 0 || cannot_read(dir, errno, error);
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    char *path = strdup(path_in(dir, name).text);
    if (!path) return error_memory(error, "a list of files");
    if (!(name[0] == '.' ? skip(walk->found, path, error) : take_entry(walk, path, error))) return false;
  }
}

static bool read_directory(Walk *walk, const char *dir, Error *error) {
  struct stat st;
  bool again = false;
  if (stat(dir, &st) != 0) return cannot_read(dir, errno, error);
  if (!remember(walk, &st, &again, error)) return false;
  if (again) return true;
  DIR *entries = opendir(dir);
  if (!entries) return cannot_read(dir, errno, error);
  /* Sorted, so that if two paths lead to one directory, the same path is used on every file system. */
  int first = walk->directories.count;
  bool ok = read_entries(walk, entries, dir, error);
  closedir(entries);
  sort_from(&walk->directories, first);
  return ok;
}

static bool add_directory(FileList *list, const char *path, Error *error) {
  Walk walk = {.found = list};
  int first = list->count;
  const size_t skipped = list->skipped_count;
  bool ok = file_list_reserve(&walk.directories, path, FORMAT_TEXT, error) == 0;
  for (int i = 0; ok && i < walk.directories.count; i++)
    ok = read_directory(&walk, walk.directories.files[i].path, error);
  file_list_free(&walk.directories);
  forget(&walk);
  if (!ok) return false;
  sort_from(list, first);
  if (list->skipped_count > skipped)
    qsort(list->skipped + skipped, list->skipped_count - skipped, sizeof *list->skipped, compare_skipped);
  if (list->count > first) return true;
  fail(error, EXIT_INPUT, "the directory %s has no " TEXT_FILE_NAMES, text_one_line(path, NAME_SHOWN).text);
  const OneLine names = file_list_skipped(list, skipped, false);
  return *names.text ? error_append(error, ", only %s; to read a file with another ending, give its name", names.text)
                     : false;
}

bool file_list_add(FileList *list, const char *path, Error *error) {
  struct stat st;
  if (stat(path, &st) != 0) return cannot_read(path, errno, error);
  if (S_ISDIR(st.st_mode) && is_model(list, path))
    return fail(error, EXIT_INPUT,
                "%s is a model directory, not text; to resume a run, use --resume=%s; to fine-tune a model, give a "
                "text and --init %s",
                text_one_line(path, NAME_SHOWN).text, text_shell_word(path, NAME_SHOWN).text,
                text_shell_word(path, NAME_SHOWN).text);
  if (S_ISDIR(st.st_mode)) return add_directory(list, path, error);
  if (!S_ISREG(st.st_mode))
    return fail(error, EXIT_INPUT, "%s is neither a file nor a directory; give it as standard input: - < %s",
                text_one_line(path, NAME_SHOWN).text, text_shell_word(path, NAME_SHOWN).text);
  TextFile *file = append(list, strdup(path), text_format_of(path), error);
  return file && measure(list, file, &st, error);
}

/* ---- checksum ---- */

uint64_t file_list_sum(const FileList *list, uint64_t seed) {
  uint64_t sum = checksum_xxh64(&list->count, sizeof list->count, seed);
  for (int i = 0; i < list->count; i++) {
    const TextFile *file = &list->files[i];
    const int64_t facts[] = {(int64_t)file->format, (int64_t)file->size, (int64_t)file->modified.tv_sec,
                             (int64_t)file->modified.tv_nsec, (int64_t)file->inode};
    const int64_t part[] = {file->begin, file->end};
    sum = checksum_xxh64(facts, sizeof facts, sum);
    if (file->end - file->begin < file->size) sum = checksum_xxh64(part, sizeof part, sum);
    if (file->group) sum = checksum_xxh64(&file->group, sizeof file->group, sum);
  }
  return sum;
}
