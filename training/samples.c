/* Samples: what the model writes, on the console and in samples.txt. */
#include "training/run.h"

#include "cli/startup.h"
#include "model/generation.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The end of a document where the text has several, or all of them are seen to begin with it; else a newline. */
int run_start_token(const Run *r) {
  if (r->tokens_file.info.documents > 1 || r->settings.pack == PACK_DOCS) return tokenizer_end(r->tokenizer);
  return tokenizer_bpe(r->tokenizer)->byte_ids['\n'];
}

static bool collect(void *stream, const uint8_t *bytes, size_t size) {
  return fwrite(bytes, 1, size, stream) == size && !stop_signal;
}

/* What follows the end of the prompt that fits the context. */
static bool write_sample(Run *r, const BpeIds *ids, FILE *stream, Error *error) {
  const size_t ctx = (size_t)r->config.ctx, skipped = ids->count > ctx ? ids->count - ctx : 0;
  Sampling sampling = generation_sampling();
  sampling.seed = r->settings.seed;
  GenerationResult result;
  const GenerationRequest request = {.decoder = r->decoder,
                                     .tokenizer = r->tokenizer,
                                     .prompt = ids->ids + skipped,
                                     .prompt_tokens = (int)(ids->count - skipped),
                                     .max_tokens = r->settings.sample_tokens,
                                     .slide = true,
                                     .emit = collect,
                                     .emit_context = stream,
                                     .sampling = sampling};
  return generation_run(&request, &result, error);
}

static bool append_sample(const Run *r, const char *text, size_t size, Error *error) {
  const CheckpointPath path = checkpoint_path(r->dir, CHECKPOINT_SAMPLES);
  FILE *file = fopen(path.text, "a");
  bool ok = file && fprintf(file, "=== step %" PRId64 "\n", r->step) > 0 && fwrite(text, 1, size, file) == size &&
            fputc('\n', file) != EOF;
  if (file) ok = fclose(file) == 0 && ok;
  return ok || fail(error, EXIT_OUTPUT, "cannot write %s: %s", path.text, strerror(errno));
}

/* Control characters of an untrained model would confuse the terminal. */
static void show_sample(Run *r, char *text, size_t size) {
  for (size_t i = 0; i < size; i++)
    if ((unsigned char)text[i] < 32 && text[i] != '\n' && text[i] != '\t') text[i] = '?';
  console_line(&r->console, "--- sample after %" PRId64 " steps\n%s\n---", r->step, text);
}

bool run_sample(Run *r, Error *error) {
  if (!r->settings.sample_tokens || stop_signal) return true;
  const char *prompt = r->settings.prompt ? r->settings.prompt : "";
  const size_t length = strlen(prompt);
  BpeIds ids = {0};
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  bool ok = stream && fwrite(prompt, 1, length, stream) == length;
  if (!ok) error_memory(error, "a sample");
  ok = ok && generation_prompt(r->tokenizer, run_start_token(r), (const uint8_t *)prompt, length, &ids, error) &&
       write_sample(r, &ids, stream, error);
  if (stream && fclose(stream) != 0 && ok) ok = error_memory(error, "a sample");
  ok = ok && append_sample(r, text, size, error);
  if (ok) show_sample(r, text, size);
  free(ids.ids);
  free(text);
  return ok;
}
