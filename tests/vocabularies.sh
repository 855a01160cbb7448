#!/bin/sh
# Tests vocabularies of characters, words, lines and ready ids in training, resuming, generating, scoring and exporting.
# See tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
few="--layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --sample-tokens 0 --threads 1 --quiet $varied"
vocab() { sed -n 's/.*"vocab_size": \([0-9]*\).*/\1/p' "$1/config.json"; }

awk 'BEGIN { srand(5); for (i = 0; i < 400; i++) { n = 3 + int(6 * rand())
  for (k = 0; k < n; k++) printf "%s%c%d", k ? " " : "", 97 + int(8 * rand()), 1 + int(8 * rand()); print "" } }' >moves.txt
awk 'BEGIN { srand(6); for (i = 0; i < 40; i++) { print ">" i
  for (k = 0; k < 60; k++) printf "%s%s", substr("ACGT", 1 + int(4 * rand()), 1), k % 20 == 19 ? "\n" : "" } }' >genome.fa
awk '{ for (i = 1; i <= NF; i++) $i = length($i) + i; print }' moves.txt >numbers.txt

$train genome.fa --tokenizer chars $few --steps 20 --out dna.run 2>/dev/null
check "DNA: four letters and the end token" test "$(vocab dna.run)" = 5
check "an embedding row for each" grep -q '"model.embed_tokens.weight":{"dtype":"F32","shape":\[5,16\]' dna.run/model.safetensors
check "a document per sequence" sh -c '"$1" genome.fa --tokenizer chars --val-frac 0 --dry-run 2>&1 | grep -q "40 documents"' - "$train"
printf '>one\nACGT\n>two\n; a comment\nACGT\nAC\nAXGT\n' >bad.fa
refused "the line of a character in FASTA" 3 "bad.fa:7: the character 'X' is not in the vocabulary" "$generate" dna.run --score bad.fa
printf '\nACGT\n>two\nAC\n' >bare.fa
printf '>one\rACGT\r>two\rACG\r' >mac.fa
refused "FASTA without a header" 3 "bare.fa: it is not FASTA: .*; add one: (echo '>1'; cat) <bare.fa >tmp && mv tmp bare.fa" "$train" bare.fa --out no.run
refused "on standard input" 3 "standard input: it is not FASTA" sh -c '"$1" dna.run --score - --fasta <bare.fa' - "$generate"
refused "FASTA of an old Mac" 3 "mac.fa: its lines end in a carriage return alone; convert it: tr" "$generate" dna.run --score mac.fa
for file in bare mac; do eval "$("$generate" dna.run --score $file.fa 2>&1 | sed 's/.*: //')"; done
check "the commands mend them" sh -c '"$1" dna.run --score bare.fa >got && "$1" dna.run --score mac.fa >>got' - "$generate"
mkdir folder && cp genome.fa folder/genome.FNA
$train folder --tokenizer chars $few --steps 20 --out folder.run 2>/dev/null
check "FASTA files of a folder" cmp dna.run/model.safetensors folder.run/model.safetensors

$train moves.txt --tokenizer words $few --steps 20 --out words.run 2>/dev/null
check "words: the moves, newline and the end token" test "$(vocab words.run)" = 66
$train moves.txt --tokenizer words $few --steps 10 --out resumed.run 2>/dev/null
$train --resume=resumed.run --steps 20 --quiet 2>/dev/null
check "resumed" sh -c 'cmp words.run/tokenizer.json resumed.run/tokenizer.json && test "$("$1" resumed.run --score moves.txt)"' - "$generate"
"$generate" words.run --encode moves.txt >ids && "$generate" words.run --decode ids >back
check "the text back" cmp moves.txt back
check "a token per word" test "$(wc -l <ids)" -eq "$(($(wc -w <moves.txt) + $(wc -l <moves.txt)))"
check "the bytes that are scored" sh -c '"$1" words.run --score moves.txt | grep -q "\"bytes\": $2,"' - "$generate" \
  $(($(wc -c <moves.txt) - 2)) # all but the first word
refused "an unknown word in a prompt" 3 "the word 'z9' is not in the vocabulary of 65 words" "$generate" words.run -p "a1 z9"
printf 'a1 b2\n\na1 b2\n\nc3 z9 d4\n' >other.txt
$train moves.txt --tokenizer words --val other.txt $few --steps 5 --out other.run 2>/dev/null
check "a validation text without an unknown word" test "$(grep -c '"val_loss"' other.run/metrics.jsonl)" -gt 0
check "which is left out" test "$(wc -c <other.run/val.tokens.bin)" = $((80 + 2 * 12))
refused "in a text of another vocabulary" 3 "other.txt:5: the word 'z9'" "$train" other.txt --tokenizer words.run $few --out no.run
refused "in a scored text" 3 "other.txt:5: the word 'z9'" "$generate" words.run --score other.txt
refused "in a text from standard input" 3 "standard input:5: the word 'z9'" sh -c '"$@" <other.txt' - "$train" - --tokenizer words.run $few --out no.run
printf 'a1 b2\nz9\n\nz9 a1\na1 b2\nc3 z9' >some.txt
$generate words.run --score some.txt --per-line >lines.json 2>err
check "lines with an unknown word are skipped" test $? -eq 3 -a "$(sed 's/{"line": \([0-9]*\).*/\1/' lines.json | tr '\n' ' ')" = "1 3 5 "
check "and named" sh -c 'grep -q "some.txt:4: the word .z9. is not" err && grep -q "3 of 6 lines have no score" err'
$generate words.run --score - --per-line <some.txt 2>/dev/null | cmp - lines.json
check "in standard input, too" test $? -eq 0
yes z9 | head -n 7 | $generate words.run --score - --per-line >got 2>err
check "many are counted, not named" sh -c 'test ! -s got && test "$(grep -c "warning: standard input:[1-5]: " err)" = 5 -a "$(wc -l <err)" -eq 6 &&
  grep -q "7 of 7 lines have no score; the warnings say why for the first five" err'
check "and by --above" sh -c '"$1" words.run --score - --per-line --above 0 <some.txt 2>/dev/null | grep -c . | grep -q 2' - "$generate"
check "an empty answer to such a line" \
  sh -c 'printf "a1\nz9\n" | "$1" words.run --lines 2>&1 >/dev/null | grep -q "1 of 2 lines got an empty answer; the warnings say why"' - "$generate"
refused "GGUF" 4 "which a GGUF file cannot express" "$generate" words.run --gguf words.gguf
check "a line of prompts with an unknown word is answered with the reason" \
  sh -c 'printf "\"a1\"\n\"z9\"\n" | "$1" words.run --prompts - -n 2 2>/dev/null | grep -q "\"line\":2.*z9"' - "$generate"
"$generate" words.run --export words >/dev/null 2>&1
check "the model card has the command" grep -q '^./train TEXT --tokenizer words ' words/README.md

$train moves.txt --tokenizer words --vocab-size 20 $few --steps 5 --out some.run 2>/dev/null
check "--vocab-size" test "$(vocab some.run)" = 20
check "with <unk>" grep -q '"<unk>": 18' some.run/tokenizer.json
check "for other words" sh -c '"$1" some.run --encode - <other.txt >/dev/null' - "$generate"
$train moves.txt --tokenizer chars --unk $few --steps 5 --out letters.run 2>/dev/null
$train moves.txt --tokenizer lines --unk $few --steps 5 --out lines.run 2>/dev/null
printf 'a1 zz9  b2\n\303\251q\ta1\n' >unknown.txt
printf 'a1 z\tz9 b2\n' >unknown.tsv
printf 'a1\nz\nz9\nb2\n' >pair.words
tr -s ' \t' '\n' <unknown.txt >text.words
for run in some letters lines; do
  for options in '' --per-line; do
    "$generate" $run.run --score - --per-word $options <unknown.txt 2>err | tr -d '\015' | cut -d, -f6 | tail -n +2 >got
    check "records have unknown words: $run $options" cmp got text.words
  done
done
"$generate" some.run --score unknown.tsv --per-word 2>/dev/null | tr -d '\015' | cut -d, -f6 | tail -n +2 | cmp - pair.words
check "those of prompts and responses" test $? -eq 0
check "an unknown token is named" sh -c '"$1" letters.run --score unknown.txt --per-token -O tsv | cut -f3-6 | grep -q "^13	14	1	<unk>$"' - "$generate"
check "lines" test "$(vocab lines.run)" = $(($(head -n $(($(wc -l <moves.txt) - $(held_out moves.txt | wc -l))) moves.txt | sort -u | wc -l) + 2))
$train numbers.txt --tokenizer ids $few --steps 5 --out ids.run 2>/dev/null
printf "17 4 4 9\n3 17 0\n" >few.txt
refused "too few ids for a window" 3 "give more text, or --ctx 6 or less" "$train" few.txt --tokenizer ids --out no.run
check "ids: up to the largest one" test "$(vocab ids.run)" = 12
refused "an id outside the vocabulary" 3 "numbers.txt:1: '[0-9]*' is not an id of the vocabulary: expected whole numbers from 0 to 3" \
  "$train" numbers.txt --tokenizer ids --vocab-size 4 $few --out no.run
refused "words as ids" 3 "moves.txt:1: '[a-h][1-8]' is not an id" "$train" moves.txt --tokenizer ids $few --out no.run
refused "--unk without words" 2 "not for --tokenizer bpe" "$train" moves.txt --tokenizer bpe --unk $few --out no.run
refused "a BPE below its bytes" 2 "at least 257" "$train" moves.txt --tokenizer bpe --vocab-size 256 $few --out no.run
refused "a vocabulary of two" 2 "at least 3" "$train" moves.txt --tokenizer words --vocab-size 2 $few --out no.run
printf 'a \377 b\nc\n' >latin.txt
refused "invalid UTF-8" 3 "latin.txt:1: the character '.xFF' is not UTF-8" "$train" latin.txt --binary --tokenizer chars $few --out no.run
echo done
