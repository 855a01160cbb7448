#!/bin/sh
# Tests that nothing but the validation loss sees the held-out end of a text. See tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
few="--layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --sample-tokens 0 --threads 1 --steps 4 --eval-every 2 $varied"

awk 'BEGIN { srand(3); for (i = 0; i < 2700; i++) { for (k = 0; k < 6; k++) printf "%c%c ", 97 + int(9 * rand()), 97 + int(9 * rand()); print "" }
  for (i = 0; i < 299; i++) print "ab xqzxq cd"; printf "ab xqzxq cd" }' >text.txt
awk 'BEGIN { srand(4); for (i = 0; i < 2700; i++) printf "%c%c%c\t%c\n", 97 + int(9 * rand()), 97 + int(9 * rand()), 97 + int(9 * rand()), 97 + int(9 * rand())
  for (i = 0; i < 150; i++) print "xqzxq\tab" }' >text.tsv
for ending in txt tsv; do
  held_out text.$ending >end.$ending
  head -c $(($(wc -c <text.$ending) - $(wc -c <end.$ending))) text.$ending >begin.$ending
done
check "the end of the text has a word that the rest does not have" \
  test "$(grep -c xqz end.txt) $(grep -c xqz end.tsv) $(cat begin.t?? | grep -c xqz)" = "300 150 0"

# same RUN RUN: the same models, tokens and losses
losses() { sed -n 's/.*"val_loss":\([^,]*\),"bits_per_byte":\([^,]*\).*"val_text":\([^,]*\).*/\1 \2 \3/p' "$1/metrics.jsonl"; }
tokens() { tail -c +81 "$1/tokens.bin" && tail -c +81 "$1/val.tokens.bin"; } # without their headers
same() {
  losses "$1" >one && losses "$2" >two && test -s one && cmp one two && cmp "$1/model.safetensors" "$2/model.safetensors" || return
  tokens "$1" >one && tokens "$2" | cmp - one
}
# compare NAME SUFFIX OPTION...: a text and its two parts by themselves
compare() {
  name=$1 ending=$2
  shift 2
  $train "text.$ending" "$@" $few --out "$name.run" 2>"$name.err"
  $train "begin.$ending" --val "end.$ending" "$@" $few --out "$name-parts.run" 2>/dev/null
  check "$name: as with --val" same "$name.run" "$name-parts.run"
}
compare bpe txt --tokenizer bpe --vocab-size 400
check "bpe: no token of the word" sh -c '! grep -q "xq\|qz\|zx" bpe.run/tokenizer.json'
compare auto txt
compare byte txt --tokenizer byte
compare chars txt --tokenizer chars
check "chars: no letter of the word" sh -c '! grep -q "\"[xqz]\"" chars.run/tokenizer.json'
check "which are left out, and that is said" grep -q '^note: left out of the validation text: 1500 of 5480 characters, which the training text does not have; --unk counts them$' chars.err
compare words txt --tokenizer words
check "words: not the word" sh -c '! grep -q xqz words.run/tokenizer.json'
compare unknown txt --tokenizer words --unk
check "with <unk>, nothing is left out" sh -c '! grep -q "left out" unknown.err'
compare pairs tsv --tokenizer bpe --vocab-size 300
compare encoder tsv --arch original --tokenizer byte --source-tokenizer words --ctx 8
check "the source tokenizer: not the word" sh -c 'test "$(ls encoder.run/source_tokenizer)" && ! grep -qr xqz encoder.run/source_tokenizer'
check "of prompts, too" grep -q '^note: left out of the validation text: 1[0-9]* of [0-9]* words' encoder.err
{ printf '>1\n' && tr -dc 'a-d' <begin.txt | fold -w 60 && printf '\n>2\n' && tr -dc 'a-d' <end.txt; } >genome.fa
$train genome.fa --tokenizer chars $few --out genome.run 2>/dev/null
check "FASTA" test -s genome.run/val.tokens.bin

mkdir parts && cp begin.txt parts/1.txt && cp end.txt parts/2.txt
$train parts --tokenizer chars $few --out folder.run 2>/dev/null
check "a folder is cut between two files" same folder.run chars.run
$train - --tokenizer chars $few --out stdin.run <text.txt 2>/dev/null
check "standard input" same stdin.run chars.run
$train text.txt --tokenizer chars --val-frac 0 $few --out all.run 2>/dev/null
check "--val-frac 0" test ! -e all.run/val.tokens.bin -a "$(wc -c <all.run/tokens.bin)" = $((80 + 2 * ($(wc -c <text.txt) + 1)))
$train begin.txt --val end.txt --tokenizer chars $few --out all.run --overwrite --steps 2 2>/dev/null
$train text.txt --tokenizer chars --val-frac 0 $few --out all.run --overwrite 2>/dev/null
check "removes the validation tokens of the run that it replaces" test ! -e all.run/val.tokens.bin

# resumed: with the text, without the tokens, without the text
$train text.txt --tokenizer words $few --stop-at 2 --out resumed.run 2>/dev/null
cp -r resumed.run without.run
inode=$(ls -i resumed.run/val.tokens.bin)
$train --resume=resumed.run --quiet 2>err
check "a resumed run is the same" same resumed.run words.run
check "and says nothing" test ! -s err
check "its validation tokens are kept" test "$(ls -i resumed.run/val.tokens.bin)" = "$inode"
cp -r without.run gone.run
rm without.run/*tokens.bin
$train --resume=without.run --quiet 2>err
check "without its tokens" same without.run words.run
sed 's/text.txt/gone.txt/' gone.run/config.txt >config && cp config gone.run/config.txt
$train --resume=gone.run --quiet 2>err
check "without the text" same gone.run words.run
cp -r gone.run broken.run && rm broken.run/val.tokens.bin
refused "without the text and its tokens" 4 'val.tokens.bin' $train --resume=broken.run --steps 6
check "--verify" sh -c '"$1" --verify words.run --quiet >/dev/null' - "$train"

# A run of version 1.1, whose tokens were cut: the state has no val_bytes, and tokens.bin has both parts. The error of the
# first attempt says which checksum the changed state has.
cat >change.py <<'END'
import json, struct, sys
with open(sys.argv[1], "rb") as file:
    data = file.read()
size, = struct.unpack("<Q", data[:8])
header = json.loads(data[8:8 + size])
header["__metadata__"].update(json.loads(sys.argv[2]))
header["__metadata__"] = {key: value for key, value in header["__metadata__"].items() if value}
text = json.dumps(header, separators=(",", ":")).encode()
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
has python3 "runs of older versions" && {
  $train text.txt --tokenizer byte --val-frac 0 $few --stop-at 1 --out old.run 2>/dev/null
  rm -rf old.run/prev
  sed 's/^val-frac = 0$/val-frac = 0.1/' old.run/config.txt >config && cp config old.run/config.txt
  state=old.run/last/state.safetensors
  python3 change.py $state "{\"val_bytes\": \"\", \"val_tokens\": \"500\", \"train_tokens\": \"$(($(wc -c <text.txt) + 1 - 500))\"}"
  sum=$($train --resume=old.run --quiet 2>&1 | sed -n 's/.*its checksum does not match; it should be \([0-9a-f]*\).*/\1/p')
  python3 change.py $state "{\"checksum\": \"$sum\"}"
  $train --resume=old.run --stop-at 2 2>err
  check "a run of version 1.1 keeps its cut" grep -q ' 500 validation tokens' err
  check "of the same tokens" sh -c '! grep "training tokens, previously\|text has changed: the run" err'
  $train --resume=old.run 2>err
  check "and once more" sh -c 'grep -q " 500 validation tokens" err && ! grep -q ^warning err && test ! -e old.run/val.tokens.bin'
  $train --resume=old.run --val-frac 0.2 --steps 6 2>err
  check "until --val-frac asks for another one" test -s old.run/val.tokens.bin
}
echo done
