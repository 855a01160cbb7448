/* Manual pages and completion of shells, from the tables of options of both programs:
 *
 *   build/option_pages man|bash|zsh|fish train|generate [NAME]
 *
 * writes to stdout what scripts/install.sh installs. NAME: how the program is called there ("inkling-train"). */
#include "cli/option_internal.h"
#include "generating/settings.h"
#include "training/settings.h"
#include "util/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the pages say beside the options. `%s` is the name of the program itself, then that of the other one. */
typedef struct Page {
  const char *program, *other, *title, *examples[6][2], *files;
  bool takes_runs; /* its arguments are directories */
} Page;

static const Page pages[] = {
    {"train",
     "generate",
     "train a small language model on text",
     {{"book.txt", "Train on a text; the run directory is book.run."},
      {"book.txt --minutes 30", "Train for half an hour."},
      {"--resume=book.run", "Go on with a run that was stopped."},
      {"pairs.tsv --arch original", "Train an encoder and a decoder on prompts and responses."},
      {"--runs .", "Compare the runs below this directory."}},
     "A run directory is a Hugging Face model directory (config.json, model.safetensors, tokenizer.json). It also "
     "holds "
     "config.txt with all options, metrics.jsonl with the losses, and the state to resume from in last.",
     false},
    {"generate",
     "train",
     "generate text with a small language model",
     {{"book.run -p Once", "Continue a text."},
      {"book.run -i", "Type lines, and the model continues them."},
      {"book.run --score other.txt", "Measure how well the model predicts a text."},
      {"book.run --gguf book.gguf", "Export the model for llama.cpp and ollama."}},
     "A run directory of the other program, or a directory with a model of Hugging Face transformers and its "
     "tokenizer.json.",
     true}};

typedef struct Program {
  const Page *page;
  const char *name;
  char other[300];
  Options options;
} Program;

/* ---- which values an option takes ---- */

typedef struct Values {
  bool any, files, directories;
  char words[400]; /* with a blank behind each */
} Values;

static void add_word(Values *v, const char *word, size_t length) {
  const size_t used = strlen(v->words);
  snprintf(v->words + used, sizeof v->words - used, "%.*s ", (int)length, word);
}

/* Of "byte|bpe|FILE": two words, and files. */
static Values values_of(const Option *row) {
  Values v = {.any = !option_is_switch(row)};
  char argument[200];
  option_argument_text(row, argument, sizeof argument);
  for (const char *word = argument; *word;) {
    const size_t length = strcspn(word, "|");
    if (strncmp(word, "FILE", 4) == 0) v.files = true;
    else if (strncmp(word, "DIR", 3) == 0 || strncmp(word, "RUN", 3) == 0) v.directories = true;
    else if (islower((unsigned char)*word) && memchr(word, '.', length) == NULL) add_word(&v, word, length);
    else if (row->kind == OPTION_CHOICE) add_word(&v, word, length);
    word += length + (word[length] == '|');
  }
  if (v.any && row->shown_default && strncmp(row->shown_default, "auto", 4) == 0 && !strstr(v.words, "auto "))
    add_word(&v, "auto", 4);
  return v;
}

/* Whether the argument must follow; of the others it is behind a '='. */
static bool needs_argument(const Option *row) { return !option_is_switch(row) && row->kind != OPTION_OPTIONAL; }

/* The first row from `row` on that is shown; NULL: there is none. */
static const Option *shown_from(const Program *p, const Option *row) {
  const Option *end = p->options.rows + p->options.count;
  while (row < end && row->hidden) row++;
  return row < end ? row : NULL;
}
static const Option *first_row(const Program *p) { return shown_from(p, p->options.rows); }
static const Option *next_row(const Program *p, const Option *row) { return shown_from(p, row + 1); }

/* ---- man ---- */

/* Text of a page: nothing in it is a command of roff. */
static void roff(const char *text) {
  if (*text == '.' || *text == '\'') fputs("\\&", stdout);
  for (; *text; text++)
    if (*text == '\\') fputs("\\e", stdout);
    else if (*text == '-') fputs("\\-", stdout);
    else putchar(*text);
}

static void roff_line(const char *before, const char *text) {
  fputs(before, stdout);
  roff(text);
  putchar('\n');
}

static void man_option(const Program *p, const Option *row) {
  char argument[200], sentence[1500];
  option_argument_text(row, argument, sizeof argument);
  option_sentence_text(&p->options, row, true, sentence, sizeof sentence);
  fputs(".TP\n", stdout);
  if (row->letter) printf("\\fB\\-%c\\fR, ", row->letter);
  printf("\\fB\\-\\-%s", option_is_worth_a_no(row) ? "\\fR[\\fBno\\-\\fR]\\fB" : "");
  roff(row->name);
  printf("\\fR%s\\fI", row->kind == OPTION_OPTIONAL ? "[=" : *argument ? " " : "");
  roff(argument);
  printf("\\fR%s\n", row->kind == OPTION_OPTIONAL ? "]" : "");
  roff_line("", sentence);
}

static void write_man(const Program *p) {
  const char *group = "";
  fputs(".TH \"", stdout);
  for (const char *c = p->name; *c; c++) putchar(toupper((unsigned char)*c));
  printf("\" 1 \"\" \"Inkling %s\" \"Inkling\"\n", INKLING_VERSION);
  printf(".nh\n.ad l\n.SH NAME\n");
  roff(p->name);
  printf(" \\- %s\n.SH SYNOPSIS\n.B ", p->page->title);
  roff_line("", p->name);
  roff_line("", p->options.usage);
  if (p->options.about) roff_line(".SH DESCRIPTION\n", p->options.about);
  printf(".SH OPTIONS\n");
  for (const Option *row = first_row(p); row; row = next_row(p, row)) {
    if (strcmp(row->group, group) != 0) roff_line(".SS ", row->group);
    group = row->group;
    man_option(p, row);
  }
  printf(".SH \"EXIT STATUS\"\n");
  static const char *const statuses[] = {"success",
                                         "internal error (a bug)",
                                         "invalid option or value",
                                         "problem with the text or prompt",
                                         "problem with the model or tokenizer",
                                         "out of memory",
                                         "loss, gradient or logits not finite (NaN or infinity)",
                                         "disk full or not writable",
                                         "the run directory is in use"};
  for (int i = 0; i < (int)(sizeof statuses / sizeof *statuses); i++) printf(".TP\n%d\n%s\n", i, statuses[i]);
  printf(".TP\n128 + n\nstopped by signal n\n");
  printf(".SH ENVIRONMENT\n.TP\nINKLING_ISA\nthe same as \\-\\-isa, which takes precedence\n");
  roff_line(".SH FILES\n", p->page->files);
  printf(".SH EXAMPLES\n");
  for (int i = 0; p->page->examples[i][0]; i++) {
    printf(".TP\n\\fB");
    roff(p->name);
    putchar(' ');
    roff(p->page->examples[i][0]);
    roff_line("\\fR\n", p->page->examples[i][1]);
  }
  roff_line(".SH \"SEE ALSO\"\n.BR ", p->other);
  printf("(1)\n");
}

/* ---- bash ---- */

/* "--layers --tie --no-tie -p " */
static void write_flags(const Program *p) {
  for (const Option *row = first_row(p); row; row = next_row(p, row)) {
    if (row->letter) printf("-%c ", row->letter);
    printf("--%s%s ", row->name, row->kind == OPTION_OPTIONAL ? "=" : "");
    if (option_is_worth_a_no(row)) printf("--no-%s ", row->name);
  }
}

/* A name of a shell's function. */
static void write_function(const char *name) {
  putchar('_');
  for (; *name; name++) putchar(isalnum((unsigned char)*name) ? *name : '_');
}

static void write_bash(const Program *p) {
  printf("# Completion of %s for bash.\n", p->name);
  write_function(p->name);
  printf("() {\n  local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} words= kind= IFS=$' \\n'\n"
         "  COMPREPLY=()\n"
         "  if [[ $word == = ]]; then word=; elif [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  case $flag in\n");
  for (const Option *row = first_row(p); row; row = next_row(p, row)) {
    const Values v = values_of(row);
    if (!v.any) continue;
    fputs("    ", stdout);
    if (row->letter) printf("-%c|", row->letter);
    printf("--%s) kind=%s words='%s' ;;\n", row->name,
           v.files         ? "file"
           : v.directories ? "directory"
                           : "word",
           v.words);
  }
  printf("  esac\n"
         "  # its argument is behind a =, or there is none\n"
         "  case $flag in");
  const char *between = " ";
  for (const Option *row = first_row(p); row; row = next_row(p, row))
    if (row->kind == OPTION_OPTIONAL) printf("%s--%s", between, row->name), between = "|";
  if (*between == ' ') printf(" -)");
  else printf(")");
  printf(" [[ ${COMP_WORDS[COMP_CWORD-1]} == = || ${COMP_WORDS[COMP_CWORD]} == = ]] || kind= ;; esac\n"
         "  if [[ -z $kind ]]; then\n"
         "    if [[ $word == -* ]]; then kind=word words='");
  write_flags(p);
  printf("'; else kind=%s; fi\n  fi\n", p->page->takes_runs ? "directory" : "file");
  printf("  COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "  IFS=$'\\n'\n"
         "  case $kind in\n"
         "    file) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- \"$word\")) ;;\n"
         "    directory) compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -d -- \"$word\")) ;;\n"
         "  esac\n"
         "  if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi\n"
         "}\ncomplete -F ");
  write_function(p->name);
  printf(" %s\n", p->name);
}

/* ---- zsh ---- */

/* In single quotes, inside of [...]. */
static void zsh_text(const char *text) {
  for (; *text; text++)
    if (*text == '\'') fputs("'\\''", stdout);
    else if (strchr("[]:\\", *text)) printf("\\%c", *text);
    else putchar(*text);
}

static void zsh_values(const Option *row) {
  const Values v = values_of(row);
  char argument[200];
  if (!v.any) return;
  option_argument_text(row, argument, sizeof argument);
  fputs(row->kind == OPTION_OPTIONAL ? "::" : ":", stdout);
  zsh_text(row->kind == OPTION_CHOICE ? row->name : argument);
  putchar(':');
  if (v.files && *v.words)
    printf("{_alternative \"words\\:word\\:(%.*s)\" \"files\\:file\\:_files\"}", (int)strlen(v.words) - 1, v.words);
  else if (v.files) printf("_files");
  else if (v.directories) printf("_files -/");
  else if (*v.words) printf("(%.*s)", (int)strlen(v.words) - 1, v.words);
  else putchar(' ');
}

/* One way to write the option: `'*--data=[...]:FILE:_files' \`. */
static void zsh_option(const Option *row, const char *dashes, const char *name, const char *suffix, bool arguments) {
  printf("  '");
  if (row->kind == OPTION_LIST) putchar('*');
  printf("%s%s%s[", dashes, name, suffix);
  zsh_text(row->help);
  putchar(']');
  if (arguments) zsh_values(row);
  printf("' \\\n");
}

static void write_zsh(const Program *p) {
  printf("#compdef %s\n# Completion of %s for zsh.\n_arguments -S \\\n", p->name, p->name);
  for (const Option *row = first_row(p); row; row = next_row(p, row)) {
    const char *suffix = row->kind == OPTION_OPTIONAL ? "=-" : needs_argument(row) ? "=" : "";
    const char letter[2] = {row->letter, '\0'};
    if (row->letter) zsh_option(row, "-", letter, "", true);
    zsh_option(row, "--", row->name, suffix, true);
    if (option_is_worth_a_no(row)) zsh_option(row, "--no-", row->name, "", false);
  }
  printf(p->page->takes_runs ? "  '*:RUN:_files -/'\n" : "  '*:FILE:_files'\n");
}

/* ---- fish ---- */

static void fish_text(const char *text) {
  putchar('\'');
  for (; *text; text++) {
    if (strchr("'\\", *text)) putchar('\\');
    putchar(*text);
  }
  putchar('\'');
}

static void fish_option(const Program *p, const Option *row) {
  const Values v = values_of(row);
  printf("complete -c %s -l %s", p->name, row->name);
  if (row->letter) printf(" -s %c", row->letter);
  if (v.files && needs_argument(row)) printf(" -r -F");
  else if (needs_argument(row)) printf(" -x");
  if (v.directories) printf(" -a '(__fish_complete_directories)'");
  else if (*v.words) printf(" -a '%.*s'", (int)strlen(v.words) - 1, v.words);
  printf(" -d ");
  fish_text(row->help);
  putchar('\n');
  if (option_is_worth_a_no(row)) printf("complete -c %s -l no-%s\n", p->name, row->name);
}

static void write_fish(const Program *p) {
  printf("# Completion of %s for fish.\n", p->name);
  for (const Option *row = first_row(p); row; row = next_row(p, row)) fish_option(p, row);
  if (p->page->takes_runs) printf("complete -c %s -f -a '(__fish_complete_directories)'\n", p->name);
}

/* ---- the program ---- */

static int usage(void) {
  fputs("usage: option_pages man|bash|zsh|fish train|generate [NAME]\n", stderr);
  return EXIT_USAGE;
}

/* Also that of the other program, which has the same prefix. */
static bool set_names(Program *p, const char *name) {
  const char *program = p->page->program;
  p->name = name ? name : program;
  if (!text_ends_with(p->name, program) || strlen(p->name) > 200) return false;
  const int prefix = (int)(strlen(p->name) - strlen(program));
  snprintf(p->other, sizeof p->other, "%.*s%s", prefix, p->name, p->page->other);
  return true;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*write)(const Program *);
  } kinds[] = {{"man", write_man}, {"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
  Program p = {0};
  TrainSettings train;
  GenerateSettings generate;
  void (*write)(const Program *) = NULL;
  if (argc < 3 || argc > 4) return usage();
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(argv[1], kinds[i].name) == 0) write = kinds[i].write;
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
    if (strcmp(argv[2], pages[i].program) == 0) p.page = &pages[i];
  if (!write || !p.page || !set_names(&p, argv[3])) return usage();
  if (p.page->takes_runs) generate_options(&p.options, &generate);
  else train_options(&p.options, &train);
  if (!p.options.rows) return EXIT_MEMORY;
  write(&p);
  options_free(&p.options);
  return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_DONE : EXIT_OUTPUT;
}
