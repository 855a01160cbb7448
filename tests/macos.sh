#!/bin/sh
# Compiles and links the programs for macOS, on both architectures of Macs: macos.sh BUILD
#
# The compiler is zig, which brings headers and libraries of macOS; pip installs it. The other libraries come from the
# sources for WebAssembly. Nothing is run. It is skipped, with a line that says why, if zig or the sources are missing.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1/macos"
build=$(cd "$1" && pwd)
zig=$build/macos/python/ziglang/zig sources=$build/wasm/source

skip() {
  echo "macos: skipped: $*"
  exit 0
}

[ -x "$zig" ] || python3 -m pip install -qq --target "$build/macos/python" ziglang==0.17.1 ||
  skip "pip cannot install ziglang"
[ -e "$sources/complete" ] || scripts/wasm_sources.sh "$sources" || skip "the sources of the libraries are missing"
export ZIG_GLOBAL_CACHE_DIR="$build/macos/cache" ZIG_LOCAL_CACHE_DIR="$build/macos/cache" BUILD_SETTINGS=

# write_compiler TARGET >FILE: `zig cc` has other names for instruction sets, and writes -.o for an assembler's test
write_compiler() {
  cat <<END
#!/bin/sh
for argument; do
  shift
  case \$argument in
    -march=x86-64-v*) argument=-march=x86_64_\${argument##*-} ;;
    assembler) exit 1 ;;
  esac
  set -- "\$@" "\$argument"
done
exec "$zig" cc -target $1 "\$@"
END
}

# build_for ARCHITECTURE MAGIC: MAGIC is the beginning of its programs
build_for() {
  dir=$build/macos/$1
  mkdir -p "$dir/lib"
  write_compiler "$1-macos" >"$dir/cc"
  chmod +x "$dir/cc"
  make_there() { "${MAKE:-make}" -s --no-print-directory BUILD="$dir" BIN="$dir" CC="$dir/cc" WERROR=1 "$@"; }

  make_there macos-libraries WASM_CC="$dir/cc" WASM_SOURCES="$sources"
  for library in jansson pcre2-8 utf8proc; do
    "$zig" ar rcs "$dir/lib/lib$library.a" "$dir/wasm/${library%-8}"/*.o
  done
  # Tests and fuzzing need cmocka.
  make_there programs TESTS= FUZZERS= NO_CUDA=1 NO_MPI=1 PKG_CONFIG=false LDFLAGS="-L$dir/lib" ISA="${3:-}" \
    CPPFLAGS="-isystem $sources/jansson -isystem $sources/pcre2 -isystem $sources/utf8proc"
  for program in train generate stories pairs option_pages bench_kernels; do
    [ "$(od -An -tx4 -N8 "$dir/$program" | tr -d ' ')" = "$2" ] ||
      { echo "macos: $program is no program for macOS on $1" >&2; exit 1; }
  done
  echo "macos: all programs compile and link for $1"
}

build_for aarch64 feedfacf0100000c
build_for x86_64 feedfacf01000007 v3
