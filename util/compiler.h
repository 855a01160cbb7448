/* The name and version of the compiler. */
#ifndef INKLING_UTIL_COMPILER_H
#define INKLING_UTIL_COMPILER_H

#ifdef __clang__
#define COMPILER_NAME __VERSION__ /* includes the name of clang */
#else
#define COMPILER_NAME "gcc " __VERSION__
#endif

#endif
