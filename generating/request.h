/* The command line, and generation requests made from it. */
#ifndef INKLING_GENERATING_REQUEST_H
#define INKLING_GENERATING_REQUEST_H

#include "generating/prompt.h"
#include "inference/generation.h"

typedef struct CommandLine {
  GenerateSettings settings;
  Options options; /* its rows point into `settings` */
  StopTexts stops; /* from --stop */
} CommandLine;

/* Returns a request with the settings of the command line. If no seed is given, it draws one. */
GenerationRequest request_make(const CommandLine *command, LoadedModel *m, const PromptTokens *prompt);
/* Sets the prompt of a request, which must outlive it. */
void request_set_prompt(GenerationRequest *request, const PromptTokens *prompt);
uint64_t request_seed(const CommandLine *command); /* --seed, or a random one */

/* Makes the stop texts of --stop; adds another one. EXIT_USAGE for an empty text, EXIT_MEMORY. */
bool request_make_stops(StopTexts *stops, const GenerateSettings *settings, Error *error);
bool request_add_stop(StopTexts *stops, const char *text, size_t size, Error *error);
void request_free_stops(StopTexts *stops);

/* Makes m->rules from --bias and --ban. EXIT_USAGE: no token has that text, or a number is missing; EXIT_MEMORY. */
bool request_make_rules(LoadedModel *m, const GenerateSettings *settings, Error *error);

#endif
