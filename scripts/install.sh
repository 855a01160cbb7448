#!/bin/sh
# Installs the command `inkling`, MPI libraries, man pages and shell completion, or removes them: install.sh [uninstall]
#
# Environment: PREFIX (/usr/local); DESTDIR (empty): put in front of every path, for packagers; BUILD and BIN: where the
# program was built; MPI_LIBRARIES: its libraries. ./train and ./generate are not installed: their names are too general
# for a directory in PATH.
# PREFIX/lib/inkling/installed lists the files that were installed and the directories that were created (with a / at the
# end). Files that are not on the list are neither overwritten nor removed. After an interruption, both commands can be
# repeated.
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

umask 022
unfinished=
work=$(mktemp -d)
trap 'rm -rf "$work" ${unfinished:+"$unfinished"}' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
: >"$work/old"
[ ! -f "$listed" ] || cp "$listed" "$work/old"

remove_files() { # remove_files LIST
  { grep -v '/$' "$1" || :; } | while IFS= read -r name; do rm -f "$root/$name"; done
}
# Removes the empty ones, deepest first.
remove_directories() { # remove_directories LIST
  { grep '/$' "$1" || :; } | LC_ALL=C sort -r | while IFS= read -r name; do
    rmdir "$root/${name#./}" 2>/dev/null || :
  done
}

if [ "${1:-}" = uninstall ]; then
  [ -s "$work/old" ] || { echo "install: nothing is installed in $root: $listed is missing" >&2; exit 1; }
  remove_files "$work/old"
  rm -f "$listed"
  remove_directories "$work/old"
  echo "removed from $root"
  exit 0
fi

# ---- collect the files ----

new=$work/new
put() { # put MODE FILE NAME
  mkdir -p "$new/${3%/*}"
  cp "$2" "$new/$3"
  chmod "$1" "$new/$3"
}
page() { # page NAME KIND [PROGRAM]
  name=$1
  shift
  "$build/option_pages" "$@" >"$work/page"
  put 644 "$work/page" "$name"
}
put 755 "$bin/inkling" bin/inkling
page share/man/man1/inkling.1 man inkling
page share/man/man1/inkling-train.1 man train
page share/man/man1/inkling-generate.1 man generate
page share/bash-completion/completions/inkling bash
page share/zsh/site-functions/_inkling zsh
page share/fish/vendor_completions.d/inkling.fish fish
put 644 LICENSE share/licenses/inkling/LICENSE
for library in ${MPI_LIBRARIES:-}; do
  put 755 "$library" "lib/inkling/${library##*/}"
done
mkdir -p "$new/lib/inkling"

# ---- install them ----

(cd "$new" && find . -type f | sed 's,^\./,,') >"$work/files"
while IFS= read -r name; do
  if [ -e "$root/$name" ] || [ -L "$root/$name" ]; then
    grep -qxF "$name" "$work/old" || {
      echo "install: $root/$name is there already and is not Inkling's; remove it or give another PREFIX" >&2
      exit 1
    }
  fi
done <"$work/files"

(cd "$new" && find . -type d | sed 's,^\./,,') | while IFS= read -r name; do
  [ -d "$root/$name" ] || echo "$name/"
done >"$work/created"
mkdir -p "${listed%/*}"

unfinished=$listed.new
write_list() { # write_list LIST...
  LC_ALL=C sort -u "$@" >"$listed.new"
  mv -f "$listed.new" "$listed"
}
write_list "$work/old" "$work/files" "$work/created"
while IFS= read -r name; do
  mkdir -p "$root/${name%/*}"
  unfinished=$(mktemp "$root/$name.XXXXXX")
  cp -p "$new/$name" "$unfinished"
  mv -f "$unfinished" "$root/$name"
done <"$work/files"
unfinished=$listed.new

# Files of an older version are removed.
grep -vxF -f "$work/files" "$work/old" >"$work/stale" || :
remove_files "$work/stale"
remove_directories "$work/stale"
grep '/$' "$work/stale" | while IFS= read -r name; do [ ! -d "$root/$name" ] || echo "$name"; done >"$work/kept"
write_list "$work/files" "$work/created" "$work/kept"
echo "installed $root/bin/inkling: inkling train, inkling generate"
