/* Logit lens (--lens): the next token that each layer would predict. */
#include "generate/program.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LENS_TOKENS = 5 }; /* tokens shown for each layer, without --alts */

/* `top`: [count] */
static bool print_layer(const LoadedModel *m, int layer, const float *logits, TokenAlternative *top, int count,
                        Error *error) {
  const int vocab = m->config.vocab;
  if (!isfinite(logprobs_of(logits, vocab, 0, top, count)))
    return fail(error, EXIT_NONFINITE,
                "the logits after layer %d are not finite: the weights are damaged, or the training diverged", layer);
  printf("layer %2d", layer);
  for (int i = 0; i < count; i++)
    printf("  %s %.1f %%", tokenizer_show(m->tokenizer, top[i].id).text, 100 * exp((double)top[i].logprob));
  putchar('\n');
  return true;
}

bool program_lens(Program *p, Error *error) {
  LoadedModel *m = &p->model;
  const PromptTokens *tokens = &p->prompt.tokens;
  const int layers = m->config.layers, vocab = m->config.vocab, alternatives = p->settings.alternatives;
  const int wanted = alternatives > 0 ? alternatives : LENS_TOKENS, count = wanted < vocab ? wanted : vocab;
  TokenAlternative *top = malloc((size_t)count * sizeof *top);
  bool ok =
      decoder_open(&m->decoder, m->model, 1, error) &&
      (!tokens->source.count || decoder_source(m->decoder, 0, tokens->source.ids, (int)tokens->source.count, error)) &&
      decoder_prompt(m->decoder, 0, tokens->decoder.ids, (int)tokens->decoder.count, error);
  float *logits = ok ? malloc(((size_t)layers + 1) * (size_t)vocab * sizeof *logits) : NULL;
  if (ok)
    ok = logits && top ? decoder_lens(m->decoder, logits, error) : error_memory(error, "the logits of all layers");
  if (ok)
    puts(
        "layer     the most likely next tokens; layer 0 is the embedding, the last layer is what text is sampled from");
  for (int layer = 0; ok && layer <= layers; layer++)
    ok = print_layer(m, layer, logits + (size_t)layer * (size_t)vocab, top, count, error);
  free(logits);
  free(top);
  program_flush(p);
  return ok && program_check(p, error);
}
