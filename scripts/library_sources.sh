#!/bin/sh
# Fetches what the WebAssembly module and the static programs are made of: library_sources.sh DIR
#
# The sources of jansson, PCRE2 and utf8proc come from the source packages of this release of Debian, without Debian's
# patches, into DIR/jansson, DIR/pcre2 and DIR/utf8proc, with a configuration that needs nothing of the system. Two
# libraries come from binary packages: musl, into DIR/musl/x86_64 and DIR/musl/aarch64, and cmocka for tests on ARM, into
# DIR/cmocka; its source for tests on Windows into DIR/cmocka-source. DIR/licenses/NAME-VERSION has the license of each
# part of a program. DIR/complete exists when all is there.
# If something is missing, it says what, and exits with status 1.
set -eu
dir=$1

say() {
  echo "libraries: $*" >&2
  exit 1
}

if [ -e "$dir/complete" ] && [ -z "$(find "$0" -newer "$dir/complete")" ]; then exit 0; fi
# shellcheck source=/dev/null
. /etc/os-release
if [ "$ID" != debian ] || [ -z "${VERSION_CODENAME:-}" ]; then
  say "they come from Debian's archive, for now on Debian only"
fi

rm -rf "$dir.new"
mkdir -p "$dir.new/apt/partial" "$dir.new/licenses" "$dir.new/musl"
cd "$dir.new"
# a list of its own: few systems have sources and packages of another architecture on theirs
key=/usr/share/keyrings/debian-archive-keyring.gpg
for kind in deb deb-src; do echo "$kind [signed-by=$key] http://deb.debian.org/debian $VERSION_CODENAME main"; done >list
apt() { # apt ARCHITECTURE ARGUMENTS...
  architecture=$1
  shift
  apt-get -qq -o Dir::Etc::sourcelist="$PWD/list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$PWD/apt" \
    -o Dir::Cache="$PWD/apt" -o APT::Sandbox::User=root -o APT::Architecture="$architecture" \
    -o APT::Architectures="$architecture" "$@"
}
for architecture in amd64 arm64; do
  { apt "$architecture" update && apt "$architecture" download musl-dev; } || say "Debian's archive cannot be read"
  case $architecture in amd64) machine=x86_64 ;; *) machine=aarch64 ;; esac
  dpkg-deb -x musl-dev_*_"$architecture".deb musl/$machine
  # as musl-gcc of musl-tools, but with the files here
  sed -i "s,/usr/[il][a-z]*/,$dir/musl/$machine&,g" musl/$machine/usr/lib/$machine-linux-musl/musl-gcc.specs
done
apt arm64 download libcmocka-dev libcmocka0 || say "Debian's archive cannot be read"
for package in libcmocka*.deb; do dpkg-deb -x "$package" cmocka; done
apt amd64 source --download-only jansson pcre2 utf8proc cmocka || say "apt-get source failed; it looks in Debian's archive"
# version FILE: that of a package, without Debian's revision
version() { basename "$1" | sed 's/^[^_]*_\([0-9.]*[0-9]\).*/\1/'; }
cp musl/x86_64/usr/share/doc/musl-dev/copyright "licenses/musl-$(version musl-dev_*_amd64.deb)"
rm -f ./*.asc
for name in jansson pcre2 utf8proc; do
  mkdir "$name-all"
  tar xf "$name"_*.orig.tar.* -C "$name-all" --strip-components=1
  cp "$name-all"/LICEN[CS]E* license
  mv license "licenses/$name-$(version "$name"_*.orig.tar.*)"
done
mkdir cmocka-source
tar xf cmocka_*.orig.tar.* -C cmocka-source --strip-components=1
mv jansson-all/src jansson
mv pcre2-all/src pcre2
[ ! -d pcre2-all/deps ] || mv pcre2-all/deps . # of later versions: what ../deps is in their sources
mv utf8proc-all utf8proc
cp pcre2/pcre2.h.generic pcre2/pcre2.h
cp pcre2/config.h.generic pcre2/config.h
cp pcre2/pcre2_chartables.c.dist pcre2/pcre2_chartables.c
: >jansson/jansson_private_config.h
sed 's/@json_inline@/inline/; s/@json_have_long_long@/1/; s/\(MAX_DEPTH \).*/\12048/; s/@json_[a-z_]*@/0/' \
  jansson/jansson_config.h.in >jansson/jansson_config.h
# Most of utf8proc's table serves case folding, widths, and graphemes. Without these columns most rows are equal, and one
# of each is enough: 140 kB less. First all rows get new numbers, then the second table gets these numbers.
awk '
  /utf8proc_[a-z0-9]*\[\]/ { table = $4 }
  NR == FNR && table ~ /properties/ && /^  [{]/ {
    split($0, f, / *, */)
    if (f[17] !~ /BOUNDCLASS/) { print "unknown columns: " $0 >"/dev/stderr"; exit 1 }
    row = f[1] "," f[2] ",0," f[4] "," (f[4] == "0" ? f[5] : "UINT16_MAX") ",0,0,0,0," f[10] ",0," f[12] ",0,0,0,0,0},"
    if (!(row in number)) { number[row] = kept + 0; rows[kept++] = row }
    renamed[count++] = number[row]
  }
  NR == FNR { next }
  table ~ /stage2/ && /^  / { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]/) $i = renamed[$i + 0] "," }
  table ~ /properties/ && /^  [{]/ { if (!printed++) for (i = 0; i < kept; i++) print rows[i]; next }
  { print }
  END { if (!printed) exit 1 }
' utf8proc/utf8proc_data.c utf8proc/utf8proc_data.c >data.c || say "utf8proc's table has another form than version 2.8's"
mv data.c utf8proc/utf8proc_data.c
# the C library of the WebAssembly module
if [ -e /usr/share/doc/wasi-libc/copyright ]; then
  cp /usr/share/doc/wasi-libc/copyright "licenses/wasi-libc-$(dpkg-query -W -f '${Version}' wasi-libc | sed 's/-[^-]*$//')"
fi
rm -rf ./*-all ./*.tar.* ./*.dsc ./*.diff.gz ./*.deb apt list
touch complete
cd "$OLDPWD"
rm -rf "$dir"
mv "$dir.new" "$dir"
