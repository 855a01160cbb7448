#!/bin/sh
# Tests the packages of `make dist` for this machine: their programs run without a system around them, they are removed
# without a trace, and packing again gives the same bytes. FULL=1: so does building again, in another directory. What
# needs root, venv, lintian or skopeo is tested where they are. See tests/program_helpers.sh.
# shellcheck disable=SC2154 # of the helpers
set -u
unset MAKEFLAGS MAKELEVEL DESTDIR PREFIX
. tests/program_helpers.sh
machine=$(uname -m)

[ "${FULL:-}" ] || windows=WINDOWS_CC=none # takes a minute to compile

dist() { # dist DIRECTORY
  make -C "$here" --no-print-directory BUILD="${build#"$here"/}" BUILD_SETTINGS= NO_CUDA=1 NO_MPI=1 ${windows:+"$windows"} \
    MACHINES="$machine" URL=https://example.org/inkling DIST="$1" dist >out 2>&1 || fail "make dist" "$(tail out)"
}
dist "$work/one"
static=$build/static/$machine/inkling
files=$work/one/inkling-$(cat "$here/VERSION")-linux-$machine
check "less than 3.1 MB" test "$(wc -c <"$static")" -lt 3100000
check "SHA256SUMS" sh -c "cd '$work/one' && sha256sum --quiet -c SHA256SUMS"
dist "$work/two"
check "the same bytes when packed again" diff -r one two
for template in inkling.rb PKGBUILD; do check "$template is filled in" sh -c "! grep @ one/$template"; done

# uses PROGRAM...: trains on a text and lets the model write, here
small='--layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --steps 4 --threads 2 --seed 1 --quiet'
"$build/stories" --bytes 20000 --seed 3 -o text.txt 2>/dev/null
uses() {
  # shellcheck disable=SC2086 # words
  "$@" train text.txt $small --out one.run --overwrite && "$@" generate one.run -n 20 --seed 1 --quiet >text
  status=$?
  [ $status -eq 0 ] && [ -s text ]
}
# shellcheck disable=SC2086 # words
"$train" text.txt $small --device cpu --out ours.run 2>/dev/null
check "static" uses "$static"
check "learns as the usual build" near_loss ours.run one.run 1e-6
refused "a GPU" 2 'this build has no CUDA backend' "$static" train text.txt --device cuda
check "tarball" sh -c "tar xzf '$files.tar.gz' && cmp inkling-*/bin/inkling '$static'"

# ---- an image, in place of the system ----
mkdir image root
tar xf "$files.image.tar" -C image
tar xzf "image/$(sed -n '/Layers/,/]/s/.*"\(blobs[^"]*\)".*/\1/p' image/manifest.json)" -C root
if [ "$(id -u)" = 0 ] && chroot root /bin/inkling --version >/dev/null; then
  # chroot starts in /, so the names of the files are those there
  cp text.txt root/
  cd root || exit 1
  check "in an empty system" uses chroot "$work/root" /bin/inkling
  cd ..
fi
if has skopeo "the container"; then
  for kind in oci-archive docker-archive; do
    check "$kind" skopeo --insecure-policy --tmpdir "$work" copy -q "$kind:$files.image.tar" "dir:$work/$kind"
  done
fi

# ---- wheel ----
if python3 -m venv venv 2>/dev/null; then
  find venv -type f ! -name '*.pyc' | sort >before
  check "wheel" venv/bin/pip install -q --no-index --disable-pip-version-check one/*manylinux*.whl
  check "inkling of the wheel" uses "$work/venv/bin/inkling"
  venv/bin/pip uninstall -q -y --disable-pip-version-check inkling-lm 2>/dev/null
  check "pip uninstall" sh -c "find venv -type f ! -name '*.pyc' | sort | diff before -"
fi

# ---- Debian package ----
if has dpkg "the Debian package, installed" && [ "$(id -u)" = 0 ]; then
  mkdir -p debian/var/lib/dpkg/info debian/var/lib/dpkg/updates
  : >debian/var/lib/dpkg/status
  dpkg --root="$work/debian" --log=/dev/null -i one/*.deb >out 2>&1 || fail "dpkg -i" "$(cat out)"
  check "inkling of the package" uses "$work/debian/usr/bin/inkling"
  if has man "its page"; then check "its page" sh -c 'man -l debian/usr/share/man/man1/*train.1.gz | grep -q resume'; fi
  dpkg --root="$work/debian" --log=/dev/null -P inkling >/dev/null
  check "dpkg -P" test -z "$(find debian/* ! -path 'debian/var*')"
fi
has lintian "lintian" && check "lintian" lintian --allow-root --fail-on warning one/*.deb

# ---- the same bytes from another directory ----
if [ "${FULL:-}" ] && [ -z "$(git -C "$here" status --porcelain --untracked-files=no)" ]; then
  git clone -q "$here" "$work/again"
  mkdir again/build
  make -C again --no-print-directory NO_CUDA=1 NO_MPI=1 MACHINES="$machine" static >out 2>&1 || cat out
  check "the same program when built again" cmp "again/build/static/$machine/inkling" "$static"
fi
echo "done"
