/* The beginning of the program: arguments in UTF-8, and what people expect who start it with the mouse. */
#include "windows/internal.h"

int main(int argc, char **argv);

/* Whether a word is a path: `C:\...`, or in a directory that exists. Only then are backslashes separators. */
static bool is_path(const wchar_t *word) {
  const wchar_t *last = wcsrchr(word, L'\\');
  Wide directory = {{0}};
  if (!last || last - word >= WINDOWS_NAME) return false;
  wcsncpy(directory.text, word, (size_t)(last - word));
  return (iswalpha(word[0]) && word[1] == L':') || windows_is_directory(GetFileAttributesW(directory.text));
}

static bool is_command(const wchar_t *word) {
  return !wcscmp(word, L"train") || !wcscmp(word, L"generate") || !wcscmp(word, L"help");
}

/* Returns the word in UTF-8, for free(). What follows the = of an option may be a path, too. */
static char *argument(const wchar_t *word, bool program) {
  const int size = WideCharToMultiByte(CP_UTF8, 0, word, -1, NULL, 0, NULL, NULL);
  const wchar_t *equals = wcsncmp(word, L"--", 2) == 0 ? wcschr(word, L'=') : NULL;
  char *out = calloc((size_t)size + 1, 1);
  if (!out) return NULL;
  windows_narrow(word, out, size);
  if (!program && is_path(equals ? equals + 1 : word)) windows_slashes(out);
  return out;
}

/* Whether the console was opened for this program: it was started with the mouse, and the window will vanish. */
static bool is_alone(void) { return isatty(0) && isatty(2) && GetConsoleProcessList(&(DWORD){0}, 1) == 1; }

static void wait_for_enter(void) {
  windows_expect_no_signal();
  fprintf(stderr, "\nPress Enter to close this window. ");
  fflush(stderr);
  read(0, (char[256]){0}, 256);
}

/* A text or a folder that was dropped on the program: its run shall be beside it. */
static void enter_directory(const wchar_t *path) {
  Wide directory;
  wchar_t *name = NULL;
  if (GetFullPathNameW(path, WINDOWS_NAME, directory.text, &name) && name) {
    *name = L'\0';
    SetCurrentDirectoryW(directory.text);
  }
}

int wmain(int argc, wchar_t **words) {
  static char train[] = "train";
  char **argv = calloc((size_t)argc + 2, sizeof *argv);
  int count = 0;
  if (!argv) return EXIT_FAILURE;
  windows_open_console();
  const bool names_text = argc > 1 && !is_command(words[1]) && GetFileAttributesW(words[1]) != INVALID_FILE_ATTRIBUTES;
  const bool waits = (argc == 1 || names_text) && is_alone();
  for (int i = 0; i < argc; i++) {
    if (i == 1 && names_text) argv[count++] = train;
    if (!(argv[count++] = argument(words[i], i == 0))) return EXIT_FAILURE;
  }
  if (waits && names_text) enter_directory(words[1]);
  const int status = main(count, argv);
  if (waits && argc == 1)
    fprintf(stderr,
            "\nDrop a text or a folder of texts on the program to train on it. For everything else, open a terminal\n"
            "(right-click the folder of this program, \"Open in Terminal\") and type for example:\n"
            ".\\inkling train book.txt\n");
  if (waits) wait_for_enter();
  return status;
}
