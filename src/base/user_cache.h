/* Files that the program keeps for its user from run to run: $XDG_CACHE_HOME/inkling/NAME, or ~/.cache/inkling/NAME.
 * They hold what can be made again, so that a file that is missing or cannot be used is no error. */
#ifndef INKLING_BASE_USER_CACHE_H
#define INKLING_BASE_USER_CACHE_H

/* Returns the text of a file of at most 1 MiB, for free(); NULL: there is none. */
char *user_cache_read(const char *name);
/* Replaces a file; nothing where that is impossible. Makes the directories, which only the user can read. */
void user_cache_write(const char *name, const char *text);

#endif
