#!/bin/sh
# Collects what scripts/gpu_contact.sh runs, from a build directory into a new one: make gpu-check, make gpu-tarball
#
#   scripts/gpu_pack.sh BUILD DIR NAME_OF_TEST...
#
# The programs need glibc 2.34 or later, as Ubuntu 22.04 has, and cuBLASLt, which comes with the CUDA toolkit or PyTorch.
set -eu
cd "$(dirname "$0")/.."
build=$1 to=$2
shift 2
rm -rf "$to"
mkdir -p "$to/tests" "$to/lib" "$to/golden"
cp tests/golden/*.safetensors "$to/golden"
for program in train generate bench_kernels check_fragments stories; do strip -o "$to/$program" "$build/$program"; done
for program; do strip -o "$to/tests/$program" "$build/tests/$program"; done
cp -L "$(${CC:-cc} -print-file-name=libcmocka.so)" "$to/lib/libcmocka.so.0"
cp scripts/gpu_contact.sh scripts/measure/gpu_torch.py scripts/measure/gpu_predict.py scripts/measure/compare_runs.py docs/measurements/gpu.jsonl "$to"
git describe --always --dirty >"$to/commit" 2>/dev/null || cp VERSION "$to/commit"
