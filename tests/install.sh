#!/bin/sh
# Tests the command `inkling`, and that what scripts/install.sh installs works from any directory and for any user, and can
# be removed again.
# See tests/program_helpers.sh. Shells and man are tested if they are installed.
# shellcheck disable=SC2086 # lists are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh
export BUILD="$build" BIN="$bin"
unset DESTDIR PREFIX

installer=$here/scripts/install.sh
there=$work/there
install_in() { # install_in DIRECTORY ARGUMENTS...: DESTDIR as it is set
  prefix=$1
  shift
  PREFIX=$prefix "$installer" "$@" >out 2>err
}
# The files below a directory, except MPI libraries.
files() { (cd "$1" && find . -type f ! -name 'inkling-*.so' | sort | tr '\n' ' '); }

# ---- the command ----
"$bin/inkling" >out 2>err; status=$?
check "inkling alone" test "$status $(head -n 1 err | cut -c 1-25)$(cat out)" = "2 Usage: inkling train FILE"
refused "an unknown command" 2 'inkling: unknown command "run"; type: inkling train FILE' "$bin/inkling" run
refused "an unknown flag" 2 "unknown flag --zz: \`$bin/inkling train --help-all\`" "$bin/inkling" train --zz
check "inkling --help" test "$("$bin/inkling" --help | head -n 1 | cut -c 1-20)" = "Usage: inkling train"
check "a full disk" sh -c '"$0" --version >/dev/full 2>err; test $? = 7 && grep -q "write to stdout" err' "$bin/inkling"
check "inkling help train" sh -c '"$0" help train | grep -q resume' "$bin/inkling"
refused "help for an unknown command" 2 'inkling: unknown command "run"' "$bin/inkling" help run

# ---- installed, and used by another user in another directory ----
mkdir -p "$there/share" && echo mine >"$there/share/mine"
check "install" install_in "$there"
list='./bin/inkling ./share/bash-completion/completions/inkling ./share/zsh/site-functions/_inkling'
list="$list ./share/fish/vendor_completions.d/inkling.fish ./lib/inkling/installed ./share/mine ./share/licenses/inkling/LICENSE"
for page in inkling inkling-train inkling-generate; do list="$list ./share/man/man1/$page.1"; done
list=$(printf '%s\n' $list | sort | tr '\n' ' ')
check "every file is in its place" test "$(files "$there")" = "$list"
check "nothing else is on the list" sh -c "cd '$there' && grep -v '/$' lib/inkling/installed | xargs ls >/dev/null"
chmod 755 "$work"
mkdir elsewhere && chmod 777 elsewhere
"$build/stories" --bytes 20000 --seed 3 -o elsewhere/text.txt 2>/dev/null
chmod 644 elsewhere/text.txt
as_user() { # as_user COMMAND: of a shell, in another directory; for root as nobody
  if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    (cd elsewhere && PATH=$there/bin:$PATH HOME=/ setpriv --reuid=65534 --regid=65534 --clear-groups sh -c "$1")
  else (cd elsewhere && PATH=$there/bin:$PATH sh -c "$1"); fi
}
small='--layers 1 --heads 1 --dim 16 --ctx 16 --batch 2 --steps 4 --threads 1 --device cpu --quiet'
as_user "inkling train text.txt ${small% --quiet}" 2>err
check "train, installed" test -s elsewhere/text.run/model.safetensors
check "the message names the command" grep -q ': inkling generate text.run -n 500' err
check "so does the report" grep -q '<code>inkling train --config' elsewhere/text.run/report.html
as_user "inkling generate text.run -p Once -n 5 --device cpu --quiet" >out 2>err
check "generate, installed" test -s out
as_user "inkling --version; inkling train --version; inkling generate --version" >out
check "all say the version" test "$(grep -c "^[a-z]* $(cat "$here/VERSION")" out)" = 3
for launcher in mpirun.openmpi mpirun.mpich mpirun; do
  command -v $launcher >/dev/null || continue
  kind=mpich flags=
  if $launcher --version 2>/dev/null | grep -qi open; then kind=openmpi flags='--oversubscribe --allow-run-as-root'; fi
  [ -e "$there/lib/inkling/inkling-$kind.so" ] || continue
  # The sanitizers report leaks in MPI itself.
  ASAN_OPTIONS=detect_leaks=0 as_user "$launcher $flags -n 2 inkling train text.txt $small --out $launcher.run" >out 2>err
  check "$launcher, installed" test -s elsewhere/$launcher.run/model.safetensors
done

# ---- manual pages ----
# Each option of --help.
for program in train generate; do
  "$bin/$program" --help | grep -o -e '--[a-z][-a-z0-9]*' | sort -u >options
  page=$there/share/man/man1/inkling-$program.1
  if has man "man inkling-$program.1"; then
    MANWIDTH=1000 LC_ALL=C man --warnings -E ascii -l "$page" >text 2>err
    check "man inkling-$program.1 without warnings" test ! -s err
    missing=$(while read -r option; do grep -q -e "$option" text || echo "$option"; done <options)
    check "man inkling-$program.1 has every option" test -z "$missing"
  else check "inkling-$program.1 has its heading" grep -q '^.TH ' "$page"; fi
done

if has man "man inkling.1"; then
  MANWIDTH=1000 LC_ALL=C man --warnings -E ascii -l "$there/share/man/man1/inkling.1" >text 2>err
  check "man inkling.1 without warnings" test ! -s err
  check "man inkling.1 names both" test "$(grep -c 'inkling-[a-z]*(1)' text)" = 3
fi

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
  has $shell "$shell" || continue
  offers $shell 'inkling t' train
  offers $shell 'inkling train --lay' --layers
  case " $("${shell}_offers" 'inkling generate -p train --lay') " in
    *layers*) fail "$shell: options of the other" ;;
    *) pass "$shell: options of the other" ;;
  esac
  offers $shell 'inkling train --no-t' --no-tie
  offers $shell 'inkling generate --dtype ' f32 bf16
  offers $shell 'inkling train --tokenizer b' byte bpe
  offers $shell 'inkling train --val fi' file.txt
  offers $shell 'inkling train --out pl' "place$([ $shell = bash ] || echo /)"
done
if has zsh "zsh"; then
  # Its functions run only in a terminal, so the test parses the specifications.
  for program in train generate; do
    zsh -fc "autoload -U compinit; compinit -D; _arguments() { print -l -- \"\$@\" }; words=(inkling $program ''); CURRENT=3
      . $there/share/zsh/site-functions/_inkling" >specifications 2>err
    check "zsh: $program" test ! -s err -a "$(grep -c '^-' specifications)" -gt 50 -a "$(grep -vc '^[-*]' specifications)" = 0
  done
  check "zsh: choices" grep -q '^--dtype=\[.*\]:dtype:(auto f32 bf16' specifications
fi

# ---- uninstalling and rejected commands ----
check "uninstall" install_in "$there" uninstall
check "what was there before stays" test "$(find "$there" | wc -l)" = 3
check "nothing to uninstall" sh -c "! PREFIX='$there' '$installer' uninstall 2>/dev/null"
# in_the_way NAME: with another file of that name, nothing is installed
in_the_way() {
  mkdir -p "$there/${1%/*}" && ln -s nowhere "$there/$1"
  all=$(find "$there" | sort)
  refused "$1 of others stays" 1 "$there/$1 is there already" env PREFIX="$there" "$installer"
  check "and nothing is installed" test "$all" = "$(find "$there" | sort)"
  rm "$there/$1"
}
in_the_way bin/inkling
in_the_way share/man/man1/inkling.1
install_in "$there"
sums=$(cd "$there" && find . -type f | sort | xargs cksum)
check "a failure" sh -c "! BIN=/nowhere PREFIX='$there' '$installer' 2>/dev/null"
check "keeps the old version" test "$sums" = "$(cd "$there" && find . -type f | sort | xargs cksum)"
install_in "$there" uninstall
mkdir -p "$there/share" && echo mine >"$there/share/zsh"
check "a failure while copying" sh -c "! PREFIX='$there' '$installer' 2>/dev/null"
check "is uninstalled" install_in "$there" uninstall
check "to what was there" test "$(cd "$there" && find . -type f | sort | tr '\n' ' ')" = "./share/mine ./share/zsh "
DESTDIR=$work/stage
export DESTDIR
check "for a package" install_in /usr/local
check "below its directory" test -x stage/usr/local/bin/inkling
check "whose list has no DESTDIR" sh -c '! grep -q stage stage/usr/local/lib/inkling/installed'
check "removed" install_in /usr/local uninstall
check "without a file" test -z "$(find stage -type f)"
echo "done"
