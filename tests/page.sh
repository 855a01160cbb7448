#!/bin/sh
# Tests ./generate --html: page.sh BUILD. Where the programs have a WebAssembly module (make wasm) and node is there, the
# engine of pages writes what ./generate writes at level v2; else only the messages are tested.
set -u
cd "$(dirname "$0")/.." || exit 2
: "${1:?the build directory}"
here=$(pwd)
case ${BIN:-.} in /*) bin=${BIN:-.} ;; *) bin=$here/${BIN:-.} ;; esac
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2
failed=0
end() {
  echo done
  exit $failed
}

check() { # NAME COMMAND...
  name=$1
  shift
  if "$@"; then echo "ok $name"; else echo "not ok $name" && failed=1; fi
}

i=0
while [ $i -lt 400 ]; do printf "line %d: the model writes, caf\303\251 and so on\n" $i && i=$((i + 1)); done >text.txt
i=0
while [ $i -lt 200 ]; do printf '%d\t%d\n' $i $((i + 1)) && i=$((i + 1)); done >pairs.tsv
small="--layers 2 --heads 2 --dim 32 --ctx 64 --steps 10 --quiet --threads 1"
# shellcheck disable=SC2086 # words
"$bin/train" text.txt $small --out byte.run --tokenizer byte || exit 1

refused() { # WORDS STATUS ARGUMENT...
  words=$1 status=$2
  shift 2
  "$bin/generate" "$@" >out 2>&1
  [ $? -eq "$status" ] && grep -q -e "$words" out
}
if refused "make wasm" 2 byte.run --html page.html; then
  echo "ok --html: without the WebAssembly module it says how to build it"
  end
fi
check "--html: not over a file of the model" refused "would replace" 2 byte.run --html byte.run/config.json
check "--title needs --html" refused "title" 2 byte.run --title x
command -v node >/dev/null 2>&1 || { echo "skip: no node" && end; }

page_equals() { # RUN PROMPT DTYPE
  "$bin/generate" "$1" --html page.html --dtype "$3" --title '</script><b>' --quiet || return 1
  node "$here/tests/page.mjs" page.html "$2" 200 temp=0.8 seed=7 >page.txt || return 1
  "$bin/generate" "$1" -p "$2" -s 7 -n 200 --dtype "$3" --device cpu --isa v2 --threads 1 --quiet >native.txt || return 1
  # the page holds the bytes of an incomplete last character back
  size=$(wc -c <page.txt)
  [ "$size" -gt $(($(wc -c <native.txt) - 4)) ] && head -c "$size" native.txt | cmp - page.txt
}
for dtype in int8 bf16 f32; do
  check "bytes, $dtype" page_equals byte.run "line" $dtype
done
train() { # RUN TEXT OPTION...
  run=$1 text=$2
  shift 2
  # shellcheck disable=SC2086 # words
  "$bin/train" "$text" $small --out "$run" "$@"
}
for model in "bpe --tokenizer bpe --vocab-size 300" "gpt2 --arch gpt2" "grouped --arch llama --kv-heads 1" "qwen --arch qwen3"; do
  # shellcheck disable=SC2086 # words
  set -- $model
  run=$1.run
  shift
  check "training $run" train "$run" text.txt "$@"
  check "$run" page_equals "$run" "line 3" int8
done
check "training pairs.run" train pairs.run pairs.tsv --arch original
check "an encoder" page_equals pairs.run 12 int8
"$bin/generate" byte.run --html page.html --quiet
check "damaged pages are recognized" node "$here/tests/page.mjs" --mutate page.html 300
if [ -w /dev/full ]; then check "a full disk" refused "" 7 byte.run --html /dev/full; fi
end
