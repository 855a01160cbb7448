#!/bin/sh
# Writes everything of a release into DIR: release.sh DIR; what `make dist` calls. `release.sh check` only checks that
# the tools are there.
#
# The source; for each of MACHINES a tarball, a Debian package, a wheel and an image for containers, all with the
# static program of `make static`; if URL, the project's address, is given, a Homebrew formula and a PKGBUILD; if
# there is a program for Windows, a zip and a wheel of it, and with URL a manifest for scoop; a list of
# the parts (SPDX); SHA256SUMS. The same commit gives the same bytes: every time in the files is that of the commit,
# or SOURCE_DATE_EPOCH.
# Environment: BUILD (build): where the static programs are; MACHINES; MAINTAINER (the author of the commit).
set -eu
cd "$(dirname "$0")/.."
# shellcheck source=tools/packaging/about
. tools/packaging/about
[ -e .git ] || { echo "release: this folder is not a git checkout, which the source of a release comes from" >&2; exit 1; }
for tool in git python3 dpkg-deb; do
  command -v $tool >/dev/null || { echo "release: $tool is missing" >&2; exit 1; }
done
[ "$1" != check ] || exit 0
out=$1
build=${BUILD:-build}
version=$(cat VERSION)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH LC_ALL=C TZ=UTC
umask 022
[ -z "$(git status --porcelain --untracked-files=no)" ] ||
  echo "release: note: uncommitted changes are not in the source tarball" >&2

if [ -e "$out" ] && ! ls "$out"/"$name"-*.spdx.json >/dev/null 2>&1; then
  echo "release: $out is there already and holds no release; remove it or name another directory" >&2
  exit 1
fi
rm -rf "$out"
mkdir -p "$out"
: >"$out/SHA256SUMS"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
source=$name-$version.tar.gz
git -c core.autocrlf=false -c tar.umask=0022 archive --format=tar --prefix="$name-$version/" HEAD >"$work/source.tar"
gzip -9n <"$work/source.tar" >"$out/$source"

# The licenses of all that a static program contains.
{
  echo "Inkling"
  echo
  cat LICENSE
  for file in "$build"/library-sources/licenses/*; do
    printf '\n\n---- %s ----\n\n' "${file##*/}"
    cat "$file"
  done
} >"$work/copyright"

# debian_package STAGE ARCHITECTURE: adds what only a Debian package has to STAGE/usr
debian_package() {
  doc=$1/usr/share/doc/$name
  maintainer=${MAINTAINER:-$(git log -1 --format='%an <%ae>')}
  gzip -9n >"$doc/changelog.gz" <<END
$name ($version) stable; urgency=medium

  * CHANGELOG.md of the source lists the changes.

 -- $maintainer  $(date -R -d "@$SOURCE_DATE_EPOCH")
END
  kilobytes=$(find "$1/usr" -printf '%y %s\n' | awk '{ n += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print n }')
  mkdir -p "$1/usr/share/lintian/overrides" "$1/usr/share/zsh" "$1/DEBIAN"
  cp tools/packaging/lintian-overrides "$1/usr/share/lintian/overrides/$name"
  mv "$1/usr/share/zsh/site-functions" "$1/usr/share/zsh/vendor-completions"
  gzip -9n "$1"/usr/share/man/man1/*.1
  cat >"$1/DEBIAN/control" <<END
Package: $name
Version: $version
Architecture: $2
Maintainer: $maintainer
Installed-Size: $kilobytes
Section: science
Priority: optional
${URL:+Homepage: $URL
}Description: $summary
$(echo "$description" | fold -s -w 78 | sed 's/^/ /; s/ *$//')
END
  (cd "$1" && find usr -type f | sort | xargs md5sum >DEBIAN/md5sums)
  find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
  dpkg-deb -Zxz --root-owner-group --build "$1" "$out/${name}_${version}_$2.deb" >/dev/null
}

programs=
for machine in $MACHINES; do
  folder=$name-$version-linux-$machine
  stage=$work/$machine
  DESTDIR=$stage PREFIX=/usr BUILD=$build/static/$(uname -m) BIN=$build/static/$machine scripts/install.sh >/dev/null
  rm -r "$stage/usr/lib" "$stage/usr/share/licenses" # the list for make uninstall; `copyright` has all licenses
  mkdir -p "$stage/usr/share/doc/$name"
  cp "$work/copyright" "$stage/usr/share/doc/$name/copyright"
  cp -r "$stage/usr" "$work/$folder"
  tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --format=ustar \
    -cf - "$folder" | gzip -9n >"$out/$folder.tar.gz"
  python3 scripts/package.py wheel "$work/$folder" "$machine" "$out"
  python3 scripts/package.py image "$work/$folder" "$machine" "$out/$folder.image.tar"
  case $machine in x86_64) debian_package "$stage" amd64 ;; aarch64) debian_package "$stage" arm64 ;; esac
  programs="$programs $build/static/$machine/inkling"
done
licenses=$build/library-sources/licenses
exe=$build/windows/inkling.exe
zip=$name-$version-windows-x86_64
if [ -e "$exe" ]; then
  stage=$work/windows
  mkdir -p "$stage/bin" "$stage/share/doc/$name" "$work/$zip"
  # Its C library and winpthreads are parts of mingw-w64.
  mingw=$(dpkg-query -W -f '${Version}' mingw-w64-x86-64-dev)
  licenses=$work/licenses
  cp -r "$build/library-sources/licenses" "$licenses"
  cp /usr/share/doc/mingw-w64-x86-64-dev/copyright "$licenses/mingw-w64-${mingw%-*}"
  echo "see mingw-w64" >"$licenses/winpthreads-${mingw%-*}"
  { cat "$work/copyright"; printf '\n\n---- mingw-w64 and winpthreads ----\n\n'; cat "$licenses"/mingw-w64-*; } \
    >"$stage/share/doc/$name/copyright"
  cp "$exe" "$stage/bin/inkling.exe"
  cp "$exe" "$work/$zip"
  sed 's/$/\r/' "$stage/share/doc/$name/copyright" >"$work/$zip/licenses.txt"
  sed "s/@VERSION@/$version/; s/$/\r/" tools/packaging/windows.txt >"$work/$zip/README.txt"
  python3 scripts/package.py zip "$work/$zip" "$out/$zip.zip"
  python3 scripts/package.py wheel "$stage" windows "$out"
  programs="$programs $exe"
fi
# shellcheck disable=SC2086 # words
python3 scripts/package.py sbom "$licenses" "$out/$name-$version.spdx.json" $programs

if [ -n "${URL:-}" ]; then
  sum=$(sha256sum "$out/$source" | cut -d ' ' -f 1)
  for file in inkling.rb PKGBUILD; do
    sed "s|@URL@|$URL|g; s|@VERSION@|$version|g; s|@SUMMARY@|$summary|g; s|@SHA256@|$sum|g" tools/packaging/$file \
      >"$out/$file"
  done
  [ ! -e "$exe" ] || sed "s|@URL@|$URL|g; s|@VERSION@|$version|g; s|@SUMMARY@|$summary|g
    s|@SHA256@|$(sha256sum "$out/$zip.zip" | cut -d ' ' -f 1)|" tools/packaging/scoop.json >"$out/scoop.json"
else echo "release: note: no Homebrew formula and no PKGBUILD: give the project's address, URL=https://..." >&2; fi
(cd "$out" && rm SHA256SUMS && sha256sum -- * >"$work/sums" && mv "$work/sums" SHA256SUMS)
ls -l "$out"
