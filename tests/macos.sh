#!/bin/sh
# Compiles and links the programs for macOS, on both architectures of Macs: macos.sh BUILD
#
# The compiler is zig, which brings headers and libraries of macOS; pip installs it. The other libraries are compiled, as
# for static programs. Only the kernels of one instruction set are compiled, and nothing is run. The check is skipped, with
# a line that says why, if zig or the sources are missing.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1/macos"
build=$(cd "$1" && pwd)
zig=$build/macos/python/ziglang/zig sources=$build/library-sources

skip() {
  echo "macos: skipped: $*"
  exit 0
}

[ -x "$zig" ] || python3 -m pip install -qq --target "$build/macos/python" ziglang==0.17.1 ||
  skip "pip cannot install ziglang"
[ -e "$sources/complete" ] || scripts/library_sources.sh "$sources" || skip "the sources of the libraries are missing"
export ZIG_GLOBAL_CACHE_DIR="$build/macos/cache" ZIG_LOCAL_CACHE_DIR="$build/macos/cache" BUILD_SETTINGS=

# write_compiler TARGET >FILE: `zig cc` has other names for instruction sets, and writes a file -.o when it assembles to
# /dev/null
write_compiler() {
  cat <<END
#!/bin/sh
for argument; do
  shift
  case \$argument in
    -march=x86-64-v*) argument=-march=x86_64_\${argument##*-} ;;
    -march=armv8.2-a+dotprod) argument=-mcpu=generic+v8_2a+dotprod ;;
    assembler) cd "$dir" ;;
  esac
  set -- "\$@" "\$argument"
done
exec "$zig" cc -target $1 "\$@"
END
}

# build_for ARCHITECTURE MAGIC ISA: MAGIC is the beginning of its programs
build_for() {
  dir=$build/macos/$1
  mkdir -p "$dir"
  write_compiler "$1-macos" >"$dir/cc"
  chmod +x "$dir/cc"
  "${MAKE:-make}" -s --no-print-directory BUILD="$dir" BIN="$dir" CC="$dir/cc" AR="$zig ar" WERROR=1 NO_CUDA=1 NO_MPI=1 \
    ISA="$3" COMPILED_LIBRARIES=1 LIBRARY_SOURCES="$sources" WASM="$dir/no-wasm" WASM_CLANG=false "$dir/inkling"
  [ "$(od -An -tx4 -N8 "$dir/inkling" | tr -d ' ')" = "$2" ] ||
    { echo "macos: $dir/inkling is no program for macOS on $1" >&2; exit 1; }
  echo "macos: compiles and links for $1"
}

build_for aarch64 feedfacf0100000c dotprod
build_for x86_64 feedfacf01000007 v3
