#include "training/settings.h"

#include "cli/option_rows.h"
#include "report/runs.h"
#include "training/architecture.h"
#include "training/choices.h"

#include <math.h>
#include <string.h>

const char *const settings_optimizers[] = {"adamw", "muon", NULL};                         /* as OptimizerKind */
static const char *const schedule_names[] = {"cosine", "linear", "constant", "wsd", NULL}; /* as ScheduleKind */
static const char *const pack_names[] = {"stream", "docs", NULL};                          /* as PackKind */

enum { EXCLUSIVE_LENGTH = 1, EXCLUSIVE_BATCH = 2 };

static TrainSettings train_defaults(void) {
  return (TrainSettings){.val_frac = 0.1,
                         .pack = -1,
                         .preset = -1,
                         .tie = -1,
                         .dropout = -1,
                         .embed_dropout = -1,
                         .attention_dropout = -1,
                         .encoder_layers = -1,
                         .norm = -1,
                         .norm_place = -1,
                         .activation = -1,
                         .gated = -1,
                         .bias = -1,
                         .qkv_bias = -1,
                         .head_bias = -1,
                         .positions = -1,
                         .rope_base = NAN,
                         .norm_eps = 1e-5f,
                         .init_std = NAN,
                         .optimizer = -1,
                         .lr = NAN,
                         .muon_lr = NAN,
                         .momentum = 0.95f,
                         .min_lr_frac = 0.1f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .wd = 0.1f,
                         .clip = 1.0f,
                         .warmup = -1,
                         .epochs = NAN,
                         .minutes = NAN,
                         .eval_every = -1,
                         .sample_every = -1,
                         .sample_tokens = 256,
                         .save_every = {0, 600},
                         .runs_format = -1,
                         .seed = 1337};
}

#define ARCHITECTURE_HELP(id, name, norm, place, activation, gated, positions, bias, tie, help) name ": " help "; "
#define PRESET_HELP(id, name, layers, heads, dim, ctx, ...) name ": " #layers "/" #heads "/" #dim "/" #ctx "; "

void settings_options(Options *options, TrainSettings *s) {
  *s = train_defaults();
  const Option table[] = {
      GROUP("Data"),
      LIST("data", &s->data, "FILE",
           "training text: files, directories (every .txt, .jsonl and .tsv in them) or - (standard input); a document "
           "ends at the end of its file and at a line <|endoftext|>",
           .positional = true, .modes = OPTION_ALL_MODES, .common = true),
      TEXT("val", &s->val, "FILE", "the end of the training text",
           "validation text, at most its first " SHOWN(CHOICES_VAL_MTOKENS) " M tokens"),
      DOUBLE("val-frac", &s->val_frac, 0, 0.9, NULL,
             "fraction of the text held out for validation, at most " SHOWN(CHOICES_VAL_MTOKENS) " M tokens; 0: none"),
      FORMAT_ROWS(s, .needs = NULL),
      FLAG(
          "binary", &s->binary,
          "train on the bytes of a file whatever they are; nothing is said of what is no plain UTF-8 text, and nothing "
          "is refused"),
      CHOICE("pack", &s->pack, pack_names,
             "auto: docs for prompts and responses, and where texts of --init begin with a token; else stream",
             "stream: windows start anywhere in the text; docs: windows of whole documents, no attention across them"),

      GROUP("Tokenizer"),
      TEXT("tokenizer", &s->tokenizer, "byte|bpe|FILE",
           "auto: byte below " SHOWN(CHOICES_BYTE_MB) " MB of text, else bpe",
           "byte: every byte is a token; bpe: train a byte-level BPE on the text; FILE: the tokenizer.json of a "
           "byte-level BPE"),
      INT("vocab-size", &s->vocab_size, 257, MODEL_MAX_VOCAB, "auto: by the size of the text",
          "maximum vocabulary of a BPE, including the 256 bytes and <|endoftext|>"),
      TEXT(
          "source-tokenizer", &s->source_tokenizer, "byte|bpe|FILE", "auto: the same tokenizer",
          "with an encoder: one of their own for prompts, from prompts alone; that of responses is then from responses "
          "alone"),
      INT("source-vocab-size", &s->source_vocab_size, 257, MODEL_MAX_VOCAB, "auto: by the size of the text",
          "maximum vocabulary of a BPE for prompts"),

      GROUP("Model"),
      CHOICE("preset", &s->preset, choices_preset_names, "auto: by text and device",
             "layers/heads/dim/ctx of " CHOICES_PRESETS(PRESET_HELP) "124m sets vocab-size " SHOWN(CHOICES_GPT2_VOCAB)),
      INT("layers", &s->layers, 1, MODEL_MAX_LAYERS, "auto: preset", "Transformer blocks"),
      INT("heads", &s->heads, 1, MODEL_MAX_HEADS, "auto: preset", "attention heads; must divide dim"),
      INT("kv-heads", &s->kv_heads, 1, MODEL_MAX_HEADS, "auto: heads",
          "key/value heads (grouped-query attention); must divide heads"),
      INT("dim", &s->dim, MODEL_MIN_DIM, MODEL_MAX_DIM, "auto: preset",
          "embedding dimension, the width of the residual stream"),
      INT("ffn", &s->ffn, 1, MODEL_MAX_FFN, "auto: 8/3 dim if gated, else 4 dim", "hidden dimension of the MLP"),
      INT("ctx", &s->ctx, 1, MODEL_MAX_CTX, "auto: preset", "context length in tokens"),
      FLOAT("dropout", &s->dropout, 0, 1, "auto: by the number of epochs",
            "dropout on embeddings, attention and residual branches", .below = true),
      FLOAT("embed-dropout", &s->embed_dropout, 0, 1, "auto: dropout", "that on embeddings", .below = true),
      FLOAT("attention-dropout", &s->attention_dropout, 0, 1, "auto: dropout", "that on attention's probabilities",
            .below = true),
      FLOAT("mlp-dropout", &s->mlp_dropout, 0, 1, NULL, "dropout on the hidden numbers of MLPs", .below = true),

      GROUP("Architecture"),
      CHOICE("arch", &s->arch, architecture_names, NULL,
             ARCHITECTURES(ARCHITECTURE_HELP) "the options below change a part"),
      INT("encoder-layers", &s->encoder_layers, 0, MODEL_MAX_LAYERS,
          "auto: as many as layers with --arch original and pairs, else 0",
          "blocks of an encoder that reads the prompts of pairs; the decoder writes the responses. 0: a decoder alone"),
      CHOICE("norm", &s->norm, architecture_norms, "auto: arch", "RMSNorm or LayerNorm"),
      CHOICE("norm-place", &s->norm_place, architecture_norm_places, "auto: arch",
             "x + f(norm(x)), norm(x + f(x)) or x + norm(f(x)), where f is attention or an MLP"),
      FLOAT("norm-eps", &s->norm_eps, 1e-12, 1, NULL, "added to the variance in norms", .below = true),
      CHOICE("act", &s->activation, architecture_activations, "auto: arch", "activation of the MLP"),
      TRISTATE("gated", &s->gated, "auto: arch", "multiply the activation by another product, as SwiGLU does"),
      TRISTATE("bias", &s->bias, "auto: arch", "biases of attention's output and of the MLP"),
      TRISTATE("qkv-bias", &s->qkv_bias, "auto: bias", "biases of queries, keys and values"),
      TRISTATE("head-bias", &s->head_bias, "auto: no", "a bias of the output head"),
      CHOICE("positions", &s->positions, architecture_positions, "auto: arch",
             "rotary positions, a learned or a sinusoidal table added to the embedding, or none"),
      FLOAT("rope-base", &s->rope_base, 1, 1e12, "auto: " SHOWN(CHOICES_ROPE_BASE), "base of rotary positions"),
      TRISTATE("tie", &s->tie, "auto: arch; llama: below dim " SHOWN(CHOICES_TIE_DIM),
               "tie the output head to the token embedding"),
      TEXT("init", &s->init, "DIR", "random weights",
           "start from the weights and the tokenizer of another run, or of a model of Hugging Face transformers "
           "(fine-tuning); --ctx may be smaller than the model's, every other part of it is kept"),
      CHOICE("init-like", &s->init_like, architecture_inits, NULL,
             "initial weights: gpt2: normal, smaller where branches are added up; torch: as nn.Linear and nn.Embedding "
             "have them"),
      FLOAT("init-std", &s->init_std, 0, 10, "auto: 0.02 with llama, else " SHOWN(CHOICES_INIT) "/sqrt(dim)",
            "standard deviation of --init-like gpt2", .above = true),

      GROUP("Optimizer"),
      CHOICE("optimizer", &s->optimizer, settings_optimizers,
             "auto: muon; adamw where lr is given without muon-lr, or where muon would be most of a step",
             "adamw, or muon for the matrices of attention and MLPs and adamw for the rest"),
      FLOAT("lr", &s->lr, 1e-12, 10, "auto: " CHOICES_LR_WORDS, "peak learning rate of AdamW"),
      FLOAT("muon-lr", &s->muon_lr, 0, 10, "auto: " SHOWN(CHOICES_MUON_LR) "; with --init a tenth of that",
            "peak learning rate of Muon", .above = true),
      FLOAT("momentum", &s->momentum, 0, 1, NULL, "momentum of Muon", .below = true),
      FLOAT("min-lr-frac", &s->min_lr_frac, 0, 1, NULL, "final learning rate, as a fraction of lr"),
      INT64("warmup", &s->warmup, 0, 1e12,
            "auto: " SHOWN(CHOICES_WARMUP_PERCENT) " % of the steps, at most " SHOWN(CHOICES_WARMUP_LIMIT),
            "steps of linear learning rate warmup"),
      CHOICE("schedule", &s->schedule, schedule_names, NULL,
             "learning rate decay after the warmup; wsd: only over the last fifth"),
      FLOAT("beta1", &s->beta1, 0, 1, NULL, "AdamW's decay rate of the first moment", .below = true),
      FLOAT("beta2", &s->beta2, 0, 1, NULL, "AdamW's decay rate of the second moment", .below = true),
      FLOAT("eps", &s->eps, 0, 1, NULL, "AdamW epsilon", .above = true),
      FLOAT("wd", &s->wd, 0, 10, NULL, "weight decay, on matrices only"),
      FLOAT("clip", &s->clip, 0, 1e9, NULL, "gradient clipping: maximum global norm; 0: off"),
      FLOAT("label-smoothing", &s->label_smoothing, 0, 1, NULL,
            "share of each target spread over the vocabulary; off in validation", .below = true),

      GROUP("Length"),
      INT64("steps", &s->steps, 1, SETTINGS_MAX_STEPS, "auto: by text and device", "optimizer steps",
            .exclusive = EXCLUSIVE_LENGTH),
      DOUBLE("epochs", &s->epochs, 0, 1e9, NULL, "passes over the training text", .above = true,
             .exclusive = EXCLUSIVE_LENGTH),
      DOUBLE("minutes", &s->minutes, 0, 1e6, NULL,
             "as many steps as fit, from the start of the program to its end; a resumed run goes on for so long",
             .above = true, .exclusive = EXCLUSIVE_LENGTH),
      TEXT("earlier-steps", &s->earlier_steps, "UNTIL:STEPS,...", NULL,
           "lengths that a run was to have until its length was changed to keep to --minutes; in config.txt, so that "
           "the "
           "run can be repeated",
           .hidden = true),
      INT("batch", &s->batch, 1, SETTINGS_MAX_BATCH, "auto: by preset, device and optimizer",
          "sequences per micro-batch"),
      INT("grad-accum", &s->grad_accum, 1, SETTINGS_MAX_BATCH, "auto: 1",
          "micro-batches per step (gradient accumulation)", .exclusive = EXCLUSIVE_BATCH),
      INT64("batch-tokens", &s->batch_tokens, 1, 1e12, NULL, "tokens per step; sets grad-accum",
            .exclusive = EXCLUSIVE_BATCH),

      GROUP("Evaluation"),
      INT64("eval-every", &s->eval_every, 0, 1e12, "auto: at most " SHOWN(CHOICES_EVALUATIONS) " times per run",
            "steps between evaluations; 0: only at the end"),
      INT("patience", &s->patience, 0, 1e6, NULL,
          "early stopping: stop after this many evaluations without improvement; 0: off"),
      INT64("sample-every", &s->sample_every, 0, 1e12, "auto: " SHOWN(CHOICES_SAMPLES) " times per run",
            "steps between samples; 0: only at the end"),
      INT("sample-tokens", &s->sample_tokens, 0, 1e6, NULL, "length of a sample; 0: no samples"),
      TEXT("prompt", &s->prompt, NULL, NULL, "prompt for samples"),

      GROUP("Output"),
      TEXT("out", &s->out, "DIR", "FILE.run or stdin.run here", "run directory",
           .modes = MODE_TRAINING | MODE_DRY_RUN | MODE_BENCH | MODE_REPORT, .common = true),
      FLAG("overwrite", &s->overwrite, "replace the run in DIR", .transient = true),
      OPTIONAL("resume", &s->resume, "DIR",
               "resume a stopped run (DIR, or the newest *.run here); a larger --steps extends a finished one",
               .transient = true),
      INTERVAL("save-every", &s->save_every,
               "steps or time (10m) between checkpoints to resume from; 0: only at the end"),
      INT64("log-every", &s->log_every, 1, 1e12, "auto: " SHOWN(CHOICES_LOG_LINES) " times per run",
            "steps between lines of metrics.jsonl"),

      GROUP("Machine"),
      DEVICE_ROWS(&s->machine, dtype_choices, "auto: bf16 on a GPU, f32 on a CPU",
                  "compute dtype; master weights stay f32"),
      FLAG("autotune", &s->machine.autotune,
           "GPU: time the GEMM algorithms and keep the fastest in the run's autotune.txt"),
      TEXT("gpus", &s->gpus, "N|all", NULL,
           "start so many processes on this machine, each with a GPU, that train together", .transient = true),
      FLAG("no-shard", &s->no_shard,
           "of several processes each keeps the moments of all parameters and updates all, instead of its part"),
      SEED("seed", &s->seed, NULL,
           "random seed; the same seed gives the same bytes; -1: a random one, which config.txt then has"),

      GROUP("Runs"),
      FLAG("runs", &s->runs, "print a table of the runs in the directories that are named instead of FILEs, and exit",
           .transient = true, .selects = MODE_RUNS, .common = true),
      FLAG("report", &s->report,
           "write a page about the runs, or the runs below the directories, that are named instead of FILEs into "
           "--out, and exit",
           .transient = true, .selects = MODE_REPORT),
      FLAG("plot", &s->plot,
           "draw the losses of the runs, or the runs below the directories, that are named instead of FILEs in one "
           "picture, and exit",
           .transient = true, .selects = MODE_PLOT),
      CHOICE("output-format", &s->runs_format, table_format_names, "auto: text on a terminal, else md",
             "of the table: text: aligned columns, as wide as the terminal; csv and json have all columns",
             .letter = 'O', .transient = true, .modes = MODE_RUNS),
      TEXT("sort", &s->runs_sort, "COLUMN", "bits_per_byte",
           "sort the table by it; -COLUMN: the largest first. Losses are ranked among runs with the same validation "
           "text",
           .transient = true, .modes = MODE_RUNS),
      TEXT("columns", &s->runs_columns, "NAME,...|all", "csv, json: all; else those that tell most and fit",
           "columns of the table, in this order", .transient = true, .modes = MODE_RUNS),

      GROUP("Other"),
      FLAG("dry-run", &s->dry_run, "print the plan and exit", .transient = true, .selects = MODE_DRY_RUN,
           .common = true),
      FLAG("json", &s->json, "with --dry-run: print the plan as JSON on stdout", .transient = true,
           .modes = MODE_DRY_RUN, .excludes = "show"),
      INT("show", &s->show, 1, SETTINGS_MAX_SHOW, NULL,
          "with --dry-run: print the first N windows on stdout as the model will see them", .transient = true,
          .modes = MODE_DRY_RUN),
      INT64("bench", &s->bench, 1, SETTINGS_MAX_BENCH, NULL,
            "time N steps, print one line of JSON on stdout, save nothing", .transient = true, .selects = MODE_BENCH),
  };
  *options = (Options){.program = "train",
                       .usage = "FILE... [options]",
                       .about = "Trains a small language model on text. Writes a run directory that generate and "
                                "Hugging Face transformers can load.",
                       .hints = settings_hints,
                       .hint_count = settings_hint_count,
                       .default_mode = "training",
                       .default_modes = MODE_TRAINING | MODE_DRY_RUN | MODE_BENCH};
  options_init(options, table, sizeof table / sizeof *table);
}

/* What a resumed run goes on with, whatever is said of its model, which it keeps. */
static bool of_training(const TrainSettings *s, const void *chosen) {
  return chosen == &s->optimizer || chosen == &s->lr || chosen == &s->muon_lr || chosen == &s->batch;
}

void settings_forget_choices(Options *options, const TrainSettings *s) {
  const struct {
    const void *given, *chosen;
  } follows[] = {{&s->preset, &s->layers},
                 {&s->preset, &s->heads},
                 {&s->preset, &s->kv_heads},
                 {&s->preset, &s->dim},
                 {&s->preset, &s->ctx},
                 {&s->preset, &s->ffn},
                 {&s->preset, &s->batch},
                 {&s->preset, &s->lr},
                 {&s->preset, &s->optimizer},
                 {&s->preset, &s->muon_lr},
                 {&s->preset, &s->init_std},
                 {&s->dim, &s->ffn},
                 {&s->dim, &s->init_std},
                 {&s->heads, &s->kv_heads},
                 {&s->arch, &s->norm},
                 {&s->arch, &s->norm_place},
                 {&s->arch, &s->activation},
                 {&s->arch, &s->gated},
                 {&s->arch, &s->positions},
                 {&s->arch, &s->rope_base},
                 {&s->arch, &s->bias},
                 {&s->arch, &s->qkv_bias},
                 {&s->arch, &s->tie},
                 {&s->arch, &s->ffn},
                 {&s->arch, &s->encoder_layers},
                 {&s->arch, &s->init_std},
                 {&s->arch, &s->lr},
                 {&s->optimizer, &s->lr},
                 {&s->optimizer, &s->muon_lr},
                 {&s->optimizer, &s->batch},
                 {&s->gated, &s->ffn},
                 {&s->tokenizer, &s->vocab_size},
                 {&s->source_tokenizer, &s->source_vocab_size},
                 {&s->source_tokenizer, &s->tie},
                 {&s->source_vocab_size, &s->tie},
                 {&s->bias, &s->qkv_bias},
                 {&s->positions, &s->tie},
                 {&s->positions, &s->rope_base},
                 {&s->init_like, &s->init_std},
                 {&s->dropout, &s->embed_dropout},
                 {&s->dropout, &s->attention_dropout},
                 {&s->steps, &s->earlier_steps},
                 {&s->epochs, &s->earlier_steps},
                 {&s->minutes, &s->earlier_steps}};
  for (size_t i = 0; i < sizeof follows / sizeof *follows; i++)
    if (!(s->resume && of_training(s, follows[i].chosen)) &&
        options_origin(options, follows[i].given) == ORIGIN_COMMAND_LINE)
      options_forget(options, follows[i].chosen);
}

bool settings_tokenizer_is_path(const char *tokenizer) {
  return tokenizer && strcmp(tokenizer, "byte") != 0 && strcmp(tokenizer, "bpe") != 0;
}
