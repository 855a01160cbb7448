/* --gguf: the model as a file that llama.cpp and ollama read, and how it is run there. */
#include "generation/program.h"

#include "checkpoint/directory.h"
#include "checkpoint/gguf_model.h"
#include "cli/startup.h"
#include "util/file.h"
#include "util/path.h"
#include "util/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct Work {
  Program *p;
  double bytes;
} Work;

static bool report(void *context, int64_t done, Error *error) {
  const Work *work = context;
  console_work(&work->p->console, &(ConsoleWork){"writing", (double)done, work->bytes, true});
  return startup_go_on("writing", error);
}

/* It may stand in a run, but not in the place of what is there. */
static bool check_path(const char *path, const char *ending, Error *error) {
  if (path_is_stdin(path)) return fail(error, EXIT_USAGE, "- is no name for a file that is written; give one");
  char *dir = path_directory(path);
  if (!dir) return error_memory(error, "a path");
  const bool taken = (checkpoint_is_run(dir) || checkpoint_is_model(dir)) && !text_ends_with(path, ending);
  free(dir);
  return !taken ||
         fail(error, EXIT_USAGE, "%s would be a file of that model; give it a name that ends in %s", path, ending);
}

/* ---- ollama ---- */

/* The path from the Modelfile: beside it the name alone, else as it was given. */
static bool write_from(FILE *out, const char *gguf, const char *modelfile, Error *error) {
  char *of_gguf = path_directory(gguf), *of_modelfile = path_directory(modelfile);
  const bool ok = of_gguf && of_modelfile;
  const char *slash = strrchr(gguf, '/');
  char *real = ok && strcmp(of_gguf, of_modelfile) != 0 ? realpath(gguf, NULL) : NULL;
  if (real) fprintf(out, "FROM %s\n", real);
  else fprintf(out, "FROM ./%s\n", slash ? slash + 1 : gguf);
  free(real);
  free(of_gguf);
  free(of_modelfile);
  return ok || error_memory(error, "a path");
}

/* A model that continues texts: the prompt as it is, and no turns. Its sampling is what ./generate does. */
static bool write_modelfile(const Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  const Sampling *sampling = &s->sampling;
  FileWriter file;
  if (!file_writer_begin(&file, s->modelfile, error)) return false;
  if (!write_from(file.stream, s->gguf, s->modelfile, error)) {
    file_writer_abort(&file);
    return false;
  }
  fputs("TEMPLATE \"{{ .Prompt }}\"\n", file.stream);
  fprintf(file.stream, "PARAMETER stop \"%s\"\n", tokenizer_end_text(p->tokenizer));
  fprintf(file.stream,
          "PARAMETER num_ctx %d\nPARAMETER temperature %g\nPARAMETER top_k %d\nPARAMETER top_p %g\nPARAMETER min_p %g\n"
          "PARAMETER repeat_penalty %g\n",
          p->config.ctx, (double)sampling->temperature, sampling->top_k > 0 ? sampling->top_k : 0,
          (double)sampling->top_p, (double)sampling->min_p, (double)sampling->repeat_penalty);
  return file_writer_commit(&file, error);
}

/* ---- all of it ---- */

/* The last part of the directory's path. */
static bool name_of(const char *dir, OneLine *out, Error *error) {
  char *real = realpath(dir, NULL);
  if (!real) return error_memory(error, "a path");
  const char *slash = strrchr(real, '/');
  *out = text_one_line(slash && slash[1] ? slash + 1 : real, 200);
  free(real);
  return true;
}

static void print_commands(const Program *p) {
  const GenerateSettings *s = &p->settings;
  printf("llama-completion -m %s -no-cnv -c %d -n 200 -p 'Once upon a time'\n", text_shell_word(s->gguf, 250).text,
         p->config.ctx);
  if (s->modelfile) printf("ollama create my-model -f %s\n", text_shell_word(s->modelfile, 250).text);
}

bool program_gguf(Program *p, Error *error) {
  const GenerateSettings *s = &p->settings;
  OneLine name;
  GgufFacts facts;
  if (!check_path(s->gguf, ".gguf", error) || (s->modelfile && !check_path(s->modelfile, "Modelfile", error)) ||
      !name_of(p->dir, &name, error))
    return false;
  const GgufModel model = {.dir = p->dir,
                           .name = name.text,
                           .config = &p->config,
                           .special = p->special,
                           .tokenizer = p->tokenizer,
                           .type = (GgufType)s->gguf_type};
  if (!gguf_model_check(&model, &facts, error)) return false;
  Work work = {p, (double)facts.bytes};
  const bool ok = gguf_model_write(&model, s->gguf, (Progress){report, &work}, &facts, error);
  console_work_end(&p->console);
  if (!ok || (s->modelfile && !write_modelfile(p, error))) return false;
  console_note(&p->console, "%s: %s, %d tensors as %s, of the architecture that llama.cpp calls %s", s->gguf,
               text_bytes((double)facts.bytes).text, facts.tensors, gguf_type_names[s->gguf_type], facts.architecture);
  for (int i = 0; i < facts.note_count; i++) console_note(&p->console, "note: %s", facts.notes[i]);
  if (!p->console.quiet) print_commands(p);
  program_flush(p);
  return program_report_output(p, error);
}
