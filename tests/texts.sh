#!/bin/sh
# Tests the text checks of ./train and ./generate: messages, exit statuses, the commands that they suggest, and the
# windows that --show prints. See tests/program_helpers.sh.
# shellcheck disable=SC2086 # sets of flags are words
# shellcheck disable=SC2154 # of the helpers
set -u
. tests/program_helpers.sh

# ./train of the commands that messages give: on the CPU, so that nothing is said of GPUs
printf '#!/bin/sh\nexec "%s" "$@" --device cpu\n' "$train" >train
chmod +x train
"$build/stories" --bytes 60000 --seed 3 -o text.txt --report report.json 2>/dev/null

# said FILES...: what ./train says of them beside the plan
said() { ./train "$@" --tokenizer byte --dry-run 2>&1 | grep -e '^note:' -e '^warning:' -e '^train:'; }
# silent NAME FILES...: no message is printed
silent() {
  name=$1
  shift
  check "$name" test "$(said "$@")" = ""
}
# mended NAME WORDS FILES...: what is said has the words, and the command of its last line gives a text of which nothing is said;
# where it names no encoding, that of latin1.txt
mended() {
  name=$1 words=$2
  shift 2
  said "$@" >message
  command=$(sed -n '$s/.*: //p' message | sed 's/ENCODING/latin1/')
  if ! grep -q -e "$words" message; then fail "$name" "no \"$words\" in: $(cat message)"
  elif ! eval "$command --dry-run --device cpu" 2>err; then fail "$name" "$command: $(cat err)"
  elif grep -q -e '^note:' -e '^warning:' err; then fail "$name" "$command leaves: $(cat err)"
  else pass "$name"; fi
}

# ---- texts without problems ----
silent "a story" text.txt
silent "a source" "$here/train.c"
silent "a shell script" "$here/tests/texts.sh"
silent "Markdown" "$here/README.md"
awk '{ gsub(/["\\]/, ""); printf "{\"id\": %d, \"story\": \"%s\"}\n", NR, $0 }' text.txt >lines.jsonl
silent "JSON lines" lines.jsonl --jsonl-field story

# ---- problems with a suggested fix ----
sed 's/the/th\xe9/g' text.txt >latin1.txt
mended "Latin-1" 'latin1.txt: [0-9.]* % of its bytes are not UTF-8; convert it from its encoding' latin1.txt
cp latin1.txt "it's Latin.txt"
mended "a name that needs quotes" "iconv -f ENCODING -t utf-8 'it'.*s Latin.txt' | .*train -" "it's Latin.txt"
sed 's/$/\r/' text.txt >crlf.txt
mended "CR LF" 'lines end in CR LF' crlf.txt
printf 'nul\0' >nul.txt
cat text.txt >>nul.txt
mended "NUL" 'are NUL' nul.txt
{ echo "The Project Gutenberg eBook of Stories" && echo "*** START OF THE PROJECT GUTENBERG EBOOK STORIES ***" &&
  cat text.txt && echo "*** END OF THE PROJECT GUTENBERG EBOOK STORIES ***" && echo "license"; } | sed 's/$/\r/' >book.txt
mended "Project Gutenberg, and CR LF" '94 bytes before it, 61 after it' book.txt
tr -d '\r' <book.txt | sed -n '/^\*\*\* *START OF .*PROJECT GUTENBERG/,/^\*\*\* *END OF .*PROJECT GUTENBERG/{//!p;}' >cut.txt
check "what is left is the text" cmp cut.txt text.txt
for mark in 1 2 3; do printf '\357\273\277' && cat text.txt && echo $mark; done >marks.txt
mended "byte-order marks" 'byte-order marks .* (2 times)' marks.txt
cat text.txt text.txt >twice.txt
mended "a text twice" 'the same 5[0-9.]* KiB 2 times' twice.txt
gzip -c text.txt >text.txt.gz
mended "gzip" 'text.txt.gz: it is compressed (gzip)' text.txt.gz
cp lines.jsonl lines.log
mended "JSON lines under another name" 'looks like JSON lines' lines.log
awk 'BEGIN { print "id,story" } { gsub(/"/, ""); printf "%d,\"%s\"\n", NR, $0 }' text.txt >table.csv
said table.csv >message
check "CSV" grep -q "table.csv: it is a table and .*<table.csv | .*train - --jsonl-field COLUMN" message
{ echo "[" && sed '$!s/$/,/' lines.log && echo "]"; } >array.log
has jq "a JSON array" && mended "a JSON array" 'JSON array of objects' array.log
{ echo "<!DOCTYPE html><html><body>" && sed 's|.*|<p>&</p>|' text.txt && echo "</body></html>"; } >page.html
said page.html >message
check "HTML" grep -q "it is HTML, and .* are tags; .*extract its text: pandoc -f html -t plain --wrap=none page.html | .*train -" message
said - <latin1.txt >message
check "standard input" grep -q "^warning: standard input: .*: \.\.\. | iconv -f ENCODING -t utf-8 | .*train - --tokenizer byte --device cpu --dry-run$" message
if has jq "an array that is called JSON lines"; then
  cp array.log array.jsonl
  mended "an array that is called JSON lines" "jq -c '..*' array.jsonl | .*train - --jsonl-field story" array.jsonl
fi

# ---- rejected files ----
printf '%%PDF-1.4\n%%\342\343\317\323\n' >paper.pdf
cat text.txt >>paper.pdf
refused "a PDF" 3 'pdftotext paper.pdf - | .*train -' "$train" paper.pdf
iconv -f utf-8 -t utf-16 text.txt >wide.txt
refused "UTF-16" 3 'iconv -f utf-16 -t utf-8 wide.txt | .*train -' "$train" wide.txt
mended "UTF-16 is converted" 'it is UTF-16' wide.txt
printf '\211PNG\r\n\032\n\0\0\0\rIHDR' >picture.png
refused "a picture" 3 'a PNG picture' "$train" picture.png
refused "a program" 3 'an executable (ELF).*: .*train .*generate --binary' "$train" "$generate"
printf 'PK\3\4\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\10\0\0\0mimetypeapplication/epub+zipPK\3\4' >book.epub
refused "an e-book" 3 'EPUB.*pandoc -f epub -t plain --wrap=none book.epub | .*train -' "$train" book.epub
refused "from standard input, too" 3 'standard input: it is compressed (gzip).*: \.\.\. | zcat | .*train -$' sh -c "$train - <text.txt.gz"
refused "a text to validate on, too" 3 "zcat text.txt.gz >text.txt.gz.txt" "$train" text.txt --val text.txt.gz
silent "--binary insists" "$generate" --binary
silent "on text, too" latin1.txt --binary
few="--layers 1 --heads 2 --dim 32 --ctx 32 --batch 4 --steps 3 --quiet --threads 2 --sample-tokens 0 $varied"
./train wide.txt --binary $few --out bytes.run 2>err
check "and trains" test -s bytes.run/model.safetensors -a ! -s err
./train --resume=bytes.run --steps 4 --quiet 2>err
check "and resumes" test $? -eq 0 -a ! -s err

# ---- many files ----
mkdir many
i=0
while [ $i -lt 30 ]; do
  cp latin1.txt many/$i.txt
  i=$((i + 1))
done
cp crlf.txt many/other.txt
cp text.txt many/plain.txt
said many >message
check "of many files one line each kind" test "$(grep -c '' message)" -eq 2
check "with their number and the first" grep -q '^warning: 30 files, the first of them many/0.txt: .*; convert it from its encoding.*: for f in many/0.txt many/1.txt .*; do iconv -f ENCODING -t utf-8 "$f" >tmp && mv tmp "$f"; done$' message
sed -n 's/^[a-z]*: .*: //p' message | sed 's/ENCODING/latin1/' >commands
. ./commands
silent "which mend them" many

mkdir "bad texts"
cp text.txt "bad texts/good.txt"
cp paper.pdf "bad texts/a.txt"
gzip -c text.txt >"bad texts/it's b.txt"
gzip -c text.txt >"bad texts/c.txt"
cp wide.txt "bad texts/d.txt"
cp array.log "bad texts/e.jsonl"
said "bad texts" >message
check "all files that cannot be read are named, a line for each problem" test "$(grep -c -e '^warning:.*a.txt: it is a PDF' -e '^warning: 2 files' -e '^warning:.*d.txt: it is UTF-16' -e '^train:.*e.jsonl: it looks like' message)" -eq 4
rm "bad texts/a.txt" "bad texts/e.jsonl"
said "bad texts" | sed 's/^[a-z]*: .*: //' >commands
. ./commands
silent "the commands mend the directory" "bad texts"
check "and keep the files that they replace" cmp "bad texts/c.txt.original" "bad texts/it's b.txt.original"
touch "bad texts/6.docx" "bad texts/8.md" "bad texts/.hidden"
./train "bad texts" --dry-run 2>plan
check "skipped names" grep -q 'skipped in directories: bad texts/6.docx, bad texts/8.md, bad texts/.hidden and 2 more; only' plan
check "a warning of those that may be texts" grep -q '^warning: these files may be texts but were not read: bad texts/6.docx, bad texts/8.md; in a directory' plan

# ---- commands read what the file would give, with the options that were given ----
# as_file NAME FILE OPTIONS...: what the command of the message shows is what FILE.plain, which has the right name, shows
as_file() {
  name=$1 file=$2 plain=$3
  shift 3
  ./train "$file" "$@" --tokenizer byte --ctx 64 --val-frac 0 --dry-run --show 2 >/dev/null 2>message
  command=$(sed -n 's/^[a-z]*: .*: //p' message | tail -n 1)
  ./train "$plain" "$@" --tokenizer byte --ctx 64 --val-frac 0 --dry-run --show 2 >expected 2>/dev/null
  eval "$command" >got 2>err
  check "$name" cmp got expected
}
seq 300 | awk '{ printf "%d+1=\tanswer %d\n", $1, $1 + 1 }' >p.tsv
gzip -k p.tsv
as_file "compressed TSV" p.tsv.gz p.tsv
iconv -f utf-8 -t utf-16 p.tsv >w.tsv
as_file "UTF-16 TSV" w.tsv p.tsv
seq 90 | awk '{ printf ">seq%d\nACGTACGTACGTACGTA\nCGTACGTACGT\n", $1 }' >s.fa
gzip -k s.fa
as_file "compressed FASTA" s.fa.gz s.fa
iconv -f utf-8 -t utf-16 s.fa >w.fa
as_file "UTF-16 FASTA" w.fa s.fa
refused "--fasta without standard input" 2 'give a file of this format a name that ends in .fa' "$train" s.fa --fasta
awk -F '\t' '{ printf "{\"text\": \"%s\"}\n", $2 }' p.tsv >t.jsonl
gzip -k t.jsonl
as_file "compressed JSON lines" t.jsonl.gz t.jsonl
zcat s.fa.gz | ./train - --fasta $few --tokenizer byte --out fasta.run 2>/dev/null
check "--fasta trains" cmp s.fa fasta.run/stdin.fa
./train --resume=fasta.run --steps 4 --quiet 2>err
check "and resumes" test $? -eq 0 -a ! -s err
as_file "options that were given" text.txt.gz text.txt --seed 7 --no-tie --pack stream
check "are in the command" grep -q -e '- --val-frac 0 --pack stream --tokenizer byte --ctx 64 .*--no-tie' message

# ---- prompts and responses, and chats ----
awk -F '\t' '{ printf "{\"question\": \"%s\", \"answer\": \"%s\"}\n", $1, $2 }' p.tsv >qa.jsonl
refused "pairs" 3 'have "question" and "answer", and no "text"; .*: .*train qa.jsonl --prompt-field question --response-field answer --seed 7$' "$train" qa.jsonl --seed 7
as_file "are read by the command" qa.jsonl p.tsv
cp qa.jsonl qb.jsonl
refused "pairs in two files" 3 "train qa.jsonl qb.jsonl --prompt-field question --response-field answer --prompt '- a' --seed 7$" \
  "$train" qa.jsonl qb.jsonl --prompt '- a' --seed 7
refused "options that do not fit in a message" 3 'train qa.jsonl --prompt-field question --response-field answer \.\.\.$' \
  "$train" qa.jsonl --prompt "$(printf '%0400d' 0)" --seed 7
check "half of them is not enough" sh -c "./train qa.jsonl --jsonl-field question --dry-run 2>&1 | grep -q '^warning: .* only one of them is read; .* --prompt-field question --response-field answer'"
silent "as pairs" qa.jsonl --prompt-field question --response-field answer
awk -F '\t' '{ printf "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}, {\"role\": \"assistant\", \"content\": \"%s\"}]}\n", $1, $2 }' p.tsv >messages.jsonl
silent "conversations" messages.jsonl
silent "conversations, on standard input" - --jsonl-field text <messages.jsonl
refused "no field with a string" 3 'the object has no field with text, only "ids"' sh -c "echo '{\"ids\": [1]}' | $train - --jsonl-field text"

# ---- messages printed once ----
./train latin1.txt $few --out once.run 2>err
check "said when a run begins" grep -q "are not UTF-8" err
./train --resume=once.run --steps 4 --quiet 2>err
check "and not when it goes on" test ! -s err

# ---- ./generate ----
printf '{"prompt": "Once"}\n' | gzip >prompts.jsonl.gz
printf 'good\tbad\nyes\tno\n' | iconv -f utf-8 -t utf-16 >pairs.tsv
printf 'PK\3\4\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\21\0\0\0word/document.xmlPK\3\4' >word.txt
for mode in "--score FILE" "--score FILE --per-line" "--score FILE --alts 1" "--prompts FILE" "-f FILE" "--lines -f FILE" "--novelty FILE"; do
  refused "gzip: $mode" 3 'jsonl.gz: it is compressed (gzip).*: zcat prompts.jsonl.gz >' "$generate" once.run ${mode%FILE*} prompts.jsonl.gz ${mode#*FILE}
  refused "docx: $mode" 3 'word.txt: it is a Word document (docx).*: pandoc -f docx' "$generate" once.run ${mode%FILE*} word.txt ${mode#*FILE}
  refused "UTF-16: $mode" 3 'standard input: it is UTF-16.*: \.\.\. | iconv -f utf-16 -t utf-8$' \
    sh -c '"$@" <pairs.tsv' - "$generate" once.run ${mode%FILE*} - ${mode#*FILE}
done
refused "UTF-16: --choose" 3 'pairs.tsv: it is UTF-16.*: iconv -f utf-16 -t utf-8 pairs.tsv >tmp && mv tmp pairs.tsv$' "$generate" once.run --choose pairs.tsv
refused "UTF-16: ./train --choose" 3 'pairs.tsv: it is UTF-16' "$train" text.txt $few --choose pairs.tsv --out no.run
refused "UTF-16: /load" 3 'pairs.tsv: it is UTF-16' sh -c 'echo "/load pairs.tsv" | "$@"' - "$generate" once.run -i --quiet
"$generate" once.run --score nul.txt --quiet 2>err >/dev/null
check "a score of a text with NUL" grep -q "^warning: nul.txt: .* are NUL, which no text has; remove them: tr -d '.000' <nul.txt >tmp && mv tmp nul.txt$" err
mkdir latin && cp latin1.txt latin/a.txt && cp latin1.txt latin/b.txt
"$generate" once.run --score latin --quiet 2>err >/dev/null
check "each kind is warned of once" test "$(grep -c 'are not UTF-8' err)" -eq 1
sed -n 2p latin1.txt | "$generate" once.run --lines --quiet --truncate-prompt left -n 1 2>err >/dev/null
check "the first line of a stream" grep -q '^warning: the beginning of standard input: .* are not UTF-8; convert it from .*: \.\.\. | iconv -f ENCODING -t utf-8$' err
"$generate" bytes.run --score text.txt.gz --quiet 2>err >score.json
check "a run that was trained with --binary scores any file" test -s score.json -a ! -s err
"$generate" once.run --score text.txt.gz --binary --quiet 2>err >score.json
check "with --binary, any run does" test -s score.json -a ! -s err
printf 'Once upon' >bare.txt
printf '\357\273\277Once upon' >marked.txt
for name in bare marked; do
  for mode in "-f FILE -n 5 --greedy" "--lines -f FILE -n 5 --greedy" "--score FILE --per-line" "--score FILE --alts 1"; do
    "$generate" once.run --quiet ${mode%FILE*} $name.txt ${mode#*FILE}
  done >$name.out
done
check "a byte-order mark is no part of a text" cmp bare.out marked.out
check "of a prompt, of lines, of scores" test "$(wc -l <bare.out)" -gt 10

# ---- special tokens ----
{ printf 'one<|endoftext|>two\n<|endoftext|>\nthree\n' && cat text.txt; } >special.txt
./train special.txt --init once.run --dry-run 2>err
check "special tokens in the text are counted" grep -q '^warning: the text contains special tokens of the tokenizer: <|endoftext|> 1 time\. They are learned as plain text' err
refused "an option that other programs have" 2 "adapters such as LoRA are not supported" "$train" text.txt --lora 8

# ---- windows ----
shown() { ./train "$@" --dry-run --quiet 2>err; }
refused "--show without --dry-run" 2 "--show belongs to --dry-run" "$train" text.txt --show 3
refused "--show 0" 2 "1..1000000" "$train" text.txt --dry-run --show 0
refused "--show on a full disk" 7 "stdout" sh -c "exec $train text.txt --dry-run --show 3 --quiet >/dev/full"
shown text.txt --show 3 --ctx 64 >one
shown text.txt --show 3 --ctx 64 >two
check "the same windows every time" cmp one two
shown text.txt --show 3 --ctx 64 --seed 2 >two
if cmp -s one two; then fail "others for another seed" "equal"; else pass "others for another seed"; fi
check "as many as asked for" test "$(grep -c '^window [1-3] (step 1, sequence [1-3]): 64 of 64 places count in the loss$' one)" -eq 3
shown text.txt --show 3 --ctx 64 --batch 2 --grad-accum 1 >two
check "the third is of the second step" grep -q '^window 3 (step 2, sequence 1)' two
# The text of a window is a part of the file, byte for byte.
sed -n '2,/^window 2/p' one | sed -n 's/^    //p' | sed 's/↵$//' >part
grep -c '' part >/dev/null
awk 'NR == FNR { part = part (NR > 1 ? "\n" : "") $0; next } { all = all $0 "\n" } END { exit index(all, part) == 0 || length(part) < 32 }' part text.txt
check "its text is of the file" test $? -eq 0
shown text.txt --show 1 --ctx 16 --tokenizer bpe --vocab-size 300 >two
check "tokens of a BPE have borders" test "$(grep -o '│' two | grep -c '')" -ge 12
printf 'a\001\177\302\205\342\200\256\n\377b\t' >odd.txt
shown odd.txt --binary --show 1 --ctx 12 --val-frac 0 >two
printf '    a\342\220\201\342\220\241<U+0085><U+202E>\342\206\265\n    \\xffb\342\206\222\n  -- a document ends\n' >expected
sed -n '3,$p' two | cmp - expected
check "what would not be seen is" test $? -eq 0
printf 'one\n<|endoftext|>\ntwo\n' >documents.txt
shown documents.txt --val-frac 0 --ctx 9 --show 1 >two
check "the ends of documents" test "$(grep -c -e '-- a document ends, the next one begins$' two) $(grep -c -e '-- a document ends$' two)" = "1 1"
printf 'ask\tanswer\nwho\tme\n' >pairs.tsv
shown pairs.tsv --val-frac 0 --ctx 24 --show 1 >two
sed 1d two >got
cat >expected <<'END'
  -- document 1 begins
  -- prompt, not in the loss
    ask
  -- in the loss
    answer
  -- document 1 ends
  -- document 2 begins
  -- prompt, not in the loss
    who
  -- in the loss
    me
  -- document 2 ends
  -- 8 places of padding, not in the loss
END
check "prompts and responses of packed documents" cmp got expected
check "and how much of them counts" grep -q "^window 1 (step 1, sequence 1): 10 of 24 places count in the loss$" two
shown pairs.tsv --val-frac 0 --arch original --ctx 16 --show 1 >two
sed 1d two >got
cat >expected <<'END'
  -- pair 1: the encoder reads
    ask
  -- pair 1: the decoder learns to write, in the loss
    answer
  -- pair 1 ends
  -- pair 2: the encoder reads
    who
  -- pair 2: the decoder learns to write, in the loss
    me
  -- pair 2 ends
  -- 8 places of padding for prompts and 6 for responses, not in the loss
END
check "both sides of pairs" cmp got expected
shown pairs.tsv --val-frac 0 --pack stream --ctx 12 --show 1 >two
check "the loss in a stream of pairs" grep -q -e '-- not in the loss' two

echo "done"
