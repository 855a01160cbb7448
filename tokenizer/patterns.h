/* The split patterns of common models, exactly as in their files. */
#ifndef INKLING_TOKENIZER_PATTERNS_H
#define INKLING_TOKENIZER_PATTERNS_H

#define PATTERN_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define PATTERN_DIGIT "\\p{N}"
#define PATTERN_DIGITS "\\p{N}+"

#define PATTERN_OF_LINES(digits)                                                                                       \
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+" \
  "|\\s+(?!\\S)|\\s+"
#define PATTERN_LLAMA3 PATTERN_OF_LINES("\\p{N}{1,3}")
#define PATTERN_QWEN2 PATTERN_OF_LINES("\\p{N}")

#endif
