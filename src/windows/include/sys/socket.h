/* Windows has none of it: src/windows/system.c is in place of what uses it. */
