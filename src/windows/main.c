/* The beginning of the program: arguments in UTF-8, and what people expect who start it with the mouse. */
#include "windows/internal.h"

int main(int argc, char **argv);

/* Whether a word is, or has, the value of an option that takes a text. Elsewhere backslashes are those of paths. */
static bool has_text(const wchar_t *word, const wchar_t *before) {
  static const wchar_t *const options[] = {L"-p",     L"--answer", L"--ban",    L"--bias", L"--prompt",
                                           L"--stop", L"--sweep",  L"--system", L"--title"};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    const size_t length = wcslen(options[i]);
    if (!wcscmp(before, options[i]) || (!wcsncmp(word, options[i], length) && word[length] == L'=')) return true;
  }
  return false;
}

static bool is_command(const wchar_t *word) {
  return !wcscmp(word, L"train") || !wcscmp(word, L"generate") || !wcscmp(word, L"help");
}

/* Returns the word in UTF-8, for free(). */
static char *argument(const wchar_t *word, bool is_text) {
  const int size = WideCharToMultiByte(CP_UTF8, 0, word, -1, NULL, 0, NULL, NULL);
  char *out = calloc((size_t)size + 1, 1);
  if (!out) return NULL;
  windows_narrow(word, out, size);
  if (!is_text) windows_slashes(out);
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

/* A text or a folder that was dropped on the program: its run shall be beside it. Returns its absolute path. */
static wchar_t *enter_directory(wchar_t *path) {
  static Wide full;
  wchar_t *name = NULL;
  const DWORD length = GetFullPathNameW(path, WINDOWS_NAME, full.text, &name);
  if (!length || length >= WINDOWS_NAME || !name) return path;
  Wide directory = full;
  directory.text[name - full.text] = L'\0';
  SetCurrentDirectoryW(directory.text);
  return full.text;
}

int wmain(int argc, wchar_t **words) {
  static char train[] = "train";
  char **argv = calloc((size_t)argc + 2, sizeof *argv);
  int count = 0;
  if (!argv) return EXIT_FAILURE;
  windows_open_console();
  const bool names_text = argc > 1 && !is_command(words[1]) && GetFileAttributesW(words[1]) != INVALID_FILE_ATTRIBUTES;
  const bool waits = (argc == 1 || names_text) && is_alone();
  if (waits && names_text) words[1] = enter_directory(words[1]);
  for (int i = 0; i < argc; i++) {
    if (i == 1 && names_text) argv[count++] = train;
    if (!(argv[count++] = argument(words[i], !i || has_text(words[i], words[i - 1])))) return EXIT_FAILURE;
  }
  const int status = main(count, argv);
  if (waits && argc == 1)
    fprintf(stderr,
            "\nDrop a text or a folder of texts on the program to train on it. For everything else, open a terminal\n"
            "(right-click the folder of this program, \"Open in Terminal\") and type for example:\n"
            ".\\inkling train book.txt\n");
  if (waits) wait_for_enter();
  return status;
}
