#!/bin/sh
# Tests prompts and responses: the tasks of build/pairs, and models with an encoder that learn them. See
# tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

# right TASK FILE: every line is a source and its answer, by other means than the program's
right() {
  awk -F '\t' -v task="$1" '
    function answer(source,  i, k, out, at) {
      if (task == "sum") { split(source, at, "+"); return at[1] + at[2] }
      for (i = 1; i <= length(source); i++)
        out = task == "reverse" ? substr(source, i, 1) out : out substr(source, i, 1)
      if (task != "sort") return out
      out = ""
      for (k = 0; k < 10; k++) for (i = 1; i <= length(source); i++) if (substr(source, i, 1) == k) out = out k
      return out
    }
    NF != 2 || $1 !~ /^[0-9][0-9+]*$/ || $2 "" != answer($1) "" { bad++; print }
    END { exit bad > 0 || NR == 0 }' "$2"
}
for task in copy reverse sort sum; do
  "$build/pairs" --task $task --lines 20000 --test-lines 3000 -o $task.tsv --test test.tsv
  check "pairs: $task: every answer is right" right $task $task.tsv
  check "pairs: $task: in the test part, too" right $task test.tsv
  check "pairs: $task: as many lines as asked for" test "$(wc -l <$task.tsv) $(wc -l <test.tsv)" = "20000 3000"
  "$build/pairs" --task $task --lines 20000 --seed 2 -o other.tsv
  cut -f 1 test.tsv | sort -u >asked
  cut -f 1 $task.tsv other.tsv | sort -u >learned
  check "pairs: $task: the test part is new, for every seed" test -z "$(comm -12 asked learned)"
  check "pairs: $task: and of long sources" test "$(awk 'length < 5' asked | wc -l)" -eq 0
  check "pairs: $task: another seed, other lines" sh -c "! cmp -s $task.tsv other.tsv"
  "$build/pairs" --task $task --lines 20 --test again.tsv --test-lines 3000 >few.tsv
  check "pairs: $task: same seed, same lines" cmp test.tsv again.tsv
  check "pairs: $task: fewer lines are the first" sh -c "head -n 20 $task.tsv | cmp - few.tsv"
done
uniform() { awk '{ n[length($1)]++ } END { for (i = 1; i <= 8; i++) if (n[i] < 2300 || n[i] > 2700) exit 1 }' "$1"; } # 4 sigma
check "pairs: lengths are uniform" uniform copy.tsv
"$build/pairs" --task sort --lines 300 --min-length 7 --max-length 9 --alphabet 3 --mark = >few.tsv
check "pairs: lengths, alphabet and mark" sh -c "! grep -Eqv '^[012]{7,9}=	0*1*2*\$' few.tsv && grep -q '^.........=' few.tsv"
refused "pairs: no task" 2 "say which task" "$build/pairs"
refused "pairs: nothing for the test part" 2 "too short" "$build/pairs" --task copy --max-length 4 --test none.tsv
refused "pairs: lengths the wrong way round" 2 "above" "$build/pairs" --task copy --min-length 9
refused "pairs: sums that fit no number" 2 "18 digits" "$build/pairs" --task sum --max-length 19
refused "pairs: a mark that ends the column" 2 "tabs" "$build/pairs" --task sum --mark "	"
refused "pairs: one file for both parts" 2 "same file" "$build/pairs" --task sum -o a.tsv --test a.tsv
refused "pairs: no place to write" 7 "nowhere" "$build/pairs" --task sum -o nowhere/a.tsv
("$build/pairs" --task copy --lines 1000000 2>/dev/null; echo $? >status) | head -n 1 >/dev/null
check "pairs: a reader that has enough" test "$(cat status)" -eq 0

# ---- models with an encoder ----

# A model that learns a task of ten digits in seconds.
small="--arch original --layers 2 --heads 4 $(size --dim 32 --batch 8) --ffn 64 --ctx 64 --steps $(steps 1000) --warmup $(steps 100) --lr 4e-3
  --min-lr-frac 0.05 --beta2 0.98 --wd 0.01 --dropout 0 --eval-every 0 --sample-tokens 16 --quiet $varied"
exact() { # exact RUN FILE: the percentage of answers that are right
  $generate "$1" --score "$2" --exact --quiet | sed 's/.*"exact": *\([0-9.]*\).*/\1/' | awk '{ printf "%d", 100 * $1 }'
}
learned() { # learned TASK NAME OPTIONS...: how many percent of answers to strings that were not trained on are right
  "$build/pairs" --task "$1" -o "$1.tsv" --test "$1.test.tsv"
  task=$1 run=$1-$2.run
  shift 2
  $train "$task.tsv" $small --out "$run" --overwrite "$@" 2>/dev/null
  exact "$run" "$task.test.tsv"
}
check_learned "reverse is learned, norms after" test "$(learned reverse after)" -ge 99
check_learned "sort is learned, norms on branches" test "$(learned sort branch --norm-place branch)" -ge 99
check_learned "copy is learned, norms before" test "$(learned copy before --norm-place before)" -ge 99
check_learned "reverse cannot be learned without positions" test "$(learned reverse blind --positions none --norm-place before)" -lt 40
check "answers are logged" grep -q '"exact":' reverse-after.run/metrics.jsonl
check_learned "and shown as samples" grep -q '^[0-9]* -> [0-9]*   (right: [0-9]*)$' reverse-after.run/samples.txt

printf '123\n\n7\n98765432\n' >questions
$generate reverse-after.run --lines --greedy --quiet <questions >answers
while read -r question; do
  $generate reverse-after.run -p "$question" --greedy --quiet
  echo
done <questions >single
check "a line for each line, as if it were alone" cmp answers single
check_learned "the right ones" sh -c "sed -n '1p;3,4p' answers | tr '\n' ' ' | grep -q '^321 7 23456789 $'"
check "from a file, too" sh -c "$generate reverse-after.run --lines -f questions --greedy --quiet | cmp - answers"
cat questions questions questions questions questions questions questions questions questions questions >many
$generate reverse-after.run --lines --temp 1 --seed 5 --quiet <many >one
(sleep 0.3 && cat many) | $generate reverse-after.run --lines --temp 1 --seed 5 --quiet >two
(while read -r line; do echo "$line" && sleep 0.01; done <many) | $generate reverse-after.run --lines --temp 1 --seed 5 --quiet >three
check "drawn answers do not depend on which lines come together" sh -c "cmp one two && cmp one three"
check_learned "an answer goes on from its beginning" test "$($generate reverse-after.run -p 12345 --answer 54 --greedy --quiet)" = 321
cp -r reverse-after.run start.run
sed 's/"decoder_start_token_id": 256/"decoder_start_token_id": 48/' reverse-after.run/config.json >start.run/config.json
$generate start.run --lines --greedy --quiet <questions >other
while read -r question; do $generate start.run -p "$question" --greedy --quiet && echo; done <questions >single
check_learned "answers begin with what config.json says" sh -c "cmp other single && ! cmp -s other answers"
long=$(awk 'BEGIN { for (i = 0; i < 70; i++) printf "1" }')
printf '12\n%s\n34\n' "$long" | $generate reverse-after.run --lines --greedy --quiet >out 2>err
check "a line that does not fit" sh -c "test $? -eq 3 && test \"\$(sed -n 2p out)\" = '' && grep -q 'standard input:2: the source has 71' err"
refused "a source that does not fit" 3 "7 more than the context of 64" $generate reverse-after.run -p "$long"
refused "no source" 2 "needs a prompt" $generate reverse-after.run
$train reverse.tsv --layers 1 --heads 1 --dim 8 --ctx 32 --batch 2 --steps 2 --quiet --out decoder.run 2>/dev/null
refused "--answer without an encoder" 2 "with an encoder" $generate decoder.run -p 1 --answer 2
check "a decoder alone is asked, too" sh -c "$generate decoder.run --score reverse.test.tsv --exact --quiet | grep -q '\"pairs\": 1000, \"exact\": 0'"
check "lines without an encoder" test "$(printf '12\n34\n' | $generate decoder.run --lines -n 5 --quiet | wc -l)" -eq 2

# ---- characters that no training prompt contains ----
# Prompts use the letters a to y, responses other characters.
awk 'BEGIN { for (i = 0; i < 400; i++) printf "%c%c %c\tUVWz%d\n", 97 + i % 25, 97 + int(i / 25) % 25, 97 + i * 7 % 25, i }' >letters.tsv
unseen() { # unseen RUN PROMPT: what is noted of it
  $generate "$1" -p "$2" -n 1 --device cpu 2>&1 >/dev/null | sed -n 's/^note: no training prompt of .* has \(.*\): the answer is a guess$/\1/p'
}
for tokenizer in byte "bpe --vocab-size 270"; do
  for source in "" "--source-tokenizer bpe --source-vocab-size 270"; do
    $train letters.tsv --arch original --layers 1 --heads 1 --dim 8 --ctx 32 --batch 2 --steps 1 --tokenizer $tokenizer \
      $source --out letters.run --overwrite --quiet 2>/dev/null
    check "unseen: $tokenizer $source" test "$(unseen letters.run 'abc zUzé')" = 'z U é'
    check "unseen: nothing is noted of what is known ($tokenizer $source)" test -z "$(unseen letters.run 'yes a b')"
  done
done
check "unseen: many" test "$(unseen letters.run ABCDEFGHIJKLMNOPQRSTUVWXYZ)" = 'A B C D E F G H I J K L M N O P Q R S T U V W X Y ...'
printf 'abc\nHELLO\nbca\nhello\nStraße\n' >strange
$generate letters.run --lines -n 1 -f strange >out 2>err
check "unseen: lines are counted" grep -q '^note: 2 of 5 lines have characters that no training prompt of letters.run has, first line 2 (H E L O)' err
check "unseen: in one note" test "$(grep -c 'training prompt' err)" -eq 1
sed 's/.*/"&"/' strange | $generate letters.run --prompts - -n 1 2>&1 >out | grep -q '^note: 2 of 5 lines have characters'
check "unseen: JSON lines, too" test $? -eq 0
rm letters.run/tokens.bin
check "unseen: nothing is known without the tokens" test -z "$(unseen letters.run HELLO)"
check "unseen: nor of a decoder" test -z "$(unseen decoder.run HELLO)"

# ---- attention ----

$generate reverse-after.run -p 12 --greedy --quiet --attention maps.json --attention maps.html >out
check_learned "maps: the text is written, too" test "$(cat out)" = 21
sums() { # the sum of every row, one a line
  grep '"kind"' "$1" | tr -d ' ' | grep -o '\[[0-9.,e-]*\]' | tr -d '[]' | awk -F , '{ s = 0; for (i = 1; i <= NF; i++) s += $i; print s }'
}
check "maps: one a layer and kind" test "$(grep -c '"kind"' maps.json)" -eq 6
sums maps.json >rows_of_maps
check_learned "maps: rows add up to 1" sh -c "test \"\$(wc -l <rows_of_maps)\" -eq 72 && ! awk '\$1 < 0.9999 || \$1 > 1.0001' rows_of_maps | grep -q ."
check "maps: the tokens" grep -q '"source": {"ids": \[49, 50, 256\], "tokens": \["1", "2", ""\]}' maps.json
check_learned "maps: a picture for each head" test "$(grep -c '<details>' maps.html)" -eq 24
check_learned "maps: with its number above it" test "$(grep -c '<summary>head 4<svg' maps.html)" -eq 6
check "maps: names that are long slant" grep -q 'rotate(-45)">&lt;end&gt;<' maps.html
check "maps: the page is well-formed" xmllint --noout maps.html
has chromium "boxes of maps" && check "maps: they do not overlap" python3 "$here/tests/page_boxes.py" maps.html
$generate decoder.run -p '<&"' --quiet --attention maps.html --attention maps.json >out
check "maps: a prompt alone, escaped" sh -c "test ! -s out && grep -q '>&lt;<' maps.html && grep -q '>&amp;<' maps.html && grep -q '\\\\\"' maps.json"
$generate decoder.run -p abc -n 100 --quiet --attention maps.json >out 2>err
check "maps: a text that fills the context" sh -c "test $? -eq 0 && grep -q '\"self\"' maps.json"
refused "maps: pictures or numbers" 2 "must end in .html" $generate decoder.run -p abc --attention maps.txt
refused "maps: no place to write" 7 "nowhere" $generate decoder.run -p abc -n 5 --attention nowhere/maps.html
$generate reverse-after.run -p 12 --lens --quiet >out
check_learned "the lens: the decoder's layers, after a source" sh -c "test \"\$(wc -l <out)\" -eq 4 && tail -n 1 out | grep -q \"^layer  2  '2' \""
$generate reverse-after.run -p 12 --answer 2 --lens --quiet >out
check_learned "the lens: after the beginning of an answer" sh -c "tail -n 1 out | grep -q \"^layer  2  '1' \""
refused "the heat of a text without a source" 2 "without an encoder" $generate reverse-after.run --score text.txt --heat
refused "surprisal of pairs" 2 "without an encoder" $generate reverse-after.run --score reverse.test.tsv --per-word
refused "the lens without a source" 2 "needs a prompt" $generate reverse-after.run --lens

# ---- training ----

length=1500
[ "$hurried" ] && length=300
pair="--layers 2 --encoder-layers 1 --heads 2 --dim 16 --ctx 32 --batch 2 --grad-accum 2 --steps $length --save-every 40 $varied"
$train reverse.tsv $pair --quiet --dropout 0.1 --mlp-dropout 0.2 --out whole.run 2>/dev/null
stopped_in broken.run $train reverse.tsv $pair --quiet --dropout 0.1 --mlp-dropout 0.2 --out broken.run
check "stopped in the middle" test $? -eq 130
$train --resume=broken.run --quiet 2>/dev/null
check "stopped and resumed, the same bytes" cmp whole.run/model.safetensors broken.run/model.safetensors
check "the same state" tensors_equal whole.run broken.run 150000
refused "another encoder" 2 "encoder-layers is 2, but" $train --resume=whole.run --encoder-layers 2 --steps 400
refused "other norms" 2 "norm is layer, but" $train --resume=whole.run --norm layer --steps 400
awk '{ print $1 }' reverse.tsv >text.txt
refused "an encoder without pairs" 3 "no pairs" $train text.txt $pair --out other.run
refused "an encoder and a stream" 2 "pack stream" $train reverse.tsv $pair --pack stream --out other.run
printf '%s\t1\n12\t21\n\t3\n' "$long" >odd.tsv
$train odd.tsv $pair --val-frac 0 --dry-run 2>plan
check "pairs that do not fit are counted" grep -q "longer than the context of 32 tokens: 1; the first is number 1, of 71 and 2 tokens" plan
check "and empty prompts" grep -q "pairs with an empty prompt: 1; the first is number 3" plan
printf '%s\t1\n' "$long" >odd.tsv
refused "no pair fits" 3 "none of the 1 pairs fits" $train odd.tsv $pair --val-frac 0 --out other.run

# ---- separate tokenizers ----

check_learned "reverse is learned from bytes, in a BPE" test "$(learned reverse two --source-tokenizer byte --tokenizer bpe --vocab-size 300)" -ge 95
check "transformers is told that sources end" grep -q TemplateProcessing reverse-two.run/source_tokenizer/tokenizer.json
check_learned "two vocabularies, answers to lines" test "$($generate reverse-two.run --lines --greedy --quiet <questions | sed -n '1p;3,4p' | tr '\n' ' ')" = "321 7 23456789 "
printf '12\n%s\n34\n' "$long" | $generate reverse-two.run --lines --greedy --quiet 2>/dev/null | tr '\n' ' ' >out
check_learned "two vocabularies, a line that does not fit" grep -q '^21  43 $' out
check_learned "and to one" test "$($generate reverse-two.run -p 98765432 --greedy --quiet)" = 23456789
$generate reverse-two.run -p 123 --greedy --quiet --attention maps.json >out
check "sources are shown as what they are" grep -q '"source": {"ids": \[49, 50, 51, 256\], "tokens": \["1", "2", "3", ""\]}' maps.json
two="$pair --source-vocab-size 300 --tokenizer byte --dropout 0.1"
$train reverse.tsv $two --quiet --out whole-two.run 2>/dev/null
stopped_in broken-two.run $train reverse.tsv $two --quiet --out broken-two.run
$train --resume=broken-two.run --quiet 2>/dev/null
check "two vocabularies, stopped and resumed, the same bytes" cmp whole-two.run/model.safetensors broken-two.run/model.safetensors
check "and the same state" tensors_equal whole-two.run broken-two.run 150000
reversed() { awk '/ -> .*\(right: [0-9]*\)$/ { n++; if (length($1) != length($NF) - 1) exit 1 } END { exit n < 5 }' "$1"; }
check_learned "samples show sources as they are" reversed whole-two.run/samples.txt
$train reverse.tsv $two --dry-run 2>plan
check "the plan says both" grep -q "vocabulary 257 (byte), source vocabulary 300 (BPE)" plan
check "with the settings of a tied run, too" sh -c "$train --config whole.run/config.txt --source-tokenizer byte --dry-run 2>&1 | grep -q '257 (byte), source vocabulary 257 (byte)\$'"
check "another tokenizer of sources chooses its size anew" sh -c "$train --config whole-two.run/config.txt --source-tokenizer byte --dry-run 2>&1 | grep -q 'source vocabulary 257 (byte)\$'"
refused "a resumed run keeps both tokenizers" 2 "keeps its tokenizers" $train --resume=whole-two.run --source-tokenizer byte --steps 4000
$train sum.tsv $two --source-vocab-size 320 --steps 2 --quiet --out larger-two.run 2>/dev/null
cp larger-two.run/source_tokenizer/tokenizer.json broken-two.run/source_tokenizer/
refused "a tokenizer of more sources" 4 "go up to 319, but config.json says that the model has only 300 rows for sources" $generate broken-two.run -p 1
refused "to resume, too" 4 "go up to 319, but config.json says that the model has only 300 rows for sources" $train --resume=broken-two.run --steps 4000
$train sum.tsv $two --steps 2 --quiet --out sum-two.run 2>/dev/null
cp sum-two.run/source_tokenizer/tokenizer.json broken-two.run/source_tokenizer/
refused "one of the same size" 4 "not the tokenizer that the run.s prompts" $train --resume=broken-two.run --steps 4000
rm -r broken-two.run/source_tokenizer
refused "no tokenizer of sources" 4 "a separate tokenizer" $generate broken-two.run -p 1
refused "none to resume with" 4 "a separate tokenizer" $train --resume=broken-two.run --steps 400
$train reverse.tsv $pair --steps 2 --quiet --out whole-two.run --overwrite 2>/dev/null
check "it goes with the run" test ! -e whole-two.run/source_tokenizer
refused "a tokenizer of sources, and no encoder" 2 "with an encoder" $train reverse.tsv --source-tokenizer byte --out other.run
refused "two vocabularies in one table" 2 "one table" $train reverse.tsv $pair --source-tokenizer byte --tie --out other.run
refused "a source vocabulary for bytes" 2 "source-vocab-size 300" $train reverse.tsv $pair --source-tokenizer byte --source-vocab-size 300 --out other.run
refused "a tokenizer of sources, and no pairs" 3 "no prompts" $train text.txt $pair --source-tokenizer byte --out other.run

echo "done"
