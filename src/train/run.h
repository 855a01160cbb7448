/* The state of one run of ./train, in parts. A function takes the parts that it needs; one that needs many of them
 * takes the whole Run. train.c has the loop, settings.c the options, auto_settings.c the defaults; the sections below
 * name the other files. Functions that return bool fill an Error when they return false. */
#ifndef INKLING_TRAIN_RUN_H
#define INKLING_TRAIN_RUN_H

#include "cli/console.h"
#include "files/checkpoint/directory.h"
#include "files/checkpoint/state.h"
#include "base/collective/collective.h"
#include "inference/batch.h"
#include "inference/choices.h"
#include "inference/evaluation.h"
#include "text/dataset/corpus.h"
#include "text/dataset/packing.h"
#include "text/dataset/pairs.h"
#include "report/result.h"
#include "report/xz.h"
#include "text/tokenizer/bpe_encode.h"
#include "report/diagnosis.h"
#include "report/phases.h"
#include "train/auto_settings.h"
#include "train/outlook.h"
#include "base/path.h"
#include "base/system.h"
#include "base/text.h"
#include "files/formats/model_files.h"
#include "model/decoder.h"

/* The size of the text, found before it is read; on rank 0. */
typedef struct TextFacts {
  int files;
  int64_t bytes;
  size_t stdin_bytes; /* the part of `bytes` that came from standard input */
  OneLine skipped;    /* names in directories that are not read; "": none */
} TextFacts;

/* The progress of a run with --minutes (time_budget.c). Times are clock_seconds(), durations seconds; lengths count
 * steps. */
typedef struct TimeBudget {
  double launched;                     /* when the program started */
  double minutes, deadline;            /* minutes NaN: the length is given otherwise */
  double most;                         /* the run is not longer than this */
  double recent_seconds, recent_steps; /* sums in which every check halves the weight of older steps */
  double checked_at;                   /* when the length was checked last... */
  int64_t checked_step;                /* ...at this step */
  int64_t first_step;                  /* the step at which this program started */
  double paused, all_paused;           /* since that check, and before it */
  double saving, sampling;             /* duration of the last one; 0: there was none */
  double evaluating, answering;        /* likewise, per window and per pair */
  double choosing;                     /* likewise, per question */
  char text[24 * SCHEDULE_PLANS];      /* TrainSettings.earlier_steps if this program changed it */
} TimeBudget;

/* The sequences of a step that one process computes: `count` from `first` on, in `micro_batches` passes of `batch`. The
 * last pass may contain empty sequences. */
typedef struct SequenceShare {
  int first, count, batch, micro_batches;
} SequenceShare;

/* The tokens of the training or the validation text, and the windows that read them (tokens.c). */
typedef struct TextPart {
  TokenFile file;   /* path NULL: there is no such text, or its tokens are in the file of the other part */
  TokenRange range; /* fewer than 2 tokens: there is no such text */
  Packing packing;  /* only with --pack docs */
  Pairs pairs;      /* only with an encoder, instead of packing */
  Windows windows;
} TextPart;

/* The texts and their tokenizers (sources.c). */
typedef struct RunText {
  TextFacts facts;
  int threads;   /* the number of threads that read it */
  char *scratch; /* temporary directory of a run without its own; NULL: not needed (any more) */
  Tokenizer *tokenizer;
  Tokenizer *source_tokenizer; /* for prompts, with an encoder; NULL: the same as `tokenizer` */
  TextPart train, val;
  Mixture mixture;                  /* of the training texts: `train` has those without a share, ... */
  TextPart weighted[MIXTURE_TEXTS]; /* ...and these one each of the others, all in the file of `train` */
  bool cut_by_tokens;               /* the run was begun by an older version: `val` is the end of the file of `train` */
  ChoiceSet choices;                /* of --choose, on rank 0; count 0: none */
  uint64_t val_text;                /* on rank 0: identifies the validation text (tokenization_text_sum()) */
} RunText;

/* The device (setup.c). */
typedef struct RunDevice {
  const Backend *backend;
  Context *context;
  ContextInfo info; /* as it was opened; run_device_now() has changing values such as free memory */
  char *tuning;     /* Backend.tuning() of rank 0 after the warm-up; NULL: not yet, or --no-autotune */
  double peak_flops;
  size_t available; /* free bytes before the model was allocated */
} RunDevice;

/* The initial model: that of --init or of the resumed run (base.c). */
typedef struct RunBase {
  ModelFiles *files;     /* on rank 0 until the weights are on the device; else NULL */
  ModelConfig config;    /* layers 0: none */
  SpecialTokens special; /* on rank 0 */
  OneLine license;       /* in its model card; settings.license may point to it */
} RunBase;

/* The model of --teacher, or of --teacher-steps (teacher.c). */
typedef struct RunTeacher {
  ModelFiles *files;  /* --teacher: on rank 0 until the weights are on the device; else NULL */
  uint64_t tokens;    /* --teacher: on rank 0, tokenizer_fingerprint() */
  uint64_t weights;   /* on rank 0, once they are loaded: checksum_xxh64() */
  uint64_t expected;  /* on rank 0: the same in the state of a resumed run; 0: unknown */
  ModelConfig config; /* of --teacher */
} RunTeacher;

/* The model that is trained (setup.c). */
typedef struct RunModel {
  ModelConfig config;
  Model *on_device, *teacher;     /* teacher NULL: none */
  float *host[CHECKPOINT_ARENAS]; /* on rank 0: host copies, for saving and loading, and the mean of weights */
  Batch batch;                    /* for the step being prepared: grad_accum * batch windows */
  Decoder *decoder;               /* for samples and, with an encoder, answers; decoder_rows at a time */
  int decoder_rows;
  BpeIds drawn; /* tokens of the newest sample */
} RunModel;

/* The run directory (directory.c). */
typedef struct RunFiles {
  char *dir; /* its name, also set for a run without a directory */
  CheckpointLock lock;
  bool begun; /* the directory now holds this run's model */
  Metrics metrics;
  History history; /* the contents of metrics.jsonl */
} RunFiles;

/* When models are kept on the way (series.c). */
typedef enum SeriesUnit { SERIES_STEPS, SERIES_TOKENS, SERIES_WORDS } SeriesUnit;
enum { SERIES_MOST = 1000 };
typedef struct Series {
  SeriesUnit unit;
  double at[SERIES_MOST]; /* increasing */
  int count;
  double words_per_token; /* of the training text; NaN: not counted */
} Series;

/* The progress that is saved with the state (state.c). */
typedef struct RunProgress {
  int64_t step, best_step, bad_evals, evaluated_step, sampled_step;
  int64_t eval_windows; /* in each evaluation during the run; 0: not chosen yet */
  int64_t in_mean;      /* evaluations whose weights are in RunModel.host[CHECKPOINT_MEAN] */
  int64_t mean_step;    /* the newest of them */
  bool best_is_mean;    /* the kept model has the mean weights at best_step */
  bool evaluated_mean;  /* the newest evaluation is of the mean weights, which are better than the newest ones */
  bool finished;
  int64_t metrics_bytes, samples_bytes; /* sizes of the files when the state was saved */
  double best_loss, last_val_loss;      /* on those windows */
  double newest_val_loss;               /* of the newest weights; last_val_loss may be that of the mean */
  double seconds;                       /* training time before this start of the program */
  double loss_sum;                      /* summed over the steps since the last line of metrics.jsonl */
  int64_t loss_steps;
} RunProgress;

/* What is known since the program started. */
typedef struct RunSession {
  int stopping;             /* the signal that asked to stop, agreed by all processes in run_agree_on_stop(); 0: none */
  double started, saved_at; /* clock_seconds() */
  int64_t saved_step;       /* -1: no state was saved yet */
  double kept_at;           /* clock_seconds() when the best model was written last; 0: it was not... */
  bool kept_waits;          /* ...and whether a better one waits in RunModel.host[1] */
  double reported_at;       /* clock_seconds() when report.html was written last; 0: it was not */
  StepReport newest;        /* the last step reported by the device (logging.c) */
  Evaluation evaluated;     /* the newest evaluation; tokens 0: there was none */
  Evaluation of_kept;       /* of the best model so far; tokens 0: it was evaluated before the program started */
  bool holds_kept;          /* the device holds kept or mean weights, RunModel.host[0] those of the last step */
  XzMeasurement *xz;        /* on rank 0: a baseline for the report that is being measured; NULL: none */
  bool compared;            /* that measurement has ended */
  bool paused;              /* since the newest step, the device has done something else than training */
  int64_t timed_steps;      /* steps reported since the last line of metrics.jsonl */
  int64_t timed_ns;         /* their time on the device, without pauses */
} RunSession;

typedef struct Run {
  TrainSettings settings;
  Options options;
  AutoReasons reasons; /* made for settings that were not given */
  Console console;
  PhaseClock phases; /* of this start of the program */
  Collective *peers; /* the processes that train together; one if alone */
  int machines;      /* the number of machines they run on */
  RunText text;
  RunDevice device;
  RunBase base;
  RunTeacher teacher;
  RunModel model;
  RunFiles files;
  RunProgress progress;
  RunSession session;
  TimeBudget budget;
  Outlooks outlooks; /* of a new run, on rank 0 */
  Series series;
} Run;

/* Returns the path of a file in the run directory, or in the scratch directory of a run without one. */
static inline PathText run_data_path(const Run *r, const char *name) {
  return path_in(r->text.scratch ? r->text.scratch : r->files.dir, name);
}

/* Returns the seconds of this run, including those before it was resumed. */
static inline double run_seconds(const Run *r) { return r->progress.seconds + clock_seconds() - r->session.started; }

/* Returns the shape of --teacher; NULL: there is none. */
static inline const ModelConfig *run_teacher(const Run *r) { return r->settings.teacher ? &r->teacher.config : NULL; }

static inline double run_step_flops(const Run *r) {
  return auto_step_flops(&r->settings, &r->model.config, run_teacher(r), r->device.info.accelerator);
}

static inline Tokenizer *run_source_tokenizer(const RunText *text) {
  return text->source_tokenizer ? text->source_tokenizer : text->tokenizer;
}

/* Returns what an epoch reads, if a pass over the texts without a share reads `length` of them. */
static inline int64_t run_in_epoch(const RunText *text, int64_t length) {
  return (int64_t)((double)length * ((double)MIXTURE_WHOLE / (double)mixture_rest(&text->mixture)));
}

static inline int64_t run_epoch_bytes(const RunText *text) {
  const TokenFileInfo *info = &text->train.file.info;
  const double tokens = (double)run_in_epoch(text, token_range_size(&text->train.range));
  return (int64_t)((double)info->bytes * (tokens / (double)info->tokens));
}

/* Returns the number of token positions in one pass over a text, and in one epoch, padding included. */
static inline int64_t run_pass_tokens(const Run *r, const TextPart *part) {
  return r->settings.pack == PACK_DOCS ? windows_count(&part->windows, 1) * r->model.config.ctx
                                       : token_range_size(&part->range);
}
static inline int64_t run_epoch_tokens(const Run *r) {
  return run_in_epoch(&r->text, run_pass_tokens(r, &r->text.train));
}

/* Returns whether there is validation text. Without it, the newest model is kept. */
static inline bool run_has_validation(const RunText *text) { return token_range_size(&text->val.range) >= 2; }

/* Returns whether the loss excludes prompts. */
static inline bool run_has_pairs(const RunText *text) { return text->train.file.info.loss_mask; }

/* ---- peers.c: processes that train together; for a single process these do nothing ---- */
static inline bool run_leads(const Collective *peers) { return peers->rank == 0; }
/* Returns true when no process has an error; otherwise every process gets the same error. Call it before the next
 * collective operation wherever a single process may have failed. */
bool run_agree(Collective *peers, Error *error);
typedef bool RunWork(Run *r, Error *error);
bool run_together(Run *r, RunWork *work, Error *error); /* every process does the work, and then they agree */
bool run_alone(Run *r, RunWork *work, Error *error);    /* rank 0 does the work, and then they agree */
/* Does the work in this phase of Run.phases, and returns to the phase before. */
static inline bool run_in_phase(Run *r, Phase phase, RunWork *work, Error *error) {
  const Phase before = phases_enter(&r->phases, phase);
  const bool ok = work(r, error);
  phases_enter(&r->phases, before);
  return ok;
}
/* Rank 0 does the work alone, which decides a part of the run, and sends the others its plan: the settings, what is
 * known of models and text, and the tokenizers and tokens, which they open. */
bool run_decide(Run *r, RunWork *work, Error *error);
bool run_agree_on_stop(Run *r, Error *error); /* as run_agree(), and updates RunSession.stopping */
bool run_broadcast_flag(Collective *peers, bool value);
double run_broadcast_number(Collective *peers, double value);
SequenceShare run_sequence_share(const Run *r);
TrainConfig run_train_config(const Run *r);                       /* for this process */
MemoryPlan run_memory(const Run *r);                              /* likewise */
MemoryPlan run_memory_of(const Run *r, const TrainConfig *train); /* with other micro-batches */

/* ---- teacher.c: nothing without --teacher or --teacher-steps ---- */
/* On rank 0: reads its configuration, and makes its tokenizer the default of --tokenizer. EXIT_USAGE, EXIT_INPUT,
 * EXIT_CHECKPOINT, EXIT_MEMORY. */
bool run_open_teacher(Run *r, Error *error);
/* On rank 0: refuses a teacher of other tokens than the model's. EXIT_USAGE. */
bool run_check_teacher(const Run *r, Error *error);
/* Loads the weights of --teacher, on all ranks, when the model has been allocated. EXIT_CHECKPOINT, EXIT_MEMORY. */
bool run_load_teacher(Run *r, Error *error);
/* Before the first step of this start: trains the model of --teacher-steps, if it is not trained yet, and loads it.
 * EXIT_CHECKPOINT, EXIT_MEMORY, EXIT_SIGNALS, and the status of its run. */
bool run_make_teacher(Run *r, Error *error);

/* ---- sources.c: the texts and their tokenizers; on rank 0 ---- */
/* Opens text, tokenizer and tokens, and chooses how texts become windows; may take long. */
bool run_open_data(Run *r, Error *error);
OneLine run_text_name(const TrainSettings *s);      /* the first source, for messages */
const char *run_stdin_file(const TrainSettings *s); /* the name in the run directory for text from standard input */

/* ---- tokens.c: token files, windows, batches ---- */
/* On rank 0: encodes the texts, or opens their tokens. `train` NULL: only the tokens are left; `val` NULL: there is no
 * validation text, or only its tokens are left. */
bool run_open_tokens(Run *r, Corpus *train, Corpus *val, Error *error);
/* Measures the lengths of the training documents when the context depends on them; else returns no documents. */
bool run_measure_documents(Run *r, DocumentLengths *out, Error *error);
bool run_open_windows(Run *r, Error *error); /* after the context is known */
/* Returns the windows that window `number` of the training is drawn from, and its number among these. */
const Windows *run_windows(const RunText *text, int64_t number, int64_t *index);
/* Fills the sequences of a step; `out` points into the run. */
bool run_fill_batch(Run *r, int64_t step, TokenBatch *out, Error *error);
void run_remove_scratch(RunText *text); /* after all processes have opened the data */
void run_close_data(RunText *text);

/* ---- choices.c: nothing without --choose ---- */
/* On rank 0, after the model is chosen. EXIT_USAGE, errors of choices_read(). */
bool run_open_choices(Run *r, Error *error);
/* On rank 0: sets the accuracy of a line, of all questions or of the first ones. After a signal it sets none. */
bool run_measure_choices(Run *r, bool all, MetricsLine *line, Error *error);

/* ---- doctor.c: checks of the texts ---- */
/* Reports files that are not plain text, and how to convert them. EXIT_INPUT for files whose bytes are no useful
 * training text. `trained`: the training text, which may come through a pipe; else the validation text. */
bool run_examine_text(Run *r, const Corpus *corpus, bool trained, Error *error);
/* Warns of special tokens of another model's tokenizer in the text, where they are plain text. */
bool run_check_special_tokens(Console *console, const Tokenizer *tokenizer, Corpus *corpus, Error *error);

/* ---- show.c: training windows as text ---- */
bool run_show_windows(Run *r, Error *error); /* --show, on stdout. EXIT_OUTPUT, EXIT_MEMORY */

/* ---- setup.c: device and model ---- */
bool run_open_device(Run *r, Error *error);
/* Compares the device with that of rank 0, adds up the speed of all, and counts their machines. EXIT_USAGE. */
bool run_compare_devices(Run *r, Error *error);
ContextInfo run_device_now(const RunDevice *device);
bool run_save_tuning(const RunDevice *device, const char *dir, Error *error); /* RunDevice.tuning, if there is any */
/* Checks that the run fits into the memory that is free now, as far as it can be planned. EXIT_MEMORY. */
bool run_check_memory(Run *r, Error *error);
bool run_start_model(Run *r, Error *error);
bool run_init_weights(Run *r, Error *error); /* for a new run */
/* Copy weights and moments between the device and RunModel.host; run_upload_state() also sets the model's step. */
bool run_download_state(RunModel *model, Error *error);
void run_upload_state(const RunModel *model, int64_t step);
/* Runs one step on an accelerator and undoes it: this loads kernels, chooses algorithms and allocates the remaining
 * memory before the run replaces any files of an older run. */
bool run_warm_up(Run *r, Error *error);
void run_stop_model(RunModel *model);

/* ---- plan.c: the plan of the run ---- */
void run_print_plan(Run *r);
bool run_print_plan_json(Run *r, Error *error); /* on stdout, for programs. EXIT_OUTPUT, EXIT_MEMORY */

/* ---- time_budget.c: --bench and --minutes ---- */
bool run_bench(Run *r, const char *version, Error *error);
bool run_read_earlier_steps(TrainSettings *s, Error *error); /* --earlier-steps. EXIT_USAGE */
/* Sets the number of steps that fit into --minutes, from a measurement. */
bool run_fit_minutes(Run *r, Error *error);
/* Starts the clock of the time budget, just before the first step. */
void run_start_budget(Run *r);
/* Changes the number of steps, after a step, when the run would end too late or could be longer. */
bool run_keep_minutes(Run *r, Error *error);
/* Returns the planned number of steps at the current step; a repeated run gets the same. */
static inline int64_t run_planned_steps(const Run *r) {
  return schedule_steps(&r->settings.plans, r->settings.steps, r->progress.step);
}

/* ---- directory.c: the run directory ---- */
/* Returns --out, or the name of the first input without its extension and with `ending`, in allocated memory; NULL with
 * EXIT_MEMORY. */
char *run_directory(const TrainSettings *s, const char *ending, Error *error);
bool run_name_directory(const TrainSettings *s, RunFiles *files, Error *error);
bool run_take_directory(Run *r, Error *error); /* locks it, if the run has one. EXIT_BUSY, EXIT_USAGE, EXIT_INPUT */
/* Begins the run in its directory, which from then on holds a model that transformers and ./generate can read. When the
 * run replaces another, nothing of the old run is removed before the new model is in its place. */
bool run_begin_directory(Run *r, Error *error);
bool run_write_settings(const Options *options, const TrainSettings *s, const char *dir, Error *error); /* config.txt */
typedef struct ResumeCommand {
  char text[2 * sizeof(ShellWord) + 16];
} ResumeCommand;
ResumeCommand run_resume_command(const RunFiles *files); /* the command that resumes the run */
/* Returns the absolute path of an existing file that is the `text` of an option, in allocated memory, so that the
 * settings can be used from any directory. NULL: it is no path, there is no such file, or EXIT_MEMORY. */
char *run_absolute_path(const TrainSettings *s, const Option *row, const char *text, Error *error);
/* Returns the contents of config.txt in allocated memory. EXIT_MEMORY. */
bool run_settings_text(const Options *options, const TrainSettings *s, char **text, size_t *size, Error *error);
/* The same for options_write_arguments(). Paths are absolute in both. */
bool run_arguments_text(const Options *options, const TrainSettings *s, char **text, size_t *size, Error *error);
/* Writes weights, configuration and tokenizers; the weights are in RunModel.host[0]. EXIT_OUTPUT. */
bool run_write_model(const Run *r, const char *dir, Error *error);

/* ---- state.c: saving and restoring progress, weights and moments ---- */
/* Copies the weights to the host of rank 0. All processes call it. */
bool run_download_weights(RunModel *model, Error *error);
/* Writes them to model.safetensors, on rank 0. */
bool run_write_weights(const char *dir, const RunModel *model, bool mean, Error *error);
bool run_save_state(Run *r, Error *error);
bool run_restore_state(Run *r, Error *error);

/* ---- base.c: the initial model, from --init or from the resumed run ---- */
/* Reads the settings of the run that --resume names from its config.txt; the command line takes precedence. */
bool run_resume_settings(Run *r, Error *error);
static inline const ModelConfig *run_base(const Run *r) { return r->base.config.layers ? &r->base.config : NULL; }
/* Reads Run.base on rank 0. With --init it also sets the shape in the settings, none of which may have been given. */
bool run_read_base(Run *r, Error *error);
/* Refuses flags that would change the model of the weights. */
bool run_check_same_model(const Run *r, Error *error);
/* Opens the tokenizers of the initial model. Its chat template stays only for a text with conversations. */
bool run_open_base_tokenizers(Run *r, bool conversations, Error *error);

/* ---- logging.c: reports of finished steps ---- */
/* Takes the reports that have arrived: sums the losses, writes metrics, shows progress. With `wait` it waits for the
 * reports of all steps so far. */
bool run_take_step_reports(Run *r, bool wait, Error *error);
/* Fills EXIT_NONFINITE with what happened, which files remain and learning rates to try. */
bool run_fail_nonfinite(const Run *r, const char *what, Error *error);
bool run_write_result(Run *r, RunEnd end, const char *version, Error *error); /* result.json */
void run_tell_outlook(Run *r);                              /* prints what more time would give a new run's text */
bool run_write_report(const RunFiles *files, Error *error); /* report.html, on rank 0 */
/* Writes a line of metrics.jsonl, on rank 0. */
bool run_log(Run *r, const MetricsLine *line, Error *error);
/* Does the same and prints it. */
bool run_log_diagnosis(Run *r, const MetricsLine *diagnosis, Error *error);

/* ---- series.c: models kept on the way (--keep-at) ---- */
/* Parses settings->keep_at. EXIT_USAGE. */
bool run_read_series(const TrainSettings *settings, Series *series, Error *error);
bool run_open_series(Run *r, Error *error); /* counts the words of the training text, if they matter */
bool run_keeps_now(const Run *r);           /* whether the model after the newest step is one of them */
/* Writes the newest model to DIR/series/step-N and adds it to DIR/series/manifest.json. EXIT_OUTPUT. */
bool run_keep_model(Run *r, Error *error);

/* ---- evaluation.c: validation ---- */
/* Evaluates on the validation text, or on its beginning if it is long, and writes the best model so far to
 * model.safetensors. Without validation text it writes the newest model. It writes at most once a
 * second: in between, the model waits in RunModel.host[1], until run_write_kept(). */
bool run_evaluate(Run *r, Error *error);
/* Writes the best model if it waits to be written (RunSession.kept_waits), on rank 0. Called before a state is saved,
 * which needs RunModel.host[1], and when the run ends. */
bool run_write_kept(Run *r, Error *error);
bool run_evaluate_base(Run *r, Error *error); /* evaluates before the first step, and prints the quality of the model */
bool run_evaluates_all(const Run *r);         /* whether every evaluation uses all of the validation text */
/* Evaluates, after the last step, the best model so far and the newest one on all of the validation text, keeps the
 * better one in model.safetensors, prints its loss and logs it. Afterwards the model may hold the kept weights instead
 * of the newest. */
bool run_measure_kept(Run *r, Error *error);
void run_load_newest(const RunModel *model, RunSession *session); /* restores the newest weights */
DiagnosisFacts run_diagnosis_facts(const Run *r);
bool run_has_learned(const Run *r); /* false: the kept model is no better than guessing */

/* ---- samples.c: generated samples ---- */
int run_start_token(const Run *r);            /* the first token of text without a prompt */
bool run_sample(Run *r, Error *error);        /* on rank 0, as the next one */
bool run_check_novelty(Run *r, Error *error); /* checks whether the newest sample repeats the training text */

#endif
