#!/bin/sh
# Runs the unit tests of a build directory and the tests of the programs, in parallel on all processors. Prints a line
# for each test with its wall time and processor time in seconds, and `N passed, N failed` at the end.
#
#   run.sh BUILD            all tests, or those in ONLY ("pool programs")
#   run.sh --check NAME...  runs nothing; prints the full names of these tests, or similar names
#
# BIN: directory of ./train and ./generate (default: .). EMULATED: build directory of the CUDA kernels for the CPU,
# whose tests are also run (default: none); the other tests have no such card. FULL=1: the long tests, too.
set -u

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
  "$@" >"$build/tests/$name.log" 2>&1
  echo "$? $(($(date +%s) - start))" >"$build/tests/$name.status"
  times >>"$build/tests/$name.status" # the last line: 0m1.25s 0m0.50s, of the test
  exit 0
fi

# ---- names ----

# One name per line; scripts first, because they take longest.
scripts() {
  printf '%s\n' programs.sh pairs.sh kept.sh init.sh export.sh vocabularies.sh page.sh generate.sh texts.sh choose.sh dump.sh \
    reports.sh bench.sh sweep.sh build_settings.sh install.sh dist.sh
  printf '%s\n' failures.py peers.py docs.py formats.py interactive.py gguf_files.py foreign_tokenizers.py fuzz.sh
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
# Whether the requirements of a script are installed.
is_possible() {
  if [ ! "${FULL:-}" ] && is_long "$1"; then return 1; fi
  case $1 in
    dist.sh)
      [ -e "$build/library-sources/complete" ] && [ -e .git ] && command -v python3 &&
        command -v "$(uname -m)-linux-gnu-gcc"
      ;;
    foreign_tokenizers.py) python3 -c 'import tokenizers' 2>/dev/null ;;
    peers.py) command -v python3 && ls "${BIN:-.}"/inkling-*.so && command -v mpirun ;;
    *.py) command -v python3 ;;
  esac >/dev/null 2>&1
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
passed=0
failed=0
# shellcheck disable=SC2086 # names are words
if [ -n "${ONLY:-}" ]; then all=$(called $ONLY) || exit 2
else all=$(for name in $(names); do if is_possible "$name"; then echo "$name"; fi; done); fi
rm -f "$build"/tests/*.status
echo "$all" | sed "s|^|$build |" | xargs -P "$(nproc 2>/dev/null || echo 2)" -L 1 sh "$0" --job

while read -r name; do
  log=$build/tests/$name.log
  status=1 seconds=0
  [ -s "$build/tests/$name.status" ] && read -r status seconds <"$build/tests/$name.status"
  cpu=$(tail -n 1 "$build/tests/$name.status" | awk '{ for (i = 1; i <= 2; i++) { split($i, t, "m"); s += 60 * t[1] + t[2] } printf "%.0f", s }')
  case $name in
    *.sh | *.py)
      ok=$(grep -a -c '^ok ' "$log")
      bad=$(grep -a -c '^not ok ' "$log")
      grep -a -q '^done$' "$log" || bad=$((bad + 1))
      ;;
    *)
      ok=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
      bad=$(sed -n 's/^\[  FAILED  \] \([0-9]*\) test.*/\1/p' "$log" | awk '{ n += $1 } END { print n + 0 }')
      ;;
  esac
  # A crash, or a program that ran no test, is also a failure.
  if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] || [ "$ok" -eq 0 ]; then bad=$((bad + 1)); fi
  [ "$bad" -eq 0 ] || grep -a -E -v '^(ok |\[ +(RUN|OK) +\])' "$log" | tail -n 60
  printf '%-30s %4d passed, %d failed, %d s, %d s of CPU\n' "$name" "$ok" "$bad" "$seconds" "$cpu"
  passed=$((passed + ok))
  failed=$((failed + bad))
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
  passed=$((passed + ok))
  failed=$((failed + bad))
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
