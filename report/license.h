/* The license of a model, as its model card names it. */
#ifndef INKLING_REPORT_LICENSE_H
#define INKLING_REPORT_LICENSE_H

#include "util/text.h"

/* Returns the `license` in the front matter of DIR/README.md or, without it, in DIR/result.json, where ./train notes the
 * license of the initial model (--init). "": none. */
OneLine model_license(const char *dir);

#endif
