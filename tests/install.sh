#!/bin/sh
# Tests that what scripts/install.sh installs works from any directory and for any user, and can be removed again.
# See tests/program_helpers.sh. Shells and man are tested if they are installed.
# shellcheck disable=SC2086 # lists are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
export BUILD="$build" BIN="$bin"
unset DESTDIR PREFIX PROGRAM_PREFIX

installer=$here/scripts/install.sh
there=$work/there
install_in() { # install_in DIRECTORY ARGUMENTS...: PROGRAM_PREFIX and DESTDIR as they are set
  prefix=$1
  shift
  PREFIX=$prefix "$installer" "$@" >out 2>err
}
# The files below a directory, except MPI libraries.
files() { (cd "$1" && find . -type f ! -name 'inkling-*.so' | sort | tr '\n' ' '); }
has_tool() { command -v "$1" >/dev/null; }

# ---- installed, and used by another user in another directory ----
mkdir -p "$there/share" && echo mine >"$there/share/mine"
check "install" install_in "$there"
list=
for program in train generate; do
  list="$list ./bin/$program ./share/man/man1/$program.1 ./share/bash-completion/completions/$program"
  list="$list ./share/zsh/site-functions/_$program ./share/fish/vendor_completions.d/$program.fish"
done
list=$(printf '%s\n' $list ./lib/inkling/installed ./share/mine | sort | tr '\n' ' ')
check "every file is in its place" test "$(files "$there")" = "$list"
check "nothing else is on the list" sh -c "cd '$there' && grep -v '/$' lib/inkling/installed | xargs ls >/dev/null"
chmod 755 "$work"
mkdir elsewhere && chmod 777 elsewhere
"$build/stories" --bytes 20000 --seed 3 -o elsewhere/text.txt 2>/dev/null
chmod 644 elsewhere/text.txt
as_user() { # as_user COMMAND: of a shell, in another directory; for root as nobody
  if [ "$(id -u)" = 0 ] && has_tool setpriv; then
    (cd elsewhere && PATH=$there/bin:$PATH HOME=/ setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$1")
  else (cd elsewhere && PATH=$there/bin:$PATH sh -c "$1"); fi
}
small='--layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --steps 4 --threads 1 --device cpu --quiet'
as_user "train text.txt $small" 2>err
check "train, installed" test -s elsewhere/text.run/model.safetensors
as_user "generate text.run -p Once -n 5 --device cpu --quiet" >out 2>err
check "generate, installed" test -s out
as_user "train --version; generate --version" >out
check "both say their version" test "$(grep -c "^[a-z]* $(cat "$here/VERSION")" out)" = 2
for launcher in mpirun.openmpi mpirun.mpich mpirun; do
  has_tool $launcher || continue
  kind=mpich flags=
  if $launcher --version 2>/dev/null | grep -qi open; then kind=openmpi flags='--oversubscribe --allow-run-as-root'; fi
  [ -e "$there/lib/inkling/inkling-$kind.so" ] || continue
  # The sanitizers report leaks in MPI itself.
  ASAN_OPTIONS=detect_leaks=0 as_user "$launcher $flags -n 2 train text.txt $small --out $launcher.run" >out 2>err
  check "$launcher, installed" test -s elsewhere/$launcher.run/model.safetensors
done

# ---- manual pages ----
# Each option of --help.
for program in train generate; do
  "$bin/$program" --help | grep -o -e '--[a-z][-a-z0-9]*' | sort -u >options
  page=$there/share/man/man1/$program.1
  if has_tool man; then
    MANWIDTH=1000 LC_ALL=C man --warnings -E ascii -l "$page" >text 2>err
    check "man $program.1 without warnings" test ! -s err
    missing=$(while read -r option; do grep -q -e "$option" text || echo "$option"; done <options)
    check "man $program.1 has every option" test -z "$missing"
  else check "$program.1 has its heading" grep -q '^.TH ' "$page"; fi
done

# ---- completion ----
# completes SHELL LINE: prints the completions
bash_offers() {
  bash -c '. "$1"; COMP_WORDS=($2); [[ $2 != *" " ]] || COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    $(complete -p "${COMP_WORDS[0]}" | sed "s/.*-F \([^ ]*\).*/\1/") 2>/dev/null; eval ":"; printf "%s\n" "${COMPREPLY[@]}"' \
    - "$there/share/bash-completion/completions/${1%% *}" "$1" | tr '\n' ' '
}
fish_offers() {
  fish --no-config -c "source $there/share/fish/vendor_completions.d/${1%% *}.fish; complete -C '$1'" | cut -f 1 | tr '\n' ' '
}
offers() { # offers SHELL LINE WORD...
  shell=$1 line=$2
  shift 2
  got=" $("${shell}_offers" "$line") "
  for word; do
    case $got in *" $word "*) ;; *) fail "$shell: $line" "no $word in: $(echo "$got" | cut -c 1-200)"; return ;; esac
  done
  pass "$shell: $line"
}
mkdir place && touch file.txt
for shell in bash fish; do
  has_tool $shell || continue
  offers $shell 'train --lay' --layers
  offers $shell 'train --no-t' --no-tie
  offers $shell 'generate --dtype ' f32 bf16
  offers $shell 'train --tokenizer b' byte bpe
  offers $shell 'train --val fi' file.txt
  offers $shell 'train --out pl' "place$([ $shell = bash ] || echo /)"
done
if has_tool zsh; then
  # Its functions run only in a terminal, so the test parses the specifications.
  for program in train generate; do
    zsh -fc "autoload -U compinit; compinit -D; _arguments() { print -l -- \"\$@\" }; . $there/share/zsh/site-functions/_$program" \
      >specifications 2>err
    check "zsh: $program" test ! -s err -a "$(grep -c '^-' specifications)" -gt 50 -a "$(grep -vc '^[-*]' specifications)" = 0
  done
  check "zsh: choices" grep -q '^--dtype=\[.*\]:dtype:(auto f32 bf16' specifications
fi

# ---- uninstalling and rejected commands ----
check "uninstall" install_in "$there" uninstall
check "what was there before stays" test "$(find "$there" | wc -l)" = 3
check "nothing to uninstall" sh -c "! PREFIX='$there' '$installer' uninstall 2>/dev/null"
mkdir "$there/bin" && echo foreign >"$there/bin/train"
check "another train stays" sh -c "! PREFIX='$there' '$installer' >/dev/null 2>err && grep -q PROGRAM_PREFIX err && grep -q foreign '$there/bin/train'"
PROGRAM_PREFIX=inkling-
export PROGRAM_PREFIX
check "beside another train" install_in "$there"
PROGRAM_PREFIX=other-
check "under another name" install_in "$there"
check "instead of the first" test "$(cd "$there/bin" && echo *)" = "other-generate other-train train"
check "pages name the program" grep -q 'other\\-generate' "$there/share/man/man1/other-train.1"
check "completion does" grep -q '^complete .* other-train$' "$there/share/bash-completion/completions/other-train"
check "another prefix is removed" install_in "$there" uninstall
check "and nothing else" test "$(find "$there" | wc -l)" = 5
unset PROGRAM_PREFIX
DESTDIR=$work/stage
export DESTDIR
check "for a package" install_in /usr/local
check "below its directory" test -x stage/usr/local/bin/train
check "whose list has no DESTDIR" sh -c '! grep -q stage stage/usr/local/lib/inkling/installed'
check "removed" install_in /usr/local uninstall
check "without a file" test -z "$(find stage -type f)"
echo "done"
