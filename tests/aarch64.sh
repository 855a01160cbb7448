#!/bin/sh
# Tests the build for 64-bit ARM on another machine: aarch64.sh BUILD  (make test-aarch64)
#
# Compiles everything with Debian's cross compiler and runs it in qemu as three processors: one with NEON alone, one with
# products of int8, and one with all instructions that qemu knows. The libraries for ARM are unpacked in the build
# directory. FULL=1: all unit tests and the tests of the programs, instead of those of the kernels.
# Status 77: a tool is missing or the libraries cannot be downloaded.
set -eu
cd "$(dirname "$0")/.."
build=$1
libraries=$build/libraries
triple=aarch64-linux-gnu

for tool in $triple-gcc qemu-aarch64 apt-get dpkg-deb; do
  command -v "$tool" >/dev/null || { echo "aarch64: $tool is missing. Run scripts/install-deps.sh aarch64"; exit 77; }
done

# ---- libraries ----

if [ ! -e "$libraries/complete" ]; then
  rm -rf "$libraries"
  mkdir -p "$libraries/lists/partial" "$libraries/cache/archives/partial"
  : >"$libraries/status"
  cat >"$libraries/apt.conf" <<END
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Sandbox::User "$(id -un)";
Dir::State::lists "$PWD/$libraries/lists";
Dir::State::status "$PWD/$libraries/status";
Dir::Cache "$PWD/$libraries/cache";
END
  for name in jansson pcre2 utf8proc cmocka; do printf 'lib%s-dev\n' $name; done >"$libraries/packages"
  printf '%s\n' libjansson4 libpcre2-8-0 libutf8proc2 libcmocka0 >>"$libraries/packages"
  APT_CONFIG=$PWD/$libraries/apt.conf
  export APT_CONFIG
  # shellcheck disable=SC2046 # names are words
  if ! apt-get -q update >"$libraries/log" 2>&1 || ! (cd "$libraries" && apt-get -q download $(cat packages) >>log 2>&1); then
    echo "aarch64: the libraries for arm64 cannot be downloaded: $(tail -n 1 "$libraries/log")"
    exit 77
  fi
  for package in "$libraries"/*.deb; do dpkg-deb -x "$package" "$libraries"; done
  : >"$libraries/complete"
fi

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
root=$PWD/$libraries/usr
# shellcheck disable=SC2086 # names are words
make --no-print-directory BUILD_SETTINGS= BUILD="$build" BIN="$build" CC=$triple-gcc NO_CUDA=1 NO_MPI=1 NO_INSTALL=1 \
  PKG_CONFIG=false CPPFLAGS="-isystem $root/include -isystem $root/include/$triple" LDFLAGS="-L$root/lib/$triple" $goals

# run_as PROCESSOR ISA TEST...: through a directory with a script for each program, which calls qemu
run_as() {
  processor=$1 isa=$2
  shift 2
  as=$build/as-$processor
  rm -rf "$as"
  (cd "$build" && find . -path './as-*' -prune -o -path ./libraries -prune -o -type f -perm -u+x -print) | while read -r program; do
    mkdir -p "$as/$(dirname "$program")"
    printf '#!/bin/sh\nexec qemu-aarch64 -cpu %s -L /usr/%s -E LD_LIBRARY_PATH=%s "%s" "$@"\n' \
      "$processor" $triple "$root/lib/$triple" "$PWD/$build/$program" >"$as/$program"
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
