#!/bin/sh
# Tests the two programs as careless, hostile or lucky users would use them. See tests/program_helpers.sh.
# shellcheck disable=SC2016,SC2086 # scripts in quotes; sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

"$build/stories" --bytes 60000 --seed 3 -o text.txt --report report.json 2>/dev/null
check "stories: sample corpus" test -s text.txt
check "stories: every text has one derivation" "$build/stories" --self-check


tiny="--layers 2 --heads 2 $(size --dim 32 --batch 4) --ctx 32 --steps 40 --quiet --threads 2 $varied"

# The instruction sets of this build that the machine has, best first.
isas() { "$train" --version | grep -o 'cpu-[a-z0-9]*' | cut -c 5-; }
has_isa() { isas | grep -qx "$1"; }

# ---- user errors ----
: >empty.txt
printf 'x' >one.txt
mkdir folder
refused "missing file" 3 "missing.txt" "$train" missing.txt
refused "empty file" 3 "empty" "$train" empty.txt
refused "one byte" 3 "ctx" "$train" one.txt
refused "a directory without text" 3 "folder" "$train" folder
refused "text shorter than a window" 3 "ctx" "$train" text.txt --ctx 100000
refused "no text" 2 "no text" "$train"
refused "unknown flag" 2 "did you mean" "$train" text.txt --layer 3
refused "number out of range" 2 "layers" "$train" text.txt --layers 0
refused "not a number" 2 "abc" "$train" text.txt --lr abc
refused "heads that do not divide dim" 2 "does not divide" "$train" text.txt --dim 100 --heads 3
refused "odd head size" 2 "head size" "$train" text.txt --dim 6 --heads 2
refused "kv-heads that do not divide heads" 2 "kv-heads" "$train" text.txt --heads 4 --kv-heads 3
refused "a number too small to be one" 2 "clip" "$train" text.txt --clip 1e-400
refused "what nanoGPT calls it" 2 "unknown flag --max_iters: that is --steps here" "$train" text.txt --max_iters=3
refused "what llama.cpp calls it" 2 "unknown flag --n-predict: that is -n here" "$generate" --n-predict 3
refused "what is far from everything" 2 "help-all. lists them all" "$train" text.txt --zap 3
refused "--json without --dry-run" 2 "--json belongs to --dry-run" "$train" text.txt --json
refused "--dry-run and --bench" 2 "use only one of --dry-run and --bench" "$train" text.txt --dry-run --bench 3
refused "a model of a table" 2 "--layers does not go with --runs; it is for training, --sweep .*, --dry-run, --bench" "$train" --runs . --layers 2
refused "columns of a plot" 2 "--columns does not go with --plot; it is for --runs" "$train" --plot a.run --columns run
refused "--json of runs" 2 "--json does not go with --runs; it is for --dry-run" "$train" --runs . --json
refused "--json and --show" 2 "--json does not go with --show; leave out one of the two" "$train" text.txt --dry-run --json --show 2
refused "a plan on a full disk" 7 "stdout" sh -c "exec $train text.txt --dry-run --json >/dev/full"
$train text.txt --dry-run --json --steps 7 --batch 3 --ctx 32 >plan.json 2>err
check "a plan as JSON" sh -c 'grep -q "\"tokens\": 672" plan.json && grep -q "\"batch\": 3" plan.json && ! grep -q plan err'
check "which is JSON" python3 -c 'import json; p = json.load(open("plan.json")); assert p["memory_bytes"]["total"] > 0 < p["seconds"] and p["settings"]["steps"] == p["steps"]'
$train text.txt --dry-run --steps 1 --layers 1 --heads 1 --dim 16 2>err
check "one of each" sh -c 'grep -q "^model .*: 1 layer x 16, 1 head, " err && grep -q "^run      1 step of " err && ! grep -q "[^0-9.]1 [a-z]*s " err'
for minutes in 0 -1 x 1,,2 1, 1e7 nan; do
  refused "--minutes $minutes" 2 "need a number > 0" "$train" text.txt --dry-run --minutes $minutes
done
refused "several budgets of one run" 2 "only with --dry-run" "$train" text.txt --minutes 1,2
"$train" text.txt --dry-run --minutes 0.5,3,1 2>err
check "a dry run compares budgets" test "$(sed -nE 's/^ *([0-9.]*)  nano .*(-|[-+].*%)$/\1/p' err | tr '\n' ' ')" = "0.5 3 1 "
check "losses with that of the first" test "$(grep -c '  nano .*[-+][0-9.]* %$' err) $(grep -c '  nano .* -$' err)" = "2 1"
refused "two lengths" 2 "minutes" "$train" text.txt --steps 3 --minutes 1
for lengths in 3 3: :9 3:2 3:3 5:9,5:9 5:9,4:9 5:9,8:7 5:9,x 0:9 3:99999999999999999999; do
  refused "earlier lengths $lengths" 2 "rising UNTIL" "$train" text.txt --steps 20 --earlier-steps $lengths
done
refused "earlier lengths without a length" 2 "rising UNTIL" "$train" text.txt --earlier-steps 20:30
refused "an earlier length that ended after the run" 2 "rising UNTIL" "$train" text.txt --steps 20 --earlier-steps 20:30
refused "unwritable output" 7 "text.txt" "$train" text.txt --out text.txt/deep/run
refused "output is a file" 7 "one.txt" "$train" text.txt --out one.txt
if ! "$train" text.txt --device cuda --dry-run 2>/dev/null; then # where there is no GPU, or no CUDA in this build
  refused "no GPU" 2 "use --device cpu" "$train" text.txt --device cuda
  if has_isa v2; then
    refused "no such dtype on a CPU" 2 "use f32" "$train" text.txt --isa v2 --dtype bf16
    refused "nor when it is asked for" 2 "use f32" "$train" text.txt --device cpu --isa v2 --dtype bf16
  fi
fi
refused "more memory than there is" 5 "memory" "$train" text.txt --layers 1000 --dim 32768 --heads 256 --quiet
refused "nothing to resume" 4 "run" "$train" --resume=folder
refused "generate: no run" 4 "no model in nothing.run" "$generate" nothing.run
refused "generate: a text" 4 "text.txt is a text, not a model; $train text.txt" "$generate" text.txt
printf 'GGUF\3\0\0\0' >model.gguf
refused "generate: a GGUF file" 4 "model.gguf is a GGUF file" "$generate" model.gguf
printf 'PK\3\4\0\0' >model.pt
refused "generate: a checkpoint of PyTorch" 4 "of PyTorch" "$generate" -m model.pt
printf '\100\0\0\0\0\0\0\0{"__metadata__":{}}' >alone.safetensors
refused "generate: weights alone" 4 "holds weights alone" "$generate" alone.safetensors
refused "generate: -t" 2 "temp" "$generate" -t 0.5

# ---- a run ----
$train text.txt $tiny --out a.run >out 2>err
check "train: ends with 0" test $? -eq 0
check "train: stdout is empty" test ! -s out
for file in model.safetensors config.json tokenizer.json tokenizer_config.json generation_config.json metrics.jsonl config.txt samples.txt last/state.safetensors; do
  check "run directory has $file" test -s a.run/$file
done
# The files agree on what text without a prompt starts from: of many documents their end, of one a newline, which no
# tokenizer may call special.
check "bos of many documents" test "$(cat a.run/*.json | grep -c -e '"bos_token_id": 256' -e '"bos_token": "<|endoftext|>"')" -eq 3
grep -v '^<|endoftext|>$' text.txt >document.txt
$train document.txt $tiny --steps 1 --out document.run 2>/dev/null
check "bos of one document" test "$(cat document.run/*.json | grep -c -e '"bos_token_id": 10,*$' -e '"bos_token": null')" -eq 3
$train text.txt $tiny --out b.run 2>/dev/null
check "same seed, same bytes" cmp a.run/model.safetensors b.run/model.safetensors
check "same seed, same state" tensors_equal a.run b.run
$train text.txt $tiny --out c.run --seed 1000 2>/dev/null
if cmp -s a.run/model.safetensors c.run/model.safetensors; then fail "another seed, other bytes" "equal"; else pass "another seed, other bytes"; fi
# seed_of RUN: the seed in its settings
seed_of() { sed -n 's/^seed = //p' "$1/config.txt"; }
for run in drawn redrawn; do $train text.txt ${tiny% --quiet*} --steps 3 --seed -1 --out $run.run 2>$run.err; done
check "train --seed -1 draws a seed" test "$(seed_of drawn.run)" -ge 0 -a "$(seed_of drawn.run)" != "$(seed_of redrawn.run)"
check "which the plan says" grep -q "; seed $(seed_of drawn.run)$" drawn.err
$train --config drawn.run/config.txt --out repeated.run --quiet
check "and config.txt repeats" cmp drawn.run/model.safetensors repeated.run/model.safetensors
$generate a.run -n 20 -s -1 >one 2>err
$generate a.run -n 20 -s "$(sed -n 's/.*seed //p' err)" --quiet >two
check "generate -s -1 draws a seed and says it" cmp one two
check "other seeds below zero are refused" sh -c "$generate a.run -s -2 2>&1 | grep -q 'need a whole number >= 0, or -1 for a random one'"
refused "a run is not overwritten" 2 "overwrite" "$train" text.txt $tiny --out a.run
$train text.txt $tiny --out b.run --overwrite 2>/dev/null
check "--overwrite replaces it" cmp a.run/model.safetensors b.run/model.safetensors
$train --config a.run/config.txt --out d.run --quiet 2>/dev/null
check "config.txt repeats the run" cmp a.run/model.safetensors d.run/model.safetensors
$train text.txt $tiny --out e.run --dry-run >out 2>err
check "--dry-run makes nothing" test ! -e e.run
$train text.txt --out a.run --dry-run 2>err
check "--dry-run says what the run would be refused for" grep -q '^output   a.run, which holds a run: it needs --overwrite$' err
# the output of both programs
bench_keys='^{"tokens_per_s": [0-9].*"tokens_per_s_mean": [0-9].*"step_ms": .*"step_ms_p10": .*"step_ms_p90": .*"peak_memory_bytes": .*"isa": .*"dtype": ".*"compiler": ".*"commit": ".*}$'
$train text.txt $tiny --bench 5 >out 2>/dev/null
check "--bench prints one JSON line" test "$(grep -c "$bench_keys" out)" -eq 1

mkdir mine
cp text.txt mine/samples.txt
refused "the text is never replaced" 2 "samples.txt" "$train" mine/samples.txt $tiny --out mine
check "and is still there" cmp text.txt mine/samples.txt
echo notes >folder/config.txt
refused "nor a file that is not of a run" 2 "config.txt" "$train" text.txt $tiny --out folder
rm folder/config.txt
cp -r a.run limit.run
(ulimit -f 40 && exec $train text.txt $tiny --out limit.run --overwrite 2>/dev/null)
check "a run that cannot be replaced stays" tensors_equal a.run limit.run
if [ ! "$hurried" ]; then # a sanitizer reserves more than any limit
  large="--layers 4 --heads 2 --dim 64 --ctx 64 --steps 1 --sample-tokens 0 --threads 1"
  # shellcheck disable=SC3045 # dash and bash have it
  limited() { (ulimit -v 800000 && exec "$@"); }
  refused "a run that is too large for the limit of its process" 5 'this process may use 781 MiB (ulimit -v)' \
    limited "$train" text.txt $large --batch 1920 --quiet --out limit.run --overwrite
  check "replaces nothing" tensors_equal a.run limit.run
  limited "$train" text.txt $large --batch 1920 --dry-run 2>err
  check "the plan says so" grep -q '^warning: not enough memory: the run needs .*, and .* is free; this process may use' err
  fits=$(sed -n 's/.*; \(--batch [0-9]* --grad-accum [0-9]*\) would fit$/\1/p' err)
  limited "$train" text.txt $large ${fits:-none} --quiet --out fits.run
  check "what is said to fit does" test $? -eq 0 -a -s fits.run/result.json
  # A stack of 128 KiB, in most modes.
  # shellcheck disable=SC3045 # dash and bash have it
  on_small_stack() { check "on a small stack: $1" sh -c 'ulimit -s 128; shift; exec "$@" >out 2>err <one.txt' - "$@"; }
  on_small_stack "a plan" $train text.txt --tokenizer byte --dry-run
  on_small_stack "a run with a report" $train text.txt $tiny --steps 4 --sample-tokens 9 --vocab-size 300 --keep-at steps:2 --out small.run
  on_small_stack "in bf16" env INKLING_ISA= $train text.txt $tiny --steps 4 --sample-tokens 0 --dtype bf16 --out half.run
  on_small_stack "resumed" $train --resume=small.run --steps 6
  on_small_stack "fine-tuned" $train text.txt --init a.run --steps 2 --sample-tokens 0 --out tuned.run
  on_small_stack "a sweep" $train text.txt $tiny --steps 2 --sample-tokens 0 --sweep lr=1e-3,1e-2 --out small
  on_small_stack "a table" $train --runs . --columns all
  on_small_stack "a repeated run" $train --verify a.run
  for mode in "-n 20" -i --params "--bench 5" "--score text.txt" "-p x --lens" "-p x --heat-html x.html" "--novelty a.run" \
    "--export small.model" "--gguf small.gguf" "-p x --dump small.safetensors"; do
    on_small_stack "generate $mode" $generate a.run --quiet $mode
  done
fi
$train text.txt $tiny --out closed.run --log-every 1 <&- 2>&-
check "closed streams: metrics hold only metrics" test "$(grep -c -v '^{' closed.run/metrics.jsonl)" -eq 0
refused "--help on a full disk" 7 "stdout" sh -c "exec $train --help >/dev/full"

# ---- texts ----
few="--layers 1 --heads 2 $(size --dim 32 --batch 4) --ctx 32 --steps 10 --quiet --threads 2 --sample-tokens 20 $varied"
mkdir texts texts/more
printf '<|endoftext|>\n<|endoftext|>\n' >nothing.txt
head -c 20000 text.txt >texts/a.txt
tail -c 20000 text.txt >texts/more/b.txt
cp -r a.run texts/old.run # what a run holds is no text
$train texts $few --out tree.run 2>/dev/null
$train texts/a.txt texts/more/b.txt $few --out files.run 2>/dev/null
check "a directory is its files in order" cmp tree.run/model.safetensors files.run/model.safetensors
$train - $few --out pipe.run <text.txt 2>/dev/null
$train text.txt $few --out file.run 2>/dev/null
check "standard input is a text like another" cmp pipe.run/model.safetensors file.run/model.safetensors
check "and is kept with the run" cmp text.txt pipe.run/stdin.txt
$train --resume=pipe.run --steps 20 --quiet 2>/dev/null </dev/null
check "which goes on without it" test $? -eq 0
$train --resume=file.run --steps 20 --quiet 2>/dev/null
check "to the same end" cmp pipe.run/model.safetensors file.run/model.safetensors
refused "standard input twice" 2 "given twice" "$train" - - $few
refused "standard input to validate" 2 "name a file" "$train" text.txt --val - $few
refused "a run as a text" 3 "a.run is a model directory" "$train" a.run $few --out other.run

printf '{"text": "one"}\n\n{"text": "two", "n": 1}\n{"text": 3}\n' >broken.jsonl
refused "broken JSON lines" 3 "broken.jsonl, line 4" "$train" broken.jsonl $few
refused "another field" 3 'no field "content"' "$train" broken.jsonl --jsonl-field content $few
refused "a field of plain text" 2 "JSON lines" "$train" text.txt --jsonl-field text $few
refused "half of a pair" 2 "response-field" "$train" broken.jsonl --prompt-field text $few
i=0
while [ $i -lt 300 ]; do
  printf '{"question": "How many are %d and one?", "answer": "They are %d."}\n' $i $((i + 1))
  i=$((i + 1))
done >pairs.jsonl
$train pairs.jsonl --prompt-field question --response-field answer $few --out pairs.run 2>/dev/null
check "prompts and responses" test -s pairs.run/model.safetensors
check "are packed by document" grep -q "^pack = docs" pairs.run/config.txt
$train - --prompt-field question --response-field answer $few --out piped.run <pairs.jsonl 2>/dev/null
check "from standard input, too" cmp pairs.run/model.safetensors piped.run/model.safetensors
sed 's/{"question": "\(.*\)", "answer": "\(.*\)"}/\1\t\2/' pairs.jsonl >pairs.tsv
$train pairs.tsv $few --out tsv.run 2>/dev/null
check "TSV is prompts and responses" cmp pairs.run/model.safetensors tsv.run/model.safetensors
check "packed by document, too" grep -q "^pack = docs" tsv.run/config.txt
$train - --tsv $few --out piped-tsv.run <pairs.tsv 2>/dev/null
check "and from standard input" cmp tsv.run/model.safetensors piped-tsv.run/model.safetensors
check "which is kept with the run" cmp pairs.tsv piped-tsv.run/stdin.tsv
$train --resume=piped-tsv.run --steps 20 --quiet 2>/dev/null </dev/null
$train --resume=tsv.run --steps 20 --quiet 2>/dev/null
check "and read again" cmp tsv.run/model.safetensors piped-tsv.run/model.safetensors
refused "a resumed run keeps how it reads standard input" 2 "leave" "$train" --resume=piped-tsv.run --no-tsv
refused "--tsv without standard input" 2 "applies to standard input (-), which was not given" "$train" pairs.tsv --tsv $few --out other.run
printf 'a\tb\n\nc d\n' >broken.tsv
refused "a line with one column" 3 "broken.tsv, line 3, has one column" "$train" broken.tsv $few --out other.run
refused "no such field" 3 "no field" "$train" pairs.jsonl --prompt-field question --response-field reply $few --out other.run

tail -n 50 pairs.jsonl >last.jsonl
qa="--prompt-field question --response-field answer"
$train pairs.jsonl --val last.jsonl $qa $few --eval-every 0 --dtype f32 --out judged.run 2>/dev/null
$generate judged.run --score last.jsonl $qa --dtype f32 --quiet >out
check "--score of packed documents is the run's own validation loss" near "$(last_loss judged.run)" "$(sed -n 's/.*"val_loss": *\([0-9.]*\).*/\1/p' out)" 1e-5
$generate judged.run --score - $qa --dtype f32 --quiet <last.jsonl >two
check "from standard input, too" cmp out two
tail -n 50 pairs.tsv >last.tsv
$generate judged.run --score last.tsv --dtype f32 --quiet >two
check "and of TSV" cmp out two
$generate judged.run --score - --tsv --dtype f32 --quiet <last.tsv >two
check "and of TSV from standard input" cmp out two
i=0
while [ $i -lt 100 ]; do
  printf '{"text": "%0150d"}\n' $i
  i=$((i + 1))
done >long.jsonl
$train long.jsonl --pack docs --dry-run 2>err
check "a context that documents fit in" grep -q "context [0-9]* (the documents' lengths)" err
packed="$qa --tokenizer bpe --vocab-size 300 --layers 1 --heads 2 $(size --dim 32 --batch 4) --ctx 32 --steps $([ "$hurried" ] && echo 1000 || echo 2000) --quiet --threads 2 --sample-tokens 0 --dropout 0.1 $varied"
$train pairs.jsonl $packed --out unbroken.run 2>/dev/null
stopped_in broken.run $train pairs.jsonl $packed --out broken.run
check "packed: stopped" test $? -eq 130
refused "packed: a resumed run keeps how it reads" 2 "leave" "$train" --resume=broken.run --pack stream
mv pairs.jsonl gone.jsonl
$train --resume=broken.run --quiet 2>err
check "a text that is gone is not missed" grep -q "pairs.jsonl: No such file.*continues with the tokens" err
check "packed: resumed to the same end" cmp unbroken.run/model.safetensors broken.run/model.safetensors
mv gone.jsonl pairs.jsonl

bpe="--tokenizer bpe --vocab-size 400"
$train text.txt $few $bpe --out words.run 2>/dev/null
check "a BPE from the text" grep -q '"vocab_size": 400' words.run/config.json
$generate words.run -p "Once" -n 20 --seed 1 --quiet >one
check "writes" test -s one
$generate words.run --score text.txt --quiet >out
check "and is judged" grep -q '"bits_per_byte": [0-9]' out
$train --config words.run/config.txt --out again.run --quiet 2>/dev/null
check "config.txt repeats it" cmp words.run/model.safetensors again.run/model.safetensors
$train text.txt $few --tokenizer words.run --out taken.run 2>/dev/null
check "--tokenizer of another run" cmp words.run/model.safetensors taken.run/model.safetensors
$train --resume=words.run --steps 20 --quiet 2>/dev/null
rm again.run/tokens.bin
$train --resume=again.run --steps 20 --quiet 2>/dev/null
check "tokens that are missing are made again" cmp words.run/model.safetensors again.run/model.safetensors
printf 'x' | dd of=taken.run/tokens.bin bs=1 seek=20 conv=notrunc 2>/dev/null
$train --resume=taken.run --steps 20 --quiet 2>/dev/null
check "and those whose header is damaged" cmp words.run/model.safetensors taken.run/model.safetensors
printf 'x' | dd of=taken.run/tokens.bin bs=1 seek=1000 conv=notrunc 2>/dev/null
$train --resume=taken.run --steps 30 --quiet 2>/dev/null
$train --resume=again.run --steps 30 --quiet 2>/dev/null
check "or whose tokens are" cmp again.run/model.safetensors taken.run/model.safetensors
$train text.txt $few --tokenizer taken.run/tokenizer.json --out borrowed.run 2>/dev/null
mv taken.run/tokenizer.json elsewhere.json
$train --resume=borrowed.run --steps 20 --quiet 2>/dev/null
check "a tokenizer that is gone is not missed" test $? -eq 0
mv elsewhere.json taken.run/tokenizer.json
$train texts $few $bpe --out fourhundred.run 2>/dev/null # as many tokens, other ones
cp fourhundred.run/tokenizer.json borrowed.run/
refused "another tokenizer in a run is" 4 "not the tokenizer" "$train" --resume=borrowed.run --steps 30
inode=$(ls -i words.run/tokens.bin)
$train text.txt $few $bpe --out words.run --overwrite 2>/dev/null
check "tokens that are fresh are kept" test "$(ls -i words.run/tokens.bin)" = "$inode"
touch text.txt
$train text.txt $few $bpe --out words.run --overwrite 2>/dev/null
check "and stale ones are not" test "$(ls -i words.run/tokens.bin)" != "$inode"
cp -r words.run textless.run
grep -v '^data = ' words.run/config.txt >textless.run/config.txt
refused "a run that does not say what its text is" 2 "no text given, .* in textless.run/config.txt; try: .* --resume=textless.run" "$train" --resume=textless.run --steps 30
: >no-data.txt
refused "a configuration that does not, either" 2 "no text given, .* in no-data.txt; try: .* --config no-data.txt" "$train" --config no-data.txt
refused "nor in a sweep" 2 "no text given, .* in no-data.txt; try: .* --config no-data.txt" "$train" --config no-data.txt --sweep lr=1,2
refused "a resumed run keeps its tokenizer" 2 "keeps its tokenizer" "$train" --resume=words.run --tokenizer byte
refused "no such tokenizer" 4 "give auto, byte, bpe" "$train" text.txt --tokenizer nothing $few
refused "a vocabulary for bytes" 2 "vocab-size" "$train" text.txt --tokenizer byte --vocab-size 300 $few
head -c 400 text.txt >short.txt
$train short.txt --layers 1 --heads 1 --dim 8 --ctx 8 --batch 1 --steps 1 --tokenizer bpe --vocab-size 5000 --dry-run 2>err
check "fewer tokens than asked for" grep -q "yields a vocabulary of only [0-9]* tokens instead of 5000" err
$train short.txt --layers 1 --heads 1 --dim 8 --ctx 8 --batch 1 --steps 1 --tokenizer bpe --dry-run 2>err
check "and no word of it where the size was chosen" sh -c "! grep -q 'vocabulary of only' err && grep -q 'chosen .*a BPE of at most 1024' err"
awk 'BEGIN { for (i = 0; i < 600; i++) printf "{\"meta\": \"%01000d\", \"text\": \"text number %d\"}\n", i, i }' >meta.jsonl
check "the size of JSON Lines is that of their text" sh -c "$train meta.jsonl --dry-run 2>&1 | grep -q 'chosen .*a token is a byte (less than 400 kB of text)'"
check "automatic choices are explained" sh -c "$train text.txt --dry-run 2>&1 | grep -q 'chosen .*byte.*preset nano.*steps'"

head -c 5000000 /dev/zero | tr '\0' 'a' >line.txt
$train line.txt $few $bpe --out line.run 2>err
check "a long line" test $? -eq 0
head -c 300000 "$bin/generate" >binary
$train binary $few --binary --out binary.run 2>err
check "binary data" test $? -eq 0
printf 'one\r\ntwo\r\n<|endoftext|>\r\nthree without an end' >crlf.txt
$train crlf.txt --layers 1 --heads 1 --dim 8 --ctx 8 --batch 1 --steps 1 --val-frac 0 --quiet --out crlf.run 2>err
check "CRLF, no newline at the end" test $? -eq 0
refused "validation text that is none" 3 "too few for validation" "$train" text.txt --val nothing.txt $few
i=0
while [ $i -lt 20 ]; do
  printf '{"question": "%0400d", "answer": "yes"}\n' $i
  i=$((i + 1))
done >prompts.jsonl
$train prompts.jsonl $qa $few --eval-every 2 --out prompts.run 2>/dev/null
check "long prompts: every window has something to learn" sh -c "grep -q val_loss prompts.run/metrics.jsonl && ! grep -q null prompts.run/metrics.jsonl"
mkdir killed.run
cp words.run/tokens.bin killed.run/ # all that a run leaves that is killed while it encodes
$train text.txt $few $bpe --out killed.run 2>err
check "a run that was killed before it began is in nobody's way" test $? -eq 0
sed 's/ the / a   /' text.txt >changed.txt # as many bytes
cp text.txt same.txt
$train same.txt $few --out same.run 2>/dev/null
cp changed.txt same.txt
$train --resume=same.run --steps 20 --quiet 2>err
check "a text of the same length that has changed is noticed" grep -q "text has changed" err
$train text.txt $few --tokenizer auto --vocab-size auto --out auto.run 2>/dev/null
check "auto is a tokenizer" cmp auto.run/tokenizer.json a.run/tokenizer.json
{ printf '\3757zXZ\0' && cat text.txt; } >text.xz
$train text.xz $few --dry-run 2>err
check "compressed text is noticed" grep -q "is compressed.*xzcat text.xz" err
$train - --dry-run <pairs.jsonl 2>err
check "JSON from standard input is noticed" grep -q "looks like JSON" err
mkdir temporary
(TMPDIR=$work/temporary && export TMPDIR && $train text.txt $few --dry-run 2>/dev/null && $generate a.run --score text.txt --quiet >out)
check "nothing temporary is left" test "$(ls -A temporary)" = ""
refused "nowhere to put temporary files" 7 "TMPDIR" env TMPDIR=nowhere "$train" text.txt $few --dry-run
sleep 5 | $train - $few --out waiting.run 2>err &
pid=$!
sleep 0.5
kill -INT $pid
wait $pid
check "Ctrl-C while standard input is read" test $? -eq 130 -a ! -e waiting.run
refused "the run in the text" 2 "choose another" "$train" texts $few --out texts
refused "separators alone" 3 "no text" "$train" nothing.txt $few
rm -f line.txt
rm -rf line.run

# ---- stopping and resuming ----
long="--layers 2 --heads 2 $(size --dim 32 --batch 4) --ctx 32 --quiet --threads 2 --dropout 0.1 --grad-accum 2 $varied"
survives() { # OPTIMIZER NAME STEPS ROUNDS [FLAGS]: interrupted, then killed at random moments, and resumed
  $train text.txt $long --optimizer "$1" --steps "$3" $5 --out "whole-$2.run" 2>/dev/null
  stopped_in "$2.run" $train text.txt $long --optimizer "$1" --steps "$3" $5 --out "$2.run"
  check "$1, SIGINT: status 130" test $? -eq 130
  refused "$1, lock: nothing is left of it" 2 "holds a run" "$train" text.txt $long --out "$2.run"
  rounds=0
  while [ $rounds -lt "$4" ]; do
    $train --resume="$2.run" --quiet --save-every 50 2>/dev/null &
    pid=$!
    sleep "0.$((3 + rounds))"
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    rounds=$((rounds + 1))
  done
  check "$1, a killed run is still a model" "$generate" "$2.run" -n 5 --greedy --quiet >/dev/null
  $train --resume="$2.run" --quiet 2>/dev/null
  status=$?
  check "$1, resume ends" test $status -eq 0 -o $status -eq 2
  check "$1, a resumed run gives the uninterrupted one's model" cmp "whole-$2.run/model.safetensors" "$2.run/model.safetensors"
  check "$1, a resumed run ends in the uninterrupted one's state" tensors_equal "whole-$2.run" "$2.run"
  for run in "whole-$2.run" "$2.run"; do # all but times
    sed 's/"tokens_per_s":[^,}]*//; s/"seconds":[^,}]*//; s/,"xz_bits_per_byte":[^,}]*//' "$run/metrics.jsonl" >"$run.metrics"
  done
  check "$1, a resumed run repeats no metrics and misses none" cmp "whole-$2.run.metrics" "$2.run.metrics"
  check "$1, a resumed run repeats no sample and misses none" cmp "whole-$2.run/samples.txt" "$2.run/samples.txt"
}
if [ "$hurried" ]; then whole=500 more=600 early='--warmup 1 --log-every 1'; else whole=1500 more=1600 early=; fi
survives adamw parts $whole 6 ""
survives muon muon $whole 3 "--mixer CA --qk-norm"
survives muon taught $whole 2 "--teacher $work/muon.run --seed 8"
survives muon schooled $whole 2 "--teacher-steps $whole --seed 8"
"$generate" taught.run --export card -n 5 >/dev/null 2>&1
check "an exported run's command has a teacher" grep -q -e "^./train TEXT --teacher MODEL --tokenizer byte .*--teacher-weight 0.5" card/README.md
rm -r card
changes() { # the warnings about the teacher of a run that is resumed with this one
  cp -r taught.run resumed.run
  "$train" --resume=resumed.run --steps $more --teacher "$1" 2>&1 | grep -c "^warning: the teacher has changed"
  rm -r resumed.run
}
check "another teacher of a resumed run is noticed" test "$(changes parts.run)" -eq 1
check "one with the same weights is not" test "$(changes whole-muon.run)" -eq 0
$train text.txt --ctx 32 --teacher muon.run --minutes 0.02 --sample-tokens 0 --threads 1 --quiet --out timed.run
check "a teacher and --minutes" grep -q '"end": "\(minutes\|done\)"' timed.run/result.json
refused "a weight without a teacher" 2 "needs --teacher" "$train" text.txt $few --teacher-weight 0.3
check "config.txt names the teacher" grep -q "^teacher = $work/muon.run" taught.run/config.txt
check "whose tokenizer is the default" grep -q "^tokenizer = byte" taught.run/config.txt
check "the plan names it, too" sh -c "$train text.txt --ctx 32 --teacher muon.run --dry-run 2>&1 >/dev/null | grep -q '^teacher *muon.run: .* parameters; 0.5 of the targets'"
refused "a teacher that is not there" 4 "nowhere" "$train" text.txt $few --teacher nowhere
refused "a teacher with other tokens" 2 "has other tokens than this model; give --tokenizer words.run" "$train" text.txt $few \
  --tokenizer byte --teacher words.run
refused "a teacher with a shorter context" 2 "has a context of 32 tokens, less than --ctx 64; give --ctx 32" "$train" text.txt --layers 2 --heads 2 --dim 32 \
  --ctx 64 --batch 4 --steps 2 --teacher muon.run
$train text.txt $long --optimizer muon --steps "$whole" --seed 9 --sample-tokens 0 --out seed9.run 2>/dev/null
check "a teacher of its own is a run with the next seed" cmp seed9.run/model.safetensors schooled.run/teacher/model.safetensors
$train text.txt $long --optimizer muon --steps "$whole" --seed 8 --teacher seed9.run --teacher-weight 0.8 --out pupil.run 2>/dev/null
check "and teaches as --teacher does" cmp pupil.run/model.safetensors whole-schooled.run/model.safetensors
"$train" --verify schooled.run >out 2>/dev/null
check "a run with a teacher of its own is repeated" grep -q "is reproduced" out
check "which is no run of its own in a table" test "$("$train" --runs schooled.run -O csv 2>/dev/null | grep -c schooled)" -eq 1
check "a short text and much time: a teacher" sh -c "$train text.txt --ctx 32 --minutes 100 --preset nano --threads 1 --dry-run 2>&1 | grep -q '^teacher .*trained first'"
check "a given length: none" sh -c "! $train text.txt --ctx 32 --epochs 10 --dry-run 2>&1 | grep -q '^teacher'"
stopped_in unschooled.run $train text.txt $long --steps 30 --teacher-steps 5000 --out unschooled.run
check "Ctrl-C while the teacher is trained: status 130" test $? -eq 130
check "which the result says" grep -q '"end": *"signal"' unschooled.run/result.json
$train text.txt $few --teacher-steps 2 --out owner.run 2>/dev/null
refused "the teacher of the run that would be replaced" 2 "a part of the run" "$train" text.txt $few --teacher owner.run/teacher \
  --overwrite --out owner.run
$train text.txt $few --out stranger.run/teacher 2>/dev/null
refused "a folder named teacher that is not of the run" 2 "not of this run" "$train" text.txt $few --teacher-steps 2 --out stranger.run
$train text.txt $few --out stranger.run 2>/dev/null
check "a run leaves it alone" test -e stranger.run/teacher/model.safetensors
refused "a teacher that takes too long" 2 "longer than --minutes" "$train" text.txt $long --minutes 0.02 --teacher-steps 1000000
refused "two teachers" 2 "exclude each other" "$train" text.txt $few --teacher muon.run --teacher-steps 5
refused "another teacher for a resumed run" 2 "keeps its teacher" "$train" --resume=schooled.run --teacher-steps 5
cat text.txt | $train - $few --teacher-steps 2 --out fromstdin.run 2>/dev/null
$train text.txt $few --teacher-steps 2 --out fromfile.run 2>/dev/null
check "the teacher reads the same standard input" cmp fromstdin.run/model.safetensors fromfile.run/model.safetensors
$train text.txt $few --overwrite --out fromfile.run 2>/dev/null
check "a replaced run leaves no teacher" test ! -e fromfile.run/teacher
refused "a run as its own teacher" 2 "the directory of the run itself; choose another directory with --out" "$train" text.txt $few \
  --teacher muon.run --out muon.run --overwrite
refused "a resumed run keeps its mixers" 2 "mixer is AC, but muon.run was trained with CA" "$train" --resume=muon.run --mixer AC
refused "which has at most one letter per layer" 2 "mixer has 4 letters for 2 layers" "$train" --resume=muon.run --mixer CACA
scored() { $generate muon.run --device cpu --dtype "$1" --score text.txt --quiet | sed -n 's/.*"val_loss": *\([0-9.]*\).*/\1/p'; }
wide=$(scored f32)
for dtype in bf16 int8; do
  check "convolutions with weights in $dtype" awk -v a="$wide" -v b="$(scored $dtype)" \
    'BEGIN { d = a - b; exit !(a > 0 && b > 0 && d < 0.01 && d > -0.01) }'
done
refused "a resumed run keeps its optimizer" 2 "keeps its optimizer" "$train" --resume=muon.run --optimizer adamw --steps $more
echo 'optimizer = adamw' >adamw.txt
refused "nor does it take one from a file" 2 "keeps its optimizer" "$train" --resume=muon.run --config adamw.txt --steps $more
rm adamw.txt
cp -r muon.run empty.run
rm -r empty.run/last empty.run/prev
refused "a run without a state" 4 "no state to resume from" "$train" --resume=empty.run --steps $more
# finished COMMAND...: says that nothing is left to do, ends with 0 and changes no file
finished() {
  before=$(listing)
  said=$("$@" 2>&1) && test "$(listing)" = "$before" &&
    echo "$said" | grep -q '^note: .* is finished at step [0-9]*; give --steps with a larger number to continue$'
}
check "a finished run needs more steps" finished "$train" --resume=parts.run
head -c 3000 text.txt >other.txt
check "with another text, too, and the run keeps its tokens" finished "$train" --resume=parts.run other.txt
refused "so it does in a step before its own" 2 "past --steps" "$train" --resume=parts.run other.txt --val other.txt --steps 2
refused "and when a new run in its place is refused" 2 "longer than the run of 3 steps; give --warmup auto" "$train" other.txt $tiny --steps 3 \
  --warmup 100 --out parts.run --overwrite
$train --resume=parts.run --steps $more --quiet 2>/dev/null
check "--steps extends a run" test $? -eq 0
cp -r whole-parts.run before.run # begun before there was Muon
sed -i.old '/^optimizer/d' before.run/config.txt
$train --resume=before.run --steps $more --quiet 2>/dev/null
check "a run whose settings name no optimizer goes on with AdamW" cmp parts.run/model.safetensors before.run/model.safetensors
check "metrics end at the new last step" grep -q '"step": *'$more parts.run/metrics.jsonl

# Two simultaneous signals, as `timeout` and closed terminals send them, count as one; a later one counts separately.
$train text.txt $long --steps 100000 $early --out signals.run 2>/dev/null &
pid=$!
while ! grep -q loss signals.run/metrics.jsonl 2>/dev/null; do sleep 0.1; done
kill -HUP $pid
kill -TERM $pid
wait $pid
status=$? # 143 where these tests run under nohup, and hang-ups are ignored
check "two signals at once are one" test \( $status -eq 129 -o $status -eq 143 \) -a -s signals.run/last/state.safetensors
$train text.txt $tiny --dim 256 --steps 1 --batch 500 --grad-accum 100 --out slow.run 2>err & # in a step that takes long
pid=$!
while ! test -e slow.run/config.txt; do sleep 0.1; done
sleep 2
kill -INT $pid
sleep 0.7
kill -TERM $pid 2>/dev/null
wait $pid
check "a later one leaves at once" test $? -eq 143
check "and says so" grep -q '^stopped at once' err
# Another process truncates the token file during training; again if that was at the moment when a batch was read.
for attempt in 1 2 3; do
  rm -rf cut.run
  $train text.txt $long --steps 100000 $early --out cut.run 2>err &
  pid=$!
  while ! grep -q loss cut.run/metrics.jsonl 2>/dev/null; do sleep 0.1; done
  truncate -s 2000 cut.run/tokens.bin
  wait $pid
  status=$?
  grep -q 'a file was cut short while it was read' err || break
done
check "tokens that are cut short are named" test $status -eq 3 -a "$(grep -c 'cut.run/tokens.bin was cut short .*saved. Resume with: ' err)" -eq 1
step=$(sed -n 's/.*stopped after step \([0-9]*\),.*/\1/p' err)
$train --resume=cut.run --steps $((step + 2)) --quiet 2>/dev/null
check "and the run goes on from where it was" sh -c "test $? -eq 0 && grep -q '\"step\":$((step + 2)),' cut.run/metrics.jsonl"
mkfifo fifo
cp -r a.run fifo.run
rm fifo.run/config.txt
mv fifo fifo.run/config.txt
refused "a pipe for config.txt" 4 "not a regular file" timeout 10 "$train" --resume=fifo.run
$train text.txt $tiny --steps 1 --threads 999 --out threads.run 2>/dev/null
for threads in 1 3; do
  $train text.txt $few --mixer CNA --layers 3 --qk-norm --threads $threads --out mixed-$threads.run 2>/dev/null
done
check "convolutions: the same bits on any number of threads" cmp mixed-1.run/model.safetensors mixed-3.run/model.safetensors
check "999 threads are as many as there are processors" sh -c "! grep -q '^threads = 999' threads.run/config.txt"

# Killed after the state of an evaluation step was saved and before it was evaluated: the resumed run evaluates, once.
$train text.txt $tiny --out late.run --eval-every 10 --save-every 10 2>/dev/null
$train text.txt $tiny --out early.run --eval-every 10 --save-every 10 2>/dev/null &
pid=$!
sleep 0.12
kill -KILL $pid 2>/dev/null
wait $pid 2>/dev/null
$train --resume=early.run --quiet 2>/dev/null || $train text.txt $tiny --out early.run --overwrite --eval-every 10 2>/dev/null
check "evaluations survive a kill" cmp late.run/model.safetensors early.run/model.safetensors
refused "a resumed run keeps its model" 2 "model cannot change" "$train" --resume=late.run --heads 4 --steps 50
refused "an encoder that it does not have" 2 "encoder-layers is 1, but late.run was trained with 0" "$train" --resume=late.run --encoder-layers 1 --steps 50
cp -r late.run bare.run && rm bare.run/model.safetensors
check "a run without its model" finished "$train" --resume=bare.run
refused "is not touched" 3 "nowhere" "$train" --resume=bare.run --val nowhere
rm -r bare.run
check "auto is the length that it has: nothing is left to do" finished "$train" --resume=late.run --steps auto
cp -r late.run same-again.run
check "and the model that it has" "$train" --resume=same-again.run --layers auto --preset auto --dim=auto --steps 41 --quiet
check "a run named by --out" "$train" --resume --out same-again.run --steps 42 --quiet
sed -i.kept 's/"norm_eps": 1e-5/"norm_eps": 1e-6/' late.run/config.json
refused "a resumed run keeps every part of its model" 2 "norm-eps is 1e-05, but late.run was trained with 1e-06" "$train" --resume=late.run --steps 50
mv late.run/config.json.kept late.run/config.json
refused "--resume DIR without =" 2 "resume=late.run" "$train" --resume late.run

# ---- instruction sets ----
# All that this machine has: identical bits on the same one, close results on another, and a note if a run moves.
refused "an instruction set that is none" 2 "v9: not in this build, which has " "$train" text.txt $tiny --device cpu --isa v9
INKLING_ISA=v8 refused "from the environment, too" 2 "v8: not in this build" "$train" text.txt $tiny --device cpu
same_bytes() { # ISA DTYPE SHARE
  $train text.txt $tiny --device cpu --isa $1 --dtype $2 --out isa-$1-$2.run 2>/dev/null
  INKLING_ISA=$1 $train text.txt $tiny --device cpu --dtype $2 --out again-$1-$2.run 2>/dev/null
  check "$1 $2: same seed, same bytes" cmp isa-$1-$2.run/model.safetensors again-$1-$2.run/model.safetensors
  lowest=${lowest:-isa-$1-$2.run}
  check "$1 $2: the loss of the lowest but for a share of $3" near_loss isa-$1-$2.run $lowest $3
}
lowest=
for isa in $(isas | sed '1!G;h;$!d'); do
  case $isa in v* | generic | neon | dotprod)
    same_bytes $isa f32 0.001
    $generate isa-$isa-f32.run --isa $isa -p Once -n 20 --greedy >isa-$isa.txt 2>/dev/null
    check "$isa: generates" test -s isa-$isa.txt ;;
  esac
  [ $isa = v2 ] || same_bytes $isa bf16 0.01
done
# uses ISA PROGRAM FLAGS...: the instruction set that --bench reports
uses() {
  isa=$1
  shift
  check "$*: uses $isa" sh -c "$* --bench 2 2>/dev/null | grep -q '\"isa\": \"$isa\"'"
}
if has_isa v3 && has_isa v2; then
  uses v3 $train text.txt $tiny --device cpu --isa v3 --dtype bf16
  uses v2 $train text.txt $tiny --device cpu --isa v2 --dtype f32
fi
if has_isa avx512bf16; then
  uses avx512bf16 $train text.txt $tiny --device cpu --isa avx512bf16 --dtype bf16
  if grep -q AuthenticAMD /proc/cpuinfo; then automatic=avx512bf16; else automatic=v4; fi
  case $tiny in *--dtype*) ;; *) uses $automatic $train text.txt $tiny --device cpu --isa avx512bf16 ;; esac
  uses v4 $train text.txt $tiny --device cpu --isa v4 --dtype bf16
  uses v4 $generate isa-v4-f32.run --device cpu --isa avx512bf16 --dtype bf16 -p Once
fi
if has_isa v3 && has_isa v2; then
  $train --resume=again-v2-f32.run --steps 44 --isa v3 --quiet 2>err
  check "another instruction set says that it does not continue exactly" grep -q "AVX2.*will not continue exactly" err
  INKLING_ISA=v2 $train text.txt $tiny --device cpu --isa v3 --dtype f32 --out chosen.run 2>/dev/null
  check "--isa comes before the environment" cmp isa-v3-f32.run/model.safetensors chosen.run/model.safetensors
fi

# ---- learning ----
# The entropy of the corpus is known exactly: a model must come close to it; a lower loss would mean a leak.
"$build/stories" --bytes "$([ "$hurried" ] && echo 60000 || echo 400000)" --seed 5 --val-frac 0.1 -o learn.txt --report learn.json
tail_bytes=$(sed -n 's/.*"val_bytes": *\([0-9]*\).*/\1/p' learn.json)
limit=$(sed -n 's/.*"val_bits_per_byte": *\([0-9.]*\).*/\1/p' learn.json)
head -c "$(($(wc -c <learn.txt) - tail_bytes))" learn.txt >head.txt
tail -c "$tail_bytes" learn.txt >tail.txt
$train head.txt --val tail.txt --out learn.run --layers 2 --heads 2 $(size --dim 64 --batch 4) --ctx 128 --steps "$(steps 2500)" \
  --lr 6e-3 --beta2 0.99 --quiet $varied 2>/dev/null
learned=$($generate learn.run --score tail.txt --quiet | sed -n 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/p')
for dtype in bf16 int8; do
  narrow=$($generate learn.run --device cpu --dtype $dtype --score tail.txt --quiet | sed -n 's/.*"bits_per_byte": *\([0-9.]*\).*/\1/p')
  check "weights in $dtype cost less than 0.01 bits a byte" awk "BEGIN { d = $narrow - $learned; exit !(d < 0.01 && d > -0.01) }"
  $generate learn.run --device cpu --dtype $dtype -n 60 --seed 3 --quiet >one
  $generate learn.run --device cpu --dtype $dtype -n 60 --seed 3 --threads 1 --quiet >two
  check "weights in $dtype: the same text on one thread" cmp one two
done
refused "training in int8" 2 'got "int8", need one of auto, f32, bf16' "$train" text.txt $tiny --dtype int8
echo "# bits per byte: $learned, limit $limit"
check_learned "learns the sample corpus to within half of its entropy" awk -v m="$learned" -v l="$limit" 'BEGIN { exit !(m > 0 && m < 1.5 * l) }'
check "does not beat its entropy" awk -v m="$learned" -v l="$limit" 'BEGIN { exit !(m > l) }'

# ---- damaged files ----
cp -r a.run bad.run
head -c 5000 a.run/model.safetensors >bad.run/model.safetensors
refused "truncated weights" 4 "model.safetensors" "$generate" bad.run
printf '{"model_type": "llama"' >bad.run/config.json
refused "broken config.json" 4 "config.json" "$generate" bad.run
cp a.run/config.json bad.run/
rm bad.run/model.safetensors
refused "no weights" 4 "no weights (no model.safetensors" "$generate" bad.run
touch bad.run/model.safetensors.index.json
refused "an empty index of weights" 4 "model.safetensors.index.json" "$generate" bad.run
shard() { # TENSOR FILE: an index of one tensor
  printf '{"weight_map": {"%s": "%s"}}' "$1" "$2" >bad.run/model.safetensors.index.json
}
shard model.embedding_norm.weight ../a.run/model.safetensors
refused "an index that leads out" 4 "must be a .safetensors file beside it" "$generate" bad.run
shard model.embedding_norm.weight part.safetensors
refused "a missing shard" 4 "part.safetensors" "$generate" bad.run
cp a.run/model.safetensors bad.run/part.safetensors
shard other.weight part.safetensors
refused "a tensor that its shard does not have" 4 "no tensor other.weight in part.safetensors" "$generate" bad.run
cp a.run/model.safetensors bad.run/more.safetensors
printf '{"weight_map": {"model.embedding_norm.weight": "part.safetensors", "model.embed_tokens.weight": "more.safetensors"}}' \
  >bad.run/model.safetensors.index.json
refused "a tensor in two shards" 4 "is in two of its files" "$generate" bad.run
shard model.embedding_norm.weight part.safetensors
cp a.run/config.json bad.run/
check "an index of one file" sh -c '"$1" bad.run --greedy -n 20 --quiet >a.out && "$1" a.run --greedy -n 20 --quiet | cmp - a.out' - "$generate"
rm bad.run/model.safetensors.index.json bad.run/part.safetensors bad.run/more.safetensors
cp a.run/config.json a.run/model.safetensors bad.run/
refused "a file of a model" 4 "name its directory: a.run" "$generate" a.run/config.json
refused "a directory of runs" 4 "no model (no config.json in it); did you mean ./" "$generate" .
printf '{}' >bad.run/tokenizer.json
refused "broken tokenizer.json" 4 "tokenizer.json" "$generate" bad.run

# ---- generating ----
$generate a.run -p "Once" -n 50 --seed 5 --quiet >one 2>/dev/null
$generate a.run -p "Once" -n 50 --seed 5 --quiet --threads 1 >two 2>/dev/null
check "same seed, same text, any threads" cmp one two
check "it writes" test -s one
$generate -n 3 2>err >/dev/null
check "a run that was not named is" grep -q '^note: .*\.run, the newest run here$' err
$generate a.run -n 3 --ignore-eos 2>err >/dev/null
check "three tokens have no speed" grep -q '^note: 3 tokens .* ms; stopped: length; seed' err
$generate a.run -n 50 2>err >/dev/null --ignore-eos
check "fifty have one" grep -q ' ms, then .* tokens/s; stopped' err
printf 'Once' | $generate a.run -f - -n 50 --seed 5 --quiet >two
check "prompt from standard input" cmp one two
$generate a.run -p "Once" -n 50 --seed 5 --quiet --echo >two
check "--echo puts the prompt first" test "$(head -c 4 two)" = "Once"
$generate a.run -n 300 --ignore-eos --greedy --quiet >two
check "slides beyond the context" test "$(wc -c <two)" -ge 250
$generate a.run -p "Once" -n 300 --ignore-eos --greedy --on-full stop --quiet >two
check "--on-full stop stops" test "$(wc -c <two)" -le 32
$generate a.run -n 5 2>err >two
check "the seed is reported" grep -q "seed [0-9]" err
head -c 400 text.txt >long.txt
refused "a prompt that does not fit" 3 "truncate-prompt" "$generate" a.run -f long.txt
$generate a.run -f long.txt --truncate-prompt left -n 5 --quiet >two
check "--truncate-prompt left" test $? -eq 0
cp -r a.run begin.run
template='{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "end"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"end": {"ids": [256]}}}'
sed "s/\"post_processor\": null/\"post_processor\": $template/" a.run/tokenizer.json >begin.run/tokenizer.json
$generate begin.run -p "Once" -n 5 2>err >two
check "a prompt begins with the end token where tokenizer.json says so" grep -q "after a prompt of 5;" err
$generate begin.run -n 5 2>err >two
check "and is that token alone without text" grep -q "after a prompt of 1;" err
$generate begin.run -f long.txt --truncate-prompt left -n 5 2>err >two
check "and is cut like others" grep -q "after a prompt of 32;" err
check "--encode adds no end token" test "$(printf 'hi' | $generate begin.run --encode - | wc -l)" -eq 2
head -c 200000 "$bin/generate" >bytes
head -c 9000000 /dev/zero | tr '\0' '\377' >>bytes # no place to cut
$generate a.run --encode bytes >ids && $generate a.run --decode ids >decoded
check "--decode of --encode are the same bytes" cmp bytes decoded
check "--encode prints a line a token" test "$(wc -l <ids)" -eq "$(wc -c <bytes)"
printf 'hi<|endoftext|>' | $generate a.run --encode - | $generate a.run --decode - >decoded
check "special tokens are bytes like others" test "$(cat decoded)" = 'hi<|endoftext|>'
check "--decode checks before it writes" test "$(printf '104 105 9999' | $generate a.run --decode - 2>/dev/null | wc -c)" -eq 0
refused "--decode of no number" 3 'word 2 is "x"' sh -c "echo 1 x | $generate a.run --decode - >/dev/null"
refused "--encode of a directory" 3 "Is a directory" "$generate" a.run --encode .
refused "--encode and --score" 2 "use only one" "$generate" a.run --encode text.txt --score text.txt
$generate a.run --bench 40 >out 2>err
check "generate --bench prints one JSON line, and no text" test "$(grep -c "$bench_keys" out)" -eq 1 -a "$(wc -l <out)" -eq 1
check "generate --bench says how many tokens it timed" grep -q '"steps": 40, .*"batch": 1, "ctx": 32, "prompt_tokens": 1,' out
$generate a.run --bench 5 --device cpu --dtype int8 >out 2>err
check "generate --bench says how narrow the weights are" grep -q '"dtype": "f32", "weights": "int8",' out
refused "generate --bench and -n" 2 '-n does not go with --bench' "$generate" a.run --bench 5 -n 5
refused "generate --bench and --score" 2 "use only one" "$generate" a.run --bench 5 --score text.txt
refused "generate --bench in a context that is too short" 2 "full after 32" "$generate" a.run --bench 40 --on-full stop
refused "generate --bench: full disk" 7 "stdout" sh -c "exec $generate a.run --bench 5 >/dev/full"
refused "--encode: full disk" 7 "stdout" sh -c "exec $generate a.run --encode text.txt >/dev/full"
refused "generate: full disk" 7 "stdout" sh -c "exec $generate a.run -n 50 --ignore-eos --quiet >/dev/full"
$generate a.run -n 2000 --ignore-eos --quiet 2>err | head -c 10 >/dev/null
check "a closed pipe ends quietly" test ! -s err
CUDA_VISIBLE_DEVICES='' $generate a.run -n 1 >/dev/null 2>err
check "without a GPU nothing is said of it" sh -c "! grep -q CUDA err"
mkfifo pipe
# quiet NAME COMMAND...: into a pipe whose reader has left it ends with 0, without a word about the pipe
quiet() {
  name=$1
  shift
  # shellcheck disable=SC2094 # nothing is read
  (exec 4<>pipe 5>pipe 4<&- && "$@" >&5 2>err)
  check "a closed pipe: $name" test $? -eq 0 -a "$(grep -ci 'cannot write\|broken pipe' err)" -eq 0
}
for program in train generate; do
  quiet "$program --help" "$bin/$program" --help
  quiet "$program --version" "$bin/$program" --version
done
quiet "train --runs" "$train" --runs .
quiet "train --plot" "$train" --plot a.run
quiet "train --dry-run --json" "$train" text.txt $tiny --dry-run --json
quiet "train --dry-run --show" "$train" text.txt $tiny --dry-run --show 40
quiet "train --bench" "$train" text.txt $tiny --bench 2
quiet "generate" "$generate" a.run -n 50 --ignore-eos
quiet "generate --json" "$generate" a.run -n 50 --json
quiet "generate --lens" "$generate" a.run -p a --lens
quiet "generate --alts" "$generate" a.run -n 50 --alts 3
quiet "generate --heat-html" "$generate" a.run -n 50 --heat-html heat.html
quiet "generate --params" "$generate" a.run --params
quiet "generate --score" "$generate" a.run --score text.txt
quiet "generate --score --per-line" "$generate" a.run --score text.txt --per-line
quiet "generate --encode" "$generate" a.run --encode text.txt
quiet "generate --bench" "$generate" a.run --bench 5
quiet "generate --compare" "$generate" --compare a.run c.run -n 50
quiet "generate --gguf" "$generate" a.run --gguf pipe.gguf
quiet "generate --export" "$generate" a.run --export pipe.export
$generate a.run --score text.txt --quiet >out
check "--score prints bits per byte" grep -q '"bits_per_byte": [0-9]' out
refused "--score of a missing file" 3 "missing" "$generate" a.run --score missing
(cd folder && cp -r ../a.run ../c.run . && touch -t 200101010000 a.run/model.safetensors && $generate -n 50 --seed 1 --quiet >two)
$generate c.run -n 50 --seed 1 --quiet >one
check "without a name the newest run is used" cmp one folder/two
"$train" text.txt --preset 42m --layers 1 --dim 32 --heads 2 --batch 1 --steps 1 --sample-tokens 0 --out long.run --quiet 2>err
"$train" --resume=long.run --preset 42m --layers 1 --dim 32 --heads 2 --steps 2 --quiet 2>err
check "a resumed run keeps its context where the preset is given again" test $? -eq 0
rm -rf long.run
refused "a dash from a web page" 2 "typographic dash; write --steps" "$train" text.txt —steps 3
check "--help-all names every exit-relevant flag" sh -c "$train --help-all | grep -q -e --grad-accum && $generate --help-all | grep -q -e --min-p"
check "--help names the common ones, and --help-all" sh -c "for p in $train $generate; do \$p --help >help.txt; grep -q -e --help-all help.txt && test \$(grep -c -e '^  .*--' help.txt) -le 14 || exit 1; done"
check "what a program writes into config.txt is in no help" sh -c "! $train --help-all | grep -q -e earlier-steps"
version=$("$train" --version | head -n 1)
case $version in
  "train $(cat "$here/VERSION")" | "train $(cat "$here/VERSION") ("*")") pass "--version" ;;
  *) fail "--version" "$version" ;;
esac
check "--version: the backends" sh -c "$train --version | grep -q '^Inkling, backends: .*cpu-'"

# ---- commands in messages ----
mkdir called && ln -s "$train" called/train && ln -s "$generate" called/generate && ln -s "$train" called/my-train
# typed HOW GENERATE: called in that way the program says commands that do what they say; GENERATE is how it calls the other
typed() {
  rm -rf "called/a b.run"
  (
    cd called || exit
    PATH=$work/called:$PATH
    $1 ../text.txt ${tiny% --quiet*} --steps 3 --out 'a b.run' 2>../err
    command=$(sed -n 's/^.*More text: //p' ../err)
    case $command in "$2 'a b.run' -n 500") ;; *) echo "not as typed: $command" && exit ;; esac
    eval "$command" >../out 2>&1
  )
  check "commands of $1" test -s out -a "$(grep -cE ' tokens? after a prompt' out)" -eq 1
  rm -f out
}
case $build in *aarch64*) by_name= ;; *) by_name=1 ;; esac # a script, which calls qemu, is told its path
[ ! "$by_name" ] || typed train generate
typed ./train ./generate
typed ../called/train ../called/generate
typed "$work/called/train" "$work/called/generate"
[ ! "$by_name" ] || check "of another name" sh -c "PATH=\$PWD/called:\$PATH; my-train 2>&1 | grep -q 'try: my-train book.txt' && my-train --help | grep -q '^Usage: my-train FILE'"
[ ! "$by_name" ] || check "of the other program" sh -c "cd called && PATH=\$PWD:\$PATH && generate 'a b.run' --zzzzzzz 2>&1 | grep -q 'generate --help' && generate --compare 2>&1 | grep -q ': generate --compare A' && ./generate ../text.txt 2>&1 | grep -q '; ./train ../text.txt trains'"
kill_after() { # the first step
  while ! grep -q loss "$2/metrics.jsonl" 2>/dev/null; do sleep 0.1; done
  kill -INT "$1"
  wait "$1"
}
(cd called && exec ./train ../text.txt ${tiny% --steps*} --threads 1 --steps 1000000 --log-every 1 --out 'c d.run' 2>../err) &
kill_after $! "called/c d.run"
check "to go on with" test "$(sed -n 's/^.*Resume with: //p' err)" = "./train --resume='c d.run'"

# ---- settings that depend on others ----
check "another architecture chooses its parts anew" sh -c "$train --config a.run/config.txt --arch gpt2 --dry-run 2>&1 | grep -q 'GELU (tanh), learned positions, biases'"
check "other positions have no base" sh -c "$train --config a.run/config.txt --positions learned --dry-run 2>&1 | grep -q 'learned positions'"
check "dropout is dropout everywhere" sh -c "$train --config a.run/config.txt --dropout 0.2 --dry-run 2>&1 | grep -q 'dropout 0.2; seed'"
check "another width has another MLP" sh -c "$train --config a.run/config.txt --dim 64 --dry-run 2>&1 | grep -q 'ffn 192'"
check "another optimizer has its own learning rates" sh -c "$train --config a.run/config.txt --optimizer muon --dry-run 2>&1 | grep -q 'Muon with lr 0.01, AdamW with 0.003'"
check "settings from before Muon are AdamW's" sh -c "grep -v -e '^optimizer' -e '^muon-lr' a.run/config.txt >old.txt && $train --config old.txt --dry-run 2>&1 | grep -q 'AdamW with lr 0.003, '"
refused "a rate of Muon for AdamW" 2 "muon-lr is for Muon" "$train" text.txt $tiny --optimizer adamw --muon-lr 0.1
setting() { sed -n "s/^$1 = //p" a.run/config.txt; }
check "what is given in a file stays" sh -c "$train --config a.run/config.txt --seed 9 --dry-run 2>&1 | grep -q 'layers x $(setting dim), 2 heads, ffn $(setting ffn)'"

echo "done"
