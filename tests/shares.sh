#!/bin/sh
# Tests texts with a share of the training windows: ./train a.txt b.txt=0.3. See tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
few="--layers 1 --heads 1 --dim 16 --ctx 16 --batch 4 --sample-tokens 0 --threads 1 --tokenizer byte --eval-every 6 $varied"

# Documents that fill a window: a letter that names the text, and a number. b and c have fewer of them.
documents() { awk -v name="$1" -v from="$2" -v end="$3" 'BEGIN { for (i = from; i < end; i++) printf "%s%013d\n<|endoftext|>\n", name, i }'; }
documents a 0 100 >a.txt
documents b 0 30 >b.txt
mkdir c && documents c 0 10 >c/1.txt && documents c 10 17 >c/2.txt
documents d 0 12 >d.txt
texts="b.txt=0.3 a.txt c=0.15 d.txt"

# The windows that are drawn, by the documents in them; counted without the formulas of the program.
cat >count.py <<'E2'
import collections, re, subprocess, sys
train, windows, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
shown = subprocess.run([train, *sys.argv[4:], "--dry-run", "--show", str(windows)], capture_output=True, text=True).stdout
drawn = re.split(r"^window \d+ .*\n", shown, flags=re.M)[1:]
assert len(drawn) == windows, len(drawn)
names = [set(re.findall("[a-d]", re.sub(r"^  --.*\n", "", w, flags=re.M))) for w in drawn]
taken = collections.Counter()
for n, found in enumerate(names, 1):
    texts = "".join("a" if x == "d" else x for x in found)
    assert mode == "stream" and not found or len(set(texts)) == 1, drawn[n - 1]
    taken[texts[:1]] += 1
    for text, share in (("b", 0.3), ("c", 0.15), ("a", 0.55)):
        assert abs(taken[text] - share * n) < 2 + taken[""], (n, taken)
if mode == "docs":
    for text, size in (("ad", 101), ("b", 27), ("c", 16)):
        order = [m for w in drawn for m in re.findall(rf"[{text}]0\d{{12}}", w)]
        passes = [order[i:i + size] for i in range(0, len(order) - size + 1, size)]
        assert len(passes) > 2, (text, len(passes))
        for one in passes: assert len(set(one)) == size, (text, size, sorted(one))
        assert len({tuple(one) for one in passes}) == len(passes), "an order comes again"
E2
check "windows of documents: their shares, and every document once a pass" python3 count.py "$train" 600 docs $texts --pack docs $few
check "windows of the stream: their shares, and texts apart" python3 count.py "$train" 600 stream $texts $few

$train $texts --pack docs $few --steps 100 --out docs.run 2>plan
check "the plan says the shares and the passes" sh -c "grep -q '^shares *30 % of the windows are from b.txt: 432 tokens, read 4.44 times$' plan && grep -q ' 15 % of the windows are from c: 256 tokens, read 3.75 times$' plan"
check "and counts the epochs by the other texts" grep -q '^run *100 steps of 64 tokens: 6.4k tokens, 2.18 epochs' plan
check "the last tenth of every text is held out" test "$(tail -c +81 docs.run/val.tokens.bin | tr -dc a-d)" = dddddddddddbbbc
$train $texts --pack docs $few --epochs 2 --dry-run 2>plan
check "an epoch is a pass over the other texts" grep -q '^run *92 steps ' plan # 2 * 101 / 0.55 windows, 4 a step

# What is learned: random letters, and a text of one letter, whose loss is nearly 0. The training loss is that of the mixture.
awk 'BEGIN { srand(2); for (i = 0; i < 20000; i++) printf "%c", 97 + int(26 * rand()) }' >random.txt
awk 'BEGIN { for (i = 0; i < 20000; i++) printf "z" }' >same.txt
loss() { # loss SHARE: of random letters alone it is 3.26, log(26)
  $train random.txt same.txt=$1 $few --batch 20 --steps 300 --log-every 50 --out loss.run --overwrite 2>/dev/null
  sed -n 's/.*"step":300,.*"loss":\([^,]*\),.*/\1/p' loss.run/metrics.jsonl
}
check_learned "the loss of a mixture" sh -c 'awk "BEGIN { exit !($1 < 0.6 && $2 > 2.5) }"' - "$(loss 0.9)" "$(loss 0.1)"

# The same run, whole and in parts
same() { cmp "$1/model.safetensors" "$2/model.safetensors" && tensors_equal "$1" "$2" 30000; }
for pack in stream docs; do
  flags="$texts --pack $pack $few --steps 40"
  $train $flags --out whole.run --overwrite 2>/dev/null
  $train $flags --stop-at 17 --out parts.run --overwrite 2>/dev/null
  check "$pack: config.txt names the texts" sh -c "grep -q '^data = /.*/b.txt=0.3$' parts.run/config.txt && grep -q '^data = /.*/c=0.15$' parts.run/config.txt && grep -q '^data = /.*/a.txt$' parts.run/config.txt"
  rm -rf gone.run && cp -r parts.run gone.run
  (cd parts.run && $train --resume=. --quiet 2>../err)
  check "$pack: resumed elsewhere, the same bytes" same whole.run parts.run
  check "$pack: and nothing is said" test ! -s err
  sed 's/\([ab]\).txt/gone-\1.txt/' gone.run/config.txt >config && cp config gone.run/config.txt
  $train --resume=gone.run --quiet 2>err
  check "$pack: without the texts" sh -c "grep -q 'continues with the tokens' err"
  check "$pack: the same bytes, too" same whole.run gone.run
  check "$pack: --verify" sh -c '"$1" --verify whole.run --quiet >/dev/null' - "$train"
  $train --resume=parts.run --steps 60 a.txt b.txt=0.5 c=0.15 d.txt 2>err
  check "$pack: other shares are noticed" grep -q 'shares of the texts have changed' err
done
$train $texts $few --steps 40 --val-frac 0 --out none.run 2>/dev/null
check "nothing is held out" test ! -e none.run/val.tokens.bin -a "$(tail -c +81 none.run/tokens.bin | tr -dc a-d | tr -s a-d)" = adbc

# ---- names ----

cp d.txt "d=0.5" && cp d.txt "d.txt=x"
$train a.txt d=0.5 $few --dry-run 2>plan
check "a file whose name ends like a share" sh -c "! grep -q ^shares plan && grep -q 'and 1 more' plan"
$train a.txt d=0.5=0.25 $few --dry-run 2>plan
check "and its share" grep -q '^shares *25 % of the windows are from d=0.5: ' plan
$train a.txt ./d=0.5=0.25 $few --steps 1 --out name.run 2>/dev/null
check "in config.txt" grep -q '^data = /.*/d=0.5=0.25$' name.run/config.txt
$train a.txt d.txt=x $few --dry-run 2>plan
check "a name with other words after =" sh -c "! grep -q ^shares plan"
$train b.txt=0.25 - $few --steps 1 --out stdin.run <a.txt 2>plan
check "standard input beside it" grep -q '^shares *25 % of the windows are from b.txt: ' plan
$train b.txt=0.25 a.txt $few --steps 1 2>/dev/null
check "the run is named after the first text" test -d b.run

for share in 0 -0.1 1 1.5 nan inf 1e-7; do
  refused "the share $share" 2 "b.txt=$share: there is no such file, and a share is a number" $train a.txt b.txt=$share $few --out no.run
done
refused "shares of 1" 2 "add up to 1;" $train a.txt b.txt=0.5 c=0.5 $few --out no.run
refused "shares above 1" 2 "add up to 1.2;" $train a.txt b.txt=0.7 c=0.5 $few --out no.run
refused "a text twice" 2 "given twice" $train a.txt b.txt=0.5 ./b.txt $few --out no.run
refused "a text with two shares" 2 "given twice" $train a.txt b.txt=0.5 b.txt=0.1 $few --out no.run
cp -r c e && cp b.txt e/3.txt
refused "a file of a folder" 2 "e/3.txt is given twice" $train e e/3.txt=0.5 $few --out no.run
ln -s b.txt link.txt
refused "a link to a text" 2 "link.txt is given twice" $train b.txt link.txt=0.5 $few --out no.run
check "twice, without a share" sh -c '"$@" --dry-run 2>/dev/null' - $train b.txt b.txt d.txt=0.5 $few
refused "shares for all" 2 "every text has a share" $train b.txt=0.5 c=0.1 $few --out no.run
refused "a text that is not there" 3 "cannot read e.txt: " $train a.txt e.txt=0.5 $few --out no.run
echo short >short.txt
refused "a text that is shorter than a window" 3 "short.txt=0.5: 7 tokens for training, too few for a window of the context of 16" $train a.txt short.txt=0.5 $few --val-frac 0 --out no.run
: >empty.txt
refused "an empty text" 3 "empty.txt=0.5: 0 tokens for training" $train a.txt empty.txt=0.5 $few --pack docs --out no.run
rm -rf long && mkdir long
many=$(for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do cp d.txt long/$i.txt && echo long/$i.txt=0.01; done)
refused "very many shares" 2 "more than 16 texts have a share" $train a.txt $many $few --out no.run

echo "done"
