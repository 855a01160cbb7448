#include "generate/settings.h"

#include "cli/option_rows.h"
#include "files/formats/gguf_model.h"
#include "generate/records.h"
#include "inference/generation.h"
#include "inference/sampling.h"
#include "text/tokenizer/tokenizer.h"

#include <math.h>

static const char *const on_full_names[] = {"slide", "stop", NULL};
static const char *const export_type_names[] = {"f32", "bf16", NULL};
static const char *const truncate_names[] = {"no", "left", NULL};

#define HERE(name) "that is " name " here"

/* Names of the same options in other programs. */
static const OptionHint hints[] = {
    {"t", "did you mean --temp, or --threads?"},
    {"input text", "did you mean -p?"},
    {"k", "did you mean --top-k?"},
    {"p-file prompt-file input-file", HERE("--file")},
    {"n-predict max-new-tokens max-tokens max-length num-tokens length new-tokens steps", HERE("-n")},
    {"temperature", HERE("--temp")},
    {"checkpoint ckpt model-path model-dir out-dir run-dir", "leave it out: a run is given without a flag"},
    {"repetition-penalty repeat-pen", HERE("--repeat-penalty")},
    {"nucleus topp", HERE("--top-p")},
    {"topk", HERE("--top-k")},
    {"random-seed rng-seed", HERE("--seed")},
    {"n-threads num-threads", HERE("--threads")},
    {"ctx ctx-size context-size n-ctx max-seq-len", "the context length is fixed by the model"},
    {"ngl n-gpu-layers gpu-layers gpu gpus", "that is --device cuda here"},
    {"perplexity ppl eval evaluate", HERE("--score FILE")},
    {"surprisal words", HERE("--score FILE --per-word")},
    {"multiple-choice hellaswag blimp minimal-pairs lm-eval tasks", HERE("--choose FILE")},
    {"n-samples num-return-sequences n", HERE("-N")},
    {"reverse-prompt stop-string stop-strings", HERE("--stop")},
    {"logit-bias", HERE("--bias")},
    {"bad-words ban-words banned", HERE("--ban")},
    {"jsonl batch", HERE("--prompts FILE")},
    {"stream", "text is always streamed"},
    {"chat conversation cnv repl interactive-first", HERE("-i")},
    {"no-sample deterministic", HERE("--greedy")},
    {"save-pretrained push-to-hub publish", HERE("--export DIR")},
    {"outtype quantize", HERE("--gguf-type")},
    {"convert to-gguf export-gguf", HERE("--gguf FILE")},
    {"memorization copied plagiarism overlap", HERE("--novelty RUN")},
    {"activations hidden-states output-hidden-states dump-activations", HERE("--dump FILE")},
};

enum {
  MODES_WRITING = MODE_TEXT | MODE_INTERACTIVE | MODE_JSON | MODE_LINES | MODE_PROMPTS | MODE_COMPARE | MODE_EXPORT,
  MODES_DRAWING = MODES_WRITING | MODE_BENCH, /* random numbers */
  MODES_PROMPTED = MODES_DRAWING | MODE_LENS,
  MODES_READING = MODES_PROMPTED | MODE_DUMP
};

#define RECORDS "per-token per-word"

/* What --heat and its like cannot be given with. */
#define NOT_PLAIN                                                                                                      \
  "num-samples novelty json per-line per-token per-word exact stride tsv fasta jsonl-field prompt-field "              \
  "response-field"

static void add_sampling(Options *options, Sampling *sampling) {
  for (const SamplingSetting *s = sampling_settings; s->name; s++) {
    const Option row = {.name = s->name,
                        .kind = s->whole ? OPTION_WHOLE : OPTION_REAL,
                        .size = s->whole ? sizeof(int) : sizeof(float),
                        .value = (char *)sampling + s->offset,
                        .min = s->min,
                        .max = s->max,
                        .above = s->above,
                        .help = s->help,
                        .common = s->common};
    options_add(options, &row, 1);
  }
}

static void add_text_options(Options *options, GenerateSettings *s) {
  const Option table[] = {
      GROUP("Model"),
      LIST(
          "run", &s->runs, "RUN",
          "run directory of train, or a Hugging Face transformers model directory with a tokenizer.json; default: "
          "the newest *.run in the current directory; --compare and --choose also take the models that train --keep-at "
          "has kept: RUN/series",
          .positional = true, .common = true),
      TEXT("model", &s->model, "RUN", NULL, "same as RUN", .letter = 'm'),

      GROUP("Prompt", .modes = MODES_READING),
      TEXT("prompt", &s->prompt, NULL, "none: the start of a document", "text to continue", .letter = 'p',
           .modes = MODES_READING & ~(MODE_LINES | MODE_PROMPTS), .common = true),
      TEXT("file", &s->prompt_file, "FILE", NULL, "file that contains the prompt (-: standard input)", .letter = 'f',
           .modes = MODES_READING & ~(MODE_PROMPTS | MODE_EXPORT), .common = true),
      TEXT("system", &s->system, NULL, NULL, "system prompt, for models with a chat template",
           .modes = (MODES_READING & ~MODE_DUMP) | MODE_HTML, .excludes = "raw"),
      FLAG("raw", &s->raw,
           "give the prompt as it is to a model with a chat template; otherwise it is the turn of a user",
           .modes = MODES_READING),
      FLAG("escapes", &s->escapes,
           "read \\n as a newline, \\t as a tab, \\\\ as a backslash and \\x41 as a byte in -p, --answer, --stop, "
           "--ban, "
           "--bias and the lines of -i",
           .letter = 'e', .needs = "prompt answer stop ban bias interactive"),
      FLAG("special", &s->special,
           "recognize special tokens such as " END_OF_TEXT
           " in prompts and in the text of --encode; otherwise they are plain text",
           .modes = MODES_READING | MODE_ENCODE),
      FLAG("binary", &s->binary,
           "read the bytes of any file and skip the text checks; the default for a run that was trained with --binary",
           .modes = MODES_READING | MODE_SCORE | MODE_CHOOSE),
      CHOICE("truncate-prompt", &s->truncate_prompt, truncate_names, NULL,
             "for a prompt longer than the context: reject it (no), or drop its beginning (left), in a chat its oldest "
             "messages",
             .modes = MODES_PROMPTED & ~MODE_INTERACTIVE),
      TEXT("answer", &s->answer, NULL, NULL, "beginning of the answer to the prompt, for models with an encoder",
           .modes = MODES_PROMPTED),

      GROUP("Generated text", .modes = MODES_DRAWING),
      INT64("tokens", &s->tokens, -1, 1e12, NULL,
            "number of tokens to generate; -1: until the end of the text or, with --on-full stop, until the context is "
            "full",
            .letter = 'n', .modes = MODES_WRITING, .common = true),
      INT("num-samples", &s->samples, 1, 1e6, NULL,
          "number of texts to generate from the prompt, several at a time, with the seeds S, S+1, ... where S is "
          "--seed",
          .letter = 'N', .modes = MODE_TEXT | MODE_JSON | MODE_PROMPTS | MODE_BENCH),
      LIST("stop", &s->stops, "TEXT", "stop before TEXT appears in the generated text; repeatable",
           .modes = MODES_WRITING),
      CHOICE("on-full", &s->on_full, on_full_names, NULL,
             "when the context is full: recompute its last tokens and continue (slide), or stop"),
      INT("keep", &s->keep, 1, MODEL_MAX_CTX, "half the context",
          "number of tokens to keep when --on-full slide recomputes the context"),
      FLAG("ignore-eos", &s->ignore_end, "continue after end-of-text tokens"),
      FLAG("echo", &s->echo, "print the prompt before the text", .modes = MODE_TEXT),

      GROUP("Sampling, in this order", .modes = MODES_DRAWING | MODE_GGUF),
      LIST("bias", &s->biases, "TEXT=N",
           "add N to the logit of the token TEXT, as in ' Romeo=+2' (-inf: never); repeatable", .modes = MODES_WRITING),
      LIST("ban", &s->bans, "TEXT", "never generate TEXT, which may span several tokens; repeatable",
           .modes = MODES_WRITING),
  };
  const Option last[] = {
      FLAG("greedy", &s->greedy, "same as --temp 0", .modes = MODES_PROMPTED | MODE_SCORE),
      SEED("seed", &s->seed, "a random seed, which is printed",
           "random seed; the same seed gives the same text; -1: a random seed", .letter = 's', .modes = MODES_DRAWING,
           .common = true),
  };
  options_add(options, table, sizeof table / sizeof *table);
  add_sampling(options, &s->sampling);
  options_add(options, last, sizeof last / sizeof *last);
}

static void add_inspection_options(Options *options, GenerateSettings *s) {
  const Option table[] = {
      GROUP("Inspection"),
      FLAG("heat", &s->heat,
           "color each token by its surprisal, from pale green (less than 1 bit) to red (more than 9 bits); with "
           "--score FILE, color the tokens of FILE instead",
           .modes = MODE_TEXT | MODE_SCORE, .excludes = NOT_PLAIN),
      TEXT("heat-html", &s->heat_html, "FILE", NULL,
           "write the colored text as an HTML page that shows the alternatives to the token under the pointer",
           .modes = MODE_TEXT | MODE_SCORE, .excludes = NOT_PLAIN),
      INT("alts", &s->alternatives, 1, 100, "none",
          "list each token with its surprisal in bits and the N most likely tokens in its place, after the text; with "
          "--lens: number of tokens per layer (5)",
          .modes = MODE_TEXT | MODE_SCORE | MODE_LENS, .excludes = NOT_PLAIN),
      INT("logprobs", &s->logprobs, 0, 1000, "none",
          "add the log-probabilities of each token and of the N most likely tokens in its place, before penalties and "
          "filters",
          .modes = MODE_JSON | MODE_PROMPTS),
      LIST("attention", &s->attention, "FILE",
           "write the attention weights of all layers and heads over the prompt and, with -n, the text (with an "
           "encoder: over the prompt and answer) as pictures (FILE.html) or numbers (FILE.json)",
           .modes = MODE_TEXT, .excludes = "num-samples"),
      TEXT("novelty", &s->novelty, "RUN|FILE", NULL,
           "report passages of at least 12 tokens and 40 bytes that are copied verbatim from the text of a "
           "run or from another text (a file, a directory; -: standard input), and underline them on a terminal",
           .modes = MODE_TEXT),

      GROUP("Scoring", .modes = MODE_SCORE),
      INT("stride", &s->stride, 1, MODEL_MAX_CTX, "half the context",
          "number of tokens between the starts of windows; only the last N tokens of a window are scored. A stride "
          "below the context gives each token more context, so the loss is usually lower than training's val_loss, "
          "whose windows do not overlap"),
      FLAG("per-line", &s->per_line,
           "score each line of FILE separately, as the beginning of a text, and print nats, tokens and bytes as a line "
           "of JSON; a line of TSV (.tsv or --tsv) is an id, a tab and the text",
           .excludes = "exact stride fasta jsonl-field prompt-field response-field"),
      DOUBLE("above", &s->above, 0, 1e6, NULL,
             "with --per-line, print only lines with more than X nats per token, and add this number and the text",
             .needs = "per-line", .excludes = RECORDS),
      FLAG("per-token", &s->per_token,
           "print the surprisal of each token of FILE, or of each line with --per-line: a record with the text, its "
           "place in bytes, nats and bits",
           .excludes = "per-word exact"),
      FLAG("per-word", &s->per_word,
           "the same for each word: a run of characters that are not white space. White space counts for the word "
           "after it",
           .excludes = "exact"),
      FLAG("entropy", &s->entropy,
           "add the entropy of the prediction in bits and the rank of the token in it; for a word, of its first token",
           .needs = RECORDS),
      CHOICE("output-format", &s->record_format, record_format_names, NULL,
             "format of these records, unless they are JSON Lines (--json)", .letter = 'O', .needs = RECORDS,
             .excludes = "json"),
      FLAG("exact", &s->exact, "also report the fraction of prompts whose greedy answer equals the response"),

      GROUP("File format of --score and --novelty", .modes = MODE_TEXT | MODE_SCORE),
      FORMAT_ROWS(s, .needs = "score novelty"),
  };
  options_add(options, table, sizeof table / sizeof *table);
}

static void add_mode_options(Options *options, GenerateSettings *s) {
  const Option table[] = {
      GROUP("Other modes (at most one)"),
      FLAG("interactive", &s->interactive,
           "interactive session: the model continues each line that you type; /help lists the commands", .letter = 'i',
           .selects = MODE_INTERACTIVE, .common = true),
      FLAG("json", &s->json,
           "write one JSON object in the format of OpenAI's completions API, instead of text; with --choose, one for "
           "each line and one of the totals; --score writes JSON anyway, and with --per-token or --per-word JSON Lines",
           .selects = MODE_JSON, .modes = MODE_CHOOSE | MODE_SCORE),
      FLAG("lines", &s->lines,
           "answer each line of -f FILE or standard input with one line, until the text ends or the context is full; a "
           "newline in an answer is written as \\n, a backslash as \\\\",
           .selects = MODE_LINES),
      TEXT(
          "prompts", &s->prompts, "FILE", NULL,
          "read prompts from FILE (-: standard input) and write answers, both as JSON Lines and in the same order; a "
          "line is a string, or an object "
          "with prompt and optionally id (repeated in the answer), n (number of texts), max_tokens (length of each; "
          "-1: no limit), stop (a text or a list), score (true: add the log-probability of the prompt), seed, logprobs "
          "and the sampling options (temp, top_k, ...)",
          .selects = MODE_PROMPTS),
      FLAG("compare", &s->compare,
           "continue the same prompt with several models and the same random numbers, side by side: --compare A.run "
           "B.run ..., or the models of a series: --compare A.run/series",
           .selects = MODE_COMPARE, .excludes = "model"),
      FLAG("lens", &s->lens,
           "print the most likely next tokens after each layer (logit lens), instead of generating text",
           .selects = MODE_LENS),
      TEXT("dump", &s->dump, "FILE", NULL,
           "write what the model computes while it reads -p or -f, of any length, to FILE.safetensors: the residual "
           "stream, queries, keys, values, and the output of every attention, convolution and MLP",
           .selects = MODE_DUMP),
      TEXT("score", &s->score, "FILE", NULL,
           "evaluate the model on FILE (-: standard input): nats per token, bits per byte, perplexity",
           .selects = MODE_SCORE, .common = true),
      TEXT("choose", &s->choose, "FILE", NULL,
           "choose the most likely of the texts on each line of FILE, and count how often it is the right one; in a "
           ".tsv file, texts are separated by tabs and the first is right; .jsonl has context, choices and answer, or "
           "sentence_good and sentence_bad",
           .selects = MODE_CHOOSE),
      TEXT("encode", &s->encode, "FILE", NULL,
           "tokenize FILE (-: standard input), with the decoder's tokenizer if there are two, and print one token id "
           "per line",
           .selects = MODE_ENCODE),
      TEXT("decode", &s->decode, "FILE", NULL, "print the text of the token ids in FILE (-: standard input)",
           .selects = MODE_DECODE),
      FLAG("params", &s->params, "list the tensors of the model with their shapes and sizes", .selects = MODE_PARAMS),
      TEXT(
          "export", &s->export, "DIR", NULL,
          "write the model and its tokenizer for Hugging Face transformers into a new directory, with a model card and "
          "a sample (generated with -p, -n, -s ...), but without training text or local paths",
          .selects = MODE_EXPORT),
      CHOICE("export-type", &s->export_type, export_type_names, NULL, "data type of the weights of --export",
             .modes = MODE_EXPORT),
      TEXT("gguf", &s->gguf, "FILE", NULL,
           "write the model as a GGUF file for llama.cpp and Ollama; supports the architectures LLaMA, Qwen 3, LFM2, "
           "SmolLM3, GPT-2, Starcoder2 and StableLM",
           .selects = MODE_GGUF),
      CHOICE("gguf-type", &s->gguf_type, gguf_type_names, NULL,
             "data type of the matrices of --gguf; f16 takes half the space of f32, q8_0 (blocks of 32) a quarter",
             .modes = MODE_GGUF),
      TEXT("modelfile", &s->modelfile, "FILE", NULL, "also write a Modelfile for Ollama, with the sampling options",
           .modes = MODE_GGUF),
      TEXT("html", &s->html, "FILE", NULL,
           "write the model as one HTML file in which anybody can try it: it runs in a browser, offline. The weights "
           "have the type of --dtype, by default int8",
           .selects = MODE_HTML),
      TEXT("title", &s->title, "TEXT", DEFAULT_TITLE, "title of the page of --html; in a chat the name of the model",
           .modes = MODE_HTML),
      TEXT("picture", &s->picture, "FILE", NULL,
           "picture of the page of --html; in a chat that of the model: PNG, JPEG, GIF or WebP", .modes = MODE_HTML),
      FLAG("open", &s->open, "open the page of --html in the browser", .transient = true, .modes = MODE_HTML),
      INT64("bench", &s->bench, 1, 1e7, NULL,
            "time the generation of N tokens and print one line of JSON instead of text", .transient = true,
            .selects = MODE_BENCH),

      GROUP("Machine"),
      DEVICE_ROWS(
          &s->machine, weight_dtype_choices, "auto: bf16 on a GPU, f32 on a CPU",
          "compute dtype; on a CPU, only the dtype of the weights in memory: int8 needs a quarter of the memory "
          "bandwidth of f32"),
  };
  options_init(options, table, sizeof table / sizeof *table);
}

void generate_options(Options *options, GenerateSettings *s) {
  *s = (GenerateSettings){.machine = {.reads_only = true},
                          .gguf_type = GGUF_F16,
                          .tokens = 256,
                          .samples = 1,
                          .logprobs = -1,
                          .above = NAN,
                          .sampling = sampling_initial()};
  *options =
      (Options){.program = "generate",
                .usage = "[RUN] [-p TEXT] [options]",
                .about = "Generates text with a trained model. The text goes to stdout, everything else to stderr.",
                .hints = hints,
                .hint_count = sizeof hints / sizeof hints[0],
                .default_mode = "text generation"};
  add_text_options(options, s);
  add_inspection_options(options, s);
  add_mode_options(options, s);
}
