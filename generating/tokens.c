/* Encoding of a text named on the command line. */
#include "generating/program.h"

#include "cli/startup.h"
#include "dataset/tokenization.h"
#include "formats/model_files.h"
#include "util/file.h"
#include "util/threads.h"

#include <stdlib.h>
#include <unistd.h>

bool program_open_tokens(Program *p, const char *source, TokenFile *out, Error *error) {
  const GenerateSettings *s = &p->settings;
  StartupWork reading = {.console = &p->console, .name = "reading", .bytes = true};
  char *copy = NULL, *path = NULL;
  Corpus *corpus = NULL;
  bool ok = file_temporary(&copy, error) && file_temporary(&path, error);
  const CorpusOptions format = {.field = s->jsonl_field,
                                .prompt_field = s->prompt_field,
                                .response_field = s->response_field,
                                .tsv = s->tsv,
                                .spool = copy,
                                .copying = startup_progress(&reading),
                                .is_model = model_files_exist};
  const Tokenization options = {.source_tokenizer = p->source_tokenizer,
                                .threads = threads_count(s->machine.threads),
                                .encoding = startup_progress(&reading),
                                .stop = &stop_signal};
  ok = ok && corpus_open(&corpus, &source, 1, &format, error) &&
       tokenization_open(out, path, corpus, p->tokenizer, &options, error);
  console_work_end(&p->console);
  corpus_close(corpus);
  if (copy) unlink(copy);
  if (path) unlink(path);
  free(copy);
  free(path);
  return ok;
}
