#!/bin/sh
# Installs the command `inkling`, MPI libraries, man pages and shell completion, or removes them: install.sh [uninstall]
#
# Environment: PREFIX (/usr/local); DESTDIR (empty): put in front of every path, for packagers; BUILD and BIN: where the
# program was built. ./train and ./generate are not installed: their names are too general for a directory in PATH.
# PREFIX/lib/inkling/installed lists the installed files and directories; reinstalling and uninstalling use this list.
set -eu
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
case $prefix in
  /*) ;;
  *) echo "install: PREFIX is \"$prefix\": a path from / is needed" >&2; exit 2 ;;
esac
root=${DESTDIR:-}$prefix
listed=$root/lib/inkling/installed
build=${BUILD:-build} bin=${BIN:-.}

# Removes everything on the list: files, and then empty directories, deepest first.
remove_listed() {
  [ -f "$listed" ] || return 0
  while IFS= read -r name; do
    case $name in */) ;; *) rm -f "$root/$name" ;; esac
  done <"$listed"
  directories=$(grep '/$' "$listed" | LC_ALL=C sort -r)
  rm -f "$listed"
  echo "$directories" | while IFS= read -r name; do
    [ -z "$name" ] || rmdir "$root/$name" 2>/dev/null || :
  done
}

# directory NAME: creates it; created directories are listed
directory() {
  [ ! -d "$root/$1" ] || return 0
  case $1 in */*) directory "${1%/*}" ;; esac
  mkdir "$root/$1"
  echo "$1/" >>"$list"
}

# put MODE FILE NAME
put() {
  directory "${3%/*}"
  rm -f "$root/$3"
  cp "$2" "$root/$3"
  chmod "$1" "$root/$3"
  echo "$3" >>"$list"
}

if [ "${1:-}" = uninstall ]; then
  [ -f "$listed" ] || { echo "install: nothing is installed in $root: $listed is missing" >&2; exit 1; }
  remove_listed
  echo "removed from $root"
  exit 0
fi

# A program of that name that does not belong to Inkling is kept.
if [ -e "$root/bin/inkling" ] && ! grep -qx bin/inkling "$listed" 2>/dev/null; then
  echo "install: $root/bin/inkling is another program; give another PREFIX" >&2
  exit 1
fi

work=$(mktemp -d)
list=$work/list
: >"$list"
# After a failure, the installed files are still listed.
trap '[ ! -d "$root/lib/inkling" ] || cp "$list" "$listed"; rm -rf "$work"' EXIT
umask 022
remove_listed
if [ ! -d "$root" ]; then
  mkdir -p "$root"
  echo ./ >>"$list"
fi
directory lib/inkling
put 755 "$bin/inkling" bin/inkling
# page FILE KIND [PROGRAM]
page() {
  file=$1
  shift
  "$build/option_pages" "$@" >"$work/page"
  put 644 "$work/page" "$file"
}
page share/man/man1/inkling.1 man inkling
page share/man/man1/inkling-train.1 man train
page share/man/man1/inkling-generate.1 man generate
page share/bash-completion/completions/inkling bash
page share/zsh/site-functions/_inkling zsh
page share/fish/vendor_completions.d/inkling.fish fish
for library in "$bin"/inkling-*.so; do
  [ ! -e "$library" ] || put 755 "$library" "lib/inkling/${library##*/}"
done
echo "installed $root/bin/inkling: inkling train, inkling generate"
