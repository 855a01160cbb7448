/* The license of a model, as its model card names it. */
#ifndef INKLING_REPORT_LICENSE_H
#define INKLING_REPORT_LICENSE_H

#include "base/text.h"

/* Returns whether a text has the form of a license's identifier, such as cc-by-4.0. */
bool is_license(const char *text);

/* Returns the license in the front matter of DIR/README.md or, without it, the setting `license` in DIR/config.txt. "":
 * there is none, or it is not one identifier. */
OneLine model_license(const char *dir);

#endif
