#!/bin/sh
# Breaks the kernels on purpose, one mistake of mutations.txt at a time, and says which build notices. A mistake that no
# build notices is a test that is missing. Run from the repository's root; works on a copy in build/mutants.
#   tests/cuda_on_cpu/mutate.sh               all, in the three builds (hours)
#   tests/cuda_on_cpu/mutate.sh "barrier"     those whose name or file matches
#   KINDS=plain tests/cuda_on_cpu/mutate.sh   in this build alone
# A pattern that is found nowhere is an error: the table has to follow the code.
set -u

wanted=${1:-.}
kinds=${KINDS:-plain address race}
table=$(pwd)/tests/cuda_on_cpu/mutations.txt
copy=$(pwd)/build/mutants
jobs=$(nproc 2>/dev/null || echo 2)
status=0
matched=

# The copy takes the builds along, so that only what a mistake touches is compiled again.
rm -rf "$copy"
mkdir -p "$copy/build"
for entry in * .[a-z]*; do
  case $entry in build | .git | .gitignore | *.run) ;; *) cp -Rp "$entry" "$copy" ;; esac
done
for kind in $kinds; do
  name=cuda-on-cpu$([ "$kind" = plain ] || echo "-$kind")
  [ ! -d "build/$name" ] || cp -Rp "build/$name" "$copy/build"
done
cd "$copy" || exit 1

compile() { # compile KIND PROGRAM
  sanitize=$([ "$1" = plain ] || echo "$1")
  dir=build/cuda-on-cpu${sanitize:+-$sanitize}
  make --no-print-directory -j "$jobs" CUDA_ON_CPU=1 BUILD="$dir" BIN="$dir" SANITIZE="$sanitize" \
    ${sanitize:+CFLAGS=-O1} "$dir/tests/$2" >compile.log 2>&1
}

# What a program has to say: its exit status and the tests that failed. verdict KIND PROGRAM
verdict() {
  dir=build/cuda-on-cpu$([ "$1" = plain ] || echo "-$1")
  case $1 in
    plain) settings='EMU_ORDER=rand:7 EMU_STREAMS=lazy' ;;
    address) settings='EMU_ORDER=rand:7 EMU_STREAMS=lazy EMU_HOSTGUARD=1' ;;
    *) settings='EMU_ORDER=fwd' ;;
  esac
  # shellcheck disable=SC2086 # settings are words
  env $settings INKLING_TEST_BACKEND=cuda timeout 300 "$dir/tests/$2" >run.log 2>&1
  echo "status $?"
  grep -E '^\[ +(FAILED|ERROR) +\] cuda' run.log | sort -u
}

# What the program says of the code as it is; made when first needed.
sound() { # sound KIND PROGRAM
  known=$copy/sound${INKLING_WGMMA:-}${INKLING_PDL:+early}.$1.$2
  if [ ! -f "$known" ]; then
    compile "$1" "$2" || echo "does not compile" >"$known"
    [ -f "$known" ] || verdict "$1" "$2" >"$known"
    [ "$(head -n 1 "$known")" = "status 0" ] || echo "note: $2 ($1) fails without a mistake, too: $(tr '\n' ' ' <"$known")" >&2
  fi
}

# Whether a program notices what the tree has in it: noticed KIND PROGRAMS...
noticed() {
  kind=$1
  shift
  for program in "$@"; do
    compile "$kind" "$program" || { echo "(does not compile)"; return; }
    verdict "$kind" "$program" >got
    cmp -s got "$copy/sound${INKLING_WGMMA:-}${INKLING_PDL:+early}.$kind.$program" || { echo caught; return; }
  done
  echo "-"
}

# One mistake in one line: mutant NAME FILE LINE PATTERN REPLACEMENT PROGRAMS...
mutant() {
  name=$1 file=$2 line=$3 pattern=$4 replacement=$5
  shift 5
  unset INKLING_WGMMA INKLING_PDL
  case $name in wgmma*) export INKLING_WGMMA=1 ;; early*) export INKLING_PDL=1 ;; esac
  for kind in $kinds; do
    for program in "$@"; do sound "$kind" "$program"; done
  done
  cp -p "$file" original
  sed -E "${line}s@$pattern@$replacement@" original >"$file"
  results='' caught=
  for kind in $kinds; do
    result=$(noticed "$kind" "$@")
    results="$results  $kind: $result"
    [ "$result" != caught ] || caught=1
  done
  cp original "$file" # newer than what was compiled from the mutant
  if [ -z "$caught" ]; then status=1; fi
  printf '%-8s %s:%s %s %s\n' "$([ -n "$caught" ] && echo caught || echo MISSED)" "$file" "$line" "$name" "$results"
}

while IFS=@ read -r name files pattern replacement programs; do
  case $name in '#'* | '') continue ;; esac
  echo "$name $files" | grep -q -e "$wanted" || continue
  matched=1
  name=$(echo "$name" | sed 's/ *$//')
  pattern=$(echo "$pattern" | sed 's/^ //; s/ $//')
  replacement=$(echo "$replacement" | sed 's/^ //; s/ $//')
  found=
  # shellcheck disable=SC2013,SC2086 # files are words and patterns; places hold no blanks
  for place in $(grep -n -E -e "$pattern" $files /dev/null | cut -d : -f 1,2); do
    found=1
    # shellcheck disable=SC2086 # programs are words
    mutant "$name" "${place%:*}" "${place#*:}" "$pattern" "$replacement" $programs </dev/null
  done
  if [ -z "$found" ]; then
    echo "ERROR: $name: \"$pattern\" is not found in $files" >&2
    status=1
  fi
done <"$table"
if [ -z "$matched" ]; then
  echo "mutate.sh: no mistake of mutations.txt matches \"$wanted\"" >&2
  status=2
fi
exit $status
