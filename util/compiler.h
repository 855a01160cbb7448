/* What compiled this file. */
#ifndef INKLING_UTIL_COMPILER_H
#define INKLING_UTIL_COMPILER_H

#ifdef __clang__
#define COMPILER_NAME __VERSION__ /* clang says its name there */
#else
#define COMPILER_NAME "gcc " __VERSION__
#endif

#endif
