/* The parts of a page, which the Makefile makes into strings (make/web.mk). */
#ifndef INKLING_WEB_PARTS_H
#define INKLING_WEB_PARTS_H

extern const char web_style[];  /* web/page.css */
extern const char web_page[];   /* web/page.js */
extern const char web_worker[]; /* web/worker.js */
extern const char web_engine[]; /* the WebAssembly module, gzip in base64; "" in a build without it */

#endif
