#!/bin/sh
# Tests fine-tuning (--init). See tests/program_helpers.sh.
# shellcheck disable=SC2016,SC2086 # scripts in quotes; sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

# Two languages: sentences of a few words each, which differ.
sentences() { # SEED COUNT WORD...
  awk -v seed="$1" -v count="$2" 'BEGIN {
    srand(seed)
    for (i = 4; i < ARGC; i++) word[i - 4] = ARGV[i]
    for (i = 0; i < count; i++) printf "%s %s %s.\n", word[int(rand() * 5)], word[5 + int(rand() * 5)], word[int(rand() * 5)]
  }' - "$@"
}
sentences 1 3000 dog cat bird horse fish sees hears follows likes fears >first.txt
sentences 2 1500 Hund Katze Vogel Pferd Fisch sieht mag jagt sucht kennt >second.txt
sentences 3 400 dog cat bird horse fish sees hears follows likes fears >first.val.txt

small="--layers 2 --heads 2 $(size --dim 32 --batch 8) --ctx 32 --sample-tokens 0 --quiet --threads 1 $varied"
tune="--lr 3e-4 --batch $([ "$hurried" ] && echo 2 || echo 8) --sample-tokens 0 --threads 1 --quiet $varied"
"$train" first.txt $small --steps "$(steps 400)" --lr 3e-3 --out base.run 2>err
check "a run to start from" test $? -eq 0

# loss RUN FILE: nats per token
loss() { "$generate" "$1" --score "$2" --quiet | sed -n 's/.*"nats_per_token": *\([0-9.]*\).*/\1/p'; }
first_loss() { sed -n 's/.*"val_loss": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | head -n 1; }

# ---- initial loss and learning ----
"$train" second.txt --init base.run --steps "$(steps 300)" --val second.txt --batch 8 --sample-tokens 0 --threads 1 $varied \
  --out tuned.run 2>err
check "--init: ends with 0" test $? -eq 0
check "the model that it starts from is said" grep -q "starts from the weights in base.run" err
check "and how good it is" grep -q "^before: [0-9.]* nats per token: base.run, unchanged, on" err
check "before anything else" sh -c 'grep -n "^before:\|^step\|^---\|^validation" err | head -n 1 | grep -q before'
check "the defaults of fine-tuning are said" grep -q "learning rates: 0.3 of those of a new model (fine-tuning)" err
check "and no dropout" grep -q "dropout 0;" err
check "the first evaluation is of step 0" sh -c 'grep val_loss tuned.run/metrics.jsonl | head -n 1 | grep -q "\"step\":0"'
head -c 240 second.txt >part.txt
"$train" first.txt $small --steps 20 --val part.txt --eval-every 0 --out twenty.run
"$train" second.txt --init twenty.run $tune --steps 1 --val part.txt --eval-every 0 --out one.run
check "which is the last evaluation of that model" test "$(first_loss one.run)" = "$(last_loss twenty.run)"
check_learned "the second text is learned" awk -v a="$(first_loss tuned.run)" -v b="$(last_loss tuned.run)" \
  'BEGIN { exit !(b > 0 && b < a - 2) }'
"$train" second.txt $small --steps "$(steps 300)" --lr 3e-4 --val second.txt --out new.run
check_learned "better than from nothing at that rate" awk -v a="$(last_loss new.run)" -v b="$(last_loss tuned.run)" \
  'BEGIN { exit !(b > 0 && b < a) }'
check_learned "of the first no more is lost than 4 nats, where guessing costs 5.5" awk -v a="$(loss base.run first.val.txt)" \
  -v b="$(loss tuned.run first.val.txt)" 'BEGIN { print "# " a " nats before, " b " after"; exit !(a > 0 && b < a + 4) }'
"$train" first.val.txt --init base.run $tune --epochs 1 --out same.run
check_learned "more of the first text does not harm" awk -v a="$(loss base.run first.txt)" -v b="$(loss same.run first.txt)" \
  'BEGIN { exit !(b > 0 && b < a + 0.05) }'
check "the tokenizer is kept" cmp base.run/tokenizer.json tuned.run/tokenizer.json

# ---- exactness ----
# Evaluations of step 0; where it stays the best, the evaluation of the model that is kept has this step, too.
base_evaluations() { grep '"step":0,' "$1/metrics.jsonl" | grep -vc '"kept":true'; }
"$train" second.txt --init base.run $tune --steps 40 --out again.run
"$train" second.txt --init base.run $tune --steps 40 --out twice.run
check "the same again" cmp again.run/model.safetensors twice.run/model.safetensors
"$train" second.txt --config again.run/config.txt --out repeated.run --quiet
check "config.txt repeats it" cmp again.run/model.safetensors repeated.run/model.safetensors
mv base.run moved.run
"$train" --resume=again.run --steps 60 --quiet
check "resumed without the model that it started from" test $? -eq 0
mv moved.run base.run
check "whose weights are not read again" test "$(base_evaluations again.run)" -eq 1
long=$([ "$hurried" ] && echo 300 || echo 3000)
stopped_in stopped.run "$train" second.txt --init base.run $tune --steps "$long" --out stopped.run --save-every 1 --eval-every $((long / 6))
"$train" --resume=stopped.run --quiet
"$train" second.txt --init base.run $tune --steps "$long" --out whole.run --eval-every $((long / 6))
check "stopped and resumed: the same" tensors_equal stopped.run whole.run
check "with one evaluation of the base" test "$(base_evaluations stopped.run)" -eq 1
for _ in $([ "$hurried" ] && echo 1 || seq 7); do cat first.txt; done >many.txt
stopped_in early.run "$train" second.txt --init base.run $tune --val many.txt --eval-tokens 400000 --steps 3 --out early.run
if [ "$windows" ]; then echo "skipped stopped before it has ended: wine passes no signals on"
else check "stopped before it has ended" test "$(base_evaluations early.run)" -eq 0; fi
"$train" --resume=early.run --quiet
check "it is made by the resumed run" test "$(base_evaluations early.run)" -eq 1

# Without a prompt, a text starts from the same token as with the original model, resumed or not.
sampled="$tune --sample-tokens 8 --sample-every 20"
cat first.txt >one.txt
"$train" one.txt $small --steps 5 --out starts.run
sed 's/"bos_token_id": [0-9]*/"bos_token_id": 65/' starts.run/config.json >config && mv config starts.run/config.json
stopped_in some.run "$train" second.txt first.txt --init starts.run $sampled --steps "$long" --out some.run --save-every 1
"$train" --resume=some.run --quiet
"$train" second.txt first.txt --init starts.run $sampled --steps "$long" --out all.run
check "the start of the model is kept" grep -q '"bos_token_id": 65' all.run/config.json
check "samples of a resumed run are those of a whole one" cmp some.run/samples.txt all.run/samples.txt

# ---- tokenizers that add a start token ----
if has python3 "tokenizers that add a start token"; then
  mkdir begins
  GOLDENS=$here/tests/golden/tokenizers.json
  export GOLDENS
  python3 -c '
import json, os
golden = next(one for one in json.load(open(os.environ["GOLDENS"])) if one["name"] == "llama3")["tokenizer"]
begin = next(token for token in golden["added_tokens"] if token["content"] == "<|im_start|>")
text = json.dumps(golden["post_processor"]).replace("<|end|>", "<|im_start|>").replace("\"ids\": [0]", "\"ids\": [%d]" % begin["id"])
json.dump({**golden, "post_processor": json.loads(text)}, open("begins/tokenizer.json", "w"))
json.dump({"eos_token": "<|end|>"}, open("begins/tokenizer_config.json", "w"))
print(begin["id"])' >begin
  begin=$(cat begin)
  "$train" first.txt $small --tokenizer begins/tokenizer.json --pack docs --steps 20 --val part.txt --eval-every 0 --out begins.run
  check "texts begin with the token of their tokenizer" cmp begins/tokenizer.json begins.run/tokenizer.json
  check "and so does what has no prompt" grep -q "\"bos_token_id\": $begin" begins.run/config.json
  "$train" first.txt $small --tokenizer begins/tokenizer.json --steps 3 --out stream.run
  check "but not where the model sees none" grep -q '"post_processor": null' stream.run/tokenizer.json
  "$train" second.txt --init begins.run $tune --val part.txt --eval-every 0 --steps 2 --out began.run
  check "fine-tuned on documents that do" grep -q '^pack = docs' began.run/config.txt
  check "from what it was" test "$(first_loss began.run)" = "$(last_loss begins.run)"
  check "and still do" cmp begins/tokenizer.json began.run/tokenizer.json
  check "scored as it was validated" near "$(loss begins.run part.txt)" "$(last_loss begins.run)" 0.01
fi

# ---- shapes ----
"$train" second.txt --init base.run $tune --steps 3 --ctx 16 --out short.run
check "a smaller context" grep -q '"max_position_embeddings": 16' short.run/config.json
for more in "--arch gpt2" "--arch original" "--kv-heads 1 --qkv-bias" "--positions none --norm-place branch" \
  "--rotary-dims 4 --norm-place parallel"; do
  "$train" first.txt $small $more --steps 3 --out shape.run --overwrite
  "$train" second.txt --init shape.run $tune --steps 3 --ctx 20 --out tuned-shape.run --overwrite
  check "$more: of the same shape" sh -c 'for d in shape tuned-shape; do "$1" $d.run --params | grep -v positions | sed "\$d"; done |
    sort | uniq -c | awk "\$1 != 2 { bad = 1 } END { exit bad || !NR }"' - "$generate"
  check "$more: with its shorter context" grep -q -e ': 20,' tuned-shape.run/config.json
done
printf 'one\tuno\ntwo\tdue\nthree\ttre\n' >words.tsv
cat words.tsv words.tsv words.tsv words.tsv words.tsv words.tsv >pairs.tsv
"$train" pairs.tsv $small --arch original --steps 5 --val-frac 0 --out pairs.run
"$train" pairs.tsv --init pairs.run $tune --steps 5 --val-frac 0 --out tuned-pairs.run
check "a model with an encoder" test $? -eq 0
check "and prompts for a decoder alone" "$train" pairs.tsv --init base.run $tune --steps 3 --val-frac 0 --out answers.run
refused "an encoder without prompts" 3 "prompt" "$train" second.txt --init pairs.run $tune --steps 3 --out no.run

# ---- rejected commands ----
refused "a larger context" 2 "ctx is 64, but the model in base.run has 32, and its context can only become smaller" \
  "$train" second.txt --init base.run --ctx 64 --out no.run
refused "another width" 2 "dim is 64, but the model in base.run has $(sed -n "s/^dim = //p" base.run/config.txt); leave it out" \
  "$train" second.txt --init base.run --dim 64 --out no.run
refused "another part" 2 "positions is learned, but the model in base.run has rope" \
  "$train" second.txt --init base.run --positions learned --out no.run
letters() { printf "%040d$1" 0 | tr 0 C; } # 40 times C, and one more
"$train" first.txt --mixer "$(letters A)" --layers 82 --heads 1 --dim 8 --ctx 8 --batch 2 --steps 2 --val-frac 0 --sample-tokens 0 \
  --quiet --out mixed.run
check "mixers in another spelling" "$train" second.txt --init mixed.run --mixer "$(letters A)$(letters A)" --steps 2 --quiet --out spelled.run
refused "other mixers, of which the last one differs" 2 "mixer is CCC.*, but the model in mixed.run has CCC" \
  "$train" second.txt --init mixed.run --mixer "$(letters N)" --out no.run

# The license in the card of the initial model stays with the models trained from it.
cp -R base.run licensed.run
printf -- '---\r\nlicense: openrail++\r\nlicense: "cc-by-sa-4.0" # ours\r\n---\r\nlicense: mit\r\n' >licensed.run/README.md
"$train" second.txt --init licensed.run $tune --steps 1 --out child.run
"$train" second.txt --init child.run $tune --steps 1 --out grandchild.run
rm -R licensed.run
"$train" --resume=child.run --steps 2 --quiet
check "the license in result.json" grep -q '"license": "cc-by-sa-4.0"' child.run/result.json
"$generate" grandchild.run --export published -n 1 --quiet
check "the license in the card" grep -qx 'license: cc-by-sa-4.0' published/README.md
"$generate" published --gguf published.gguf --quiet
check "the license in GGUF" grep -qa cc-by-sa-4.0 published.gguf
"$train" second.txt --init base.run $tune --steps 1 --out free.run
printf 'license: mit\n' >free.run/README.md
"$generate" free.run --export unlicensed -n 1 --quiet
check "no license, no line" grep -qx '# license: mit' unlicensed/README.md

"$train" second.txt --init base.run --minutes 0.03 --out timed.run --quiet 2>err
check "a measured length: the weights are read twice" test $? -eq 0 -a -s timed.run/model.safetensors
"$train" second.txt --init base.run --layers auto --norm auto --tie=auto --steps 2 --out auto.run --quiet 2>err
check "auto means the model's own" test $? -eq 0 -a -s auto.run/model.safetensors
"$train" --resume=auto.run --steps 4 --quiet 2>err
check "the settings name no architecture but the model's" sh -c '! grep -q "^arch = " auto.run/config.txt'
refused "a model that is not there" 4 "must be downloaded first" "$train" second.txt --init Owner/Model $tune --out no.run
refused "another tokenizer" 2 "leave out --tokenizer" "$train" second.txt --init base.run --tokenizer bpe --out no.run
refused "another architecture" 2 "leave out --arch" "$train" second.txt --init base.run --arch gpt2 --out no.run
refused "another beginning" 2 "leave out --init-std" "$train" second.txt --init base.run --init-std 0.1 --out no.run
refused "its own directory" 2 "base.run is the directory that the run would replace" \
  "$train" second.txt --init base.run --overwrite --out base.run
refused "a resumed run" 2 "leave out --init" "$train" --resume=tuned.run --init base.run --steps 1000
refused "no such directory" 4 "nosuch" "$train" second.txt --init nosuch --out no.run
refused "a text" 4 "is a text, not a model" "$train" second.txt --init first.txt --out no.run
cp -r base.run damaged.run
rm damaged.run/model.safetensors
refused "no weights" 4 "no weights" "$train" second.txt --init damaged.run --out no.run
head -c 3000 base.run/model.safetensors >damaged.run/model.safetensors
refused "damaged weights" 4 "model.safetensors" "$train" second.txt --init damaged.run --out no.run
cp base.run/model.safetensors damaged.run/
sed 's/"rope_type": "default"/"rope_type": "yarn"/' base.run/config.json >damaged.run/config.json
refused "scaled positions" 4 "yarn" "$train" second.txt --init damaged.run --out no.run
sed 's/"lfm2"/"bloom"/; s/Lfm2For/BloomFor/' base.run/config.json >damaged.run/config.json
refused "another class" 4 "bloom" "$train" second.txt --init damaged.run --out no.run
sed 's/"vocab_size": 257/"vocab_size": 300/' base.run/config.json >damaged.run/config.json
refused "more rows than the weights have" 4 "where the configuration says" "$train" second.txt --init damaged.run --quiet --out no.run
sed 's/"num_hidden_layers": 2/"num_hidden_layers": 900/' base.run/config.json >damaged.run/config.json
refused "more layers than weights" 4 "2 entries for 900 layers" "$train" second.txt --init damaged.run --out no.run

# ---- a model with more rows in its vocabulary than there are tokens ----
"$train" first.txt $small --tokenizer bpe --vocab-size 400 --steps 20 --out wide.run 2>err
cp base.run/tokenizer.json base.run/tokenizer_config.json wide.run/
rows() { sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$1/config.json"; }
all=$(rows wide.run)
sed -i.old "s/_token_id\": $((all - 1))/_token_id\": 256/" wide.run/config.json
unused="wide.run: the model has $all rows in its vocabulary, the tokenizer 257 tokens; the other $((all - 257)) are never written"
"$generate" wide.run -p dog -n 300 -s 7 --temp 9 --top-k 0 --top-p 1 --min-p 0 --ignore-eos --json --logprobs 999 >out 2>err
check "unused rows are said" test "$(grep -c "^note: $unused\$" err)" -eq 1
ids() { sed 's/.*"token_ids":\[\([0-9,]*\)\].*/\1/' out | tr ',' '\n'; }
check "300 tokens, but for ignored end tokens" test "$(ids | wc -l)" -gt 250
check "of them none is unused" test "$(ids | sort -n | tail -n 1)" -le 256
check "but all rows have probabilities" grep -q "\"<token $((all - 1))>\":-" out
"$train" second.txt --init wide.run $tune --steps 10 --schedule constant --out part.run
"$train" second.txt --init wide.run $tune --steps 20 --schedule constant --out finer.run
"$train" --resume=part.run --steps 20 --quiet
check "it is fine-tuned and resumed" cmp part.run/model.safetensors finer.run/model.safetensors
"$generate" finer.run --score second.txt --quiet >out
check "and scored" grep -q '"nats_per_token": [0-9]' out
"$generate" finer.run --export wide.out --quiet >out
check "and exported with all of them" test "$(rows wide.out)" -eq "$all"
sed 's/"vocab_size": 257/"vocab_size": 250/; s/_token_id": 256/_token_id": 0/' base.run/config.json >damaged.run/config.json
refused "more tokens than rows" 4 "the ids of tokenizer.json go up to 256, but config.json says that the model has only 250 rows; resize" \
  "$generate" damaged.run -p dog
echo "done"
