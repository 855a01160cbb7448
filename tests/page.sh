#!/bin/sh
# Tests ./generate RUN --html FILE. See tests/program_helpers.sh. Where the programs have a WebAssembly module (make wasm)
# and node is there, the engine of pages writes what ./generate writes at level v2. BROWSERS="chromium firefox-esr" opens
# the pages in these browsers, too, and AXE=FILE checks them with axe-core there.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

awk 'BEGIN { for (i = 0; i < 400; i++) printf "line %d: the model writes, caf\303\251 and so on\n", i }' >text.txt
awk 'BEGIN { for (i = 0; i < 200; i++) printf "%d\t%d\n", i, i + 1 }' >pairs.tsv
small="--layers 2 --heads 2 --dim 32 --ctx 64 --steps 60 --quiet --threads 1 $varied"
"$train" text.txt $small --out byte.run --tokenizer byte

if ! "$generate" byte.run --html page.html --quiet 2>/dev/null; then
  refused "--html: without the WebAssembly module it says how to build it" 2 "make wasm" "$generate" byte.run --html page.html
  echo "skipped the engine of pages: these programs have no WebAssembly module (make wasm)"
  echo "done"
  exit 0
fi
refused "--html: not over a file of the model" 2 "would replace" "$generate" byte.run --html byte.run/config.json
refused "--title needs --html" 2 "[-]-html" "$generate" byte.run --title x
printf 'GIF89a\1\0\1\0\200\0\0\377\0\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;' >dot.gif
: >empty.png
head -c 1048600 /dev/zero | cat dot.gif - >large.gif
refused "--picture needs --html" 2 "[-]-html" "$generate" byte.run --picture dot.gif
refused "--picture: a text" 3 "text.txt is no PNG" "$generate" byte.run --html page.html --picture text.txt
refused "--picture: an empty file" 3 "empty.png is no PNG" "$generate" byte.run --html page.html --picture empty.png
refused "--picture: a large one" 3 "make it smaller" "$generate" byte.run --html page.html --picture large.gif
refused "--html: not over the picture" 2 "would replace" "$generate" byte.run --html dot.gif --picture dot.gif
refused "--html: a full disk" 7 "/dev/full" "$generate" byte.run --html /dev/full
ln -s real.html link.html
refused "--html: a link to nothing" 7 "cannot be followed" "$generate" byte.run --html link.html
touch real.html
"$generate" byte.run --html link.html --quiet
check "--html: a link stays a link" test -L link.html -a -s real.html
cp -R byte.run huge.run
sed 's/\("max_position_embeddings": *\)[0-9]*/\11048576/' byte.run/config.json >huge.run/config.json
refused "--html: too large a context" 2 "in a browser" "$generate" huge.run --html page.html
has node "the engine of pages" || { echo "done"; exit; }

mkdir pages
hostile='</script><img src=x onerror=alert(1)>"'\''&<!--'$(printf '\342\200\250\342\200\256')
# page_equals RUN PROMPT DTYPE: the page holds the bytes of an incomplete last character back
page_equals() {
  page=pages/$1-$3
  "$generate" "$1" --html "$page.html" --dtype "$3" --title "$hostile" --quiet || return 1
  printf %s "$2" >"$page.prompt"
  node "$here/tests/page.mjs" "$page.html" "$2" 200 temp=0.8 seed=7 >page.txt || return 1
  "$generate" "$1" -p "$2" -s 7 -n 200 --dtype "$3" --device cpu --isa v2 --threads 1 --quiet >"$page.txt" || return 1
  size=$(wc -c <page.txt)
  [ "$size" -gt 4 ] && [ "$size" -gt $(($(wc -c <"$page.txt") - 4)) ] && head -c "$size" "$page.txt" | cmp - page.txt
}
for dtype in int8 bf16 f32; do check "bytes, $dtype" page_equals byte.run "line" $dtype; done
for model in "bpe --tokenizer bpe --vocab-size 300" "gpt2 --arch gpt2" "grouped --arch llama --kv-heads 1" "qwen --arch qwen3" \
  "chars --tokenizer chars" "words --tokenizer words --unk"; do
  set -- $model
  run=$1.run
  shift
  "$train" text.txt $small --out "$run" "$@"
  check "$run" page_equals "$run" "line 3" int8
done
"$train" pairs.tsv $small --out pairs.run --arch original
check "an encoder" page_equals pairs.run 12 int8

# Chats, whose context becomes full. Greedy: a text that is not UTF-8 would be another one in the next message.
awk 'BEGIN { for (i = 0; i < 300; i++) printf "{\"messages\": [{\"role\": \"user\", \"content\": \"Is shop %d open?\"}, " \
  "{\"role\": \"assistant\", \"content\": \"Until %d.\"}]}\n", i, i % 12 }' >chats.jsonl
printf 'Is shop %d open?\n' 3 14 159 26 5 35 >said
chat_equals() { # chat_equals RUN SYSTEM
  page=pages/$1
  "$generate" "$1" --html "$page.html" --title "$hostile" --system "$2" --picture dot.gif --quiet || return 1
  picture=$(sed -n 's|.*"picture":"data:image/gif;base64,\([^"]*\)".*|\1|p' "$page.html")
  printf %s "$picture" | base64 -d | cmp - dot.gif || return 1
  cp said "$page.said"
  { echo "/system $2"; cat said; } >lines
  "$generate" "$1" -i --greedy -n 40 --dtype int8 --device cpu --isa v2 --threads 1 <lines 2>err >"$page.txt" || return 1
  node "$here/tests/page.mjs" --chat "$page.html" 40 "$2" <said 2>dropped | cmp - "$page.txt" || return 1
  grep -q 'of them new' err || return 1
  last=$(sed -n 's/.*no longer sees the first \([0-9]*\).*/\1/p' err | tail -n 1)
  [ "$(tail -n 1 dropped)" -eq "${last:-0}" ]
}
"$train" chats.jsonl $small --ctx 256 --out chat.run --tokenizer byte
check "a chat, as in the terminal" chat_equals chat.run "Be brief."
"$train" chats.jsonl $small --ctx 128 --out words-chat.run --tokenizer words --unk
check "a chat in words" chat_equals words-chat.run "Be brief."
refused "--system without a chat template" 2 "chat template" "$generate" byte.run --html page.html --system x

# Tokenizers as those of Llama 3 and Llama 2
cat >tokenizer.py <<'END'
import os
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
os.makedirs("llama3")
os.makedirs("llama2")
os.makedirs("hostile")
t = Tokenizer(models.BPE())
t.normalizer, t.decoder = normalizers.NFC(), decoders.ByteLevel()
words = Regex(r"(?i:'s|'t|'re|'ve)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(words, "isolated"), level])
t.train(["text.txt"], trainers.BpeTrainer(vocab_size=400, special_tokens=["<|endoftext|>"],
                                          initial_alphabet=level.alphabet(), show_progress=False))
t.save("llama3/tokenizer.json")
t.add_tokens(["</script>", "<img src=x onerror=alert(1)>", "\"'`", "<!--", "\u2028", "\u202e"])
t.save("hostile/tokenizer.json")
t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
t.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                               decoders.Strip(" ", 1, 0)])
special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
t.train(["text.txt"], trainers.BpeTrainer(vocab_size=400, special_tokens=special, show_progress=False))
t.save("llama2/tokenizer.json")
END
python3 tokenizer.py 2>/dev/null || echo "skipped tokenizers of pages: Python's package tokenizers is missing"
if [ -e llama2/tokenizer.json ]; then
  sed "s|writes|</script><img src=x onerror=alert(1)>\"'\`<!--$(printf '\342\200\250\342\200\256')|" text.txt >hostile.txt
  for kind in llama3 llama2 hostile; do
    text=text.txt
    [ $kind != hostile ] || text=hostile.txt
    "$train" $text $small --out $kind.run --tokenizer $kind/tokenizer.json
    check "a tokenizer: $kind" page_equals $kind.run "line 3 cafe$hostile" int8
  done
fi

"$generate" byte.run --html book.html --quiet
sed -n '/^```js$/,/^```$/p' "$here/docs/exchange.md" | grep -v '^```' >example.mjs
node example.mjs | tr -cd '\n -~' >example.txt
node "$here/tests/page.mjs" book.html "Once upon" 200 temp=0.8 seed=7 | tr -cd '\n -~' >page.txt
example_works() { [ -s example.txt ] && cmp example.txt page.txt; }
check "the example in docs/exchange.md" example_works
check "damaged pages are recognized" node "$here/tests/page.mjs" --mutate book.html 1000
for browser in ${BROWSERS:-}; do python3 "$here/tests/page_browser.py" "$browser" pages ${AXE:+--axe "$AXE"} ||
  fail "$browser" "page_browser.py ended with status $?"; done

echo "done"
