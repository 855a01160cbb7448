#include "train/settings.h"

#include "cli/option_rows.h"
#include "report/runs.h"
#include "text/tokenizer/tokenizer.h"
#include "train/architecture.h"
#include "train/auto_settings.h"
#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const settings_optimizers[] = {"adamw", "muon", NULL};
static const char *const schedule_names[] = {"cosine", "linear", "constant", "wsd", NULL}; /* as ScheduleKind */
static const char *const train_on_names[] = {"answers", "all", NULL};                      /* as TrainOnKind */
static const char *const pack_names[] = {"stream", "docs", NULL};                          /* as PackKind */

enum { EXCLUSIVE_LENGTH = 1, EXCLUSIVE_BATCH = 2 };

/* Of the options whose default is not automatic. */
static const TrainSettings defaults = {.val_frac = 0.1,
                                       .model = {.norm_eps = 1e-5f},
                                       .machine = {.autotune = true},
                                       .momentum = 0.9f,
                                       .min_lr_frac = 0.1f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .eps = 1e-8f,
                                       .wd = NAN,
                                       .teacher_steps = -1,
                                       .teacher_weight = NAN,
                                       .clip = 1.0f,
                                       .epochs = NAN,
                                       .minutes = NAN,
                                       .sample_tokens = 256,
                                       .save_every = {0, 600},
                                       .runs_format = -1,
                                       .draws = 16,
                                       .seed = 1337};

#define TOKENIZER_NAMES "byte|bpe|chars|words|lines|ids|FILE"

/* Names that other trainers use for these options. */
#define HERE(name) "that is --" name " here"

static const OptionHint hints[] = {
    {"learning-rate max-lr peak-lr alpha", HERE("lr")},
    {"max-iters max-steps num-iterations num-iters iterations iters n-iters train-steps num-steps", HERE("steps")},
    {"num-epochs num-train-epochs n-epochs max-epochs", HERE("epochs")},
    {"max-time time-limit time-budget", HERE("minutes")},
    {"block-size sequence-length seq-len seq-length max-seq-len max-seq-length context context-length context-size "
     "n-ctx n-positions max-position-embeddings ctx-size",
     HERE("ctx")},
    {"n-layer n-layers num-layers num-hidden-layers depth", HERE("layers")},
    {"n-head n-heads num-heads num-attention-heads", HERE("heads")},
    {"n-kv-heads n-kv-head num-key-value-heads", HERE("kv-heads")},
    {"rotary-dim rotary-ndims", HERE("rotary-dims")},
    {"rotary-pct rotary-percent partial-rotary-factor", HERE("rotary-dims") ", a number instead of a fraction"},
    {"n-embd n-embed d-model embed-dim embedding-dim hidden-size model-dim width", HERE("dim")},
    {"intermediate-size d-ff ffn-dim mlp-dim hidden-dim", HERE("ffn")},
    {"batch-size micro-batch-size per-device-train-batch-size per-device-batch-size bs", HERE("batch")},
    {"gradient-accumulation-steps grad-accum-steps gradient-accumulation accumulate-grad-batches", HERE("grad-accum")},
    {"total-batch-size tokens-per-batch global-batch-size", HERE("batch-tokens") ", in tokens"},
    {"warmup-iters warmup-steps warmup-iterations num-warmup-steps", HERE("warmup")},
    {"weight-decay", HERE("wd")},
    {"grad-clip max-grad-norm clip-grad gradient-clip-val clip-norm", HERE("clip")},
    {"eval-interval eval-steps val-loss-every evaluation-interval", HERE("eval-every") ", in steps"},
    {"eval-iters val-max-steps eval-batches", HERE("eval-tokens") ", in tokens"},
    {"log-interval logging-steps log-steps", HERE("log-every")},
    {"save-interval save-steps checkpoint-interval checkpoint-every", HERE("save-every")},
    {"sample-interval sample-steps sampling-interval", HERE("sample-every")},
    {"out-dir output-dir output save-dir checkpoint-dir ckpt-dir run-dir", HERE("out")},
    {"lr-schedule lr-scheduler lr-scheduler-type scheduler", HERE("schedule")},
    {"min-lr min-learning-rate final-lr learning-rate-decay-frac", "that is --min-lr-frac here, a fraction of --lr"},
    {"lr-decay-iters decay-steps", "the learning rate always decays until the last step"},
    {"adam-beta1 adam-b1 b1", HERE("beta1")},
    {"adam-beta2 adam-b2 b2", HERE("beta2")},
    {"adam-eps adam-epsilon epsilon", HERE("eps")},
    {"use-muon muon", "that is --optimizer muon here"},
    {"early-stopping early-stopping-patience early-stop", HERE("patience")},
    {"bf16 bfloat16", "that is --dtype bf16 here"},
    {"fp32 f32 float32", "that is --dtype f32 here"},
    {"fp16 half float16 amp mixed-precision", "there is --dtype bf16, and no fp16"},
    {"n-threads num-threads num-workers workers", HERE("threads")},
    {"random-seed rng-seed manual-seed", HERE("seed")},
    {"input input-file input-bin train-data train-file train-text dataset data-dir data-path text file corpus",
     "leave it out: files are given without a flag"},
    {"val-data val-file input-val-bin eval-file validation-file test-file", HERE("val")},
    {"model model-size config-name size", HERE("preset") "; or --layers, --heads, --dim and --ctx"},
    {"vocab n-vocab", HERE("vocab-size")},
    {"init-from finetune fine-tune finetune-from pretrained from-pretrained pretrained-model base-model "
     "model-name-or-path "
     "load-model checkpoint",
     HERE("init") ", the directory of a model"},
    {"from-checkpoint resume-from-checkpoint load-checkpoint continue", "a stopped run continues with --resume=DIR"},
    {"num-gpus n-gpus nproc nproc-per-node devices", HERE("gpus")},
    {"compile flash-attention flash recompute use-flash-attn gradient-checkpointing",
     "there is no such switch here; leave it out"},
    {"wandb wandb-log tensorboard report-to", "runs are logged in metrics.jsonl, report.html and result.json"},
    {"lora lora-r lora-rank lora-alpha lora-dropout lora-target-modules qlora peft use-peft adapter load-in-4bit "
     "load-in-8bit",
     "adapters such as LoRA are not supported: --init trains all weights"},
    {"chat-template template chat apply-chat-template",
     "leave it out: conversations have the chat template of the model of --init, else ChatML"},
    {"train-on-inputs train-on-prompt train-on-prompts", "that is --train-on all here"},
    {"verbose", "all messages are printed unless --quiet is given"},
    {"force overwrite-output-dir", HERE("overwrite")},
};

#define NORM_HELP(id, name, words) "; " name ": " words
#define ARCHITECTURE_HELP(id, name, help, ...) name ": " help "; "
#define PRESET_HELP(id, name, layers, heads, dim, ctx, ...) name ": " #layers "/" #heads "/" #dim "/" #ctx "; "

static void add_text_options(Options *options, TrainSettings *s) {
  const Option table[] = {
      GROUP("Data", .setting = SETTING_OF_MODEL),
      LIST("data", &s->data, "FILE",
           "training text: files, directories (every " TEXT_FILE_NAMES " in them) or - (standard input); a "
           "document ends at the end of a file or at a line that contains only <|endoftext|>. FILE=0.3: 30 % of the "
           "training windows come from it, and the others from the texts without a share (unless a file has this "
           "whole name)",
           .positional = true, .modes = OPTION_ALL_MODES, .common = true, .setting = SETTING_PATH),
      TEXT("val", &s->val, "FILE", "the end of the text",
           "validation text; at most its first " SHOWN(AUTO_VAL_MTOKENS) " M tokens are used", .common = true,
           .setting = SETTING_PATH),
      DOUBLE("val-frac", &s->val_frac, 0, 0.9, NULL,
             "fraction of the text to hold out for validation, at most " SHOWN(AUTO_VAL_MB) " MB; 0: none"),
      FORMAT_ROWS(s, .setting = SETTING_ASIDE),
      TEXT("speaker", &s->speaker, "NAME", NULL,
           "read .chat files, or text files if there are none, as conversations: lines that begin with a name and a "
           "colon, and blank lines between conversations; the model learns the lines of NAME",
           .setting = SETTING_OF_MODEL),
      CHOICE("train-on", &s->train_on, train_on_names, NULL,
             "turns of conversations that the loss counts: those of the assistant (answers), or all"),
      FLAG("special", &s->special,
           "recognize special tokens in documents; in conversations, no content becomes a special token"),
      FLAG("binary", &s->binary, "train on the raw bytes of the files and skip all text checks",
           .setting = SETTING_ASIDE),
      CHOICE("pack", &s->pack, pack_names,
             "auto: docs for pairs, or if the tokenizer of --init adds a token at the start of texts; else stream",
             "training windows: pieces of the text (stream), or whole documents without attention between them (docs)"),

      GROUP("Tokenizer", .setting = SETTING_OF_MODEL),
      TEXT("tokenizer", &s->tokenizer, TOKENIZER_NAMES, "auto: from the size and the characters of the text",
           "tokenizer: one token per byte (byte), a byte-level BPE trained on the text (bpe), one token per character, "
           "word or line of the text (chars, words, lines), a text that consists of token ids (ids), or the "
           "tokenizer.json of another run or model (FILE)",
           .setting = SETTING_PATH),
      INT("vocab-size", &s->vocab_size, 1, MODEL_MAX_VOCAB,
          "auto: from the size of the text; with chars, words, lines: all",
          "maximum vocabulary size, including <|endoftext|> and, for a BPE, the 256 bytes; chars, words and lines keep "
          "the most frequent ones and replace the others by <unk>; ids: the number of ids without <|endoftext|>",
          .follows = "tokenizer"),
      FLAG("unk", &s->unknown,
           "with chars, words or lines, add a token <unk> for those that the training text does not contain"),
      TEXT("source-tokenizer", &s->source_tokenizer, TOKENIZER_NAMES, "auto: the same tokenizer",
           "separate tokenizer for the encoder, trained on prompts only; --tokenizer is then trained on responses "
           "only",
           .setting = SETTING_PATH),
      INT("source-vocab-size", &s->source_vocab_size, 1, MODEL_MAX_VOCAB, "auto: from the size of the text",
          "maximum vocabulary size for prompts, as --vocab-size", .follows = "source-tokenizer"),
  };
  options_add(options, table, sizeof table / sizeof *table);
}

static void add_model_options(Options *options, TrainSettings *s) {
  ModelConfig *m = &s->model;
  const Option table[] = {
      GROUP("Model", .setting = SETTING_OF_MODEL),
      CHOICE("preset", &s->preset, preset_names, "auto: from the text and the device",
             "model size as layers/heads/dim/ctx: " MODEL_PRESETS(PRESET_HELP) "124m also sets vocab-size " SHOWN(
                 AUTO_GPT2_VOCAB),
             .common = true),
      INT("layers", &m->layers, 1, MODEL_MAX_LAYERS, "auto: preset", "number of Transformer blocks",
          .follows = "preset"),
      INT("heads", &m->heads, 1, MODEL_MAX_HEADS, "auto: preset", "number of attention heads; must divide dim",
          .follows = "preset"),
      INT("kv-heads", &m->kv_heads, 1, MODEL_MAX_HEADS, "auto: heads",
          "number of key/value heads (grouped-query attention); must divide heads", .follows = "preset heads"),
      INT("dim", &m->dim, MODEL_MIN_DIM, MODEL_MAX_DIM, "auto: preset",
          "embedding dimension, the width of the residual stream", .follows = "preset"),
      INT("ffn", &m->ffn, 1, MODEL_MAX_FFN, "auto: 8/3 dim if gated, else 4 dim", "hidden dimension of the MLP",
          .follows = "preset arch dim gated"),
      INT("ctx", &m->ctx, 1, MODEL_MAX_CTX, "auto: preset", "context length in tokens", .follows = "preset"),
      FLOAT("dropout", &s->dropout, 0, 1, "auto: 0; with adamw, from the number of epochs",
            "dropout on embeddings, attention and residual branches", .below = true, .follows = "optimizer",
            .stays = true),
      FLOAT("embed-dropout", &s->embed_dropout, 0, 1, "auto: dropout", "dropout on embeddings", .below = true,
            .follows = "dropout optimizer"),
      FLOAT("attention-dropout", &s->attention_dropout, 0, 1, "auto: dropout", "dropout on attention probabilities",
            .below = true, .follows = "dropout optimizer"),
      FLOAT("mlp-dropout", &s->mlp_dropout, 0, 1, NULL, "dropout on the hidden activations of MLPs", .below = true),

      GROUP("Architecture", .setting = SETTING_OF_MODEL),
      CHOICE(
          "arch", &s->arch, architecture_names,
          "auto: lfm2; llama if norms, activation, biases, positions, an encoder or a mixer without C are given",
          "architecture preset: " ARCHITECTURES(ARCHITECTURE_HELP) "the options below override individual components"),
      INT("encoder-layers", &m->encoder_layers, 0, MODEL_MAX_LAYERS,
          "auto: same as layers with --arch original and pairs, else 0",
          "number of encoder blocks; the encoder reads the prompts of pairs, the decoder writes the responses; 0: "
          "decoder only",
          .follows = "arch"),
      CHOICE("norm", (int *)&m->norm, model_norm_names, "auto: arch", "normalization" NORMS(NORM_HELP),
             .follows = "arch"),
      CHOICE("norm-place", (int *)&m->norm_place, model_norm_place_names, "auto: arch",
             "position of the norm: x + f(norm(x)), norm(x + f(x)) or x + norm(f(x)), where f is attention or an MLP; "
             "parallel: x + attention(norm(x)) + MLP(norm(x))",
             .follows = "arch"),
      LETTERS("mixer", m->mixers, MODEL_MAX_LAYERS, MODEL_MIXERS, "auto: arch",
              "token mixer of each layer, one letter per layer, repeated if shorter: attention (A), a gated "
              "convolution over 3 positions (C), attention without rotary positions (N)",
              .argument = "CCA", .follows = "arch", .setting = SETTING_OF_MODEL),
      TRISTATE("qk-norm", &m->qk_norm, "auto: arch", "RMSNorm of the queries and keys of each head", .follows = "arch"),
      FLOAT("norm-eps", &m->norm_eps, 1e-12, 1, NULL, "epsilon added to the variance in norms", .below = true),
      CHOICE("act", (int *)&m->activation, model_activation_names, "auto: arch", "activation function of the MLP",
             .follows = "arch"),
      TRISTATE("gated", &m->gated, "auto: arch",
               "gated MLP: multiply the activation by a second projection, as in SwiGLU", .follows = "arch"),
      TRISTATE("bias", &m->bias, "auto: arch", "biases in the attention output and in the MLP", .follows = "arch"),
      TRISTATE("qkv-bias", &m->qkv_bias, "auto: bias", "biases in the query, key and value projections",
               .follows = "arch bias"),
      TRISTATE("head-bias", &m->head_bias, "auto: no", "bias in the output head"),
      CHOICE("positions", (int *)&m->positions, model_position_names, "auto: arch",
             "position encoding: rotary, a learned or sinusoidal table added to the embedding, or none",
             .follows = "arch"),
      FLOAT("rope-base", &m->rope_base, 1, 1e12, "auto: " SHOWN(ARCHITECTURE_ROPE_BASE),
            "base of the rotary position encoding", .follows = "arch positions"),
      INT("rotary-dims", &m->rotary_dims, 2, HEAD_DIM_LIMIT, "auto: all",
          "how many numbers of each head the rotary position encoding rotates", .follows = "arch positions"),
      TRISTATE("tie", &m->tie,
               "auto: arch; llama, qwen3 and lfm2: below dim " SHOWN(
                   ARCHITECTURE_TIE_DIM) ", unless a token is a byte or a character",
               "tie the output head to the token embedding",
               .follows = "preset dim arch positions tokenizer vocab-size source-tokenizer source-vocab-size"),
      TEXT("init", &s->init, "DIR", "random weights",
           "trained model to start from (fine-tuning): a run or a Hugging Face transformers model; its tokenizer and "
           "architecture are kept, except that --ctx may be smaller",
           .common = true, .setting = SETTING_PATH),
      TEXT("license", &s->license, "ID", "auto: the license in the model card of --init",
           "license of the model, such as cc-by-4.0: for its model card (--export), GGUF files and pages",
           .setting = SETTING_ASIDE),
      CHOICE(
          "init-like", &s->init_like, architecture_inits, NULL,
          "initial weights: normal, smaller at residual outputs (gpt2), or as in nn.Linear and nn.Embedding (torch)"),
      FLOAT("init-std", &s->init_std, 0, 10, "auto: 0.02 with RMSNorm, else " SHOWN(ARCHITECTURE_INIT) "/sqrt(dim)",
            "standard deviation of the initial weights with --init-like gpt2", .above = true,
            .follows = "preset dim arch init-like"),
  };
  options_add(options, table, sizeof table / sizeof *table);
}

static void add_training_options(Options *options, TrainSettings *s) {
  const Option table[] = {
      GROUP("Optimizer", .setting = SETTING_OF_MODEL),
      CHOICE(
          "optimizer", &s->optimizer, settings_optimizers,
          "auto: muon; adamw if lr is given without muon-lr, or if muon would take most of the step time",
          "optimizer: adamw for all parameters, or muon for the matrices of attention and MLPs and adamw for the rest",
          .follows = "preset", .stays = true),
      FLOAT("lr", &s->lr, 1e-12, 10, "auto: " AUTO_LR_WORDS, "peak learning rate of AdamW",
            .follows = "preset arch optimizer", .stays = true),
      FLOAT("muon-lr", &s->muon_lr, 0, 10, "auto: " SHOWN(AUTO_MUON_LR) "; " AUTO_TUNING_WORDS,
            "peak learning rate of Muon", .above = true, .follows = "preset optimizer", .stays = true),
      FLOAT("momentum", &s->momentum, 0, 1, NULL, "momentum of Muon", .below = true),
      FLOAT("min-lr-frac", &s->min_lr_frac, 0, 1, NULL, "final learning rate as a fraction of lr"),
      INT64("warmup", &s->warmup, 0, 1e12,
            "auto: " SHOWN(AUTO_WARMUP_PERCENT) " % of the steps, at most " SHOWN(AUTO_WARMUP_LIMIT),
            "number of linear learning-rate warmup steps"),
      CHOICE("schedule", &s->schedule, schedule_names, NULL,
             "learning-rate schedule after the warmup; wsd decays only over the last fifth"),
      FLOAT("beta1", &s->beta1, 0, 1, NULL, "decay rate of AdamW's first moment", .below = true),
      FLOAT("beta2", &s->beta2, 0, 1, NULL, "decay rate of AdamW's second moment", .below = true),
      FLOAT("eps", &s->eps, 0, 1, NULL, "epsilon of AdamW", .above = true),
      FLOAT("wd", &s->wd, 0, 10,
            "auto: " SHOWN(AUTO_WD) "; for a new model with muon, more on a small text, at most " SHOWN(AUTO_WD_MOST),
            "weight decay of matrices; vectors have none", .follows = "optimizer", .stays = true),
      FLOAT("clip", &s->clip, 0, 1e9, NULL, "maximum global gradient norm (gradient clipping); 0: off"),
      FLOAT("label-smoothing", &s->label_smoothing, 0, 1, NULL,
            "label smoothing: fraction of each target spread over the vocabulary, in training only", .below = true),
      TEXT("teacher", &s->teacher, "DIR", "none",
           "trained model to learn from in addition to the text (distillation): a run or a Hugging Face transformers "
           "model with the same tokenizer, which is then the default of --tokenizer",
           .setting = SETTING_PATH),
      INT64("teacher-steps", &s->teacher_steps, 0, SETTINGS_MAX_STEPS,
            "auto: if there is much time for the text; else 0",
            "first trains a model with another seed for so many steps, with warm-up and weight decay for these, in "
            "DIR/teacher, and uses it as --teacher; 0: does not"),
      FLOAT("teacher-weight", &s->teacher_weight, 0, 1, "auto: 0.5, with --teacher-steps 0.8",
            "with a teacher, the fraction of the targets that is its probabilities", .above = true),

      GROUP("Length", .setting = SETTING_OF_MODEL),
      INT64("steps", &s->steps, 1, SETTINGS_MAX_STEPS, "auto: from the text and the device",
            "number of optimizer steps", .exclusive = EXCLUSIVE_LENGTH, .common = true),
      DOUBLE("epochs", &s->epochs, 0, 1e9, NULL, "number of passes over the training text", .above = true,
             .exclusive = EXCLUSIVE_LENGTH),
      TEXT("minutes", &s->minutes_text, "X", NULL,
           "time budget in minutes, from the start of the program to its end; a new run ends after at "
           "most " AUTO_EPOCHS_WORDS "; a resumed run gets the same budget again; a dry run compares several: 1,3,10",
           .exclusive = EXCLUSIVE_LENGTH, .common = true, .setting = SETTING_OF_MODEL),
      INT64("stop-at", &s->stop_at, 1, SETTINGS_MAX_STEPS, NULL,
            "stop after this step, as Ctrl-C does; --resume continues the run", .transient = true),
      TEXT(
          "earlier-steps", &s->earlier_steps, "UNTIL:STEPS,...", NULL,
          "previously planned lengths of this run; written to config.txt by --minutes, so that the run can be repeated",
          .hidden = true, .follows = "steps epochs minutes", .setting = SETTING_INTERNAL),
      INT("batch", &s->batch, 1, SETTINGS_MAX_BATCH, "auto: from preset, device and optimizer",
          "number of sequences per micro-batch", .follows = "preset optimizer", .stays = true),
      INT("grad-accum", &s->grad_accum, 1, SETTINGS_MAX_BATCH, "auto: 1",
          "number of micro-batches per step (gradient accumulation)", .exclusive = EXCLUSIVE_BATCH),
      INT64("batch-tokens", &s->batch_tokens, 1, 1e12, NULL, "number of tokens per step; sets grad-accum",
            .exclusive = EXCLUSIVE_BATCH),

      GROUP("Evaluation", .setting = SETTING_OF_MODEL),
      INT64("eval-every", &s->eval_every, 0, 1e12, "auto: at most " SHOWN(AUTO_EVALUATIONS) " times per run",
            "number of steps between evaluations; 0: only at the end"),
      INT64("eval-tokens", &s->eval_tokens, 1, 1e15, "auto: all within a tenth of the time, else for 5% of the time",
            "number of validation tokens read by evaluations before the end of the run"),
      INT("patience", &s->patience, 0, 1e6, NULL,
          "number of evaluations without improvement after which training stops (early stopping); 0: off"),
      FLAG("no-mean", &s->no_mean,
           "evaluate and keep only the newest weights; otherwise evaluations in the second half of a run also try the "
           "mean of the weights at the newest evaluations"),
      TEXT("choose", &s->choose, "FILE", NULL,
           "at each evaluation, also measure how often the model gives the right one of the texts on a line of FILE "
           "the highest probability (.tsv or .jsonl, as for --choose of generate)",
           .setting = SETTING_PATH),
      INT64("sample-every", &s->sample_every, 0, 1e12, "auto: " SHOWN(AUTO_SAMPLES) " times per run",
            "number of steps between samples; 0: only at the end", .setting = SETTING_ASIDE),
      INT("sample-tokens", &s->sample_tokens, 0, 1e6, NULL, "length of a sample in tokens; 0: no samples",
          .setting = SETTING_ASIDE),
      TEXT("prompt", &s->prompt, NULL, NULL, "prompt of the samples", .setting = SETTING_ASIDE),
  };
  options_add(options, table, sizeof table / sizeof *table);
}

static void add_output_options(Options *options, TrainSettings *s) {
  const Option table[] = {
      GROUP("Output", .setting = SETTING_ASIDE),
      TEXT("out", &s->out, "DIR", "FILE.run or stdin.run in the current directory", "run directory",
           .modes = TRAIN_MODE_TRAIN | TRAIN_MODE_DRY_RUN | TRAIN_MODE_BENCH | TRAIN_MODE_REPORT | TRAIN_MODE_SWEEP,
           .common = true, .setting = SETTING_ASIDE),
      FLAG("open", &s->open, "open the report in the browser at the end", .transient = true,
           .modes = TRAIN_MODE_TRAIN | TRAIN_MODE_REPORT),
      FLAG("overwrite", &s->overwrite, "replace an existing run in --out DIR", .transient = true),
      OPTIONAL("resume", &s->resume, "DIR",
               "resume a stopped run: DIR, or the newest *.run in the current directory; a larger --steps extends a "
               "finished run",
               .transient = true, .common = true),
      INTERVAL("save-every", &s->save_every,
               "interval between checkpoints for --resume, as steps (500) or time (10m); 0: only at the end"),
      TEXT(
          "keep-at", &s->keep_at, "steps:N,...|tokens:N,...|words:N,...|log", "none",
          "keep the model at these steps, or when so many tokens or words were trained on, in DIR/series; N: 500, 10k, "
          "1.5M; log: at steps 0, 1, 2, 4, 8, ...",
          .setting = SETTING_ASIDE),
      INT64("log-every", &s->log_every, 1, 1e12, "auto: " SHOWN(AUTO_LOG_LINES) " times per run",
            "number of steps between lines of metrics.jsonl"),

      GROUP("Machine", .setting = SETTING_ASIDE),
      DEVICE_ROWS(&s->machine, dtype_choices, "auto: bf16 on a GPU or an AMD CPU with AVX512-BF16, else f32",
                  "compute dtype; master weights stay f32"),
      FLAG("autotune", &s->machine.autotune,
           "time the GEMM algorithms on a GPU, once for each shape, and use the fastest"),
      TEXT("gpus", &s->gpus, "N|all", NULL, "number of GPUs on this machine to train on, one process each",
           .transient = true),
      FLAG("no-shard", &s->no_shard, "replicate the optimizer state in all processes, instead of sharding it (ZeRO-1)"),
      SEED("seed", &s->seed, NULL,
           "random seed; the same seed gives byte-identical results; -1: a random seed, which is written to config.txt",
           .setting = SETTING_OF_MODEL),
  };
  options_add(options, table, sizeof table / sizeof *table);
}

static void add_mode_options(Options *options, TrainSettings *s) {
  const Option table[] = {
      GROUP("Runs"),
      FLAG("runs", &s->runs, "print a table of runs; FILE... are directories with runs", .transient = true,
           .selects = TRAIN_MODE_RUNS, .common = true),
      FLAG("report", &s->report, "write an HTML report of runs to --out FILE; FILE... are directories with runs",
           .transient = true, .selects = TRAIN_MODE_REPORT),
      FLAG("plot", &s->plot, "plot the losses of runs in the terminal; FILE... are directories with runs",
           .transient = true, .selects = TRAIN_MODE_PLOT),
      CHOICE("output-format", &s->runs_format, table_format_names, "auto: text on a terminal, else md",
             "table format: columns that fit the terminal (text), Markdown (md), HTML, or all columns (csv, json)",
             .letter = 'O', .transient = true, .modes = TRAIN_MODE_RUNS),
      TEXT("sort", &s->runs_sort, "COLUMN", "bits_per_byte",
           "column to sort the table by; -COLUMN: largest first; losses are ranked among runs with the same "
           "validation text",
           .transient = true, .modes = TRAIN_MODE_RUNS),
      TEXT("columns", &s->runs_columns, "NAME,...|all", "csv, json: all; else the most useful ones that fit",
           "columns of the table, in this order", .transient = true, .modes = TRAIN_MODE_RUNS),
      FLAG("by-seed", &s->by_seed,
           "show each run; without it, runs that differ only in their seed are one row with the mean and the standard "
           "deviation",
           .transient = true, .modes = TRAIN_MODE_RUNS | TRAIN_MODE_REPORT | TRAIN_MODE_SWEEP | TRAIN_MODE_TRAIN),

      FLAG("verify", &s->verify, "repeat the finished run FILE and check that the result is the same, byte for byte",
           .transient = true, .selects = TRAIN_MODE_VERIFY),

      GROUP("Sweep"),
      TEXT("sweep", &s->sweep, "'lr=A,B wd=C..D'|FILE", "one run",
           "train with different settings and print a table: each combination of the values, or values drawn between "
           "two numbers; \"a b\": a value with spaces or commas; FILE: such a line for each group of runs. --minutes "
           "is the time of all runs together",
           .transient = true, .selects = TRAIN_MODE_SWEEP, .excludes = "resume overwrite"),
      INT("jobs", &s->jobs, 1, 1024, "auto: one per processor, at most 4 on a GPU", "number of runs at a time",
          .transient = true, .modes = TRAIN_MODE_SWEEP | TRAIN_MODE_TRAIN),
      INT("draws", &s->draws, 1, 10000, NULL, "number of values to draw between two numbers", .transient = true,
          .modes = TRAIN_MODE_SWEEP),

      GROUP("Other"),
      FLAG("dry-run", &s->dry_run, "print the plan and exit", .transient = true, .selects = TRAIN_MODE_DRY_RUN,
           .common = true),
      FLAG("json", &s->json, "print the plan as JSON", .transient = true, .modes = TRAIN_MODE_DRY_RUN,
           .excludes = "show"),
      INT("show", &s->show, 1, SETTINGS_MAX_SHOW, NULL,
          "print the first N windows of the training text as the model sees them", .transient = true,
          .modes = TRAIN_MODE_DRY_RUN),
      INT64("bench", &s->bench, 1, SETTINGS_MAX_BENCH, NULL,
            "time N steps and print one line of JSON; nothing is saved", .transient = true,
            .selects = TRAIN_MODE_BENCH),
  };
  options_init(options, table, sizeof table / sizeof *table);
}

void train_options(Options *options, TrainSettings *s) {
  *s = defaults;
  *options = (Options){.program = "train",
                       .usage = "FILE... [options]",
                       .about = "Trains a small language model on text. Writes a run directory that generate and "
                                "Hugging Face transformers can load.",
                       .hints = hints,
                       .hint_count = sizeof hints / sizeof *hints,
                       .default_mode = "training",
                       .default_modes = TRAIN_MODE_TRAIN | TRAIN_MODE_DRY_RUN | TRAIN_MODE_BENCH | TRAIN_MODE_SWEEP};
  add_text_options(options, s);
  add_model_options(options, s);
  add_training_options(options, s);
  add_output_options(options, s);
  add_mode_options(options, s);
}

/* ---- what follows from settings ---- */

NamedText settings_text(const char *name) {
  const char *mark = strrchr(name, '=');
  char *end = NULL;
  if (mark) strtod(mark + 1, &end);
  const bool given = mark && end > mark + 1 && !*end && access(name, F_OK) != 0;
  NamedText out = {.share = given ? mark + 1 : NULL};
  snprintf(out.path.text, sizeof out.path.text, "%.*s", given ? (int)(mark - name) : -1, name);
  return out;
}

/* Adds the share of one text. */
static bool add_share(const TrainSettings *s, int item, Mixture *out, Error *error) {
  const OneLine name = text_one_line(s->data.items[item], 250);
  const NamedText text = settings_text(s->data.items[item]);
  const double share = text.share ? strtod(text.share, NULL) : 0;
  if (!text.share) return true;
  if (!(share >= MIXTURE_LEAST && share < 1))
    return fail(error, EXIT_USAGE, "%s: there is no such file, and a share is a number from %.6f to below 1", name.text,
                MIXTURE_LEAST);
  if (out->count == MIXTURE_TEXTS)
    return fail(error, EXIT_USAGE, "more than %d texts have a share; put some into one folder", MIXTURE_TEXTS);
  out->items[out->count] = item;
  out->shares[out->count++] = llround(share * (double)MIXTURE_WHOLE);
  return true;
}

bool settings_read_shares(const TrainSettings *s, Mixture *out, Error *error) {
  *out = (Mixture){0};
  for (int i = 0; i < s->data.count; i++)
    if (!add_share(s, i, out, error)) return false;
  const int64_t rest = mixture_rest(out);
  if (rest <= 0)
    return fail(error, EXIT_USAGE, "the shares of the texts add up to %g; they must leave windows to the other texts",
                1 - (double)rest / (double)MIXTURE_WHOLE);
  return out->count < s->data.count ||
         fail(error, EXIT_USAGE, "every text has a share; name one without, whose passes are the epochs");
}

bool settings_read_minutes(TrainSettings *s, Error *error) {
  const double MOST = 1e6;
  int count = 0;
  s->minutes = NAN;
  s->budget_count = 0;
  for (const char *at = s->minutes_text; at; at = *at == ',' ? at + 1 : NULL, count++) {
    char *end;
    const bool digit = strchr("0123456789.", *at) && *at;
    const double minutes = digit ? strtod(at, &end) : 0;
    if (!(minutes > 0 && minutes <= MOST) || (*end && *end != ',') || count > SETTINGS_BUDGETS)
      return fail(error, EXIT_USAGE,
                  "--minutes %.100s: need a number > 0, at most %.0f; with --dry-run, up to %d of them: 1,3,10",
                  s->minutes_text, MOST, SETTINGS_BUDGETS + 1);
    if (count) s->budgets[s->budget_count++] = minutes;
    else s->minutes = minutes;
    at = end;
  }
  return !s->budget_count || s->dry_run ||
         fail(error, EXIT_USAGE, "--minutes takes several numbers only with --dry-run, which compares their plans");
}

bool settings_tokenizer_is_path(const char *tokenizer) { return tokenizer && !tokenizer_is_trained_name(tokenizer); }

/* A dropout that is not chosen yet counts as 0. */
static float rate(float dropout) { return dropout > 0 ? dropout : 0; }

TrainConfig settings_train_config(const TrainSettings *s) {
  return (TrainConfig){
      .batch = s->batch,
      .micro_batches = s->grad_accum,
      .dropout = {rate(s->embed_dropout), rate(s->attention_dropout), rate(s->dropout), rate(s->mlp_dropout)},
      .label_smoothing = s->label_smoothing,
      .teacher_weight = s->teacher_weight,
      .clip = s->clip,
      .optimizer = s->optimizer > 0 ? (OptimizerKind)s->optimizer : OPTIMIZER_ADAMW,
      .muon = {s->muon_lr / s->lr, s->momentum, s->wd},
      .adamw = {s->beta1, s->beta2, s->eps, s->wd},
      .schedule = {(ScheduleKind)s->schedule, s->lr, s->min_lr_frac, s->warmup, s->steps, s->plans},
      .seed = s->seed};
}
