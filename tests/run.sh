#!/bin/sh
# Runs the unit tests of a build directory and the tests of the programs, in parallel on all processors. Prints a line
# for each test with its wall time and processor time in seconds, the checks that were skipped, and
# `N passed, N failed, N skipped` at the end.
#
#   run.sh BUILD            all tests, or those in ONLY ("pool programs")
#   run.sh --check NAME...  runs nothing; prints the full names of these tests, or similar names
#
# BIN: directory of ./train and ./generate (default: .). EMULATED: build directory of the CUDA kernels for the CPU,
# whose tests are also run (default: none); the other tests have no such card. FULL=1: the long tests, too.
set -u

# missing_for NAME: what a script needs and this machine does not have
missing_for() {
  case $1 in *.py | bench.sh | dist.sh) command -v python3 >/dev/null || { echo python3; return; } ;; esac
  case $1 in
    dist.sh)
      [ -e .git ] || echo "the git repository"
      [ -e "$build/library-sources/complete" ] || echo "the source of the libraries (make static fetches it)"
      command -v "$(uname -m)-linux-gnu-gcc" >/dev/null || echo "$(uname -m)-linux-gnu-gcc"
      ;;
    foreign_tokenizers.py) python3 -c 'import tokenizers' 2>/dev/null || echo "Python's package tokenizers" ;;
    peers.py) { ls "${BIN:-.}"/inkling-*.so && command -v mpirun; } >/dev/null 2>&1 || echo "MPI" ;;
  esac
}

# One job, for xargs below: run.sh --job BUILD NAME
if [ "${1:-}" = --job ]; then
  build=$2 name=$3
  export EMU_DEVICES=0 # an emulated card would be taken for a GPU
  start=$(date +%s)
  case $name in
    *.sh) set -- sh "tests/$name" "$build" ;;
    foreign_tokenizers.py) set -- python3 tests/foreign_tokenizers.py --reader "$build/tests/fuzz/fuzz_tokenizer" ;;
    peers.py) set -- env BUILD="$build" python3 tests/peers.py ;;
    failures.py)
      case $build in *sanitize*) some=3 ;; *) some=5 ;; esac # failures of each kind
      set -- python3 tests/failures.py "$build" --some $some --jobs 1
      ;;
    *.py) set -- python3 "tests/$name" ;;
    *) set -- "$build/tests/$name" ;;
  esac
  missing=$(missing_for "$name" | head -n 1)
  [ -z "$missing" ] || set -- printf 'skipped %s: %s is missing\ndone\n' "$name" "$missing"
  "$@" >"$build/tests/$name.log" 2>&1
  echo "$? $(($(date +%s) - start))" >"$build/tests/$name.status"
  times >>"$build/tests/$name.status" # the last line: 0m1.25s 0m0.50s, of the test
  exit 0
fi

# ---- names ----

# One name per line; scripts first, because they take longest: those of the programs from the largest to the smallest.
scripts() {
  # shellcheck disable=SC2046 # names are words
  grep -l '^\. tests/program_helpers.sh' $(ls -S tests/*.sh) | sed 's|.*/||'
  printf '%s\n' bench.sh build_settings.sh find_cuda.sh fuzz.sh failures.py chat.py chat_session.py llamacpp_chat.py ollama_chat.py peers.py \
    scaling_law.py docs.py formats.py interactive.py gguf_files.py foreign_tokenizers.py
}
names() {
  scripts
  for source in tests/test_*.c; do basename "$source" .c; done
}
# What is long with sanitizers, and runs the same code as the other tests.
is_long() {
  case $build$1 in
    *sanitize*programs.sh | *sanitize*generate.sh | *sanitize*texts.sh | *sanitize*fuzz.sh) false ;;
    *sanitize*failures.py | *sanitize*interactive.py) false ;;
    *sanitize*.sh | *sanitize*.py) true ;;
    *) false ;;
  esac
}
# called WORD...: the tests with these names: "pool", "tests/test_pool.c", "programs"
called() {
  for word; do
    word=${word##*/}
    found=$(names | grep -x -F -e "$word" -e "${word%.c}" -e "test_${word%.c}" -e "$word.sh" -e "$word.py")
    if [ -n "$found" ]; then echo "$found"; continue; fi
    near=$(names | awk -v word="${word%.*}" '
      function least(a, b, c) { return a < b ? (a < c ? a : c) : (b < c ? b : c) }
      function distance(a, b,  i, j, d) {
        for (i = 0; i <= length(a); i++) d[i, 0] = i
        for (j = 0; j <= length(b); j++) d[0, j] = j
        for (i = 1; i <= length(a); i++)
          for (j = 1; j <= length(b); j++)
            d[i, j] = least(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (substr(a, i, 1) != substr(b, j, 1)))
        return d[length(a), length(b)]
      }
      BEGIN { sub(/^test_/, "", word) }
      { bare = $0; sub(/^test_/, "", bare); sub(/\..*/, "", bare) }
      index(bare, word) || index(word, bare) || distance(word, bare) <= 2 { printf "%s%s", (n++ ? ", " : ""), $0 }')
    near=${near:+did you mean $near?}
    echo "no test is called $word; ${near:-the folder tests/ has them all}" >&2
    exit 2
  done
}

if [ "${1:-}" = --check ]; then
  shift
  called "$@"
  exit
fi

# ---- the run ----

build=$1
passed=0 failed=0 skipped=0
# shellcheck disable=SC2086 # names are words
if [ -n "${ONLY:-}" ]; then all=$(called $ONLY) || exit 2
else all=$(for name in $(names); do if [ "${FULL:-}" ] || ! is_long "$name"; then echo "$name"; fi; done); fi
rm -f "$build"/tests/*.status
echo "$all" | sed "s|^|$build |" | xargs -P "$(nproc 2>/dev/null || echo 2)" -L 1 sh "$0" --job

# tests_that PASSED|FAILED|SKIPPED: so many of cmocka's did, in $log
tests_that() { awk -v "word=$1" '$2 == word && match($0, /[0-9]+ test\(s\)/) { n += substr($0, RSTART) } END { print n + 0 }' "$log"; }

while read -r name; do
  log=$build/tests/$name.log
  status=1 seconds=0
  [ -s "$build/tests/$name.status" ] && read -r status seconds <"$build/tests/$name.status"
  cpu=$(tail -n 1 "$build/tests/$name.status" | awk '{ for (i = 1; i <= 2; i++) { split($i, t, "m"); s += 60 * t[1] + t[2] } printf "%.0f", s }')
  case $name in
    *.sh | *.py)
      ok=$(grep -a -c '^ok ' "$log")
      bad=$(grep -a -c '^not ok ' "$log")
      left=$(grep -a -c '^skipped' "$log")
      grep -a -q '^done$' "$log" || bad=$((bad + 1))
      ;;
    *)
      ok=$(tests_that PASSED) bad=$(tests_that FAILED) left=$(tests_that SKIPPED)
      ;;
  esac
  # A crash, or a program that ran no test, is also a failure.
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] || [ $((ok + left)) -eq 0 ]; then bad=$((bad + 1)); fi
  [ "$bad" -eq 0 ] || grep -a -E -v '^(ok |\[ +(RUN|OK) +\])' "$log" | tail -n 60
  printf '%-30s %4d passed, %d failed, %d skipped, %d s, %d s of CPU\n' "$name" "$ok" "$bad" "$left" "$seconds" "$cpu"
  sed -n -e '/test(s)/d; s/^skipped/  &/p; s/^\[  SKIPPED \]/  skipped/p' "$log" | sort -u
  passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
done <<END
$all
END

if [ -n "${EMULATED:-}" ]; then
  echo "CUDA kernels on the CPU:"
  case $build in *sanitize*) kind=address ;; *) kind=plain ;; esac
  ORDERS="fwd rev" tests/cuda_on_cpu/run.sh "$EMULATED" $kind >"$EMULATED/tests/run.log"
  status=$?
  sed '$d' "$EMULATED/tests/run.log"
  ok=$(sed -n '$s/^\([0-9]*\) passed, [0-9]* failed$/\1/p' "$EMULATED/tests/run.log")
  bad=$(sed -n '$s/^[0-9]* passed, \([0-9]*\) failed$/\1/p' "$EMULATED/tests/run.log")
  ok=${ok:-0} bad=${bad:-1}
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
  passed=$((passed + ok)) failed=$((failed + bad))
elif [ ! "${ONLY:-}" ]; then
  echo "skipped the CUDA kernels on the CPU: CUDA's headers are missing"
  skipped=$((skipped + 1))
fi

echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
