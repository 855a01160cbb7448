#ifndef INKLING_WINDOWS_DLFCN_H
#define INKLING_WINDOWS_DLFCN_H
enum { RTLD_NOW = 2, RTLD_LOCAL = 0, RTLD_GLOBAL = 256 };
void *dlopen(const char *name, int flags);
void *dlsym(void *library, const char *name);
char *dlerror(void);
#endif
