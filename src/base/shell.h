/* How the shell that people use quotes words: here a shell of POSIX. */
#ifndef INKLING_BASE_SHELL_H
#define INKLING_BASE_SHELL_H
#define SHELL_QUOTE "'"
#define SHELL_QUOTE_INSIDE "'\\''"
#define SHELL_PLAIN "_-./+,:@%=" /* needs no quotes, like letters and digits */
#endif
