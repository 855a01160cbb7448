/* Internal to formats/: the configuration keys of each class. Lists end with .name NULL. */
#ifndef INKLING_FORMATS_CLASS_KEYS_H
#define INKLING_FORMATS_CLASS_KEYS_H

#include "formats/classes.h"

extern const ConfigKey llama_keys[], arcee_keys[], smollm3_keys[], starcoder2_keys[], stablelm_keys[], helium_keys[],
    ernie4_5_keys[], qwen2_keys[], mistral_keys[], gpt2_keys[], opt_keys[], marian_keys[], pegasus_keys[],
    blenderbot_keys[], own_keys[], own_encoder_keys[];

#endif
