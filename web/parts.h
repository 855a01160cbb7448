/* The parts of a page, which the Makefile makes into strings and bytes (make/web.mk). */
#ifndef INKLING_WEB_PARTS_H
#define INKLING_WEB_PARTS_H

#include <stddef.h>

extern const char web_style[];  /* web/page.css */
extern const char web_page[];   /* web/page.js */
extern const char web_worker[]; /* web/worker.js */
/* The WebAssembly module, compressed by gzip; no bytes in a build without it. */
extern const unsigned char web_engine[];
extern const size_t web_engine_size;

#endif
