/* The settings of ./train and their table of options; auto_settings.h chooses what is not given. */
#ifndef INKLING_TRAIN_SETTINGS_H
#define INKLING_TRAIN_SETTINGS_H

#include "cli/device.h"
#include "cli/options.h"
#include "base/path.h"
#include "text/dataset/windows.h"
#include "model.h"

extern const char *const settings_optimizers[]; /* as OptimizerKind; ends with NULL */

/* The task of a call, selected by an option. */
typedef enum TrainMode {
  TRAIN_MODE_TRAIN = OPTION_DEFAULT_MODE,
  TRAIN_MODE_DRY_RUN = 1 << 1,
  TRAIN_MODE_BENCH = 1 << 2,
  TRAIN_MODE_RUNS = 1 << 3,
  TRAIN_MODE_REPORT = 1 << 4,
  TRAIN_MODE_PLOT = 1 << 5,
  TRAIN_MODE_SWEEP = 1 << 6,
  TRAIN_MODE_VERIFY = 1 << 7
} TrainMode;

/* The turns of conversations that the loss counts. */
typedef enum TrainOnKind { TRAIN_ON_ANSWERS, TRAIN_ON_ALL } TrainOnKind;

typedef enum PackKind { PACK_STREAM, PACK_DOCS } PackKind;

enum { SETTINGS_BUDGETS = 8 }; /* beside the run's own */

typedef struct TrainSettings {
  /* data */
  TextList data;
  const char *val;
  double val_frac;
  const char *jsonl_field, *prompt_field, *response_field; /* NULL: not given */
  bool tsv, fasta;                                         /* standard input is TSV, FASTA */
  const char *speaker;                                     /* the assistant in text files; NULL: they are documents */
  int train_on;                                            /* TrainOnKind */
  bool special;                                            /* special tokens are recognized in documents */
  bool binary;                                             /* binary files are accepted as training data */
  int pack;                                                /* PackKind */
  const char *tokenizer;                                   /* "byte", "bpe", that of a WordLevelKind, or a path; NULL:
                                                              chosen automatically */
  int vocab_size;                                          /* largest size; 0: chosen automatically */
  bool unknown;                                            /* a vocabulary of whole pieces has <unk> */
  const char *source_tokenizer;                            /* as tokenizer; NULL: one tokenizer for both */
  int source_vocab_size;
  /* model */
  int preset;        /* PresetKind; -1: chosen automatically */
  int arch;          /* ArchitectureKind; -1: chosen automatically, or that of the initial model */
  ModelConfig model; /* incomplete until auto_model(); vocab, source_vocab and head_dim are no settings */
  float dropout, embed_dropout, attention_dropout, mlp_dropout; /* NaN: chosen automatically */
  const char *init;    /* directory of the initial model; NULL: random weights */
  const char *license; /* NULL: none is known */
  int init_like;       /* InitKind */
  float init_std;
  /* optimizer */
  int optimizer; /* OptimizerKind */
  float lr, min_lr_frac, beta1, beta2, eps, wd, clip, label_smoothing;
  const char *teacher;     /* directory of a trained model to learn from in addition to the text; NULL: none */
  int64_t teacher_steps;   /* of a teacher that is trained first; -1: chosen by auto_model() */
  float teacher_weight;    /* NAN: the default, or no teacher */
  float muon_lr, momentum; /* for OPTIMIZER_MUON */
  int64_t warmup;
  int schedule; /* ScheduleKind */
  /* length */
  int64_t steps;
  int64_t stop_at;           /* step after which this call stops; 0: none */
  const char *earlier_steps; /* previously planned numbers of steps, as text (time_budget.c) */
  SchedulePlans plans;       /* earlier_steps, parsed */
  double epochs;
  const char *minutes_text;         /* --minutes; NULL: not given, or replaced by a number of steps */
  double minutes;                   /* its first number (settings_read_minutes()); NaN: none */
  double budgets[SETTINGS_BUDGETS]; /* other numbers of minutes, which a dry run compares */
  int budget_count;
  int batch, grad_accum;
  int64_t batch_tokens;
  /* evaluation */
  int64_t eval_tokens; /* of an evaluation during the run; 0: as many as take 5 % of the time */
  int64_t eval_every, sample_every;
  int sample_tokens; /* tokens per sample; 0: no samples */
  int patience;
  bool no_mean;       /* mean weights are not evaluated */
  const char *choose; /* NULL: not given */
  const char *prompt;
  /* output */
  const char *out;
  bool overwrite;
  Interval save_every;
  const char *keep_at; /* models to keep, as text (series.c); NULL: none */
  const char *resume;  /* "" for --resume alone; NULL when not given */
  int64_t log_every;
  /* machine */
  DeviceSettings machine;
  uint64_t seed;
  const char *gpus; /* processes to start, one per GPU (cli/startup.c) */
  bool no_shard;    /* every process keeps all moments */
  /* other */
  bool open;                       /* the page in the browser */
  bool runs, report, plot, verify; /* for existing runs: print a table, write a page, draw a plot, repeat */
  int runs_format;
  const char *runs_sort, *runs_columns;
  bool by_seed;
  const char *sweep; /* its description, or a file with it; NULL: one run */
  int jobs, draws;
  bool dry_run, json; /* json: print the plan as JSON */
  int show;           /* the number of windows that it prints */
  int64_t bench;
} TrainSettings;

enum {
  SETTINGS_MAX_STEPS = 100000000,
  SETTINGS_MAX_BENCH = 10000000,
  SETTINGS_MAX_SHOW = 1000000,
  SETTINGS_MAX_BATCH = 1 << 20 /* sequences, or micro-batches */
};

/* Sets defaults in `settings` and puts the table of its options into `options`. */
void train_options(Options *options, TrainSettings *settings);

/* A training text as it is named: PATH, or PATH=SHARE if no file has this whole name. */
typedef struct NamedText {
  PathText path;
  const char *share; /* inside the name; NULL: none */
} NamedText;
NamedText settings_text(const char *name);

/* Reads the shares of the texts. EXIT_USAGE. */
bool settings_read_shares(const TrainSettings *settings, Mixture *out, Error *error);

/* Reads minutes_text: one number, or for a dry run several with commas between them. EXIT_USAGE. */
bool settings_read_minutes(TrainSettings *settings, Error *error);

/* Returns whether the run learns from a teacher; false if that is not chosen yet. */
static inline bool settings_has_teacher(const TrainSettings *s) { return s->teacher || s->teacher_steps > 0; }

/* Returns whether the tokenizer setting is the path of a file. */
bool settings_tokenizer_is_path(const char *tokenizer);

/* Returns the settings as the model takes them, for one process that trains alone. */
TrainConfig settings_train_config(const TrainSettings *settings);

/* Returns whether sources have a tokenizer of their own. */
static inline bool settings_separate_vocabs(const TrainSettings *s) {
  return s->source_tokenizer || s->source_vocab_size;
}

static inline int64_t settings_tokens_per_step(const TrainSettings *s) {
  return (int64_t)s->batch * s->grad_accum * s->model.ctx;
}

/* Returns whether the weights come from another model. A resumed run has its own. */
static inline bool settings_start_from_model(const TrainSettings *s) { return s->init && !s->resume; }

/* Returns whether the run has a directory. A dry run and a benchmark have none. */
static inline bool settings_have_directory(const TrainSettings *s) { return !s->dry_run && !s->bench; }

#endif
