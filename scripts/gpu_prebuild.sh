#!/bin/sh
# Builds the programs that scripts/gpu_contact.sh runs, and packs them into one file for a machine that has a GPU but no
# compiler and no packages.
#
#   scripts/gpu_prebuild.sh [DIR]     writes DIR/gpu.tar.xz (default: .carry); CUDA_ARCH="80 90": compute capabilities
#
# The programs need glibc 2.34 or later, as Ubuntu 22.04 has, and cuBLASLt, which comes with the CUDA toolkit or PyTorch.
set -eu
cd "$(dirname "$0")/.."

to=${1:-.carry} build=build/gpu-contact
make_flags="BUILD=$build BIN=$build NO_INSTALL=1 NO_MPI=1"
# shellcheck disable=SC2086 # a list of flags
make --no-print-directory $make_flags CUDA_ARCH="${CUDA_ARCH:-90}" gpu-programs

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/tests" "$tree/lib" "$tree/golden" "$to"
cp tests/golden/*.safetensors "$tree/golden"
for program in train generate bench_kernels check_fragments stories; do strip -o "$tree/$program" "$build/$program"; done
# shellcheck disable=SC2086
for program in $(make --no-print-directory $make_flags gpu-test-names); do
  strip -o "$tree/tests/$program" "$build/tests/$program"
done
cp -L "$("${CC:-cc}" -print-file-name=libcmocka.so)" "$tree/lib/libcmocka.so.0"
cp scripts/gpu_contact.sh scripts/gpu_torch.py scripts/compare_runs.py "$tree"
git describe --always --dirty >"$tree/commit" 2>/dev/null || cp VERSION "$tree/commit"
# Every program holds all kernels. A dictionary as large as the tree stores them once.
tar -C "$tree" -c . | xz --lzma2=preset=1,dict=256MiB >"$to/gpu.tar.xz"
ls -l "$to/gpu.tar.xz"
