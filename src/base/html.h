/* Writing of HTML pages. */
#ifndef INKLING_BASE_HTML_H
#define INKLING_BASE_HTML_H

#include <stddef.h>
#include <stdio.h>

extern const char html_style[]; /* html.css, the style sheet of all pages */

/* Writes the beginning of a page: encoding, security policy, style sheet, title, and the heading at its top. `kind` is
 * the class of its body, for the style sheet. */
void html_begin(FILE *stream, const char *kind, const char *title, const char *heading);
void html_end(FILE *stream);

/* Writes text with the special characters of HTML and XML escaped; replaces control characters and bytes that are not
 * UTF-8. */
void html_write(FILE *stream, const char *text, size_t size);
void html_write_text(FILE *stream, const char *text); /* writes a zero-terminated text */
/* Writes <tag>text</tag>. `tag` may have attributes: "p class=\"note\"". */
void html_write_element(FILE *stream, const char *tag, const char *text);

#endif
