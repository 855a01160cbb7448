/* inkling: both programs in one. The first argument selects one, and the others are its arguments:
 *
 *   inkling train book.txt        is   ./train book.txt
 *   inkling generate book.run     is   ./generate book.run */
#include "base/file.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* The main() of train.c and generate.c; the Makefile renames them. */
int train_main(int argc, char **argv);
int generate_main(int argc, char **argv);

static const char help[] = "Usage: inkling train FILE... [options]       train a model on text\n"
                           "       inkling generate [RUN] [options]      generate text with a trained model\n"
                           "\n"
                           "inkling train --help and inkling generate --help list the options.\n"
                           "inkling --version prints the version.\n";

static int print(const char *text) {
  Error error = {0};
  fputs(text, stdout);
  if (!file_flush(stdout, "stdout", &error)) fprintf(stderr, "inkling: %s\n", error.text);
  return (int)error.code;
}

int main(int argc, char **argv) {
  const char *word = argc > 1 ? argv[1] : "";
  program_name_set_command(argc > 0 ? argv[0] : NULL);
  if (strcmp(word, "help") == 0 && argc == 3) { /* as COMMAND --help */
    word = argv[1] = argv[2];
    argv[2] = "--help";
  }
  if (strcmp(word, "train") == 0) return train_main(argc - 1, argv + 1);
  if (strcmp(word, "generate") == 0) return generate_main(argc - 1, argv + 1);
  if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) return print(help);
  if (strcmp(word, "--version") == 0) return print("inkling " INKLING_VERSION "\n");
  if (argc > 1)
    fprintf(stderr, "inkling: unknown command \"%s\"; type: inkling train FILE, or: inkling generate RUN\n",
            text_one_line(word, 100).text);
  else fputs(help, stderr);
  return EXIT_USAGE;
}
