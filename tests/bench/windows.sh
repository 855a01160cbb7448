#!/bin/sh
# Compares the speed of the program for Windows, in wine, with that for Linux: windows.sh EXE INKLING [ROUNDS]
#
# Both time 60 steps of preset nano in f32 on one thread, alternating, ROUNDS times each (default 7), with the best instruction set
# that both have. Prints the milliseconds of a step and the ratio of the medians. The machine must be quiet.
set -eu
exe=$1 linux=$2 rounds=${3:-7}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export WINEDEBUG=-all
for page in docs/*.md; do cat "$page"; done >"$work/text.txt"
step() { # step PROGRAM...
  "$@" train "$work/text.txt" --preset nano --dtype f32 --threads 1 --bench 60 2>/dev/null </dev/null |
    sed 's/.*"step_ms": *\([0-9.]*\).*/\1/'
}
median() { sort -n "$1" | awk '{ a[NR] = $1 } END { print (a[int((NR + 1) / 2)] + a[int(NR / 2) + 1]) / 2 }'; }
step wine "$exe" >/dev/null # starts wine's server
for _ in $(seq "$rounds"); do
  step "$linux" >>"$work/linux"
  step wine "$exe" >>"$work/windows"
  printf 'Linux %s ms, Windows %s ms\n' "$(tail -n 1 "$work/linux")" "$(tail -n 1 "$work/windows")"
done
median "$work/linux" | { read -r a; median "$work/windows" | awk -v a="$a" '{ print "Windows / Linux: " $1 / a }'; }
