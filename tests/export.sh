#!/bin/sh
# Tests ./generate RUN --export DIR. See tests/program_helpers.sh.
# shellcheck disable=SC2016,SC2086 # scripts in quotes; sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

awk 'BEGIN { srand(4); for (i = 0; i < 900; i++) { line = ""; for (k = 0; k < 12; k++) line = line " " int(rand() * 100000); print line } }' >text.txt
small="--layers 2 --heads 2 $(size --dim 32 --batch 8) --ctx 32 --sample-tokens 0 --quiet --threads 1 --steps 30 $varied"
"$train" text.txt $small --prompt "the secret words of somebody, more than 32 of them" --keep-at steps:9 --out plain.run

# files_of DIR
files_of() { (cd "$1" && find . -type f | LC_ALL=C sort | tr '\n' ' '); }
five="./README.md ./config.json ./generation_config.json ./model.safetensors ./tokenizer.json ./tokenizer_config.json "

"$generate" plain.run --export out -n 50 -s 7 >said 2>err
check "--export: ends with 0" test $? -eq 0
check "what others need, and nothing else" test "$(files_of out)" = "$five"
check "the same weights" cmp plain.run/model.safetensors out/model.safetensors
check "the same tokenizer" cmp plain.run/tokenizer.json out/tokenizer.json
check "the same configuration" cmp plain.run/config.json out/config.json
check "how to hand it on, and how to measure it" sh -c 'grep -q "^hf upload NAME/out out$" said && grep -q "^lm_eval .*pretrained=out " said'
check "which has a license to be chosen" grep -q license err
"$generate" out --greedy -n 40 --quiet >one
"$generate" plain.run --greedy -n 40 --quiet | cmp -s - one
check "the model is the same" test $? -eq 0
check "the card has the losses" grep -q "bits per byte" out/README.md
check "and the command" grep -q '^./train TEXT --tokenizer byte .*--layers 2 .*--steps 30 ' out/README.md
check "and a sample" grep -q "Written by the model (seed 7)" out/README.md
cp -r plain.run shortened.run && echo 'earlier-steps = "10:50"' >>shortened.run/config.txt
"$generate" shortened.run --export shortened >/dev/null 2>&1
check "but not what else the run has written" sh -c '! grep -q -e --keep-at out/README.md'
check "but not the lengths that were planned before" sh -c "grep -q '^./train TEXT .*--steps 30' shortened/README.md && ! grep -q earlier shortened/README.md"
check "and front matter" test "$(head -n 1 out/README.md)" = ---

# The export must not contain the text, the prompt (except in the sample), or paths.
check "no passage of the text, no paths" python3 -c '
import os, sys
secrets = open("text.txt", "rb").read() + b"\n" + b"the secret words of somebody, more than 32 of them"
passages = {secrets[i:i + 32] for i in range(len(secrets) - 31)}
paths = [os.getcwd().encode(), os.path.expanduser("~").encode() + b"/", b"plain.run", b"text.txt"]
for folder, _, names in os.walk("out"):
    for name in names:
        data = open(os.path.join(folder, name), "rb").read()
        if name == "README.md":
            data = data[:data.index(b"## Sample")] + data[data.index(b"## Use"):]
        for i in range(len(data) - 31):
            assert data[i:i + 32] not in passages, (name, data[i:i + 32])
        for path in paths:
            assert path not in data, (name, path)
'
command=$(grep '^./train TEXT' out/README.md | sed 's/^.\/train TEXT//')
"$train" text.txt $command --threads 1 --sample-tokens 0 --out again.run --quiet
check "the command makes the model" cmp again.run/model.safetensors plain.run/model.safetensors

"$generate" plain.run --export half --export-type bf16 --quiet >said 2>&1
check "--quiet says nothing" test ! -s said
check "bf16 takes half" test "$(wc -c <half/model.safetensors)" -lt "$(($(wc -c <out/model.safetensors) * 6 / 10))"
check "which config.json says" grep -q '"dtype": "bfloat16"' half/config.json
check "numbers are rounded to the nearest" python3 -c '
import json, struct
def read(path):
    data = open(path, "rb").read()
    size, = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + size])
    return {name: (t["dtype"], data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]])
            for name, t in header.items() if name != "__metadata__"}
whole, half = read("out/model.safetensors"), read("half/model.safetensors")
assert set(whole) == set(half)
for name, (dtype, data) in whole.items():
    bits = struct.unpack(f"<{len(data) // 4}I", data)
    assert half[name] == ("BF16", struct.pack(f"<{len(bits)}H", *((b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits))), name
'
check "and it can be read" sh -c '"$1" half -n 5 --quiet >/dev/null' - "$generate"
"$generate" plain.run --export told -p "12 34" -n 20 --greedy --quiet
check "after a prompt" grep -q '^    12 34' told/README.md
"$generate" half --export from-half --quiet
check "of a directory without a run" test "$(files_of from-half)" = "$five"
check "whose card says nothing of training" sh -c '! grep -q "## Training" from-half/README.md'
"$train" text.txt --init plain.run --steps 3 --batch 4 --sample-tokens 0 --quiet --threads 1 --out tuned.run
"$generate" tuned.run --export tuned --quiet
command=$(grep '^./train TEXT' tuned/README.md | sed 's/^.\/train TEXT --init MODEL//')
"$train" text.txt --init plain.run $command --threads 1 --sample-tokens 0 --out again.run --overwrite --quiet
check "the command of a fine-tuned model" cmp again.run/model.safetensors tuned.run/model.safetensors

awk 'BEGIN { for (i = 0; i < 60; i++) printf "{\"my question\": \"%d\", \"answer\": \"number %d\"}\n", i, i * 7 }' >asked.jsonl
"$train" asked.jsonl $small --prompt-field "my question" --response-field answer --out asked.run
"$generate" asked.run --export asked --quiet
command=$(grep '^./train TEXT' asked/README.md | sed 's/^.\/train TEXT//')
eval '"$train"' asked.jsonl "$command" --threads 1 --sample-tokens 0 --out again.run --overwrite --quiet
check "the command of a model of pairs names the fields" cmp again.run/model.safetensors asked.run/model.safetensors
"$train" text.txt $small --binary --steps 2 --out binary.run && "$generate" binary.run --export binary --quiet
check "the command of a model of bytes" grep -q '^./train TEXT --binary ' binary/README.md

"$train" text.txt $small --norm-place branch --out own.run
"$generate" own.run --export own -n 10 >said 2>err
check "a class of our own comes with it" cmp own.run/modeling_inkling.py own/modeling_inkling.py
check "which has to be trusted" sh -c 'grep -q trust_remote_code=True own/README.md && grep -q trust_remote_code=True said'
awk 'BEGIN { for (i = 0; i < 60; i++) print i "\tnumber " i * 7 }' >pairs.tsv
"$train" pairs.tsv $small --arch original --source-vocab-size 260 --out pairs.run 2>err
"$generate" pairs.run --export pairs --quiet
check "an encoder and two tokenizers" test -s pairs/source_tokenizer/tokenizer.json
check "which answer alike" sh -c 'echo 5 >in; "$1" pairs -f in --greedy --quiet >one; "$1" pairs.run -f in --greedy --quiet | cmp - one' - "$generate"

# ---- rejected commands ----
mkdir full empty
touch full/file
refused "a directory that is not empty" 2 "full: that directory is not empty" "$generate" plain.run --export full
refused "its own directory" 2 "not empty" "$generate" plain.run --export plain.run
refused "a file" 2 "a file of that name" "$generate" plain.run --export text.txt
refused "standard output" 2 "name a directory" "$generate" plain.run --export -
refused "no such place" 7 "nosuch/out" "$generate" plain.run --export nosuch/out
refused "--export-type alone" 2 "--export" "$generate" plain.run --export-type bf16
refused "two works" 2 "only one" "$generate" plain.run --export new --score text.txt
refused "a full disk" 7 "" sh -c 'ulimit -f 8; exec "$1" plain.run --export new' - "$generate"
"$generate" plain.run --export empty/ --quiet
check "an empty directory" test "$(files_of empty)" = "$five"
mkdir mine && chmod 700 mine && ln -s mine link && mkdir here
"$generate" plain.run --export link --quiet
check "which keeps its mode" sh -c 'ls -ld mine | grep -q ^drwx------ && test -L link && test -s mine/README.md'
check "the one that we are in" sh -c 'cd here && "$1" ../plain.run --export . --quiet && test -s config.json' - "$(realpath "$generate")"
mkdir kept
refused "a full disk, in a directory that is there" 7 "" sh -c 'ulimit -f 8; exec "$1" plain.run --export kept' - "$generate"
check "which stays empty" test -z "$(ls -A kept)"
refused "a sample without an end" 2 "has no end" "$generate" plain.run --export new -n -1
refused "no name" 2 "name a directory" "$generate" plain.run --export ""
printf '\303\251\303\250\303\251\303\250 \303\251\303\250%.0s' $(seq 200) >accents.txt
"$train" accents.txt $small --out accents.run
"$generate" accents.run --export accents -n 101 --temp 3 --top-k 0 --top-p 1 --min-p 0 --quiet
check "a card is UTF-8, whatever the model writes" iconv -f utf-8 -t utf-8 -o unread accents/README.md
"$generate" plain.run --export "some 'name" >said 2>err
check "a name for a hub" grep -q "^hf upload NAME/some--name " said
echo "done"
