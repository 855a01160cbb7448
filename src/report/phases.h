/* Where the time of a run goes. The clock of phases is always in exactly one of them: to enter a phase is to leave the
 * one before, so the seconds of all phases sum to those since the clock began. */
#ifndef INKLING_REPORT_PHASES_H
#define INKLING_REPORT_PHASES_H

typedef enum Phase {
  PHASE_START,       /* device, run directory, memory, initial model; on a GPU, a step to warm up */
  PHASE_TEXT,        /* reads the text, trains the tokenizer, encodes */
  PHASE_PLAN,        /* chooses settings; with --minutes, times steps */
  PHASE_TEACHER,     /* trains that of --teacher-steps */
  PHASE_STEPS,       /* training steps and their log */
  PHASE_EVALUATIONS, /* losses, answers, choices, xz */
  PHASE_SAMPLES,     /* texts, and how much of them the training text contains */
  PHASE_FILES,       /* writes states, models, report.html and result.json */
  PHASES
} Phase;
extern const char *const phase_names[PHASES];

typedef struct PhaseClock {
  Phase now;
  double entered;         /* clock_seconds() */
  double seconds[PHASES]; /* before `entered` */
} PhaseClock;

/* Starts the clock in PHASE_START. */
PhaseClock phases_begin(void);

/* Enters a phase, which may be the one it is in. Returns the phase before. */
Phase phases_enter(PhaseClock *clock, Phase next);

#endif
