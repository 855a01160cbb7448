/* Text in a page. */
#ifndef INKLING_UTIL_HTML_H
#define INKLING_UTIL_HTML_H

#include <stddef.h>
#include <stdio.h>

/* The characters of HTML and XML are escaped, control characters and bytes that are not UTF-8 replaced. */
void html_write(FILE *stream, const char *text, size_t size);
void html_write_text(FILE *stream, const char *text); /* all of it */

#endif
