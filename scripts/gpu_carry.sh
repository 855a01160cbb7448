#!/bin/sh
# Copies the libraries that building and testing Inkling needs (jansson, PCRE2, utf8proc, cmocka) from this machine into
# a directory, for a machine where nothing can be installed. There, run `make CARRY=DIR ...`.
# Argument: the directory (default .carry).
set -eu

to=${1:-.carry}
cc=${CC:-cc}
mkdir -p "$to/include" "$to/lib"

# header NAME...: the files that the compiler would include
for header in jansson.h jansson_config.h pcre2.h utf8proc.h cmocka.h cmocka_pbc.h; do
  path=$(printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#define PCRE2_CODE_UNIT_WIDTH 8\n#include <%s>\n' "$header" |
    "$cc" -E - 2>/dev/null | sed -n "s|^# [0-9]* \"\(.*/$header\)\".*|\1|p" | head -n 1)
  if [ -n "$path" ]; then cp "$path" "$to/include/"; fi
done

library() { "$cc" -print-file-name="$1" | grep / || true; }
# carry NAME MAJOR: the archive, or the shared library under the name that programs ask for
carry() {
  path=$(library "lib$1.a")
  if [ -n "$path" ]; then
    cp "$path" "$to/lib/"
  else
    path=$(library "lib$1.so")
    cp -L "$path" "$to/lib/lib$1.so.$2"
    ln -sf "lib$1.so.$2" "$to/lib/lib$1.so"
  fi
}
carry jansson 4
carry pcre2-8 0
carry utf8proc 2
# Programs look for the library by the name inside it. Copied, because not every transfer keeps symbolic links.
path=$(library libcmocka.so)
cp -L "$path" "$to/lib/libcmocka.so"
cp -L "$path" "$to/lib/libcmocka.so.0"
# CUDA headers that a toolkit may lack (the libraries are large and come with PyTorch).
cuda=${CUDA_HOME:-/usr/local/cuda}/include
mkdir -p "$to/cuda"
for header in cublasLt.h cublas_api.h curand_philox4x32_x.h curand_mrg32k3a.h curand_globals.h; do
  [ ! -e "$cuda/$header" ] || cp "$cuda/$header" "$to/cuda/"
done
ls -l "$to/include" "$to/lib" "$to/cuda"
