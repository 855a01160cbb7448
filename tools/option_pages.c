/* Manual pages and completion of shells for the command `inkling`, from the tables of options of both programs:
 *
 *   build/option_pages man inkling|train|generate
 *   build/option_pages bash|zsh|fish
 *
 * writes to stdout what scripts/install.sh installs. */
#include "cli/option_internal.h"
#include "generate/settings.h"
#include "train/settings.h"
#include "base/text.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char title[] = "train small language models on text, and generate text with them";

/* What the pages say beside the options. */
typedef struct Page {
  const char *program, *other, *title, *examples[6][2], *files;
  bool takes_runs; /* its arguments are directories */
} Page;

static const Page pages[] = {
    {"train",
     "generate",
     "train a small language model on text",
     {{"book.txt", "Train on a text; the run directory is book.run."},
      {"book.txt --minutes 30", "Train for at most half an hour."},
      {"--resume=book.run", "Go on with a run that was stopped."},
      {"pairs.tsv --arch original", "Train an encoder and a decoder on prompts and responses."},
      {"--runs .", "Compare the runs below this directory."}},
     "A run directory is a Hugging Face model directory (config.json, model.safetensors, tokenizer.json). It also "
     "holds config.txt with all options, metrics.jsonl with the losses, and the state to resume from in last.",
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
  Options options;
} Program;

/* ---- which values an option takes ---- */

typedef struct Values {
  bool any, files, directories;
  char words[400]; /* with a blank behind each */
} Values;

static void add_word(Values *v, const char *word, size_t length) {
  text_append(v->words, sizeof v->words, "%.*s ", (int)length, word);
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
static bool needs_argument(const Option *row) { return !option_is_switch(row) && !row->optional; }

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
  printf("\\fR%s\\fI", row->optional ? "[=" : *argument ? " " : "");
  roff(argument);
  printf("\\fR%s\n", row->optional ? "]" : "");
  roff_line("", sentence);
}

static void man_heading(const char *name, const char *about) {
  fputs(".TH \"", stdout);
  for (const char *c = name; *c; c++) putchar(toupper((unsigned char)*c));
  printf("\" 1 \"" INKLING_DATE "\" \"Inkling %s\" \"Inkling\"\n.nh\n.ad l\n.SH NAME\n", INKLING_VERSION);
  roff(name);
  printf(" \\- %s\n.SH SYNOPSIS\n", about);
}

static void man_synopsis(const Program *p) {
  printf(".B inkling %s\n", p->page->program);
  roff_line("", p->options.usage);
}

static void man_examples(const Page *page, int most) {
  for (int i = 0; i < most && page->examples[i][0]; i++) {
    printf(".TP\n\\fBinkling %s ", page->program);
    roff(page->examples[i][0]);
    roff_line("\\fR\n", page->examples[i][1]);
  }
}

#define MAN_STATUS(name, number, words) ".TP\n" #number "\n" words "\n"

static void write_man(const Program *p) {
  const char *group = "";
  char name[40];
  snprintf(name, sizeof name, "inkling-%s", p->page->program);
  man_heading(name, p->page->title);
  man_synopsis(p);
  if (p->options.about) roff_line(".SH DESCRIPTION\n", p->options.about);
  printf(".SH OPTIONS\n");
  for (const Option *row = first_row(p); row; row = next_row(p, row)) {
    if (strcmp(row->group, group) != 0) roff_line(".SS ", row->group);
    group = row->group;
    man_option(p, row);
  }
  printf(".SH \"EXIT STATUS\"\n" EXIT_STATUSES(MAN_STATUS));
  printf(".SH ENVIRONMENT\n.TP\nINKLING_ISA\nthe same as \\-\\-isa, which takes precedence\n");
  roff_line(".SH FILES\n", p->page->files);
  printf(".SH EXAMPLES\n");
  man_examples(p->page, 6);
  printf(".SH \"SEE ALSO\"\n.BR inkling (1),\n.BR inkling\\-%s (1)\n", p->page->other);
}

/* The page of `inkling` itself. */
static void write_man_of_both(const Program *programs) {
  man_heading("inkling", title);
  man_synopsis(&programs[0]);
  printf(".br\n");
  man_synopsis(&programs[1]);
  printf(".SH DESCRIPTION\nInkling trains small language models on your text and generates text with them.\n"
         "The first argument selects what it does:\n");
  for (int i = 0; i < 2; i++) {
    printf(".TP\n.B %s\n%s:\n", programs[i].page->program, programs[i].page->title);
    printf(".BR inkling\\-%s (1)\n", programs[i].page->program);
  }
  printf(".TP\n.B \\-\\-help\nhow it is used\n.TP\n.B \\-\\-version\nthe version\n.SH EXAMPLES\n");
  for (int i = 0; i < 2; i++) man_examples(programs[i].page, 2);
  printf(".SH \"SEE ALSO\"\n.BR inkling\\-train (1),\n.BR inkling\\-generate (1)\n");
}

/* ---- bash ---- */

/* "--layers --tie --no-tie -p " */
static void write_flags(const Program *p) {
  for (const Option *row = first_row(p); row; row = next_row(p, row)) {
    if (row->letter) printf("-%c ", row->letter);
    printf("--%s%s ", row->name, row->optional ? "=" : "");
    if (option_is_worth_a_no(row)) printf("--no-%s ", row->name);
  }
}

static void write_bash(const Program *p) {
  printf("_inkling_%s() {\n  local word=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} words= kind= IFS=$' "
         "\\n'\n"
         "  COMPREPLY=()\n"
         "  if [[ $word == = ]]; then word=; elif [[ $flag == = ]]; then flag=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
         "  case $flag in\n",
         p->page->program);
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
    if (row->optional) printf("%s--%s", between, row->name), between = "|";
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
         "}\n");
}

static void write_bash_of_both(const Program *programs) {
  printf("# Completion of inkling for bash.\n");
  for (int i = 0; i < 2; i++) write_bash(&programs[i]);
  printf("_inkling() {\n"
         "  if [[ $COMP_CWORD == 1 ]]; then\n"
         "    COMPREPLY=($(compgen -W 'train generate --help --version' -- \"${COMP_WORDS[1]}\"))\n"
         "  else\n"
         "    case ${COMP_WORDS[1]} in train) _inkling_train ;; generate) _inkling_generate ;; esac\n"
         "  fi\n"
         "}\ncomplete -F _inkling inkling\n");
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
  fputs(row->optional ? "::" : ":", stdout);
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
  printf("  %s) _arguments -S \\\n", p->page->program);
  for (const Option *row = first_row(p); row; row = next_row(p, row)) {
    const char *suffix = row->optional ? "=-" : needs_argument(row) ? "=" : "";
    const char letter[2] = {row->letter, '\0'};
    if (row->letter) zsh_option(row, "-", letter, "", true);
    zsh_option(row, "--", row->name, suffix, true);
    if (option_is_worth_a_no(row)) zsh_option(row, "--no-", row->name, "", false);
  }
  printf(p->page->takes_runs ? "  '*:RUN:_files -/' ;;\n" : "  '*:FILE:_files' ;;\n");
}

static void write_zsh_of_both(const Program *programs) {
  printf("#compdef inkling\n# Completion of inkling for zsh.\n"
         "if (( CURRENT == 2 )); then compadd train generate --help --version; return; fi\n"
         "shift words\n(( CURRENT-- ))\ncase $words[1] in\n");
  for (int i = 0; i < 2; i++) write_zsh(&programs[i]);
  printf("esac\n");
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

/* The beginning of a line about a program. */
static void fish_of(const Program *p) {
  printf("complete -c inkling -n 'contains -- %s (commandline -opc)[2]'", p->page->program);
}

static void fish_option(const Program *p, const Option *row) {
  const Values v = values_of(row);
  fish_of(p);
  printf(" -l %s", row->name);
  if (row->letter) printf(" -s %c", row->letter);
  if (v.files && needs_argument(row)) printf(" -r -F");
  else if (needs_argument(row)) printf(" -x");
  if (v.directories) printf(" -a '(__fish_complete_directories)'");
  else if (*v.words) printf(" -a '%.*s'", (int)strlen(v.words) - 1, v.words);
  printf(" -d ");
  fish_text(row->help);
  putchar('\n');
  if (!option_is_worth_a_no(row)) return;
  fish_of(p);
  printf(" -l no-%s\n", row->name);
}

static void write_fish(const Program *p) {
  for (const Option *row = first_row(p); row; row = next_row(p, row)) fish_option(p, row);
  if (!p->page->takes_runs) return;
  fish_of(p);
  printf(" -f -a '(__fish_complete_directories)'\n");
}

static void write_fish_of_both(const Program *programs) {
  printf("# Completion of inkling for fish.\n"
         "complete -c inkling -n __fish_use_subcommand -f -a 'train generate'\n"
         "complete -c inkling -n __fish_use_subcommand -l help\n"
         "complete -c inkling -n __fish_use_subcommand -l version\n");
  for (int i = 0; i < 2; i++) write_fish(&programs[i]);
}

/* ---- the program ---- */

static void write_train_man(const Program *programs) { write_man(&programs[0]); }
static void write_generate_man(const Program *programs) { write_man(&programs[1]); }

int main(int argc, char **argv) {
  static const struct {
    const char *kind, *program;
    void (*write)(const Program *programs);
  } outputs[] = {{"man", "inkling", write_man_of_both},   {"man", "train", write_train_man},
                 {"man", "generate", write_generate_man}, {"bash", "", write_bash_of_both},
                 {"zsh", "", write_zsh_of_both},          {"fish", "", write_fish_of_both}};
  enum { OUTPUTS = sizeof outputs / sizeof *outputs };
  Program programs[2] = {{.page = &pages[0]}, {.page = &pages[1]}};
  TrainSettings train;
  GenerateSettings generate;
  const char *kind = argc > 1 ? argv[1] : "", *program = argc > 2 ? argv[2] : "";
  int i = 0;
  while (i < OUTPUTS && (strcmp(kind, outputs[i].kind) != 0 || strcmp(program, outputs[i].program) != 0)) i++;
  if (i == OUTPUTS || argc > 3) {
    fputs("usage: option_pages man inkling|train|generate, or bash|zsh|fish\n", stderr);
    return EXIT_USAGE;
  }
  program_name_set_command("inkling");
  train_options(&programs[0].options, &train);
  generate_options(&programs[1].options, &generate);
  if (!programs[0].options.rows || !programs[1].options.rows) return EXIT_MEMORY;
  outputs[i].write(programs);
  for (int j = 0; j < 2; j++) options_free(&programs[j].options);
  return fflush(stdout) == 0 && !ferror(stdout) ? EXIT_DONE : EXIT_OUTPUT;
}
