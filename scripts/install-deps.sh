#!/bin/sh
# Installs the missing packages for building Inkling with the system's package manager.
#
# Does nothing if nothing is missing. Prints the command first; asks on a terminal; runs it without asking if it is root
# without a terminal. If it cannot install, or with NO_INSTALL=1, it prints the command to type and exits with status 1.
# Arguments: additional packages (tests: what `make test` needs; openmpi, mpich: for training in several processes; wasm: a
# compiler for `make wasm`; aarch64: a compiler and emulator for `make static` and `make test-aarch64`; windows: a compiler
# for `make windows`, and wine for `make test-windows`).
set -eu

cc=${CC:-cc}
command -v "${cc%% *}" >/dev/null 2>&1 || cc=gcc # CC may have arguments
preprocess="$cc ${CPPFLAGS:-} -E -"

# where Homebrew installs on ARM
[ ! -d /opt/homebrew/include ] || export CPATH=/opt/homebrew/include

has_header() { printf '#include <%s>\n' "$1" | $preprocess >/dev/null 2>&1; }

# cmocka's header needs others before it
has_cmocka() {
  printf '#include <stdarg.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <setjmp.h>\n#include <cmocka.h>\n' |
    $preprocess >/dev/null 2>&1
}

# the character width selects the library
has_pcre2() { printf '#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\n' | $preprocess >/dev/null 2>&1; }

has_mpi() { command -v mpicc || ls /usr/lib64/openmpi/bin/mpicc || ls /usr/lib64/mpi/gcc/*/bin/mpicc; } >/dev/null 2>&1

has_wasm() { echo 'int main(void) { return 0; }' | "${WASM_CLANG:-clang}" --target=wasm32-wasi -x c -o /dev/null - 2>/dev/null; }

case ${PREFIX:-} in */com.termux/*) candidates=pkg ;; *) candidates="apt-get dnf zypper apk pacman brew" ;; esac
manager=
for candidate in $candidates; do
  if command -v "$candidate" >/dev/null 2>&1; then
    manager=$candidate
    break
  fi
done

missing=
optional=
command -v "${cc%% *}" >/dev/null 2>&1 && has_header stdio.h || missing="$missing compiler"
{ make --version | grep -q 'Make [4-9]' || command -v gmake; } >/dev/null 2>&1 || missing="$missing make"
has_header jansson.h || missing="$missing jansson"
has_pcre2 || missing="$missing pcre2"
has_header utf8proc.h || missing="$missing utf8proc"
for name in "$@"; do
  case $name in
    tests)
      has_cmocka || missing="$missing cmocka"
      command -v python3 >/dev/null 2>&1 || optional="$optional python3"
      [ "$manager" = pkg ] || has_mpi || optional="$optional openmpi"
      ;;
    openmpi) has_mpi || missing="$missing openmpi" ;;
    wasm) has_wasm || missing="$missing wasm" ;;
    aarch64) command -v aarch64-linux-gnu-gcc >/dev/null 2>&1 && command -v qemu-aarch64 >/dev/null 2>&1 || missing="$missing aarch64" ;;
    windows) command -v x86_64-w64-mingw32-gcc-posix >/dev/null 2>&1 && command -v wine >/dev/null 2>&1 || missing="$missing windows" ;;
    *) command -v "mpicc.$name" >/dev/null 2>&1 || missing="$missing $name" ;;
  esac
done
has_header histedit.h || optional="$optional libedit"
[ -n "$missing$optional" ] || exit 0

# package NAME: its name for this package manager
package() {
  case $manager:$1 in
    apt-get:compiler) echo gcc libc6-dev ;;
    apt-get:jansson) echo libjansson-dev ;;
    apt-get:pcre2) echo libpcre2-dev ;;
    apt-get:utf8proc) echo libutf8proc-dev ;;
    apt-get:cmocka) echo libcmocka-dev ;;
    apt-get:libedit) echo libedit-dev ;;
    apt-get:openmpi) echo openmpi-bin libopenmpi-dev ;;
    apt-get:mpich) echo mpich libmpich-dev ;;
    apt-get:aarch64) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ;;
    apt-get:windows) echo gcc-mingw-w64-x86-64-posix wine wine64 ;;
    apt-get:wasm) echo clang lld wasi-libc libclang-rt-dev-wasm32 ;;
    dnf:compiler) echo gcc glibc-devel ;;
    dnf:jansson) echo jansson-devel ;;
    dnf:pcre2) echo pcre2-devel ;;
    dnf:utf8proc) echo utf8proc-devel ;;
    pacman:utf8proc) echo libutf8proc ;;
    dnf:cmocka) echo libcmocka-devel ;;
    dnf:libedit) echo libedit-devel ;;
    dnf:openmpi) echo openmpi-devel ;;
    zypper:compiler) echo gcc glibc-devel ;;
    zypper:jansson) echo libjansson-devel ;;
    zypper:cmocka) echo libcmocka-devel ;;
    zypper:openmpi) echo openmpi4-devel ;;
    zypper:pcre2 | zypper:utf8proc | zypper:libedit | zypper:mpich) echo "$1-devel" ;;
    apk:compiler) echo gcc musl-dev ;;
    apk:make) echo make ;;
    apk:python3) echo python3 ;;
    apk:*) echo "$1-dev" ;;
    pacman:python3 | pkg:python3) echo python ;;
    pkg:compiler) echo clang ;;
    pkg:jansson) echo libjansson ;;
    brew:openmpi) echo open-mpi ;;
    *:compiler) echo gcc ;;
    *) echo "$1" ;;
  esac
}

if [ -z "$manager" ]; then
  echo "install-deps: missing:$missing$optional; no apt-get, dnf, zypper, apk, pacman, brew or pkg here: install them by hand" >&2
  exit 1
fi

as_root=
case $manager in brew | pkg) ;; *) [ "$(id -u)" -eq 0 ] || as_root="sudo " ;; esac
install_command() {
  packages=
  for name in "$@"; do packages="$packages $(package "$name")"; done
  case $manager in
    apt-get) echo "${as_root}apt-get update && ${as_root}apt-get install -y --no-install-recommends$packages" ;;
    dnf) echo "${as_root}dnf install -y$packages" ;;
    pacman) echo "${as_root}pacman -S --needed --noconfirm$packages" ;;
    zypper) echo "${as_root}zypper --non-interactive install$packages" ;;
    apk) echo "${as_root}apk add$packages" ;;
    brew | pkg) echo "$manager install$packages" ;;
  esac
}

allowed() {
  [ -z "${NO_INSTALL:-}" ] || return 1
  if [ -t 0 ] && [ -t 2 ]; then
    printf 'install-deps: run it now? [Y/n] ' >&2
    read -r answer || return 1
    case $answer in '' | y* | Y*) return 0 ;; *) return 1 ;; esac
  fi
  [ -z "$as_root" ]
}

# install NAME...: status 0 if they are installed afterwards
install() {
  line=$(install_command "$@")
  echo "install-deps: missing: $*; this installs them:" >&2
  echo "  $line" >&2
  allowed || return 1
  DEBIAN_FRONTEND=noninteractive sh -c "$line" >&2
}

# shellcheck disable=SC2086 # the lists are words
if ! install $missing $optional; then
  if [ -z "$missing" ]; then
    for name in $optional; do
      case $name in
        libedit) echo "install-deps: without libedit, ./generate -i has only the terminal's own line editing" >&2 ;;
        *) echo "install-deps: without $name, the tests that need it are skipped" >&2 ;;
      esac
    done
    exit 0
  fi
  echo "install-deps: not installed; type the command above and try again" >&2
  exit 1
fi
