#!/bin/sh
# Finds nvcc and the GPUs of this machine, and prints what cuda.mk compiles for as assignments of make.
#
# Environment: NVCC: the nvcc to use (empty: the newest one of the machine); CUDA=1: compile even
# without a GPU; CUDA=asked (CUDA=1 was given to make): also fail if that is impossible; CUDA_ARCH: compute capabilities
# times ten, as "80 90", or all (empty: those of this machine's GPUs). Prints NAME := VALUE:
#
#   CUDA_NVCC      the nvcc to compile with; empty if the CUDA backend is left out
#   CUDA_CODE      architectures to compile machine code for
#   CUDA_PTX       the architecture whose PTX is added for newer GPUs: the driver compiles it when a program starts
#   CUDA_LEFT_OUT  why the backend is left out
#   CUDA_NOTE      a line to show
#   CUDA_ERROR     why make must stop
set -u
oldest_nvcc=1204 # 100 x major + minor

say() { printf '%s := %s\n' "$1" "$2"; }
leave_out() { say CUDA_LEFT_OUT "$1"; exit 0; }
stop() { say CUDA_ERROR "$1"; exit 0; }
dotted() { printf '%s.%s' "${1%?}" "${1#"${1%?}"}"; } # 120: 12.0

# ---- GPUs ----

smi() { nvidia-smi "$@" 2>/dev/null; }
# distinct compute capabilities times ten, in ascending order; "unknown" if nvidia-smi lists a GPU but no capability
gpus=$(smi --query-gpu=compute_cap --format=csv,noheader | sed -n 's/^ *\([0-9]*\)\.\([0-9]\) *$/\1\2/p' | sort -nu)
if [ -z "$gpus" ] && smi -L | grep -q '^GPU'; then gpus=unknown; fi
new_gpus='' old_gpus=''
for gpu in $gpus; do
  if [ "$gpu" = unknown ] || [ "$gpu" -ge 80 ]; then new_gpus="$new_gpus $gpu"; else old_gpus="$old_gpus $gpu"; fi
done
if [ -z "$new_gpus${CUDA_ARCH:-}" ] && [ -z "${CUDA:-}" ]; then
  [ -z "$old_gpus" ] ||
    leave_out "the GPU has compute capability $(dotted "${old_gpus##* }"), and 8.0 or later is needed"
  no_gpu=1
fi

# ---- nvcc ----

release_of() { # 1204 for CUDA 12.4; 0 if it does not run
  "$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | {
    read -r major minor && echo $((100 * major + minor)) || echo 0
  }
}
shown_release() { echo "$(($1 / 100)).$(($1 % 100))"; }
nvcc='' release=0
if [ "${NVCC:-}" ]; then set -- "$NVCC"; else
  set -- nvcc "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" /usr/local/cuda/bin/nvcc /usr/local/cuda-*/bin/nvcc /opt/cuda/bin/nvcc
fi
for file in "$@"; do
  file=$(command -v "$file") || continue
  found=$(release_of "$file")
  if [ "$found" -gt "$release" ]; then nvcc=$file release=$found; fi
done
case $nvcc in *' '* | *'	'*) stop "NVCC is \"$nvcc\": a path without blanks is needed" ;; esac
[ -z "${NVCC:-}" ] || [ "$nvcc" ] || stop "NVCC is \"$NVCC\", which is no nvcc that runs; NO_CUDA=1 builds without CUDA"
if [ "${no_gpu:-}" ]; then
  [ -z "$nvcc" ] || leave_out "no GPU was found; make CUDA=1 compiles it"
  exit 0
fi
impossible() { # impossible WHY WHAT_TO_DO: an error if CUDA was asked for
  if [ "${NVCC:-}${CUDA_ARCH:-}" ] || [ "${CUDA:-}" = asked ]; then stop "$1: $2, or NO_CUDA=1 to build without CUDA"; fi
  [ "$new_gpus" ] || exit 0
  leave_out "$1: $2, and type make again"
}
[ "$nvcc" ] || impossible "nvcc was not found" "install the CUDA toolkit"
[ "$release" -ge "$oldest_nvcc" ] || impossible "$nvcc is of CUDA $(shown_release "$release"), and $(shown_release \
  "$oldest_nvcc") or later is needed" "install a newer CUDA toolkit"

# ---- architectures ----

known=$("$nvcc" --list-gpu-code | sed -n 's/^sm_\([0-9]*\)$/\1/p' | sort -nu | awk '$1 >= 80' | tr '\n' ' ')
knows() { case " $known" in *" $1 "*) ;; *) return 1 ;; esac; }
known_of() { for arch in $1; do if knows "$arch"; then echo "$arch"; fi; done | tr '\n' ' '; }
last() { for arch in $1; do :; done; echo "$arch"; }

code='' ptx='' note=''
case "${CUDA_ARCH:-} $new_gpus" in
  'all '*) code=$(known_of "80 86 89 90 100 120") ptx=$(last "$code") ;;
  ' ' | ' '*unknown) code=$(known_of "80 90") ptx=$(last "$code") ;;
  ' '*)
    for gpu in $new_gpus; do
      # Machine code runs on later GPUs of the same major capability, but not that of Jetson boards.
      best=$(for arch in $known; do
        case $arch in "$gpu") echo "$arch" ;; 87 | 88 | 101 | 110) ;; *) [ "$arch" -gt "$gpu" ] || echo "$arch" ;; esac
      done | tail -n 1)
      if [ "${best%?}" = "${gpu%?}" ]; then
        code="$code $best"
      else
        ptx=$best
        note="CUDA $(shown_release "$release") does not know compute capability $(dotted "$gpu"): the driver compiles the kernels when a program starts; a newer CUDA toolkit avoids that"
      fi
    done ;;
  *)
    code=$(echo "$CUDA_ARCH" | tr ' ' '\n' | sort -n) ptx=$(last "$code")
    for arch in $code; do
      knows "$arch" || stop "CUDA_ARCH is \"$CUDA_ARCH\": give all, or some of the compute capabilities times ten that CUDA $(shown_release "$release") compiles for: $known"
    done ;;
esac
say CUDA_NVCC "$nvcc"
say CUDA_CODE "$(echo "$code" | tr ' ' '\n' | sort -nu | xargs)"
say CUDA_PTX "$ptx"
say CUDA_NOTE "$note"
