#!/bin/sh
# Downloads a well-known text corpus, checks it, and puts it under its name only when it is right.
# Exit codes: 0 done, 1 a needed tool is missing, 2 usage, 3 not downloaded or not the expected bytes,
# 7 cannot write, 130/143 interrupted.
set -u

shakespeare=https://raw.githubusercontent.com/karpathy/char-rnn/6f9487a6fe5b420b7ca9afb0d7c078e37c1d1b4e/data/tinyshakespeare/input.txt
stories=https://huggingface.co/datasets/roneneldan/TinyStories/resolve/f54c09fd23315a6f9c86f9dc80f725de7d8f9c64

usage() {
  cat <<'END'
usage: data/fetch.sh NAME [DIR]
Downloads a corpus into DIR (default: the current directory), checks its SHA-256, prints where it is.

  tinyshakespeare     1.1 MB   tinyshakespeare.txt            plays of Shakespeare, one file
  tinystories         2.2 GB   TinyStoriesV2-GPT4-train.txt   children's stories by GPT-4: for training
  tinystories-valid    23 MB   TinyStoriesV2-GPT4-valid.txt   the same: for validation
  enwik8              100 MB   enwik8                         English Wikipedia, March 2006 (36 MB download)

A file that is already there and right is kept. Needs curl or wget, sha256sum or shasum; enwik8 also unzip.
END
}

# die CODE MESSAGE
die() {
  printf 'fetch.sh: %s\n' "$2" >&2
  exit "$1"
}

have() { command -v "$1" >/dev/null 2>&1; }

sha256_of() {
  if have sha256sum; then
    sha256sum <"$1" | cut -d ' ' -f 1
  else
    shasum -a 256 <"$1" | cut -d ' ' -f 1
  fi
}

size_of() { wc -c <"$1" | tr -d ' '; }

# download URL FILE
download() {
  if have curl; then
    progress=--silent
    [ ! -t 2 ] || progress=--progress-bar
    curl --fail --location --show-error "$progress" --retry 3 --connect-timeout 30 --output "$2" "$1"
  else
    wget --quiet --tries=3 --connect-timeout=30 --output-document="$2" "$1"
  fi
}

# verify FILE: its size and sum are those of the corpus
verify() {
  [ "$(size_of "$1")" = "$bytes" ] && [ "$(sha256_of "$1")" = "$sum" ]
}

clean_up() { [ -z "${work:-}" ] || rm -rf "$work"; }

case "${1:-}" in
  --help | -h) usage; exit 0 ;;
  '') die 2 "say which corpus: tinyshakespeare, tinystories, tinystories-valid or enwik8 (see --help)" ;;
  tinyshakespeare)
    url=$shakespeare file=tinyshakespeare.txt bytes=1115394
    sum=86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed ;;
  tinystories)
    url=$stories/TinyStoriesV2-GPT4-train.txt file=TinyStoriesV2-GPT4-train.txt bytes=2227753162
    sum=6418d412de72888f52b5142c761ac21a582f7d1166f0bfbdb5f03ccfdec90443 ;;
  tinystories-valid)
    url=$stories/TinyStoriesV2-GPT4-valid.txt file=TinyStoriesV2-GPT4-valid.txt bytes=22502601
    sum=6874bae9a4c1a4e7edcf0e53b86c17817e9cf881fc75ff2368da457b80c0585d ;;
  enwik8)
    url=https://mattmahoney.net/dc/enwik8.zip file=enwik8 bytes=100000000
    sum=2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8 ;;
  *) die 2 "no corpus '$1': there are tinyshakespeare, tinystories, tinystories-valid and enwik8" ;;
esac
[ $# -le 2 ] || die 2 "too many arguments: fetch.sh NAME [DIR]"
dir=${2:-.}
case $dir in -*) die 2 "unknown flag '$dir' (see --help)" ;; esac

have curl || have wget || die 1 "needs curl or wget: install one of them"
have sha256sum || have shasum || die 1 "needs sha256sum or shasum to check the download: install one of them"
[ "$file" != enwik8 ] || have unzip || die 1 "needs unzip for enwik8: install it"

mkdir -p "$dir" 2>/dev/null || die 7 "cannot make the directory '$dir'"
target=$dir/$file
if [ -d "$target" ]; then die 7 "'$target' is a directory"; fi
if [ -f "$target" ] && verify "$target"; then
  printf '%s is already there, %s bytes, SHA-256 right\n' "$target" "$bytes"
  exit 0
fi

trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
work=$(mktemp -d "$dir/.fetch.XXXXXX" 2>/dev/null) || die 7 "cannot write to '$dir'"

download "$url" "$work/download"
status=$?
# curl ends with 23 and wget with 3 where the disk, not the network, is at fault.
if have curl; then full=23; else full=3; fi
[ "$status" -ne "$full" ] || die 7 "cannot write to '$dir' (is the disk full?)"
if [ "$status" -ne 0 ] || [ ! -f "$work/download" ]; then die 3 "could not download $url"; fi

if [ "$file" = enwik8 ]; then
  unzip -tq "$work/download" enwik8 >/dev/null 2>&1 || die 3 "$url did not give a sound enwik8.zip"
  unzip -p "$work/download" enwik8 >"$work/enwik8" || die 7 "cannot write to '$dir' (is the disk full?)"
  mv "$work/enwik8" "$work/download"
fi
if ! verify "$work/download"; then
  die 3 "$url gave $(size_of "$work/download") bytes, SHA-256 $(sha256_of "$work/download"), not $bytes bytes, $sum"
fi
mv "$work/download" "$target" 2>/dev/null || die 7 "cannot write '$target'"
printf '%s: %s bytes, SHA-256 right\n' "$target" "$bytes"
