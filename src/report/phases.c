#include "report/phases.h"

#include "base/system.h"

const char *const phase_names[PHASES] = {"start", "text",        "plan",    "teacher",
                                         "steps", "evaluations", "samples", "files"};

PhaseClock phases_begin(void) { return (PhaseClock){.now = PHASE_START, .entered = clock_seconds()}; }

Phase phases_enter(PhaseClock *clock, Phase next) {
  const Phase before = clock->now;
  const double now = clock_seconds();
  clock->seconds[before] += now - clock->entered;
  clock->entered = now;
  clock->now = next;
  return before;
}
