# shellcheck shell=sh
# shellcheck disable=SC2034 # for those who source it
# Shared by the tests of the two programs; sourced with the build directory as the first argument. BIN: directory of
# ./train and ./generate (default: .). Each test runs in its own temporary directory and prints `ok NAME` or
# `not ok NAME: why` or `skipped NAME: why` for each check and `done` at the end.
here=$(pwd)
build=$here/$1
bin=$here/${BIN:-.}
train=$bin/train
generate=$bin/generate
varied=${TRAIN_FLAGS:-} # for every model that is trained, beside what the test needs: see tests/matrix.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# A sanitized build, an emulated processor and wine are many times slower: there a model is trained for a moment, and what it has
# learned is not looked at.
case $1 in *sanitize* | *aarch64* | *windows*) hurried=1 ;; *) hurried= ;; esac
case $1 in *windows*) windows=1 ;; *) windows= ;; esac # in wine: it passes no signals on
size() { if [ "$hurried" ]; then echo "--dim 16 --batch 2"; else echo "$*"; fi; } # size --dim N --batch N: or smaller
steps() { if [ "$hurried" ]; then echo $(($1 / 20)); else echo "$1"; fi; }
check_learned() { [ "$hurried" ] || check "$@"; } # as check

pass() { echo "ok $1"; }
fail() { echo "not ok $1: $2"; }
# has TOOL NAME: whether the tool is installed; without it the check of that name is skipped
has() { command -v "$1" >/dev/null 2>&1 || { echo "skipped $2: $1 is missing"; return 1; }; }
check() { # check NAME CONDITION...
  name=$1
  shift
  case $1 in python3 | xmllint) has "$1" "$name" || return 0 ;; esac
  if "$@"; then pass "$name"; else fail "$name" "failed: $*"; fi
}

# held_out FILE: the end of it that ./train holds out; its lines are short and it has one document
held_out() {
  place=$(LC_ALL=C awk -v bytes="$(wc -c <"$1")" 'BEGIN { wanted = int(bytes * (1 - 0.1)) }
    !end && at >= wanted { end = at } { at += length($0) + 1 } END { print end }' "$1")
  tail -c +$((place + 1)) "$1"
}

# Every file with its inode and its size
listing() { find . -type f ! -name .lock -exec ls -lin {} + | awk '{ print $1, $6, $NF }' | sort; }

# refused NAME STATUS WORDS COMMAND...: ends with STATUS, one to three lines on stderr, beside notes, that contain WORDS, nothing
# on stdout, and neither leaves a file behind nor replaces one
refused() {
  name=$1 status=$2 words=$3
  shift 3
  before=$(listing)
  "$@" >"$work/../out.$$" 2>"$work/../err.$$" </dev/null
  got=$?
  lines=$(grep -cv '^note: ' "$work/../err.$$")
  if [ "$got" -ne "$status" ]; then fail "$name" "status $got, not $status: $(cat "$work/../err.$$")"
  elif ! grep -q -e "$words" "$work/../err.$$"; then fail "$name" "no \"$words\" in: $(cat "$work/../err.$$")"
  elif [ "$lines" -lt 1 ] || [ "$lines" -gt 3 ]; then fail "$name" "$lines lines of message: $(cat "$work/../err.$$")"
  elif [ -s "$work/../out.$$" ]; then fail "$name" "wrote to stdout"
  elif [ "$(listing)" != "$before" ]; then fail "$name" "changed files: $(listing >"$work/../after.$$"; echo "$before" | diff - "$work/../after.$$")"
  else pass "$name"; fi
  rm -f "$work/../out.$$" "$work/../err.$$" "$work/../after.$$"
}

# stopped SECONDS COMMAND...: presses Ctrl-C after SECONDS, later where programs are slow; returns the command's status
stopped() {
  seconds=$1
  shift
  "$@" 2>/dev/null &
  pid=$!
  sleep "$seconds"
  [ ! "$hurried" ] || sleep 5
  kill -INT $pid
  wait $pid
}

# stopped_in RUN COMMAND...: Ctrl-C a tenth of a second after the command has begun to write RUN
stopped_in() {
  run=$1
  shift
  "$@" 2>/dev/null &
  pid=$!
  i=0
  while [ ! -e "$run/metrics.jsonl" ] && [ $i -lt 300 ]; do sleep 0.1; i=$((i + 1)); done
  sleep 0.1
  kill -INT $pid
  wait $pid
}

# near A B DISTANCE: two numbers differ by at most that
near() { awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN { exit !(a != "" && b != "" && a - b <= d && b - a <= d) }'; }
# near_loss RUN RUN SHARE: the last validation losses differ by at most that fraction
last_loss() { sed -n 's/.*"val_loss": *\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }
near_loss() { near "$(last_loss "$1")" "$(last_loss "$2")" "$(last_loss "$1" | awk -v s="$3" '{ print s * $1 }')"; }

# tensors_equal RUN RUN [BYTES]: so much of the end of their states is the same, where the tensors stand; the header holds seconds
tensors_equal() {
  set -- "$1" "$2" "${3:-$([ "$hurried" ] && echo 100000 || echo 300000)}" # without the header
  tail -c "$3" "$1/last/state.safetensors" >one
  tail -c "$3" "$2/last/state.safetensors" | cmp - one
}
