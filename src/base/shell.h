/* How the shell that people use quotes words: here a shell of POSIX. */
#ifndef INKLING_BASE_SHELL_H
#define INKLING_BASE_SHELL_H
#define SHELL_QUOTE "'"
#define SHELL_QUOTE_INSIDE "'\\''"
#define SHELL_PLAIN "_-./+,:@%=" /* needs no quotes, like letters and digits */
#define SHELL_FROM_UTF_16 "convert it" /* what an iconv command is for */
#endif
