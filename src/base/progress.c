#include "base/progress.h"

bool stop_go_on(StopSignal stop, const char *doing, Error *error) {
  return !stop_requested(stop) || fail(error, (ExitCode)(EXIT_SIGNALS + *stop), "stopped while %s", doing);
}
