#include "generating/settings.h"

#include "formats/gguf_model.h"
#include "cli/option_rows.h"
#include "inference/generation.h"
#include "tokenizer/tokenizer.h"

static const char *const on_full_names[] = {"slide", "stop", NULL};
static const char *const export_type_names[] = {"f32", "bf16", NULL};
const TensorType export_types[] = {TENSOR_F32, TENSOR_BF16};
static const char *const truncate_names[] = {"no", "left", NULL};

#define HERE(name) "that is " name " here"

/* What other programs call them. */
static const OptionHint hints[] = {
    {"t", "did you mean --temp, or --threads?"},
    {"input text", "did you mean -p?"},
    {"k", "did you mean --top-k?"},
    {"p-file prompt-file input-file", HERE("--file")},
    {"n-predict max-new-tokens max-tokens max-length num-tokens length new-tokens steps", HERE("-n")},
    {"temperature t", HERE("--temp")},
    {"checkpoint ckpt model-path model-dir out-dir run-dir", "leave it out: a run is named without a flag"},
    {"repetition-penalty repeat-pen", HERE("--repeat-penalty")},
    {"nucleus topp", HERE("--top-p")},
    {"topk", HERE("--top-k")},
    {"random-seed rng-seed", HERE("--seed")},
    {"n-threads num-threads", HERE("--threads")},
    {"ctx ctx-size context-size n-ctx max-seq-len", "the context is that of the model"},
    {"ngl n-gpu-layers gpu-layers gpu gpus", "that is --device cuda here"},
    {"perplexity ppl eval evaluate", HERE("--score FILE")},
    {"n-samples num-return-sequences n", HERE("-N")},
    {"reverse-prompt stop-string stop-strings", HERE("--stop")},
    {"logit-bias", HERE("--bias")},
    {"bad-words ban-words banned", HERE("--ban")},
    {"jsonl batch", HERE("--prompts FILE")},
    {"stream", "text is written as it comes"},
    {"chat conversation cnv repl interactive-first", HERE("-i")},
    {"no-sample deterministic", HERE("--greedy")},
    {"save-pretrained push-to-hub publish", HERE("--export DIR")},
    {"outtype quantize", HERE("--gguf-type")},
    {"convert to-gguf export-gguf", HERE("--gguf FILE")},
    {"memorization copied plagiarism overlap", HERE("--novelty RUN")},
};

void generate_options(Options *options, GenerateSettings *s) {
  *s = (GenerateSettings){.machine = {.reads_only = true},
                          .gguf_type = GGUF_F16,
                          .tokens = 256,
                          .samples = 1,
                          .logprobs = -1,
                          .sampling = generation_sampling()};
  const Option table[] = {
      GROUP("Model"),
      LIST("run", &s->runs, "RUN",
           "run directory of train, or a directory with a LLaMA, GPT-2, OPT ... and its tokenizer.json; none: the "
           "newest "
           "*.run here",
           .positional = true),
      TEXT("model", &s->model, "RUN", NULL, "same as RUN", .letter = 'm'),
      FLAG("params", &s->params, "list the model's tensors, their shapes and sizes, and do nothing else"),

      GROUP("Text"),
      TEXT("prompt", &s->prompt, NULL, "none: the start of a document", "text to continue", .letter = 'p'),
      FLAG("escapes", &s->escapes,
           "in -p, --answer, --stop, --ban, --bias and the lines of -i, \\n is a newline, \\t a tab, \\\\ a backslash, "
           "\\x41 a byte",
           .letter = 'e'),
      FLAG("special", &s->special,
           "special tokens such as " END_OF_TEXT
           " are found in prompts and in the text of --encode, too; without it they "
           "are text like any other"),
      TEXT("file", &s->prompt_file, "FILE", NULL, "read the prompt from FILE (-: standard input)", .letter = 'f'),
      FLAG("interactive", &s->interactive,
           "keep the model loaded: type lines, and the model goes on; /help lists commands", .letter = 'i'),
      TEXT("answer", &s->answer, NULL, NULL, "models with an encoder: how the answer to the prompt begins"),
      FLAG("lines", &s->lines,
           "answer each line of -f FILE or standard input with a line, up to the end of the text or the context; a "
           "newline in it is \\n, a backslash \\\\"),
      INT64("tokens", &s->tokens, -1, 1e12, NULL,
            "tokens to generate; -1: until the end of the text or, with --on-full stop, until the context is full",
            .letter = 'n'),
      INT("num-samples", &s->samples, 1, 1e6, NULL,
          "texts to write after the prompt, several at a time; each is that of a seed of its own: --seed, and so many "
          "more",
          .letter = 'N'),
      LIST("stop", &s->stops, "TEXT", "end before TEXT, which may appear anywhere in what is written; repeatable"),
      CHOICE("on-full", &s->on_full, on_full_names, NULL,
             "when the context is full: compute its end again and continue, or stop"),
      INT("keep", &s->keep, 1, MODEL_MAX_CTX, "half the context",
          "with --on-full slide: tokens of the context that are kept"),
      FLAG("ignore-eos", &s->ignore_end, "continue after the end-of-text token"),
      CHOICE("truncate-prompt", &s->truncate_prompt, truncate_names, NULL,
             "a prompt longer than the context: refuse it (no) or drop its beginning (left)"),
      LIST("attention", &s->attention, "FILE",
           "write what attends to what, in every layer and head: pictures (FILE.html) or numbers (FILE.json); of the "
           "prompt, with -n also of what follows it, and with an encoder of source and answer"),
      FLAG("echo", &s->echo, "print the prompt before the text"),

      GROUP("Looking inside"),
      FLAG("heat", &s->heat,
           "color each token by its surprise, pale green (less than 1 bit) to red (more than 9); with --score FILE the "
           "tokens of that file"),
      TEXT("heat-html", &s->heat_html, "FILE", NULL,
           "the same as a page, with what else was likely where the pointer rests on a token"),
      INT("alts", &s->alternatives, 1, 100, "none",
          "a line for each token behind the text: its surprise in bits and the N likeliest tokens in its place; with "
          "--lens the N likeliest of each layer (5)"),
      FLAG("lens", &s->lens,
           "print what each layer of the decoder would say after the prompt, in place of a text: its likeliest tokens"),
      TEXT("novelty", &s->novelty, "RUN|FILE", NULL,
           "say which passages of the text, of at least 12 tokens and 40 bytes, stand word for word in the tokens of a "
           "run, or in a text (a file, a directory; -: standard input); on a terminal they are underlined"),
      FLAG("compare", &s->compare,
           "the same prompt and random numbers through several models, side by side: --compare A.run B.run ..."),

      GROUP("For programs"),
      FLAG("json", &s->json, "write one JSON object, in the shape of OpenAI's completions, instead of the text"),
      INT("logprobs", &s->logprobs, 0, 1000, "none",
          "with --json or --prompts: log-probabilities of each token and of the N likeliest in its place, before any "
          "penalty or filter"),
      TEXT("prompts", &s->prompts, "FILE", NULL,
           "JSON lines in (-: standard input), JSON lines out, in the same order: a line is a string, or an object "
           "with prompt and, if wanted, id (repeated in the answer), n (number of texts), max_tokens (length of each; "
           "-1: no limit), stop (a text, or a list of them), score (true: the log-probability of the prompt, too), and "
           "temp, top_k, top_p, min_p, seed, logprobs, as the options of these names"),

      GROUP("Sampling, in this order"),
      LIST("bias", &s->biases, "TEXT=N",
           "add N to the logit of the token whose text is TEXT, such as ' Romeo=+2' (-inf: never); repeatable"),
      LIST("ban", &s->bans, "TEXT", "write no token that would complete TEXT, which may span tokens; repeatable"),
      FLOAT("repeat-penalty", &s->sampling.repeat_penalty, 0.01, 100, NULL,
            "penalty on the logits of recent tokens; 1: off"),
      INT("repeat-last-n", &s->sampling.repeat_last_n, 0, DECODER_LOOKBACK, NULL,
          "number of recent tokens to penalize"),
      FLOAT("presence-penalty", &s->sampling.presence_penalty, -100, 100, NULL,
            "taken from the logits of recent tokens"),
      FLOAT("frequency-penalty", &s->sampling.frequency_penalty, -100, 100, NULL,
            "taken from them as often as they are there"),
      INT("top-k", &s->sampling.top_k, -1, MODEL_MAX_VOCAB, NULL, "keep the k most likely tokens; 0: all"),
      FLOAT("top-p", &s->sampling.top_p, 0, 1, NULL,
            "keep the most likely tokens whose probabilities add up to p; 1: all", .above = true),
      FLOAT("min-p", &s->sampling.min_p, 0, 1, NULL,
            "keep tokens at least p times as likely as the most likely one; 0: all"),
      FLOAT("temp", &s->sampling.temperature, 0, 100, NULL, "temperature; 0: always the most likely token"),
      FLAG("greedy", &s->greedy, "same as --temp 0"),
      SEED("seed", &s->seed, "random, and printed", "random seed; the same seed gives the same text; -1: a random one",
           .letter = 's'),

      GROUP("Scoring"),
      TEXT("score", &s->score, "FILE", NULL,
           "evaluate the model on FILE (-: standard input): nats per token, bits per byte, perplexity"),
      INT("stride", &s->stride, 1, MODEL_MAX_CTX, "half the context",
          "step between the windows of --score; only the last N tokens of a window are scored. A step shorter than the "
          "context gives tokens more context, so the loss is usually lower; val_loss is the one that training "
          "measures, over windows that do not overlap"),
      FLAG("per-line", &s->per_line,
           "with --score: each line by itself, as at the beginning of a text: a line of JSON with nats, tokens and "
           "bytes"),
      FLAG("exact", &s->exact,
           "with --score and pairs: also the share of greedy answers that are exactly the responses"),
      FORMAT_ROWS(s),

      GROUP("Tokens"),
      TEXT("encode", &s->encode, "FILE", NULL,
           "tokenize FILE (-: standard input) and print one token id per line, by the "
           "tokenizer of answers where prompts have another"),
      TEXT("decode", &s->decode, "FILE", NULL, "write the text of the token ids in FILE (-: standard input)"),

      GROUP("For others"),
      TEXT("export", &s->export, "DIR", NULL,
           "write what others need of the run into a new directory, in place of a text: the model and its tokenizer as "
           "transformers has them, and a model card with a sample (of -p, -n, -s ...); neither text nor paths"),
      CHOICE("export-type", &s->export_type, export_type_names, NULL, "of its weights"),
      TEXT("gguf", &s->gguf, "FILE", NULL,
           "write the model as a GGUF file, for llama.cpp and ollama, in place of a text: LLaMA, GPT-2, Starcoder2 and "
           "StableLM"),
      CHOICE("gguf-type", &s->gguf_type, gguf_type_names, NULL,
             "of its matrices; f16 takes half of f32, q8_0 a quarter, in blocks of 32 numbers"),
      TEXT("modelfile", &s->modelfile, "FILE", NULL,
           "with --gguf: also write the Modelfile from which ollama takes it"),

      GROUP("Machine"),
      DEVICE_ROWS(&s->machine, weight_dtype_choices, "auto: bf16 on a GPU, f32 on a CPU",
                  "compute dtype; on a CPU that of the weights, in which int8 takes a quarter of f32's memory traffic"),
      INT64("bench", &s->bench, 1, 1e7, NULL, "time N tokens, print one line of JSON, no text", .transient = true),
  };
  *options =
      (Options){.program = "generate",
                .usage = "[RUN] [-p TEXT] [options]",
                .about = "Generates text with a trained model. The text goes to stdout, everything else to stderr.",
                .hints = hints,
                .hint_count = sizeof hints / sizeof hints[0]};
  options_init(options, table, sizeof table / sizeof *table);
}
