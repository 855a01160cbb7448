/* Writing of HTML pages. */
#ifndef INKLING_BASE_HTML_H
#define INKLING_BASE_HTML_H

#include <stddef.h>
#include <stdio.h>

/* Writes the beginning of a page up to its title: encoding, security policy, the colors that all pages share, and the
 * style sheet of this one. */
void html_begin(FILE *stream, const char *style);

/* Writes text with the special characters of HTML and XML escaped; replaces control characters and bytes that are not
 * UTF-8. */
void html_write(FILE *stream, const char *text, size_t size);
void html_write_text(FILE *stream, const char *text); /* writes a zero-terminated text */
void html_write_element(FILE *stream, const char *tag, const char *text); /* writes <tag>text</tag> */

#endif
