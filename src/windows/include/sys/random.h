/* getentropy() is in windows/posix.h. */
