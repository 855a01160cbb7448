/* In place of base/shell.h: for cmd and PowerShell. */
#define SHELL_QUOTE "\""
#define SHELL_QUOTE_INSIDE "\\\""
#define SHELL_PLAIN "_-./+,:@=\\"
#define SHELL_FROM_UTF_16                                                                                              \
  "save it as UTF-8 (in PowerShell: Get-Content OLD | Set-Content -Encoding utf8 NEW), or convert it"
