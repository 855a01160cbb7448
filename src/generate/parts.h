/* The parts of a page, which the Makefile makes into strings and bytes (tools/make/web.mk). */
#ifndef INKLING_GENERATE_PARTS_H
#define INKLING_GENERATE_PARTS_H

#include <stddef.h>

extern const char web_style[];  /* tools/web/page.css */
extern const char web_page[];   /* tools/web/page.js */
extern const char web_worker[]; /* tools/web/worker.js */
/* The WebAssembly module, compressed by gzip; no bytes in a build without it. */
extern const unsigned char web_engine[];
extern const size_t web_engine_size;

#endif
