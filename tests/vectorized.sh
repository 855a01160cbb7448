#!/bin/sh
# Checks that the compiler vectorizes every loop of src/kernels/cpu marked `#pragma omp simd` at the full width of the
# instruction set: vectorized.sh [BUILD...]  (of CPU_BUILDS in the Makefile; default: all of v3 and v4, or of neon; CC: gcc
# or clang)
#
# A scalar loop gives the same numbers several times more slowly, so no other test detects it. The compilers report
# which loops they have vectorized. Loops over a constant number of lanes (`l < LANES`) are not checked: the compilers
# unroll them first and do not report what happens then.
set -u
cd "$(dirname "$0")/.." || exit 2
cc=${CC:-gcc}
unset MAKEFLAGS MAKELEVEL
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $("$cc" --version 2>/dev/null) in
  *clang*) report=-Rpass=loop-vectorize clang=1 ;;
  *Free\ Software*) report=-fopt-info-vec-optimized clang= ;;
  *) echo "vectorized: $cc is neither gcc nor clang" >&2; exit 2 ;;
esac
case $("$cc" -dumpmachine) in
  x86_64*) usual="v3 v3_bf16 v4 v4_bf16" ;;
  aarch64*) usual="neon neon_bf16" ;;
  *) echo "vectorized: only for x86-64 and aarch64"; exit 0 ;;
esac
# shellcheck disable=SC2086 # names are words
[ $# -gt 0 ] || set -- $usual

for build; do
  case $build in v4*) bytes=64 ;; v3*) bytes=32 ;; *) bytes=16 ;; esac
  flags=$(make -s --no-print-directory CC="$cc" kernel-flags CPU_BUILD="$build") || exit 2
  # One report per source; several compilers run in parallel.
  rm -f "$work"/*.report
  # shellcheck disable=SC2016 # of the shell below
  printf '%s\n' src/kernels/cpu/*.c | xargs -P "$(nproc 2>/dev/null || echo 2)" -n 1 sh -c '
    "$1" $2 $3 -c "$5" -o /dev/null 2>"$4/${5##*/}.report" || { cat "$4/${5##*/}.report" >&2; exit 255; }' \
    - "$cc" "$flags" "$report" "$work" || exit 2
  cat "$work"/*.report >"$work/report"
  awk -v bytes="$bytes" -v build="$build" -v clang="$clang" '
    FILENAME == ARGV[1] { # FILE:LINE:COLUMN: optimized: loop vectorized using 32 byte vectors
      sub(/^\.\//, "")
      split($0, at, ":")
      # gcc reports bytes, clang the number of elements
      if (match($0, clang ? "vectorization width: [0-9]+" : "loop vectorized using [0-9]+")) {
        width = substr($0, RSTART + 21, RLENGTH - 21) + 0
        if (width > widest[at[1], at[2]]) widest[at[1], at[2]] = width
      }
      next
    }
    function is_done(line, width) { return widest[FILENAME, line] >= width }
    FNR == 1 { marked = skipped = in_element = 0 }
    /^#if CPU_BF16$/ { skipped = build !~ /_bf16$/; in_element = 1; next }
    /^#else$/ && in_element { skipped = !skipped; next }
    /^#endif$/ && in_element { skipped = in_element = 0; next }
    skipped { next }
    /#pragma omp simd/ { marked = 1; next }
    marked && /for \(int l = 0; l < [A-Z_0-9]+;/ { marked = 0; next }
    marked && /for \(/ {
      loops++
      marked = 0
      width = clang ? bytes / (/double/ ? 8 : 4) : bytes
      # clang reports the line of the pragma; gcc this line, the line of the loop, or the first line of its body
      if (!is_done(FNR - 1, width) && !is_done(FNR, width) && !is_done(FNR + 1, width)) {
        print FILENAME ":" FNR ": not vectorized for " build ":" $0
        bad++
      }
    }
    END { printf "vectorized: %s: %d of %d loops\n", build, loops - bad, loops; exit bad > 0 || !loops }
  ' "$work/report" src/kernels/cpu/*.c src/kernels/cpu/*.h || status=1
done
exit "${status:-0}"
