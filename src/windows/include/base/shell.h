/* In place of base/shell.h: for cmd and PowerShell. */
#define SHELL_QUOTE "\""
#define SHELL_QUOTE_INSIDE "\\\""
#define SHELL_PLAIN "_-./+,:@=\\"
