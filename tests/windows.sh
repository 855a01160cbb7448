#!/bin/sh
# Tests the program for Windows in wine: windows.sh BUILD SOURCES  (make test-windows)
#
# Compares it with the program for Linux that is built from the same sources, so BUILD/windows/inkling.exe and
# BIN/inkling (BIN: default .) must exist. FULL=1: also the unit tests, and the tests of the programs that wine can run. Status 77: a tool
# is missing.
set -u
cd "$(dirname "$0")/.." || exit 2
root=$(pwd) build=$(pwd)/$1
for tool in wine python3; do
  command -v "$tool" >/dev/null || { echo "windows: $tool is missing. Run scripts/install-deps.sh windows"; exit 77; }
done
work=$(mktemp -d) || exit 2
# English messages, names in UTF-8, and no window for missing parts of wine
export WINEPREFIX="$work/prefix" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree=;mshtml=" LC_ALL=C.UTF-8
trap 'wineserver -k 2>/dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
wineboot -i >/dev/null 2>&1
mkdir "$work/texts" && cd "$work/texts" || exit 2

failed=0
pass() { echo "ok $1"; }
fail() { echo "not ok $1: $2"; failed=$((failed + 1)); }
check() { # check NAME CONDITION...
  name=$1
  shift
  if "$@"; then pass "$name"; else fail "$name" "failed: $*"; fi
}
exe=$build/windows/inkling.exe
linux=$root/${BIN:-.}/inkling
inkling() { timeout -s KILL 300 wine "$exe" "$@"; }
console() { timeout -s KILL 300 python3 "$root/tests/windows_console.py" "$@"; } # TEXT KEYS... -- COMMAND...
# says NAME STATUS WORDS COMMAND...: ends with the status, and stderr contains the words
says() {
  name=$1 status=$2 words=$3
  shift 3
  "$@" >out 2>err </dev/null
  got=$?
  if [ $got -ne "$status" ]; then fail "$name" "status $got, not $status: $(cat err)"
  elif ! grep -qF -e "$words" err; then fail "$name" "no \"$words\" in: $(cat err)"
  else pass "$name"; fi
}
first() { head -c "$1"; } # closes the pipe early

# ---- training ----

folder='книга 書 bók'
small="--layers 1 --dim 32 --batch 2 --ctx 32 --threads 1 --dtype f32 --isa v2 --seed 1"
mkdir "$folder"
"$build/stories" --bytes 60000 >"$folder/Ωmega 一.txt" 2>/dev/null
sed 's/$/\r/' "$folder/Ωmega 一.txt" >"$folder/crlf.txt"
# shellcheck disable=SC2086 # options are words
{
  inkling train "$folder" $small --steps 40 --out whole.run >out 2>&1 </dev/null
  check "trains on a folder with a name in three scripts" [ -s whole.run/model.safetensors ]
  check "files have no carriage return" [ "$(tr -dc '\r' <whole.run/report.html | wc -c)" -eq 0 ]
  "$linux" train "$folder" $small --steps 40 --out linux.run >linux.out 2>&1 </dev/null
  loss() { grep -o '"loss":[0-9.]*' "$1/metrics.jsonl" | cut -d: -f2; }
  for isa in $("$linux" train --version | grep -o 'v[234]\>'); do
    for program in "$linux" inkling; do
      "$program" train "$folder" $small --isa "$isa" --steps 50 --overwrite --out isa.run >out 2>&1 </dev/null
      [ "$program" = inkling ] || loss isa.run >b
    done
    loss isa.run >a
    # shellcheck disable=SC2016 # of awk
    check "losses of $isa within 1e-6 of Linux's" awk 'NR == FNR { a[FNR] = $1; n = FNR; next }
      { d = $1 - a[FNR]; if (d > 1e-6 || d < -1e-6) bad = 1 } END { exit bad || FNR != n || n < 50 }' a b
  done
  for part in tokenizer.json config.json tokenizer_config.json; do
    check "the same $part as on Linux" cmp -s "whole.run/$part" "linux.run/$part"
  done

  # a long run that is stopped, and the same run without an interruption up to the same step
  console tok/s '\x03' -- wine "$exe" train "$folder" $small --steps 3000 --out cut.run >out 2>&1
  got=$?
  check "Ctrl-C ends the run with status 130" [ $got -eq 130 ]
  check "Ctrl-C saves the run" [ -s cut.run/last/state.safetensors ]
  inkling train --resume=cut.run --steps 3000 >out 2>&1 </dev/null
  inkling train "$folder" $small --steps 3000 --out uncut.run >out 2>&1 </dev/null
  check "resumed, the model has the bytes of an uninterrupted run" cmp -s cut.run/model.safetensors uncut.run/model.safetensors

  # ---- what people type and do ----
  cp "$folder/Ωmega 一.txt" small.txt
  console tok/s '\x03' "Press Enter" '\r' -- wine "$exe" small.txt >out 2>&1
  check "a text that is dropped on the program is trained on" [ -s small.run/last/state.safetensors ]
  console "Press Enter" '\r' -- wine "$exe" >out 2>&1
  check "started with the mouse, the program says what to do and waits" grep -q "Drop a text" out
  mkdir 'a b' train
  cp small.txt 'a b/b.txt'
  says "a folder called train is no text" 3 "No such file" inkling train none.txt
  rmdir train
  inkling train "$folder"'\crlf.txt' $small --steps 2 '--out=a b\new.run' >out 2>&1 </dev/null
  check "backslashes, blanks" [ -s 'a b/new.run/model.safetensors' ]
  inkling train small.txt $small --steps 2 --out 'new folder\new.run' >out 2>&1 </dev/null
  check "backslashes of a folder that does not exist" [ -s 'new folder/new.run/model.safetensors' ]
  says "a text in a folder that does not exist" 3 "no/such/book.txt: No such file" inkling train 'no\such\book.txt'
  mkdir below
  (cd below && console tok/s '\x03' "Press Enter" '\r' -- wine "$exe" '..\a b\b.txt' >/dev/null 2>&1)
  check "a text elsewhere that is dropped on the program" [ -s 'a b/b.run/last/state.safetensors' ]
  here="Z:$(pwd | sed 's|/|\\|g')"
  inkling train "$here\\small.txt" $small --steps 2 --out drive.run >out 2>&1 </dev/null
  check "a drive letter" [ -s drive.run/model.safetensors ]
  inkling train small.txt $small --steps 2 --out "$here\\out.run" >out 2>&1 </dev/null
  check "a drive letter of the run" [ -s out.run/model.safetensors ]
  long=$(printf '%0120d' 7)
  mkdir -p "$long/$long"
  inkling train small.txt $small --steps 2 --out "$long/$long/long.run" >out 2>&1 </dev/null
  check "a path of more than 260 characters" [ -s "$long/$long/long.run/model.safetensors" ]
  inkling train - $small --steps 2 --out stdin.run >out 2>&1 <small.txt
  check "standard input from a file" [ -s stdin.run/model.safetensors ]
  # shellcheck disable=SC2002 # a pipe is what is tested
  cat small.txt | inkling train - $small --steps 2 --out pipe.run >out 2>&1
  check "standard input from a pipe gives the same model" cmp -s pipe.run/model.safetensors stdin.run/model.safetensors
}
mkdir tiny
if mount -t tmpfs -o size=300k tmpfs tiny 2>/dev/null; then
  says "a full disk" 7 "No space left" inkling train small.txt --layers 1 --dim 96 --steps 5 --out tiny/full.run
  umount tiny
else echo "skipped a full disk: only root can mount one"; fi
says "train nul is refused" 3 "neither a file nor a directory" inkling train nul
says "train con is refused" 7 "con.run" inkling train con
says "an output that is the text under another case" 2 "" inkling generate whole.run --prompts small.txt --out SMALL.TXT
says "a missing text" 3 "No such file" inkling train "$folder/нет.txt"

# ---- generating ----

same() { # same NAME ARGUMENTS...: the output of both programs
  name=$1
  shift
  inkling generate "$@" >a 2>/dev/null </dev/null
  "$linux" generate "$@" >b 2>/dev/null </dev/null
  check "$name" [ -s a ]
  check "$name: as on Linux" cmp -s a b
}
texts=$(for program in train generate; do inkling $program --help-all </dev/null; done |
  grep -o -e '--[a-z-]* TEXT' -e "--[a-z-]* '" | cut -d ' ' -f 1 | sort -u)
check "--help-all names options with texts" [ "$(echo "$texts" | wc -l)" -ge 6 ]
for option in $texts; do
  check "in the text of $option a backslash is no separator" grep -q "L\"$option\"" "$root/src/windows/main.c"
done
same "generate" whole.run -n 40 --seed 3 --isa v2
same "a prompt in three scripts" whole.run -p "Grüße книга 書" -n 20 --seed 3 --isa v2
same "escapes in a prompt are no path" whole.run -p 'a\nb' -n 5 --seed 3 --isa v2
printf 'Once\r\nGrüße 書\r\n' >prompts.txt
same "--prompts" whole.run --prompts prompts.txt -n 10 --seed 1 --isa v2
same "--score" whole.run --score small.txt --isa v2
for kind in html gguf; do
  inkling generate whole.run --$kind "a 書.$kind" >/dev/null 2>&1 </dev/null
  "$linux" generate whole.run --$kind "b.$kind" >/dev/null 2>&1 </dev/null
  if [ -s "b.$kind" ]; then check "--$kind writes the bytes of Linux" cmp -s "a 書.$kind" "b.$kind"
  else echo "skipped --$kind writes the bytes of Linux: the build has no WebAssembly module"; fi
done
# The part of wine that usually does this is left out above.
wine reg add 'HKCR\.html' /ve /d htmlfile /f >/dev/null 2>&1
mkdir opener
printf '#!/bin/sh\necho "$*" >>"%s"\n' "$work/texts/opened" >opener/xdg-open
chmod +x opener/xdg-open
PATH=$work/texts/opener:$PATH inkling train --report whole.run --out 'r 書.html' --open >out 2>err </dev/null
for _ in $(seq 50); do [ -e opened ] && break; sleep 0.2; done
check "--open shows a page in the browser" grep -q '^file://.*/r%20%E6%9B%B8.html$' opened
inkling generate whole.run -n 2000 2>err </dev/null | first 20 >/dev/null
check "a reader that closes the pipe is no error" [ -z "$(grep -a 'cannot write' err)" ]
printf 'Grüße\n' | inkling generate whole.run -i -n 5 >out 2>err
check "-i from a pipe" [ -s out ]
console '>' 'Grüße\r' '5 tokens after a prompt of 7' '' '>' 'again\r' '5 tokens after' '' '>' '/quit\r' -- \
  wine "$exe" generate whole.run -i -n 5 --ignore-eos --greedy --seed 1 >out 2>&1
check "-i on a console reads lines in UTF-8" [ $? -eq 0 ]

# ---- several processes ----

# shellcheck disable=SC2086
{
  inkling train "$folder" $small --steps 4 --sweep lr=1e-3,3e-3 --out "sweep 書" >out 2>err </dev/null
  check "--sweep" [ "$(find "sweep 書" -name '*.run' | wc -l)" -eq 2 ]
  inkling train small.txt $small --steps 2 --sweep 'keep-at=steps:1,steps:2' --out names >out 2>err </dev/null
  check "no colon in the name of a run" [ -s names/1-keep-at=steps_1.run/model.safetensors ]
  console @stopped/1-seed=1.run/metrics.jsonl '\x03' -- \
    wine "$exe" train "$folder" $small --steps 6000 --sweep seed=1,2 --jobs 2 --out stopped >out 2>&1
  check "Ctrl-C ends a sweep with status 130" [ $? -eq 130 ]
  check "and says how it goes on" grep -q 'continue with: ' out
  console "tok/s" '' -- wine "$exe" train "$folder" $small --steps 3000 --out locked.run >out 2>&1 &
  other=$!
  for _ in $(seq 100); do [ -e locked.run/metrics.jsonl ] && break; sleep 0.2; done
  says "a run that is in use is refused" 8 "in use by another process" inkling train --resume=locked.run
  says "generate reads a run that is being trained" 0 "" inkling generate locked.run -n 5
  wait $other
  check "which trains on" [ $? -eq 0 -a -s locked.run/result.json ]
}
echo "done"
cd "$root" || exit 2

# ---- unit tests, and tests of the programs ----

if [ "${FULL:-}" ]; then
  # What these use does not exist on Windows: docs/testing.md.
  left_out="test_chart test_checkpoint_classes test_checkpoint_config test_checkpoint_directory test_checkpoint_encoders
    test_checkpoint_state test_checkpoint_weights test_collective test_corpus test_doctor test_file test_file_list test_memory
    test_model_generation test_runs test_safetensors test_summary test_token_file"
  # shellcheck disable=SC2086 # names are words
  tests=$(for test in tests/test_*.c; do basename "$test" .c; done | grep -vxF "$(echo $left_out | tr ' ' '\n')" | xargs)
  $MAKE --no-print-directory windows-tests WINDOWS_TESTS="$tests" || exit 1
  for test in $left_out; do echo "skipped $test: docs/testing.md says why"; done
  # run.sh gets a directory with a script for each program, which calls wine.
  as=$build/windows/as
  rm -rf "$as"
  mkdir -p "$as/tests"
  for test in $tests; do printf '#!/bin/sh\nexec wine "%s" "$@"\n' "$build/windows/tests/$test.exe" >"$as/tests/$test"; done
  for program in train generate; do printf '#!/bin/sh\nexec wine "%s" %s "$@"\n' "$exe" $program >"$as/$program"; done
  chmod +x "$as"/train "$as"/generate "$as"/tests/*
  for program in stories pairs talks; do ln -s "$build/$program" "$as/$program"; done
  BIN=${as#"$root"/} ONLY="$tests init.sh pairs.sh kept.sh" tests/run.sh "${as#"$root"/}" || failed=1
fi
[ $failed -eq 0 ]
