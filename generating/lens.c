/* Logit lens (--lens): the next token that each layer would predict. */
#include "generating/program.h"

#include "inference/logprobs.h"
#include "model/decoder.h"

#include <math.h>
#include <stdlib.h>

enum { LENS_TOKENS = 5 }; /* shown of each layer, without --alts */

/* `top`: [count] */
static bool print_layer(const Program *p, int layer, const float *logits, TokenAlternative *top, int count,
                        Error *error) {
  const int vocab = p->config.vocab;
  if (!isfinite(logprobs_of(logits, vocab, 0, top, count)))
    return fail(error, EXIT_NONFINITE,
                "the logits after layer %d are not finite: the weights are damaged, or the training diverged", layer);
  printf("layer %2d", layer);
  for (int i = 0; i < count; i++)
    printf("  %s %.1f %%", program_token(p->tokenizer, top[i].id).text, 100 * exp((double)top[i].logprob));
  putchar('\n');
  return true;
}

bool program_lens(Program *p, Error *error) {
  const size_t vocab = (size_t)p->config.vocab;
  const int layers = p->config.layers, wanted = p->settings.alternatives > 0 ? p->settings.alternatives : LENS_TOKENS;
  const int count = wanted < p->config.vocab ? wanted : p->config.vocab;
  TokenAlternative *top = malloc((size_t)count * sizeof *top);
  bool ok = decoder_open(&p->decoder, p->model, 1, error) &&
            (!p->source.count || decoder_source(p->decoder, 0, p->source.ids, (int)p->source.count, error)) &&
            decoder_prompt(p->decoder, 0, p->prompt.ids, (int)p->prompt.count, error);
  float *logits = ok ? malloc(((size_t)layers + 1) * vocab * sizeof *logits) : NULL;
  if (ok)
    ok = logits && top ? decoder_lens(p->decoder, logits, error) : error_memory(error, "the logits of all layers");
  if (ok) puts("layer     the likeliest next tokens; layer 0 is the embedding, and text is drawn from the last layer");
  for (int layer = 0; ok && layer <= layers; layer++)
    ok = print_layer(p, layer, logits + (size_t)layer * vocab, top, count, error);
  free(logits);
  free(top);
  program_flush(p);
  return ok && program_report_output(p, error);
}
