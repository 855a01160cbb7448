/* Choosing and opening the machine that computes: --device, --dtype, --threads. */
#ifndef INKLING_CLI_DEVICE_H
#define INKLING_CLI_DEVICE_H

#include "cli/error.h"
#include "kernels.h"

typedef enum DeviceChoice { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA } DeviceChoice;
extern const char *const device_choices[]; /* "auto", "cpu", "cuda", NULL: in the order of DeviceChoice */

/* Opens the best backend that is there (auto) or the one named. EXIT_USAGE when this build or machine does not have it.
 */
bool device_open(DeviceChoice choice, int threads, const Backend **backend, Context **context, Error *error);

/* `train (Inkling) VERSION, backends: cpu` on stdout. */
void print_version(const char *program, const char *version);

#endif
