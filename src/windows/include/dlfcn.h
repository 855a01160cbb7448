/* The libraries that are loaded on other systems are not looked for: MPI, liblzma. */
#pragma once
enum { RTLD_NOW, RTLD_LOCAL, RTLD_GLOBAL };
static inline void *dlopen(const char *name, int flags) { return (void)name, (void)flags, NULL; }
static inline void *dlsym(void *library, const char *name) { return (void)library, (void)name, NULL; }
static inline const char *dlerror(void) { return "Windows is not supported"; }
