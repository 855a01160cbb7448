#!/bin/sh
# Copies what building and testing Inkling needs beside a compiler (jansson, cmocka) from this machine into a directory,
# for a machine where nothing can be installed: there, `make CARRY=DIR ...`. Argument: the directory (default .carry).
set -eu

to=${1:-.carry}
cc=${CC:-cc}
mkdir -p "$to/include" "$to/lib"

# header NAME...: the files that the compiler would include
for header in jansson.h jansson_config.h cmocka.h cmocka_pbc.h; do
  path=$(printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <%s>\n' "$header" |
    "$cc" -E - 2>/dev/null | sed -n "s|^# [0-9]* \"\(.*/$header\)\".*|\1|p" | head -n 1)
  if [ -n "$path" ]; then cp "$path" "$to/include/"; fi
done

library() { "$cc" -print-file-name="$1" | grep / || true; }
path=$(library libjansson.a)
if [ -n "$path" ]; then
  cp "$path" "$to/lib/"
else
  path=$(library libjansson.so)
  cp -L "$path" "$to/lib/libjansson.so.4"
  ln -sf libjansson.so.4 "$to/lib/libjansson.so"
fi
# A program asks for the library by the name inside it; copies instead of links, which not everything carries.
path=$(library libcmocka.so)
cp -L "$path" "$to/lib/libcmocka.so"
cp -L "$path" "$to/lib/libcmocka.so.0"
# Headers of CUDA that a toolkit may lack (the libraries are large, and come with PyTorch).
cuda=${CUDA_HOME:-/usr/local/cuda}/include
mkdir -p "$to/cuda"
for header in cublasLt.h cublas_api.h curand_philox4x32_x.h curand_mrg32k3a.h curand_globals.h; do
  [ ! -e "$cuda/$header" ] || cp "$cuda/$header" "$to/cuda/"
done
ls -l "$to/include" "$to/lib" "$to/cuda"
