#!/bin/sh
# Tests the output of ./generate: many texts, stop strings, JSON, JSON Lines. See tests/program_helpers.sh.
# shellcheck disable=SC2154 # of the helpers
# shellcheck disable=SC2016 # what sh -c is given expands there
set -u
. tests/program_helpers.sh

"$build/stories" --bytes 60000 --seed 3 -o text.txt --report report.json 2>/dev/null
$train text.txt --tokenizer bpe --vocab-size 400 --layers 2 --heads 2 --dim 32 --ctx 48 --batch 8 --steps "$(steps 300)" --sample-tokens 0 \
  --eval-every 0 --quiet $varied --out a.run 2>/dev/null
write() { $generate a.run --quiet "$@"; }

# ---- many texts after one prompt ----
write -p 'Once' -n 60 -N 40 -s 90 --stop 'the' >many.txt
check "as many as asked for" test "$(grep -c '^--- [0-9]* of 40, seed ' many.txt)" -eq 40
for i in 0 7 39; do
  write -p 'Once' -n 60 -s $((90 + i)) --stop 'the' >one.txt
  sed -n "/^--- $((i + 1)) of 40, seed $((90 + i))\$/,/^--- $((i + 2)) of/p" many.txt | sed '1d; /^--- /d' >row.txt
  check "text $i is that of its seed" sh -c 'printf "%s" "$(cat one.txt)" >a && printf "%s" "$(cat row.txt)" >b && cmp a b'
done
check "stop texts are not in it" sh -c "! grep -q the many.txt"
check "any number of threads" sh -c "$generate a.run --quiet -p Once -n 60 -N 40 -s 90 --stop the --threads 1 | cmp - many.txt"
write -p 'Once' -n 100 -s 4 --on-full slide >whole.txt
stop=$(head -c 60 whole.txt | tail -c 11)
write -p 'Once' -n 100 -s 4 --on-full slide --stop "$stop" --stop 'never to be seen' >cut.txt
check "a stop text over several tokens" sh -c 'head -c "$(wc -c <cut.txt)" whole.txt | cmp - cut.txt && test "$(wc -c <cut.txt)" -le 49'
check "why it stopped" sh -c "$generate a.run -p Once -n 100 -s 4 --stop '$stop' 2>&1 >/dev/null | grep -q 'stopped: stop text'"
write -p 'Once' -n 300 --ignore-eos -s 4 --keep 48 >a
write -p 'Once' -n 300 --ignore-eos -s 4 --keep 1 >b
check "--keep" sh -c '! cmp -s a b'
write -p 'Once' -n 80 --greedy --frequency-penalty 2 >a
write -p 'Once' -n 80 --greedy --presence-penalty 0 >b
check "penalties" sh -c '! cmp -s a b'
write -p 'Once' -n 200 -s 4 --on-full slide --ignore-eos --ban the --ban ' a' --ban 'Once upon' >banned.txt
check "banned texts" sh -c 'test "$(wc -c <banned.txt)" -gt 200 && ! grep -q -e the -e " a" -e "Once upon" banned.txt'
write -p 'Once' -n 100 --greedy --bias 'e=+40' | tr -d 'e' >banned.txt
check "a bias" test ! -s banned.txt
refused "a bias of several tokens" 2 'that text is [0-9]* tokens here' "$generate" a.run -p x --bias 'xyzzy=1'
refused "a bias of nothing" 2 'need TEXT=N' "$generate" a.run -p x --bias '=1'
refused "a bias that is no number" 2 'need TEXT=N' "$generate" a.run -p x --bias 'e=lots'
refused "a ban of nothing" 2 'must not be empty' "$generate" a.run -p x --ban ''
refused "no text to stop at" 2 'must not be empty' "$generate" a.run -p x --stop ''
refused "-N with a score" 2 '-N does not go with --score' "$generate" a.run -N 2 --score text.txt
refused "log-probabilities without JSON" 2 'belongs to --json' "$generate" a.run -p x --logprobs 2
refused "--keep without slides" 2 'is for --on-full slide' "$generate" a.run -p x --keep 3 --on-full stop
refused "-N of none" 2 'a whole number 1' "$generate" a.run -p x -N 0
write -p 'Once' -N 500 -n 40 2>err | head -n 3 >/dev/null
check "a reader that has enough" test ! -s err
refused "a full disk" 7 'cannot write' sh -c "exec $generate a.run -p x -N 3 --json >/dev/full"
stopped 0.5 "$generate" a.run -p x -N 1000000 --quiet >part.txt
check "Ctrl-C" test $? -eq 130

# ---- special tokens and chat templates ----
printf 'a<|endoftext|>b' >special.txt
check "special tokens are text" sh -c "$generate a.run --encode special.txt | wc -l | grep -qv '^ *3\$'"
check "--special finds them" sh -c "$generate a.run --encode special.txt --special | wc -l | grep -q '^ *3\$'"
$generate a.run -p a -n 3 --ban "\n" >log 2>&1
check "a note begins a line of a log" grep -q "^note: " log
check "--special in a prompt" sh -c "$generate a.run -p 'a<|endoftext|>' --special -n 1 2>&1 >/dev/null | grep -q 'after a prompt of 2;'"
refused "--special with a score" 2 '--special does not go with --score' "$generate" a.run --special --score text.txt

# ---- copied passages (--novelty) ----
"$build/stories" --bytes 900 --seed 5 -o once.txt 2>/dev/null
for _ in $(seq 20); do cat once.txt; done >short.txt
$train short.txt --tokenizer byte --layers 2 --heads 2 $(size --dim 64 --batch 8) --ctx 64 --steps "$(steps 3000)" --sample-tokens 0 \
  --eval-every 0 --quiet $varied --out short.run 2>/dev/null # it learns them by heart
LC_ALL=C awk 'BEGIN { srand(4); for (i = 0; i < 3000; i++) printf "%d, ", rand() * 1e6 }' >numbers.txt
mkdir texts nothing.run
cp short.txt numbers.txt texts
cp short.run/*.json short.run/model.safetensors nothing.run
: >empty.txt
recite() { $generate short.run -p "$(head -c 20 once.txt)" -n 300 --greedy "$@" 2>err; }
share() { sed -n 's/^note: \([0-9.]*\) % of [0-9]* bytes appear in .*/\1/p' err; }
mostly() { awk -v share="$(share)" 'BEGIN { exit !(share >= 70) }'; } # a model that learned one letter less recites less
recite >plain.txt
recite --novelty short.run >copied.txt
check "the text is the same" cmp copied.txt plain.txt
check_learned "most of it is copied" mostly
span=$(sed -n 's/^ *\([0-9]*\) bytes at *\([0-9]*\): .*/\1 \2/p' err | head -n 1)
[ "$span" ] && tail -c "+$((${span#* } + 1))" copied.txt | head -c "${span% *}" | tr '\n' '#' >passage
tr '\n' '#' <short.txt >line.txt
check_learned "the longest passage stands there" grep -q -F -f passage line.txt
recite --novelty short.txt >/dev/null
check_learned "in the text itself" mostly
recite --novelty texts >/dev/null
check_learned "in a directory" mostly
recite --novelty - <short.txt >/dev/null
check_learned "in standard input" mostly
recite --novelty numbers.txt >/dev/null
check "nothing of another text" test "$(share)" = 0
recite -N 3 -s 1 >plain.txt
recite -N 3 -s 1 --novelty short.run >copied.txt
check "many texts are the same" cmp copied.txt plain.txt
check "a note for each" test "$(grep -c '^note: text [123]: .* appear in short.run' err)" -eq 3
recite -n 0 --novelty short.run >/dev/null
check "a text of nothing" test "$(share)" = 0
refused "copies of what is not there" 3 'nowhere' "$generate" short.run -p a --novelty nowhere
refused "of an empty file" 3 'empty' "$generate" short.run -p a --novelty empty.txt
refused "of a run without tokens" 4 'has no tokens.bin' "$generate" short.run -p a --novelty nothing.run
refused "of a run of another tokenizer" 4 'another tokenizer' "$generate" short.run -p a --novelty a.run
refused "of a directory without text" 3 'has no .txt' "$generate" short.run -p a --novelty short.run/last
refused "with --json" 2 '--novelty does not go with --json' "$generate" short.run -p a --json --novelty short.run
refused "with --prompts" 2 'does not go with' "$generate" short.run --prompts prompts --novelty short.run
refused "of two texts from standard input" 2 'both read' "$generate" short.run -f - --novelty -
refused "of too many tokens" 2 'at most [0-9]* tokens' "$generate" short.run -p a -N 1000 -n 2000 --novelty short.run

has python3 "what Python reads of generate.sh" || { echo "done"; exit; }

# ---- several end tokens: in ends.run, a text also ends at "e", a special token ----
cp -r a.run ends.run
python3 - <<'EOF'
import json
def change(name, change):
    value = json.load(open("ends.run/" + name))
    change(value)
    json.dump(value, open("ends.run/" + name, "w"))
change("generation_config.json", lambda c: c.update(eos_token_id=[c["eos_token_id"], ord("e")]))
change("tokenizer.json", lambda t: t["added_tokens"].append({"id": ord("e"), "content": "e", "special": True}))
EOF
ends() { $generate ends.run --quiet --bias 'e=+40' -n 4 -p Once --json "$@"; }
ends >one.json
check "a text ends at each of them" sh -c 'grep -q "\"text\":\"\",\"finish_reason\":\"stop\".*\"token_ids\":\[\].*\"completion_tokens\":1," one.json'
ends --ignore-eos --logprobs 1 >one.json
check "unless --ignore-eos; then all tokens are listed" python3 -c '
import json
o = json.load(open("one.json"))
c = o["choices"][0]
assert c["finish_reason"] == "length" and c["token_ids"] == [101] * 4 and len(c["logprobs"]["tokens"]) == 4 == o["usage"]["completion_tokens"]
assert c["text"] == "" and c["logprobs"]["text_offset"] == [0] * 4'
ends --ignore-eos --bias 't=+45' --presence-penalty 60 --repeat-last-n 2 --stop t >one.json
check "also those before a stop text" grep -q '"finish_reason":"stop".*"token_ids":\[\(101,\)*\(101\)\{0,1\}\]' one.json
echo '{"prompt": "Once"}' | $generate ends.run --quiet --bias 'e=+40' -n 4 --prompts - >one.json
check "with --prompts, too" grep -q '"finish_reason":"stop"' one.json
$generate ends.run --quiet --export ends.out && $generate ends.run --quiet --gguf ends.gguf 2>/dev/null
ends_of() { tr -d ' \n' <"$1/generation_config.json" | grep -o '"eos_token_id":[^]]*]'; }
check "an export has all of them" test "$(ends_of ends.out)" = "$(ends_of ends.run)"
$train text.txt --init ends.run --steps 1 --sample-tokens 0 --eval-every 0 --quiet --out tuned.run 2>/dev/null
check "and so has a fine-tuned model" test "$(ends_of tuned.run)" = "$(ends_of ends.run)"

cp -r a.run chat.run
echo '{{ messages }}' >chat.run/chat_template.jinja
check "a note on chat templates" sh -c "$generate chat.run -p x -n 1 2>&1 >/dev/null | grep -q 'plain text: the chat template'"
check "not when quiet" sh -c "! $generate chat.run -p x -n 1 --quiet 2>&1 >/dev/null | grep -q 'chat template'"

check_learned "on a terminal what was copied is underlined" python3 - "$generate" <<'EOF'
import os, pty, subprocess, sys
def on_terminal(*flags):
    terminal, stdout = pty.openpty()
    command = [sys.argv[1], "short.run", "-p", "Zebras", "-n", "300", "-s", "1", "--ignore-eos", "--quiet", *flags]
    process = subprocess.Popen(command, stdout=stdout, env={**os.environ, "TERM": "xterm"})
    os.close(stdout)
    written = b""
    while True:
        try: piece = os.read(terminal, 4096)
        except OSError: break  # its other side is closed
        if not piece: break
        written += piece
    assert process.wait() == 0
    return written.replace(b"\r\n", b"\n")
for flags in [], ["-N", "3"]:
    plain, marked = on_terminal(*flags), on_terminal(*flags, "--novelty", "short.run")
    assert marked.replace(b"\033[4m", b"").replace(b"\033[24m", b"") == plain, (plain, marked)
    spans = [piece.split(b"\033[24m")[0] for piece in marked.split(b"\033[4m")[1:]]
    assert spans and b"Zebras" not in b"".join(spans)
    text = open("short.txt", "rb").read()
    # a span may join two passages
    assert any(span[at:at + 40] in text for span in spans for at in range(len(span) - 39)), spans
EOF

# ---- escapes and tensors ----
printf 'a\nb\\\t\101' >escaped.txt
write -p 'a\nb\\\t\x41' -e -n 0 --echo >got.txt
check "escapes" cmp got.txt escaped.txt
write -p 'a\nb' -n 0 --echo >got.txt
check "which have to be asked for" test "$(cat got.txt)" = 'a\nb'
refused "an escape that is none" 2 'unknown escape .q' "$generate" a.run -p 'a\q' -e
refused "an escape that is not whole" 2 'unknown escape .x' "$generate" a.run -p 'a\x4' -e
refused "a backslash at the end" 2 'unknown escape' "$generate" a.run -p "a\\" -e
refused "escapes of nothing" 2 '-e needs -p or --answer' "$generate" a.run -e
write -p Once -n 200 -s 3 >whole.txt
write -p Once -n 200 -s 3 -e --stop '\n' >got.txt
head -n 1 whole.txt | tr -d '\n' | cmp - got.txt
check_learned "escapes of --stop" test $? -eq 0 -a "$(wc -l <whole.txt)" -gt 0
write -p Once -n 200 -s 3 -e --ban '\n' >got.txt
check_learned "escapes of --ban" test "$(wc -l <got.txt)" -eq 0 -a "$(wc -l <whole.txt)" -gt 0
write -p Once -n 200 -s 3 -e --bias '\n=-inf' | cmp - got.txt
check "escapes of --bias" test $? -eq 0
refused "no escape in --stop" 2 'unknown escape .q' "$generate" a.run -e --stop 'a\q'
# notes PATTERN COMMAND...: how many lines on stderr match
notes() {
  pattern=$1
  shift
  "$@" 2>&1 >/dev/null </dev/null | grep -c -e "$pattern"
}
check "a backslash without -e is noted, once" test "$(notes '^note: the backslash in -p .*with -e,.*line break' "$generate" a.run -n 1 -p 'a\nb\tc' --stop '\n')" -eq 1
check "that of --stop, too" test "$(notes 'the backslash in --stop is taken as it is' "$generate" a.run -n 1 --stop '\n')" -eq 1
check "with -e it is not" test "$(notes 'backslash' "$generate" a.run -n 1 -p 'a\nb' -e)" -eq 0
check "nor is another backslash" test "$(notes 'backslash' "$generate" a.run -n 1 -p '\alpha')" -eq 0
write --params >params.txt
check "tensors" sh -c 'grep -q "^model.layers.1.self_attn.q_proj.weight  *32 x 32  *1024  *4.0 KiB" params.txt'
check "and their sum" awk '$1 != "all" { n += $(NF - 2) } $1 == "all" { all = $(NF - 2) } END { exit !(n == all && n > 0) }' params.txt

# ---- logit lens ----
write -p 'Once upon' -n 1 --json --logprobs 5 >one.json
write -p 'Once upon' --lens >lens.txt
check "the lens: a line for the embedding and each layer" sh -c 'test "$(tail -n +2 lens.txt | cut -c -9 | tr "\n" ,)" = "layer  0 ,layer  1 ,layer  2 ,"'
check "the lens: what its columns are" sh -c 'head -n 1 lens.txt | grep -q "^layer  .*most likely.*layer 0 is the embedding"'
check "the lens: the last layer says what generation draws from" python3 - <<'EOF'
import json, math, re
layers = [re.findall(r"  ('(?:[^'\\]|\\.)*'|<\|endoftext\|>) ([0-9.]+) %", line) for line in open("lens.txt")][1:]
assert all(len(top) == 5 for top in layers) and layers[0] != layers[2], layers
want = sorted((math.exp(v) for v in json.load(open("one.json"))["choices"][0]["logprobs"]["top_logprobs"][0].values()), reverse=True)
assert len(want) == 5 and all(abs(float(p) - 100 * w) <= 0.051 for (_, p), w in zip(layers[2], want)), (layers, want)
EOF
write -e -p 'a\nb' --lens >got.txt
check "the lens: of -p with escapes, as of -f" sh -c "printf 'a\\nb' | $generate a.run --quiet -f - --lens | cmp - got.txt"
check "the lens: of no prompt" test "$(write --lens | wc -l)" -eq 4
write -p 'toy.' --lens --alts 100 >got.txt
check "the lens: a line a layer, whatever its tokens are" test "$(wc -l <got.txt)" -eq 4 -a "$(grep -cF '\n' got.txt)" -gt 0
write -p 'Once upon' --lens --greedy | cmp - lens.txt
check "the lens draws nothing: --greedy changes nothing" test $? -eq 0
check "so it is with a score" sh -c "$generate a.run --quiet --score text.txt >one && $generate a.run --quiet --score text.txt --greedy | cmp - one"
refused "the lens writes no text" 2 '-n does not go with --lens' "$generate" a.run -p x --lens -n 3
refused "the lens, or lines of a person" 2 'only one of -i and --lens' "$generate" a.run -i --lens
refused "the lens to a full disk" 7 'cannot write' sh -c "exec $generate a.run -p x --lens >/dev/full"

# ---- scores of lines ----
head -n 12 text.txt | cut -c 1-70 >lines.txt
printf '\nno newline at its end' >>lines.txt
write --score lines.txt --per-line >scores.jsonl
check "a score a line" test "$(wc -l <scores.jsonl)" -eq 14
check "which are those of the lines alone" python3 - "$generate" <<'EOF'
import json, subprocess, sys
lines = open("lines.txt", "rb").read().split(b"\n")
for number, (line, score) in enumerate(zip(lines, open("scores.jsonl")), 1):
    s = json.loads(score)
    assert s["line"] == number and s["bytes"] == len(line) and (s["nats"] > 0) == (len(line) > 0), s
    if number in (1, 5):  # after a newline, which is what a text begins with
        open("one.txt", "wb").write(b"\n" + line)
        whole = json.loads(subprocess.run([sys.argv[1], "a.run", "--score", "one.txt", "--quiet"], capture_output=True, check=True).stdout)
        if whole["scored_tokens"] == s["tokens"] and whole["file_tokens"] <= 48:
            assert abs(whole["nats_per_token"] * whole["scored_tokens"] - s["nats"]) < 1e-3, (whole, s)
EOF
yes 'a long line' | head -n 60 | tr '\n' ' ' | write --score - --per-line >long.json
check "a line of several contexts" python3 -c 'import json; s = json.load(open("long.json")); assert s["tokens"] > 96 and s["nats"] > 0'
refused "lines without a score" 2 '--per-line belongs to --score' "$generate" a.run --per-line
refused "scores to a full disk" 7 'cannot write' sh -c "exec $generate a.run --score lines.txt --per-line >/dev/full"

# ---- surprisal of each token and word (--per-token, --per-word) ----
write --score text.txt --json >got.txt
check "a score is JSON, asked for or not" sh -c "$generate a.run --quiet --score text.txt | cmp - got.txt"
head -c 3000 text.txt >given.txt
printf '\ncaf\303\251 x, "q"\t\303\263\n\360\237\230\200\343\200\200NA  \nlast\r\n' >>given.txt
printf '{"text": "Once upon a time"}\n\n{"text": "the end"}\n' >given.jsonl
printf 'what is\tthe end\nwho\tme\n' >given.tsv
printf 's1\tThe cat sat.\n\ns 2\tA "dog" ate\t\360\237\230\200.\n' >ids.tsv
printf 'Once upon a' >once.txt
write --score given.txt >given.json
write --score given.txt --per-token --entropy >tokens.csv
write --score given.txt --per-word --entropy -O tsv >words.tsv
write --score - --per-word --json <given.txt >words.jsonl
write --score given.txt --per-token --stride 7 --json >stride.jsonl
write --score given.txt --stride 7 >stride.json
for file in given.jsonl given.tsv; do
  write --score $file >$file.json
  write --score $file --per-token --json 2>/dev/null >$file.tokens
done
write --score given.tsv --per-word --json 2>/dev/null >given.tsv.words
write --score ids.tsv --per-line >ids.json
write --score - --tsv --per-line --per-token --json <ids.tsv >ids.tokens
write --score ids.tsv --per-line --per-word >ids.csv
write --score once.txt --per-token --entropy --json >once.tokens
write -p 'Once upon' -n 1 --json --logprobs 1000 >once.json
printf 'One.\n<|endoftext|>\nA second one, longer than two windows.\n<|endoftext|>\nx\n' >documents.txt
$train documents.txt --tokenizer byte --pack docs --val-frac 0 --layers 1 --heads 1 --dim 16 --ctx 12 --batch 2 --steps 2 --sample-tokens 0 \
  --quiet --out packed.run 2>/dev/null
$generate packed.run --quiet --score documents.txt >packed.json
$generate packed.run --quiet --score documents.txt --per-token --json >packed.tokens
check "records of tokens and words" python3 - <<'EOF'
import csv, json, math
def of(name): return [json.loads(line) for line in open(name, encoding="utf-8", newline="\n")]
def table(name, separator): return list(csv.DictReader(open(name, encoding="utf-8", newline=""), delimiter=separator, strict=True))
def total(rows): return sum(float(r["nats"]) for r in rows if r["nats"] not in ("", None))
def near(a, b): return abs(a - b) <= 1e-5 * (1 + abs(b))
def is_score(rows, name): # of which the mean has six decimals
    score, = of(name)
    known = [r for r in rows if r["nats"] not in ("", None)]
    assert len(rows) == score["file_tokens"] and len(known) == score["scored_tokens"], (name, len(rows), len(known), score)
    assert abs(total(rows) / len(known) - score["nats_per_token"]) < 2e-5, (name, total(rows) / len(known), score)
tokens, words = table("tokens.csv", ","), table("words.tsv", "\t")
is_score(tokens, "given.json")
is_score(of("stride.jsonl"), "stride.json")
is_score(of("given.jsonl.tokens"), "given.jsonl.json")
is_score(of("given.tsv.tokens"), "given.tsv.json")
is_score(of("packed.tokens"), "packed.json")
packed = [[r["text"] for r in of("packed.tokens") if r["document"] == d] for d in (1, 2, 3)]
assert ["".join(d) for d in packed] == ["One.\n<|endoftext|>", "A second one, longer than two windows.\n<|endoftext|>", "x\n<|endoftext|>"]
assert all((r["nats"] is None) == (r["end"] <= 3) for r in of("given.tsv.tokens") if r["document"] == 2) # the prompt
assert [(r["text"], r["nats"] is None) for r in of("given.tsv.words")] == [("what", True), ("is", True), ("the", False),
  ("end", False), ("who", True), ("me", False)], of("given.tsv.words") # a word begins where the response does
# places, bytes and texts
documents = open("given.txt", "rb").read().split(b"<|endoftext|>\n")
for rows in tokens, words:
    assert list(rows[0])[:6] == ["document", "token" if rows is tokens else "word", "start", "end", "bytes", "text"]
    for r in rows:
        piece = documents[int(r["document"]) - 1][int(r["start"]):int(r["end"])]
        assert len(piece) == int(r["bytes"]) and near(float(r["bits"] or 0), float(r["nats"] or 0) / math.log(2)), r
        try: want = piece.decode() or "<|endoftext|>"
        except UnicodeDecodeError: want = "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
        assert r["text"] == want, (r, want)
assert any(r["text"].startswith("bytes:") for r in tokens)
assert tokens[0]["nats"] == tokens[0]["bits"] == tokens[0]["rank"] == "" and tokens[1]["nats"]
assert [r["text"] for r in words] == [word for d in documents for word in d.decode().split()]
assert [r["text"] for r in words[-7:]] == ["caf\u00e9", "x,", '"q"', "\u00f3", "\U0001f600", "NA", "last"]
# white space counts for the word after it: a word has the tokens that end after the word before it, up to its own end
for before, r in zip(words, words[1:]):
    begin = int(before["end"]) if before["document"] == r["document"] else 0
    own = [t for t in tokens if t["document"] == r["document"] and begin <= int(t["start"]) < int(r["end"])]
    assert len(own) == int(r["tokens"]) and near(total(own), float(r["nats"])), (r, own)
    assert (r["entropy"], r["rank"]) == (own[0]["entropy"], own[0]["rank"])
assert all(a["text"] == b["text"] and near(a["nats"], float(b["nats"])) for a, b in zip(of("words.jsonl")[1:], words[1:]))
# sentences with ids
lines, rows = of("ids.json"), table("ids.csv", ",")
assert [(r["line"], r["id"]) for r in lines] == [(1, "s1"), (3, "s 2")], lines
assert [(r["id"], r["word"], r["text"]) for r in rows] == [("s1", "1", "The"), ("s1", "2", "cat"), ("s1", "3", "sat."),
  ("s 2", "1", "A"), ("s 2", "2", '"dog"'), ("s 2", "3", "ate"), ("s 2", "4", "\U0001f600.")], rows
for line in lines:
    for records in rows, of("ids.tokens"):
        assert abs(total(r for r in records if r["id"] == line["id"]) - line["nats"]) < 1e-4, line
# the whole distribution, as generation knows it
choice = json.load(open("once.json"))["choices"][0]["logprobs"]["top_logprobs"][0]
record, = [r for r in of("once.tokens") if r["start"] == 9]
assert abs(record["nats"] + choice[record["text"]]) < 1e-3, record
assert abs(record["entropy"] + sum(p * math.exp(p) for p in choice.values()) / math.log(2)) < 1e-2, record
own = choice[record["text"]] # the rank, but for tokens whose probability is the same but for rounding
assert sum(p > own + 1e-3 for p in choice.values()) < record["rank"] <= 1 + sum(p > own - 1e-3 for p in choice.values()), record
EOF
printf a >short.one
write --score short.one --per-token >got.txt
check "records of one token, of which there is no score" test $? -eq 0 -a "$(wc -l <got.txt)" -eq 3
refused "a score of one token" 3 'short.one is too short' "$generate" a.run --score short.one
: | write --score - --tsv --per-line --per-word >got.txt
check "a table without sentences has a title" test "$(tr -d '\r' <got.txt)" = line,id,word,start,end,bytes,text,tokens,nats,bits
refused "records of nothing" 3 'is empty' "$generate" a.run --score empty.txt --per-word
refused "records of two kinds" 2 '--per-token does not go with --per-word' "$generate" a.run --score text.txt --per-word --per-token
refused "records and colors" 2 '--heat does not go with --per-token' "$generate" a.run --score text.txt --per-token --heat
refused "colors as JSON" 2 '--heat does not go with --json' "$generate" a.run --score text.txt --heat --json
refused "a format with two names" 2 'got "json", need one of csv, tsv' "$generate" a.run --score text.txt --per-word -O json
refused "a format of no records" 2 '-O needs --per-token or --per-word' "$generate" a.run --score text.txt -O tsv
cp once.txt no-ids.tsv
refused "an id without a text" 3 'no-ids.tsv:1: .*an id, a tab and the text' "$generate" a.run --score no-ids.tsv --per-line --per-word
refused "records to a full disk" 7 'cannot write' sh -c "exec $generate a.run --score given.txt --per-token >/dev/full"
yes 'a long line' | head -n 100000 >long.txt
check "a closed pipe ends records" sh -c "{ timeout 60 $generate a.run --quiet --score long.txt --per-word; echo \$? >status; } | head -n 2 >/dev/null; grep -q '^0$' status"

# ---- JSON ----
write -p 'Once upon' -n 30 -N 3 -s 11 --json --logprobs 3 >one.json
for seed in 11 12 13; do write -p 'Once upon' -n 30 -s $seed >"text.$seed"; done
check "one object, its texts and tokens" python3 - <<'EOF'
import json, math
lines = open("one.json").read().splitlines()
assert len(lines) == 1
o = json.loads(lines[0])
assert o["object"] == "text_completion" and o["model"] == "a.run" and o["prompt"] == "Once upon"
tokenizer = json.load(open("a.run/tokenizer.json"))["model"]["vocab"]
assert [c["index"] for c in o["choices"]] == [0, 1, 2]
assert o["usage"]["total_tokens"] == o["usage"]["prompt_tokens"] + o["usage"]["completion_tokens"]
for c in o["choices"]:
    text, logprobs = c["text"], c["logprobs"]
    if "bytes" in c: continue  # of a model that has hardly learned anything
    assert text == open(f"text.{c['seed']}").read() and c["seed"] == 11 + c["index"]
    assert c["finish_reason"] == ("length" if len(c["token_ids"]) == 30 else "stop")
    assert "".join(logprobs["tokens"]) == text and len(logprobs["tokens"]) == len(c["token_ids"])
    for token, offset, own, top in zip(*(logprobs[k] for k in ("tokens", "text_offset", "token_logprobs", "top_logprobs"))):
        assert text[offset:offset + len(token)] == token
        assert len(top) == 3 and list(top.values()) == sorted(top.values(), reverse=True)
        assert own <= max(top.values()) + 1e-6 and (token not in top or abs(top[token] - own) < 1e-6)
        assert sum(math.exp(v) for v in top.values()) <= 1.0001
EOF
printf 'a\377b' >bytes.txt
write -f bytes.txt -n 5 -s 2 --json --ignore-eos >bytes.json
check "a prompt that is not UTF-8" python3 -c 'import json; assert json.load(open("bytes.json"))["prompt"] == "a\ufffdb"'
$train text.txt --tokenizer byte --layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --steps 1 --sample-tokens 0 --eval-every 0 --quiet $varied \
  --out raw.run 2>/dev/null # it guesses bytes
$generate raw.run --quiet -p a -n 40 -N 8 -s 1 --top-k 0 --top-p 1 --min-p 0 --temp 3 --json --logprobs 1 >raw.json
$generate raw.run --quiet -p a --lens >lens.txt
check "the lens: tokens that are not UTF-8" sh -c "LC_ALL=C grep -q \"'.x[89A-F][0-9A-F]'\" lens.txt && ! LC_ALL=C grep -q '[^ -~]' lens.txt"
check "texts that are not UTF-8" python3 - <<'EOF'
import base64, json
found = 0
for c in json.load(open("raw.json"))["choices"]:
    if "bytes" not in c: continue
    found += 1
    raw = base64.b64decode(c["bytes"], validate=True)
    assert raw == bytes(i for i in c["token_ids"]) and "\ufffd" in c["text"] and any(t.startswith("bytes:\\x") for t in c["logprobs"]["tokens"])
assert found
EOF

# ---- JSON Lines (--prompts) ----
python3 - >prompts.jsonl <<'EOF'
import json, random, sys
random.seed(1)
bad = ['nope', '{"x": 1, "prompt": "a"}', '{"n": 2}', '{"prompt": 5}', '[]', '{"prompt": "a", "n": 0}', '{"prompt": "a", "temp": "hot"}',
       '{"prompt": "a", "stop": ""}', '{"prompt": "a", "prompt": "b"}', '{"prompt": "a", "top_k": 1.5}', '{"prompt": "' + "z " * 300 + '"}',
       '{"prompt": "a"', 'null', '"a" "b"', 'NaN', '{"prompt": "a", "seed": -2}', '{"prompt": "a", "max_tokens": 1e99}', '\xff',
       '{"prompt": "a", "stop": [1]}', '{"prompt": null}']
lines = []
for i in range(980):
    words = random.choice(["Once", "The", "", "a\nb", "h\u00e9", "Once upon a time"])
    o = {"prompt": words, "id": i}
    if i % 3 == 0: o["n"] = 1 + i % 4
    if i % 5 == 0: o.update(temp=0.5, top_k=5, top_p=0.9, min_p=0.1)
    if i % 7 == 0: o["stop"] = ["the", " a"] if i % 2 else "e"
    if i % 11 == 0: o["seed"] = i
    if i % 13 == 0: o["logprobs"] = 2
    o["max_tokens"] = random.choice([0, 1, 5, 20])
    lines.append(json.dumps(o) if i % 17 else json.dumps(words))
for k, line in enumerate(bad): lines.insert(k * 50 + 3, line)
sys.stdout.buffer.write(b"".join(l.encode("latin-1" if "\xff" in l else "utf-8") + b"\n" for l in lines))
EOF
write --prompts prompts.jsonl -n 10 -s 1000 >answers.jsonl 2>err
check "a thousand prompts, twenty of them malformed" test $? -eq 3 -a "$(wc -l <answers.jsonl)" -eq 1000
check "which is said" grep -q 'refused: 20 of 1000 lines' err
check "one answer a line, in order, with the seeds of single runs" python3 - "$generate" <<'EOF'
import base64, json, subprocess, sys
answers = [json.loads(line) for line in open("answers.jsonl", encoding="utf-8")]
prompts = open("prompts.jsonl", "rb").read().split(b"\n")[:-1]
refused, texts, seed = [], 0, 1000
for number, (line, answer) in enumerate(zip(prompts, answers), 1):
    if "error" in answer:
        assert answer["error"]["line"] == number and answer["error"]["message"]
        refused.append(number)
        continue
    o = json.loads(line)
    o = o if isinstance(o, dict) else {"prompt": o}
    assert answer.get("id") == o.get("id") and answer["prompt"] == o["prompt"]
    n, first = o.get("n", 1), o.get("seed", seed)
    seed += n
    assert [c["seed"] for c in answer["choices"]] == [first + i for i in range(n)], (number, answer)
    for c in answer["choices"]: assert len(c["token_ids"]) <= o.get("max_tokens", 10)
    if number % 97 == 5:  # as ./generate writes it alone
        flags = ["--temp", "0.5", "--top-k", "5", "--top-p", "0.9", "--min-p", "0.1"] if "temp" in o else []
        for s in o.get("stop", []) if isinstance(o.get("stop"), list) else [o["stop"]] if "stop" in o else []: flags += ["--stop", s]
        c = answer["choices"][-1]
        alone = subprocess.run([sys.argv[1], "a.run", "--quiet", "-p", o["prompt"], "-n", str(o.get("max_tokens", 10)), "-s", str(c["seed"])] + flags,
                               capture_output=True, check=True).stdout
        assert alone == (base64.b64decode(c["bytes"]) if "bytes" in c else c["text"].encode()), (o, alone, c)
        texts += 1
assert len(refused) == 20 and texts >= 8, (refused, texts)
EOF
printf '%s\n' '"Once"' '{"prompt": "The"}' '{"prompt": "a", "n": 2}' nope >few.jsonl
{ printf '\357\273\277' && printf '%s\r\n' '"Once"' '' '{"prompt": "The", "id": null, "stop": null, "score": null, "logprobs": null, "n": null}' ' 	' \
  '{"prompt": "a", "n": 2, "max_tokens": null, "seed": null, "temperature": null, "top_p": null, "user": null}' nope; } >nulls.jsonl
for name in few nulls; do write --prompts $name.jsonl -n 10 -s 7 2>/dev/null | sed 's/"line":6/"line":4/' >$name.out; done
check "a byte-order mark, blank lines, CR LF and null change no answer" sh -c 'test "$(wc -l <few.out)" = 4 && cmp few.out nulls.out'
check "n without max_tokens is explained, once" test "$(printf '{"prompt": "a", "n": 3}\n{"prompt": "b", "n": 3}\n' | $generate a.run --prompts - 2>&1 >/dev/null |
  grep -c 'line 1: "n" is the number of texts, here 3 of up to 256 tokens each; "max_tokens" is their length')" -eq 1
check "with max_tokens or -n it is not" test "$(printf '{"prompt": "a", "n": 3, "max_tokens": 2}\n{"prompt": "b", "n": 1}\n' | $generate a.run --prompts - 2>&1 |
  grep -c 'number of texts')" -eq 0 -a "$(echo '{"prompt": "a", "n": 3}' | $generate a.run --prompts - -n 2 2>&1 | grep -c 'number of texts')" -eq 0
for _ in 1 2; do echo '{"prompt": "a", "seed": -1}' | write --prompts - -n 1; done >drawn.jsonl 2>/dev/null
check "a seed of -1 is a random one" test "$(sed 's/.*"seed":\([0-9]*\).*/\1/' drawn.jsonl | uniq | wc -l)" -eq 2
check "each setting of sampling is a key, as its option" python3 - "$generate" <<'EOF'
import json, subprocess, sys
def run(*flags, lines=None):
    return subprocess.run([sys.argv[1], "a.run", "--quiet", *flags], input=lines, capture_output=True, check=False, text=True)
plain = {"temp": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "repeat_last_n": 64}
cases = [{"temp": 0.1}, {"temperature": 0.1}, {"top_k": 1}, {"top_p": 0.05}, {"min_p": 0.9}, {"repeat_penalty": 5}, {"presence_penalty": 5},
         {"frequency_penalty": 5}, {"frequency_penalty": 5, "repeat_last_n": 2}]
def answer(keys):
    line = json.dumps({"prompt": "Once", "seed": 3, "max_tokens": 40, **plain, **keys})
    return json.loads(run("--prompts", "-", lines=line + "\n").stdout)["choices"][0]["token_ids"]
base, seen = answer({}), []
for keys in cases:
    got = answer(keys)
    assert got != base, keys
    flags = {**plain, **keys}
    if "temperature" in flags: flags["temp"] = flags.pop("temperature")
    words = [word for key, value in flags.items() for word in ("--" + key.replace("_", "-"), str(value))]
    alone = json.loads(run("-p", "Once", "-s", "3", "-n", "40", "--json", *words).stdout)["choices"][0]["token_ids"]
    assert got == alone, (keys, got, alone)
    seen.append(got)
assert seen[-1] != seen[-2], "repeat_last_n"
bad = [("top_p", 0, "0 (excluded) to 1"), ("repeat_penalty", 0, "from 0.01 to 100"), ("presence_penalty", 101, "from -100 to 100"),
       ("repeat_last_n", 1.5, "a whole number from 0 to 4096"), ("frequency_penalty", "1", "a number from -100 to 100")]
answers = run("--prompts", "-", lines="".join(json.dumps({"prompt": "a", key: value}) + "\n" for key, value, _ in bad)).stdout.splitlines()
for (key, _, words), line in zip(bad, answers):
    message = json.loads(line)["error"]["message"]
    assert key in message and words in message, message
unknown = json.loads(run("--prompts", "-", lines='{"prompt": "a", "typical": 1}\n').stdout)["error"]["message"]
assert all(key in unknown for key in plain if key != "temp"), unknown
EOF
has jq "jq reads them" && check "jq reads them" test "$(jq -r 'select(.choices) | .choices[].text' answers.jsonl | wc -l)" -ge 980
head -n 300 prompts.jsonl | write --prompts - -n 10 -s 1000 2>/dev/null >some.jsonl
check "from standard input" sh -c 'head -n 300 answers.jsonl | cmp - some.jsonl'
write --prompts prompts.jsonl -n 10 -s 1000 --threads 1 2>/dev/null | cmp - answers.jsonl
check "the same on one thread" test $? -eq 0
write --prompts prompts.jsonl -n 10 2>err | head -n 2 >/dev/null
check "a closed pipe" test ! -s err
refused "prompts to a full disk" 7 'cannot write' sh -c "exec $generate a.run --prompts prompts.jsonl >/dev/full"
refused "an answer without an encoder" 2 'with an encoder' "$generate" a.run --prompts prompts.jsonl --answer x
refused "prompts and -p" 2 '-p does not go with --prompts' "$generate" a.run --prompts prompts.jsonl -p x
refused "prompts that are not there" 3 'cannot read nowhere' "$generate" a.run --prompts nowhere
for _ in $(seq 200); do cat prompts.jsonl; done >endless.jsonl
stopped 1 "$generate" a.run --prompts endless.jsonl --quiet >part.jsonl
status=$?
check "Ctrl-C leaves whole lines" python3 - "$status" <<'EOF'
import json, sys
assert sys.argv[1] == "130", sys.argv
text = open("part.jsonl", encoding="utf-8").read()
assert not text or text.endswith("\n")
for line in text.split("\n")[:-1]: json.loads(line)  # splitlines() splits at more
EOF

# ---- surprisal (--heat, --alts) ----
write -p 'Once upon' -n 40 -s 11 >plain.txt
write -p 'Once upon' -n 40 -s 11 --heat >heat.txt
check "colors change no character" sh -c "sed 's/\x1b\[[0-9;]*m//g' heat.txt | cmp - plain.txt"
check "and there are some" sh -c "test \"\$(grep -c 48\;5 heat.txt)\" -ge 1"
write -p 'Once upon' -n 40 -s 11 --alts 3 --heat-html heat.html >alts.txt
write -p 'Once upon' -n 40 -s 11 --json --logprobs 3 >heat.json
cat plain.txt >scored.txt
write --score scored.txt --heat --heat-html scored.html --alts 2 >scored-alts.txt
printf 'caf\303\251 <b>&\377\n' >odd.txt
write --score odd.txt --heat --heat-html odd.html >odd-heat.txt
check "bytes that are no text are colored as they are" sh -c "sed 's/\x1b\[[0-9;]*m//g' odd-heat.txt | cmp - odd.txt"
check "numbers, pages and colors agree" python3 -c '
import html, json, math, re
choice = json.load(open("heat.json"))["choices"][0]
rows = [line for line in open("alts.txt", encoding="utf-8") if re.match(r" *[0-9.]+ bits  ", line)]
bits = [float(row.split()[0]) for row in rows]
assert len(bits) == len(choice["logprobs"]["token_logprobs"]) > 10
assert all(abs(b + p / math.log(2)) < 0.006 for b, p in zip(bits, choice["logprobs"]["token_logprobs"]))
for row, top in zip(rows, choice["logprobs"]["top_logprobs"]):
    shown = sorted((float(x) for x in re.findall(r" ([0-9.]+) %", row)), reverse=True)
    told = sorted((100 * math.exp(p) for p in top.values()), reverse=True)[:3]
    assert all(abs(a - b) < 0.06 for a, b in zip(shown, told)), (row, top)
page = open("heat.html", encoding="utf-8").read()
def brightness(color):
    parts = (int(color[i:i + 2], 16) / 255 for i in (1, 3, 5))
    return sum(f * (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4) for f, x in zip((0.2126, 0.7152, 0.0722), parts))
themes = re.findall(":root {(.*?)}", page, re.S)
assert len(themes) == 2 # light and dark: whether the words can be read
for colors in themes:
    ink, *levels = (brightness(re.search("--" + name + ": (#[0-9a-f]{6})", colors).group(1)) for name in ("ink", "h0", "h1", "h2", "h3", "h4", "h5"))
    assert all((max(ink, x) + 0.05) / (min(ink, x) + 0.05) >= 4.5 for x in levels), colors
def text(path):
    pre = re.search("<pre>(.*)</pre>\n<details>", open(path, encoding="utf-8").read(), re.S).group(1)
    return html.unescape(re.sub("<[^>]*>", "", pre))
assert choice["text"] == open("plain.txt", encoding="utf-8").read()
assert text("heat.html") == "Once upon" + choice["text"] and "<pre><span class=\"prompt\">Once upon</span>" in page
assert text("scored.html") == open("plain.txt", encoding="utf-8").read()
assert text("odd.html") == "caf\u00e9 <b>&\ufffd\n", text("odd.html")
'
check "pages are well-formed" xmllint --noout heat.html scored.html odd.html
has chromium "boxes on pages" && check "words of the legend do not touch" python3 "$here/tests/page_boxes.py" heat.html
# a text longer than the context; its nats are those of --per-line
tr '\n' ' ' <text.txt | head -c 2000 >long.txt
write --score long.txt --per-line >long.json
$generate a.run --score long.txt --heat-html long.html 2>long.err >/dev/null
check "long texts are scored as by --per-line" awk '
  FNR == NR { match($0, /"nats": [0-9.]+/); nats = substr($0, RSTART + 8, RLENGTH - 8); match($0, /"tokens": [0-9]+/); tokens = substr($0, RSTART + 10, RLENGTH - 10); next }
  /bits per token/ { found = 1; d = $2 - nats / tokens / log(2); if (d < -0.001 || d > 0.001) exit 1 }
  END { exit !found }' long.json long.err
refused "a heat of nothing" 3 'is empty' "$generate" a.run --score /dev/null --heat
refused "a heat of many texts" 2 '--heat does not go with -N' "$generate" a.run -p x -N 2 --heat
refused "a heat of lines" 2 'does not go with --lines' "$generate" a.run --lines --heat
cp plain.txt mine.html
refused "a page in the place of the text" 2 'would replace' "$generate" a.run --score mine.html --heat-html mine.html
refused "a page that is none" 2 'ends in .html' "$generate" a.run -p x --heat-html plain.txt
refused "two pages in one file" 2 'both write' "$generate" a.run -p x --heat-html two.html --attention two.html
refused "two pages in one file, spelled in two ways" 2 'both write' "$generate" a.run -p x --heat-html two.html --attention ./two.html
refused "a page in the place of a run's" 2 'a file in the directory of a model' "$generate" a.run -p x --heat-html a.run/report.html
for file in config.json tokenizer.json report.html; do
  cp "a.run/$file" kept-file
  refused "attention in the place of $file" 2 'a file in the directory of a model' "$generate" a.run -p x --attention "a.run/$file"
  check "which stays" cmp -s kept-file "a.run/$file"
done
cp mine.html prompt.html
refused "attention in the place of the prompt" 2 'would replace' "$generate" a.run -f prompt.html --attention prompt.html
refused "a sampler where nothing is drawn" 2 '--temp does not go with --lens' "$generate" a.run -p x --lens --temp 1
refused "an answer where none is begun" 2 '--answer does not go with --score' "$generate" a.run --score text.txt --answer x
refused "a format of no file" 2 '--tsv needs --novelty or --score' "$generate" a.run -p x --tsv
refused "an interactive session with JSON" 2 'use only one of -i and --json' "$generate" a.run -i --json
refused "--export-type without --export" 2 '--export-type belongs to --export DIR' "$generate" a.run -p x --export-type bf16
refused "-n where nothing is written" 2 '-n does not go with --params; it is for text generation, -i' "$generate" a.run --params -n 3
refused "a format of standard input alone" 2 'applies to standard input' "$generate" a.run --score text.txt --fasta
printf '{"text": "a"}\n' >one.jsonl
refused "lines of JSON" 2 '--per-line reads lines of text or TSV' "$generate" a.run --score one.jsonl --per-line
refused "lines alone, and their format" 2 '--per-line does not go with --jsonl-field' "$generate" a.run --score - --per-line --jsonl-field text
refused "-p with lines" 2 '-p does not go with --lines' "$generate" a.run --lines -p x
refused "a prompt and lines from one input" 2 'both read standard input' "$generate" a.run -i -f -
printf 'temp = 0.5\n' >settings.txt
check "but settings in a file may be for other calls" sh -c "$generate a.run --quiet -p x --lens --config settings.txt >/dev/null"
refused "a page where there can be none" 7 'nowhere/heat.html' "$generate" a.run -p x --heat-html nowhere/heat.html

# ---- several models ----
$train text.txt --tokenizer byte --layers 1 --heads 1 --dim 16 --ctx 32 --batch 4 --steps 20 --sample-tokens 0 --quiet $varied --out b.run 2>/dev/null
runs="a.run b.run a.run b.run a.run"
$generate b.run -p Once --quiet --attention maps.html
check "short names stand upright above a map" grep -q 'text-anchor="middle">O</text>' maps.html
for mixer in CCA C; do
  $train text.txt --tokenizer byte --mixer $mixer --qk-norm --layers 3 --heads 1 --dim 16 --ctx 32 --batch 4 --steps 2 --sample-tokens 0 \
    --quiet $varied --out $mixer.run 2>/dev/null
done
$generate CCA.run -p Once --attention maps.json 2>err
check "maps of the layers with attention" sh -c "test \$(grep -c '\"layer\"' maps.json) -eq 1 && grep -q '\"layer\": 2' maps.json && grep -q 'attention of 1 layer x 1 head ' err"
refused "maps of convolutions" 2 "has convolutions in all layers" "$generate" C.run -p Once -n 5 --attention maps.html
check "the lens of convolutions" sh -c "$generate C.run -p Once --lens --quiet | grep -q '^layer  3 '"
check "the score of convolutions" sh -c "$generate C.run --score plain.txt --quiet | grep -q nats"
# shellcheck disable=SC2086 # words
$generate --compare $runs --quiet -p Once -n 40 -s 5 >blocks.txt
for run in a b; do $generate $run.run --quiet -p Once -n 40 -s 5 >$run.txt; done
check "what each model writes alone" sh -c "for run in a b a b a; do echo; sed -n '/^=== '\$run'.run: step [0-9]*, loss [0-9.]*\$/p' blocks.txt | head -n 1; cat \$run.txt; echo; done | sed 1d | cmp - blocks.txt"
$generate --compare a.run b.run --quiet -p Once -n 40 -s 5 >columns.txt
check_learned "side by side" awk 'NR == 1 { at = index($0, "b.run") } NR > 2 { left = left substr($0, 1, at - 1); right = right substr($0, at) }
  END { while ((getline line < "a.txt") > 0) a = a line; while ((getline line < "b.txt") > 0) b = b line
    gsub(/[ ?]/, "", left); gsub(/[ ?]/, "", right); gsub(/[ ]/, "", a); gsub(/ /, "", b); exit !(at > 20 && left == a && (right == b || b ~ /[^ -~]/)) }' columns.txt
refused "a comparison with -m" 2 '--compare does not go with -m' "$generate" --compare a.run b.run -m a.run
refused "a comparison of one" 2 'two models or more' "$generate" --compare a.run
refused "one that is not there" 4 'no model in nowhere' "$generate" --compare a.run nowhere
refused "-i with a text, as elsewhere" 2 '-i takes no text; did you mean -p "Once"' "$generate" a.run -i Once
refused "two runs" 2 'only one RUN' "$generate" a.run b.run
refused "a comparison as JSON" 2 'use only one of --json and --compare' "$generate" --compare a.run b.run --json

# ---- scored prompts ----
printf 'Once upon a time\n\nthe end\n' >lines.txt
write --score lines.txt --per-line >per-line.jsonl
printf '%s\n' '{"prompt": "Once upon a time", "score": true, "max_tokens": 0}' '{"prompt": "", "score": true, "max_tokens": 3}' \
  '{"prompt": "the end", "score": true, "n": 2, "max_tokens": 5}' '{"prompt": "x", "score": 1}' >scored.jsonl
write --prompts scored.jsonl -s 1 2>/dev/null >answers.jsonl
check "scores in answers are those of --per-line" python3 -c '
import json
lines, answers = ([json.loads(line) for line in open(name)] for name in ("per-line.jsonl", "answers.jsonl"))
assert len(lines) == 3 and len(answers) == 4 and "true or false" in answers[3]["error"]["message"], answers[3]
for line, answer in zip(lines, answers):
    score = answer["score"]
    assert abs(score["nats"] - line["nats"]) < 1e-5 and all(score[k] == line[k] for k in ("tokens", "bytes")), (line, score)
assert [len(a["choices"]) for a in answers[:3]] == [1, 1, 2] and answers[0]["choices"][0]["text"] == ""
'
check "damaged lines are answered one by one" python3 "$here/tests/fuzz_prompts.py" "$generate" a.run 2000 1
$generate a.run -p Once --bench 20 2>/dev/null >bench.json
check "--bench: starting and sampling" python3 -c '
import json
line = json.load(open("bench.json"))
assert line["load_ms"] > 0 and line["sample_ms"] > 0 and 0 < line["sample_share"] < 1, line
assert line["batch"] == 1 and abs(line["tokens_per_s"] * line["step_ms"] / 1e3 - 1) < 0.01, line
'
$generate a.run -p Once --bench 200 -N 3 2>/dev/null >bench.json
check "--bench -N: several texts at a time, beyond the end of the context" python3 -c '
import json
line = json.load(open("bench.json"))
assert line["batch"] == 3 and abs(line["tokens_per_s"] * line["step_ms"] / 3e3 - 1) < 0.01, line
assert line["steps"] == 200 and line["first_token_ms"] > 0, line
'

echo "done"
