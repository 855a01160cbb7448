/* Measures the wall time of BPE training and encoding, and writes files for scripts/measure/compare_tokenizers.py.
 *
 *   bench_bpe train TEXT VOCAB THREADS MERGES      writes MERGES: one line `left right` of ids per merge
 *   bench_bpe encode TEXT MERGES THREADS IDS       writes IDS: int32 in the machine's byte order
 * TEXT is one document. Prints one line of JSON. */
#include "text/tokenizer/bpe_encode.h"
#include "text/tokenizer/bpe_train.h"
#include "base/system.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool train(const PipelineText *text, char **argv, Error *error) {
  BpeTrainer *trainer = NULL;
  BpeMerge *merges = NULL;
  size_t count = 0;
  double start = clock_seconds(), counted = start;
  bool ok =
      bpe_trainer_create(&trainer, WORD_LEVEL_NONE, atoi(argv[4]), error) && bpe_trainer_add(trainer, text, 1, error);
  if (ok) {
    counted = clock_seconds();
    ok = bpe_trainer_finish(trainer, atoi(argv[3]), (Progress){0}, &merges, &count, error);
  }
  double stop = clock_seconds();
  bpe_trainer_free(trainer);
  FILE *stream = ok ? fopen(argv[5], "w") : NULL;
  for (size_t i = 0; stream && i < count; i++) fprintf(stream, "%d %d\n", (int)merges[i].left, (int)merges[i].right);
  free(merges);
  if (!ok) return false;
  if (!stream || fclose(stream) != 0) return fail(error, EXIT_OUTPUT, "%s: cannot be written", argv[5]);
  printf("{\"seconds\": %.4f, \"count_seconds\": %.4f, \"merges\": %zu}\n", stop - start, counted - start, count);
  return true;
}

static bool load(Bpe **bpe, const char *path, Error *error) {
  FILE *stream = fopen(path, "r");
  if (!stream) return fail(error, EXIT_INPUT, "%s: cannot be read", path);
  BpeMerge *merges = malloc(BPE_MERGES_LIMIT * sizeof *merges);
  size_t count = 0;
  while (merges && count < BPE_MERGES_LIMIT &&
         fscanf(stream, "%" SCNd32 " %" SCNd32, &merges[count].left, &merges[count].right) == 2)
    count++;
  fclose(stream);
  bool ok = merges ? bpe_from_merges(bpe, merges, count, error) : fail(error, EXIT_MEMORY, "out of memory");
  free(merges);
  return ok;
}

static bool encode(const PipelineText *text, char **argv, Error *error) {
  Bpe *bpe = NULL;
  BpeEncoder *encoder = NULL;
  BpeIds ids = {0};
  double start = clock_seconds(), loaded = start;
  bool ok = load(&bpe, argv[3], error);
  if (ok) {
    loaded = clock_seconds();
    const Pipeline pipeline = pipeline_trained(bpe);
    ok = bpe_encoder_create(&encoder, &pipeline, false, atoi(argv[4]), NULL, error) &&
         bpe_encode(encoder, text, 1, -1, bpe_ids_sink, &ids, error);
  }
  double stop = clock_seconds();
  FILE *stream = ok ? fopen(argv[5], "wb") : NULL;
  bool written = stream && fwrite(ids.ids, sizeof *ids.ids, ids.count, stream) == ids.count && fclose(stream) == 0;
  bpe_encoder_free(encoder);
  bpe_free(bpe);
  free(ids.ids);
  if (!ok) return false;
  if (!written) return fail(error, EXIT_OUTPUT, "%s: cannot be written", argv[5]);
  printf("{\"seconds\": %.4f, \"load_seconds\": %.4f, \"ids\": %zu}\n", stop - loaded, loaded - start, ids.count);
  return true;
}

int main(int argc, char **argv) {
  Error error = {0};
  MappedFile file;
  if (argc != 6 || (strcmp(argv[1], "train") != 0 && strcmp(argv[1], "encode") != 0) || atoi(argv[4]) < 1) {
    fprintf(stderr, "usage: bench_bpe train TEXT VOCAB THREADS MERGES | encode TEXT MERGES THREADS IDS\n");
    return EXIT_USAGE;
  }
  if (file_map(&file, argv[2], EXIT_INPUT, &error)) {
    const PipelineText text = {file.bytes, file.size};
    (void)(strcmp(argv[1], "train") == 0 ? train(&text, argv, &error) : encode(&text, argv, &error));
    file_unmap(&file);
  }
  if (error.code != EXIT_DONE) fprintf(stderr, "bench_bpe: %s\n", error.text);
  return (int)error.code;
}
