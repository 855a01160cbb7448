#!/bin/sh
# Tests the build for 64-bit ARM on another machine: aarch64.sh BUILD SOURCES  (make test-aarch64)
#
# Compiles everything with Debian's cross compiler and runs it in qemu as three processors: one with NEON alone, one with
# products of int8, and one with all instructions that qemu knows. The libraries are compiled, as for static programs.
# FULL=1: all unit tests and the tests of the programs, instead of a few tests of the kernels. Status 77: a tool or the
# libraries' SOURCES are missing.
set -eu
cd "$(dirname "$0")/.."
build=$1 sources=$2
root=$sources/cmocka/usr
triple=aarch64-linux-gnu

for tool in $triple-gcc qemu-aarch64; do
  command -v "$tool" >/dev/null || { echo "aarch64: $tool is missing. Run scripts/install-deps.sh aarch64"; exit 77; }
done
scripts/library_sources.sh "$sources" || exit 77

# ---- programs ----

named() { for test; do basename "$test" .c; done; }
kernels="test_decode test_model_train" others="test_weights test_sample"
if [ "${FULL:-}" ]; then
  kernels=$(named tests/test_kernels*.c tests/test_decode*.c tests/test_model*.c)
  others="$(named tests/test_*.c | grep -vxF "$kernels") programs.sh generate.sh kept.sh init.sh export.sh pairs.sh"
  goals=programs
else
  goals=$(for test in $kernels $others; do echo "$build/tests/$test"; done)
fi
cross_make() {
  make --no-print-directory BUILD_SETTINGS= BUILD="$build" BIN="$build" CC=$triple-gcc AR=$triple-ar NO_CUDA=1 NO_MPI=1 \
    NO_INSTALL=1 COMPILED_LIBRARIES=1 LIBRARY_SOURCES="$sources" WASM="$build/no-wasm" WASM_CLANG=false \
    CPPFLAGS="-isystem $root/include" LDFLAGS="-L$root/lib/$triple" "$@"
}
cross_make "$build/libraries.a"
# shellcheck disable=SC2086 # names are words
cross_make $goals

# run_as PROCESSOR ISA TEST...: through a directory with a script for each program, which calls qemu
run_as() {
  processor=$1 isa=$2
  shift 2
  as=$build/as-$processor
  rm -rf "$as"
  (cd "$build" && find . -path './as-*' -prune -o -type f -perm -u+x -print) | while read -r program; do
    mkdir -p "$as/$(dirname "$program")"
    printf '#!/bin/sh\nexec qemu-aarch64 -0 "$0" -cpu %s -L /usr/%s -E LD_LIBRARY_PATH=%s "%s" "$@"\n' \
      "$processor" $triple "$PWD/$root/lib/$triple" "$PWD/$build/$program" >"$as/$program"
    chmod +x "$as/$program"
  done
  echo "== as $processor${isa:+, on $isa} =="
  unset INKLING_TEST_BACKEND
  if [ "$isa" ]; then export INKLING_TEST_BACKEND="$isa"; fi
  BIN=$as ONLY="$*" tests/run.sh "$as" || failed=1
}
# The kernels of each instruction set run once, on a processor without a higher one.
failed=0
# shellcheck disable=SC2086 # names are words
{
  run_as cortex-a53 neon $kernels
  run_as cortex-a76 dotprod $kernels
  run_as max bf16 $kernels
  run_as max "" $others
}
exit $failed
