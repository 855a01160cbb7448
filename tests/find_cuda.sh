#!/bin/sh
# Tests tools/make/find_cuda.sh with false nvidia-smi and nvcc: which architectures are compiled for which GPUs. Prints
# `ok NAME` or `not ok NAME` for each check and `done` at the end.
# shellcheck disable=SC2016,SC2028,SC1010 # scripts in quotes
set -u
cd "$(dirname "$0")/.." || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset NVCC CUDA CUDA_ARCH
export CUDA_HOME="$work/none"

gpus() { # gpus CAPABILITY...: a machine with these GPUs; `old-driver`: one whose nvidia-smi does not tell the capability
  mkdir -p "$work/bin"
  {
    echo '#!/bin/sh'
    case ${1:-} in
      '') echo exit 9 ;;
      old-driver) echo 'case $1 in -L) echo "GPU 0: some (UUID: x)" ;; *) echo "Field \"compute_cap\" is not valid."; exit 2 ;; esac' ;;
      *) echo 'case $1 in -L) echo "GPU 0: some" ;; *) printf "%s\n" '"$*"' ;; esac' ;;
    esac
  } >"$work/bin/nvidia-smi"
  chmod +x "$work/bin/nvidia-smi"
}
nvcc() { # nvcc FILE RELEASE ARCHITECTURE...: an nvcc of a release
  file=$work/$1 release=$2
  shift 2
  mkdir -p "${file%/*}"
  {
    echo '#!/bin/sh'
    echo "case \$1 in --version) echo 'Cuda compilation tools, release $release, V$release.1' ;;"
    echo "--list-gpu-code) printf 'sm_%s\\n' $* ;; *) exit 1 ;; esac"
  } >"$file"
  chmod +x "$file"
}
no_nvcc() { rm -rf "$work/none" "$work/bin/nvcc"; }

# finds WORDS [NAME=VALUE...]: the settings that find_cuda.sh prints have the words
finds() {
  words=$1
  shift
  # nvcc of /usr/local would be found, too: the script's copy looks elsewhere
  sed "s,/usr/local/cuda\\|/opt/cuda,$work/none,g" tools/make/find_cuda.sh >"$work/find_cuda.sh"
  env PATH="$work/bin:/usr/bin:/bin" "$@" sh "$work/find_cuda.sh" >"$work/found"
  grep -q -e "$words" "$work/found"
}
check() { # check NAME COMMAND...
  name=$1
  shift
  if "$@"; then echo "ok $name"; else echo "not ok $name: $(tr '\n' ';' <"$work/found")"; fi
}
cuda_124='50 60 70 75 80 86 87 89 90 90a'
cuda_128="$cuda_124 100 100a 101 120 120a"
cuda_130='75 80 86 87 88 89 90 100 110 103 120 121'

gpus
no_nvcc
says_nothing() { ! finds . "$@"; }
check "no GPU, no nvcc: left out without a word" says_nothing
check "also where tests ask for CUDA" says_nothing CUDA=1
check "no nvcc, asked for" finds 'CUDA_ERROR := nvcc was not found: install the CUDA toolkit' CUDA=asked
check "no nvcc, an architecture" finds 'CUDA_ERROR := nvcc was not found' CUDA_ARCH=90
check "an nvcc that is not there" finds 'CUDA_ERROR := NVCC is "/nowhere/nvcc"' NVCC=/nowhere/nvcc
gpus 9.0
check "a GPU, no nvcc" finds 'CUDA_LEFT_OUT := nvcc was not found: install the CUDA toolkit, and type make again'

# shellcheck disable=SC2086 # lists
nvcc bin/nvcc 12.4 $cuda_124
check "the GPU's own architecture" finds 'CUDA_CODE := 90$'
check "and no PTX" finds 'CUDA_PTX := $'
gpus 12.0
check "RTX 50 with CUDA 12.4: PTX" finds 'CUDA_PTX := 90$'
check "and no code" finds 'CUDA_CODE := $'
check "and why" finds 'CUDA_NOTE := CUDA 12.4 does not know compute capability 12.0: '
gpus 7.5
check "a card that is too old" finds 'CUDA_LEFT_OUT := the GPU has compute capability 7.5, and 8.0 or later'
check "nothing is compiled for it" [ "$(wc -l <"$work/found")" = 1 ]
check "unless asked for" finds 'CUDA_CODE := 80 90' CUDA=1
gpus 8.6 12.0 8.6 7.5
# shellcheck disable=SC2086
nvcc bin/nvcc 12.8 $cuda_128
check "all GPUs count, those that are too old do not" finds 'CUDA_CODE := 86 120$'
gpus 10.3
check "code of 10.0 runs on 10.3" finds 'CUDA_CODE := 100$'
gpus 9.0 13.1
check "a GPU that no nvcc knows yet: PTX of the newest" finds 'CUDA_PTX := 120$'
check "beside the code of the other one" finds 'CUDA_CODE := 90$'
gpus old-driver
check "a driver that does not tell the capability" finds 'CUDA_CODE := 80 90$'
check "and PTX for later ones" finds 'CUDA_PTX := 90$'

gpus
check "no GPU: left out" finds 'CUDA_LEFT_OUT := no GPU was found; make CUDA=1 compiles it'
check "no GPU, wanted" finds 'CUDA_CODE := 80 90$' CUDA=1
check "all that the nvcc knows" finds 'CUDA_CODE := 80 86 89 90 100 120$' CUDA_ARCH=all
check "with PTX of the last" finds 'CUDA_PTX := 120$' CUDA_ARCH=all
check "a list" finds 'CUDA_CODE := 86 90$' CUDA_ARCH='90 86'
check "with PTX of the newest in it" finds 'CUDA_PTX := 90$' CUDA_ARCH='90 86'
check "an architecture it does not know" finds 'CUDA_ERROR := CUDA_ARCH is "80 75": .* CUDA 12.8 compiles for: 80 86 ' CUDA_ARCH='80 75'
check "words" finds 'CUDA_ERROR := CUDA_ARCH is "sm_90"' CUDA_ARCH=sm_90

# Debian's old nvcc in PATH, a newer one elsewhere
nvcc bin/nvcc 11.8 50 60 70 75 80 86 87 89 90
gpus 8.9
check "an nvcc that is too old" finds 'CUDA_LEFT_OUT := .*bin/nvcc is of CUDA 11.8, and 12.4 or later is needed: install a newer'
check "asked for" finds 'CUDA_ERROR := .*bin/nvcc is of CUDA 11.8' CUDA=asked
# shellcheck disable=SC2086
nvcc none/bin/nvcc 12.4 $cuda_124
check "the newer of two" finds "CUDA_NVCC := $work/none/bin/nvcc"
# shellcheck disable=SC2086
nvcc none-13.0/bin/nvcc 13.0 $cuda_130
check "the newest of three" finds "CUDA_NVCC := $work/none-13.0/bin/nvcc"
check "but the one that is given" finds "CUDA_NVCC := $work/none/bin/nvcc" NVCC="$work/none/bin/nvcc"
mv "$work/none-13.0" "$work/with blank"
check "a name with a blank" finds 'CUDA_ERROR := NVCC is ".*with blank/bin/nvcc": a path without blanks' NVCC="$work/with blank/bin/nvcc"
echo done
