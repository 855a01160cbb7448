/* text/doctor/: constructed files, the findings about them, and the commands that fix them. */
#include "text/doctor/doctor.h"
#include "base/text.h"
#include "tests/text_helpers.h"

/* ---- expectations ---- */

static Findings examine(Bytes file, const char *name) {
  Findings out;
  const TextFormat kind = text_ends_with(name, ".jsonl") ? FORMAT_JSONL
                          : text_ends_with(name, ".tsv") ? FORMAT_TSV
                                                         : FORMAT_TEXT;
  /* in memory of its size: a byte too far is noticed */
  uint8_t *exact = malloc(file.size ? file.size : 1);
  assert_non_null(exact);
  if (file.size) memcpy(exact, file.bytes, file.size);
  doctor_examine(&out, exact, file.size, kind, name);
  free(exact);
  free(file.bytes);
  return out;
}

static void expect_nothing(Bytes file, const char *name) {
  const Findings found = examine(file, name);
  if (found.count) fail_msg("%s: %s", name, found.items[0].what);
}

static void contains(const char *text, const char *part) {
  if (!strstr(text, part)) fail_msg("no \"%s\" in: %s", part, text);
}

/* One finding: its kind and level, a part of what is said, and the whole command. */
static void expect(Bytes file, const char *name, FindingKind kind, FindingLevel level, const char *what,
                   const char *command) {
  const Findings found = examine(file, name);
  DoctorCommand typed = {0};
  if (found.count != 1)
    fail_msg("%s: %d findings, the first: %s", name, found.count, found.count ? found.items[0].what : "");
  assert_int_equal(found.items[0].kind, kind);
  assert_int_equal(found.items[0].level, level);
  contains(found.items[0].what, what);
  doctor_command(&typed, &found.items[0], name, DOCTOR_ALONE);
  assert_string_equal(typed.text, command);
}

/* ---- encodings ---- */

static void other_encodings(void **state) {
  (void)state;
  static const struct {
    const char *words;
    Letter *letter;
  } cases[] = {{english, latin1}, {polish, latin2}, {russian, windows_1251}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (size_t size = 2000; size <= 400000; size *= 200)
      expect(in_letters(lines_of(cases[i].words, " ", size), cases[i].letter), "a.txt", FINDING_ENCODING,
             FINDING_WARNING, "are not UTF-8", "iconv -f ENCODING -t utf-8 a.txt | ./train -");
}

static void shares_are_counted(void **state) {
  (void)state;
  Bytes text = lines_of("one two three four five", " ", 10000);
  text.size = 10000;
  for (int i = 0; i < 20; i++) text.bytes[100 * i + 50] = 0xE9;
  expect(text, "a.txt", FINDING_ENCODING, FINDING_WARNING, "0.2 % of its bytes are not UTF-8",
         "iconv -f ENCODING -t utf-8 a.txt | ./train -");
  text = lines_of(russian, " ", 20000);
  for (size_t i = 0; i < 5; i++) text.bytes[4000 * i + 100] = 0xFF;
  expect(text, "a.txt", FINDING_ENCODING, FINDING_WARNING, "though the rest is",
         "iconv -c -f utf-8 -t utf-8 a.txt | ./train -");
  text = lines_of(english, " ", 300000);
  memcpy(text.bytes + 1000, "\0\0\0\0", 4);
  expect(text, "a.txt", FINDING_NULS, FINDING_WARNING, "of the 176 KiB looked at are NUL",
         "tr -d '\\000' <a.txt | ./train -");
}

static void wide_characters(void **state) {
  (void)state;
  static const struct {
    int unit;
    bool big, mark;
    const char *name, *iconv;
  } cases[] = {{2, false, true, "UTF-16", "utf-16"},    {2, true, true, "UTF-16", "utf-16"},
               {4, false, true, "UTF-32", "utf-32"},    {4, true, true, "UTF-32", "utf-32"},
               {2, false, false, "UTF-16", "utf-16le"}, {2, true, false, "UTF-16", "utf-16be"},
               {4, false, false, "UTF-32", "utf-32le"}, {4, true, false, "UTF-32", "utf-32be"}};
  const char *const texts[] = {english, polish, russian};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    for (int k = 0; k < 3; k++) {
      char command[128];
      snprintf(command, sizeof command, "iconv -f %s -t utf-8 a.txt | ./train -", cases[i].iconv);
      expect(in_units(lines_of(texts[k], " ", 3000), cases[i].unit, cases[i].big, cases[i].mark), "a.txt", FINDING_WIDE,
             FINDING_REFUSED, cases[i].name, command);
    }
}

/* ---- what is no text ---- */

static void foreign_bytes(void **state) {
  (void)state;
  const struct {
    Bytes file;
    const char *what, *command;
  } cases[] = {
      {LITERAL("\x1f\x8b\x08", 100), "compressed (gzip)", "zcat a | ./train -"},
      {LITERAL("\x28\xb5\x2f\xfd", 100), "compressed (zstd)", "zstdcat a | ./train -"},
      {LITERAL("\xfd\x37zXZ\0", 100), "compressed (xz)", "xzcat a | ./train -"},
      {LITERAL("BZh91AY&SY\xff\xfe\0", 100), "compressed (bzip2)", "bzcat a | ./train -"},
      {LITERAL("7z\xbc\xaf\x27\x1c", 100), "7z", "7z e -so a | ./train -"},
      {LITERAL("\x89PNG\r\n\x1a\n", 100), "PNG", "tesseract a - | ./train -"},
      {LITERAL("\xff\xd8\xff\xe0", 100), "JPEG", "tesseract a - | ./train -"},
      {LITERAL("GIF89a", 100), "GIF", "tesseract a - | ./train -"},
      {LITERAL("\x7f"
               "ELF\2\1\1",
               100),
       "executable (ELF)", "./train a --binary"},
      {LITERAL("MZ\x90", 100), "executable (PE)", "./train a --binary"},
      {LITERAL("SQLite format 3\0", 100), "SQLite", "./train a --binary"},
      {LITERAL("%PDF-1.7\n%abcdefgh", 0), "PDF", "pdftotext a - | ./train -"},
      {LITERAL("{\\rtf1\\ansi\\deff0 {\\fonttbl{\\f0 Times;}}\n\\f0\\fs24 A text.\\par\n}", 0),
       "RTF document, not plain text", "pandoc -f rtf -t plain --wrap=none a | ./train -"},
      {LITERAL("PK\3\4 2345678901234567890123456mimetypeapplication/epub+zipPK\3\4", 100), "EPUB",
       "pandoc -f epub -t plain --wrap=none a | ./train -"},
      {LITERAL("PK\3\4 2345678901234567890123456mimetypeapplication/vnd.oasis.opendocument.textPK", 100),
       "OpenDocument", "pandoc -f odt -t plain --wrap=none a | ./train -"},
      {LITERAL(
           "PK\3\4 2345678901234567890123456[Content_Types].xml\1\2\3PK\3\4 2345678901234567890123456word/document.xml",
           100),
       "Word", "pandoc -f docx -t plain --wrap=none a | ./train -"},
      {LITERAL("PK\3\4 2345678901234567890123456word.txt\1\2\3PK\3\4 2345678901234567890123456a.txt", 100),
       "compressed (zip)", "unzip -p a | ./train -"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    expect(cases[i].file, "a", FINDING_FOREIGN, FINDING_REFUSED, cases[i].what, cases[i].command);
  expect(LITERAL("\x1f\x8b\x08", 100), "a.tar.gz", FINDING_FOREIGN, FINDING_REFUSED, "tar",
         "tar -xOf a.tar.gz | ./train -");
  Bytes tar = LITERAL("notes.txt", 248);
  add(&tar, "ustar\0", 6);
  expect(tar, "a", FINDING_FOREIGN, FINDING_REFUSED, "tar", "tar -xOf a | ./train -");
}

static void unknown_bytes(void **state) {
  (void)state;
  Bytes noise = {0};
  uint32_t random = 3;
  for (int i = 0; i < 5000; i++) {
    const uint8_t byte = (uint8_t)drawn(&random);
    add(&noise, &byte, 1);
  }
  expect(noise, "a", FINDING_BINARY, FINDING_WARNING, "control characters", "./train a --binary");
}

/* ---- text in other clothes ---- */

static Bytes json_objects(const char *begin, const char *between, const char *end) {
  Bytes out = {0}, words = lines_of("once upon a time there was one cat", " ", 6000);
  add_text(&out, begin);
  char *line = strtok((char *)words.bytes, "\n");
  for (int i = 0; i < 60; i++, line = strtok(NULL, "\n"))
    format(&out, "%s{\"id\": %d, \"tags\": [1, {}], \"a story\": \"%s\", \"name\": \"n%d\"}", i ? between : "", i, line,
           i);
  add_text(&out, end);
  free(words.bytes);
  return out;
}

static void json(void **state) {
  (void)state;
  expect(json_objects("", "\n", "\n"), "a.log", FINDING_JSON_LINES, FINDING_NOTE, "JSON lines",
         "./train - --jsonl-field 'a story' <a.log");
  expect(json_objects(" [", ", ", "]"), "a.log", FINDING_JSON, FINDING_WARNING, "JSON array of objects",
         "jq -c '.[]' a.log | ./train - --jsonl-field 'a story'");
  expect(json_objects("{\"version\": \"1\", \"data\": [", ",\n", "]}"), "a.log", FINDING_JSON, FINDING_WARNING,
         "objects in an object", "jq -c '.data[]' a.log | ./train - --jsonl-field 'a story'");
  expect(json_objects("[\n", ",\n", "]"), "a.jsonl", FINDING_JSON, FINDING_REFUSED, "JSON array",
         "jq -c '.[]' a.jsonl | ./train - --jsonl-field 'a story'");
  expect(LITERAL("{\n \"a\": 1,\n \"text\": \"b\"\n}\n{\n \"a\": 2,\n \"text\": \"c\"\n}\n", 0), "a.log", FINDING_JSON,
         FINDING_WARNING, "over many lines", "jq -c . a.log | ./train - --jsonl-field text");
  expect(LITERAL("{\"a \\\"b\\\"\": \"longest of all\"}\n", 0), "a.log", FINDING_JSON_LINES, FINDING_NOTE, "JSON lines",
         "./train - --jsonl-field 'a \"b\"' <a.log"); /* a name with escapes */
  expect(LITERAL("{\"id\": 18446744073709551615, \"body\": \"a\\u0000b\"}\n", 0), "a.log", FINDING_JSON_LINES,
         FINDING_NOTE, "JSON lines", "./train - --jsonl-field body <a.log");
  expect(LITERAL("[\"one\", \"two\"]", 0), "a.log", FINDING_JSON, FINDING_WARNING, "array of strings",
         "jq -c '.[]|{text:.}' a.log | ./train - --jsonl-field text");
}

static void markup(void **state) {
  (void)state;
  Bytes page = {0}, fragments = {0}, xml = {0};
  add_text(&page, "\n<!DOCTYPE HTML>\n<html><body>\n");
  add_text(&xml, "<?xml version=\"1.0\"?>\n<w>\n");
  for (int i = 0; i < 100; i++) {
    format(&page, "<p class=\"a\">paragraph %d</p>\n", i);
    format(&fragments, "<p>paragraph %d, which has no head</p>\n", i);
    format(&xml, "<word>%d</word>\n", i);
  }
  expect(page, "a.html", FINDING_MARKUP, FINDING_WARNING, "it is HTML",
         "pandoc -f html -t plain --wrap=none a.html | ./train -");
  expect(fragments, "a.txt", FINDING_MARKUP, FINDING_WARNING, "it is HTML",
         "pandoc -f html -t plain --wrap=none a.txt | ./train -");
  expect(xml, "a.xml", FINDING_MARKUP, FINDING_WARNING, "it is XML", "sed 's/<[^>]*>//g' a.xml | ./train -");
}

/* An array and an object that are longer than the sample of the text's beginning. */
static void long_json(void **state) {
  (void)state;
  Bytes array = {0}, inside = {0}, huge = {0};
  add_text(&array, "[{\"text\": \"");
  for (int i = 0; i < 60000; i++) format(&array, "word %d ", i);
  add_text(&array, "\"}, {\"text\": \"b\"}]");
  add_text(&inside, "{\"a\": 1, \"data\": [");
  for (int i = 0; i < 20000; i++) format(&inside, "%s{\"text\": \"number %d of them\"}", i ? ", " : "", i);
  add_text(&inside, "]}");
  expect(array, "a.log", FINDING_JSON, FINDING_WARNING, "JSON array of objects",
         "jq -c '.[]' a.log | ./train - --jsonl-field text");
  expect(inside, "a.log", FINDING_JSON, FINDING_WARNING, "objects in an object",
         "jq -c '.data[]' a.log | ./train - --jsonl-field text");
  add_text(&huge, "{\"data\": [");
  for (int i = 0; huge.size < 17 << 20; i++) format(&huge, "%s{\"text\": \"number %d of them\"}", i ? ", " : "", i);
  add_text(&huge, "]}");
  expect(huge, "a.log", FINDING_JSON, FINDING_WARNING, "one JSON object", "jq -r '.. | strings' a.log | ./train -");
}

static void csv(void **state) {
  (void)state;
  Bytes table = {0};
  add_text(&table, "id,title,\"body, long\"\r\n");
  for (int i = 0; i < 40; i++) format(&table, "%d,t%d,\"this is text, number %d,\nin two lines\"\r\n", i, i, i);
  expect(table, "a.csv", FINDING_CSV, FINDING_NOTE, "it is a table and is read as plain text",
         "python3 -c 'import csv,json; [print(json.dumps(r)) for r in "
         "csv.DictReader(open(0,encoding=\"utf-8-sig\",newline=\"\"))]' <a.csv | ./train - --jsonl-field COLUMN");
}

static void line_ends_and_marks(void **state) {
  (void)state;
  expect(replaced(lines_of(english, " ", 4000), '\n', "\r\n"), "a.txt", FINDING_LINE_ENDS, FINDING_NOTE,
         "lines end in CR LF", "tr -d '\\r' <a.txt | ./train -");
  expect(replaced(lines_of(english, " ", 4000), '\n', "\r"), "a.txt", FINDING_LINE_ENDS, FINDING_NOTE, "CR alone",
         "tr '\\r' '\\n' <a.txt | ./train -");
  Bytes joined = LITERAL("\xEF\xBB\xBF"
                         "first\n\xEF\xBB\xBF"
                         "second\n",
                         0);
  expect(joined, "a.txt", FINDING_MARKS, FINDING_NOTE, "beginning of lines (1 time)",
         "sed 's/\\xef\\xbb\\xbf//g' a.txt | ./train -");
}

static Bytes gutenberg(const char *newline) {
  Bytes out = {0}, text = lines_of(english, " ", 250000);
  add_text(&out, "The Project Gutenberg eBook\n*** START OF THIS PROJECT GUTENBERG EBOOK ALICE ***\n");
  add(&out, text.bytes, text.size);
  add_text(&out, "*** END OF THE PROJECT GUTENBERG EBOOK ALICE ***\nlicense\n");
  free(text.bytes);
  return replaced(out, '\n', newline);
}

static void project_gutenberg(void **state) {
  (void)state;
  static const char sed[] = "sed -n '/^\\*\\*\\* *START OF .*PROJECT GUTENBERG/,/^\\*\\*\\* *END OF .*PROJECT "
                            "GUTENBERG/{//!p;}'";
  char command[256];
  snprintf(command, sizeof command, "%s a.txt | ./train -", sed);
  expect(gutenberg("\n"), "a.txt", FINDING_GUTENBERG, FINDING_NOTE, "80 bytes before it, 57 after it", command);
  /* two findings, and the last command mends both */
  const Findings found = examine(gutenberg("\r\n"), "a.txt");
  DoctorCommand typed = {0};
  assert_int_equal(found.count, 2);
  for (int i = 0; i < 2; i++) doctor_command(&typed, &found.items[i], "a.txt", DOCTOR_ALONE);
  snprintf(command, sizeof command, "tr -d '\\r' <a.txt | %s | ./train -", sed);
  assert_string_equal(typed.text, command);
}

static void repeats(void **state) {
  (void)state;
  Bytes shuffled = {0};
  uint32_t random = 1;
  for (int i = 0; i < 500; i++)
    format(&shuffled, "line %u of those that come again and again in this file\n", drawn(&random) % 100);
  expect(shuffled, "a.txt", FINDING_REPEATS, FINDING_WARNING, "are repeated lines",
         "awk '!NF || $0 == \"<|endoftext|>\" || !seen[$0]++' a.txt | ./train -");
  /* as many different lines as a text that is read whole can have */
  for (size_t limit = 60000; limit <= 200000; limit += 20000) {
    Bytes different = {0};
    for (int i = 0; different.size < limit; i++) format(&different, "%08d is the number of a line, no more\n", i);
    expect_nothing(different, "a.txt");
  }
  Bytes thrice = {0}, once = lines_of(english, " ", 50000);
  for (int i = 0; i < 3; i++) add(&thrice, once.bytes, once.size);
  char command[64];
  snprintf(command, sizeof command, "head -c %zu a.txt | ./train -", once.size);
  free(once.bytes);
  expect(thrice, "a.txt", FINDING_REPEATS, FINDING_WARNING, "3 times", command);
}

/* ---- no false alarm ---- */

static void plain_text(void **state) {
  (void)state;
  const char *const texts[] = {english, polish, russian, chinese};
  for (int i = 0; i < 4; i++)
    for (size_t size = 100; size <= 1000000; size *= 100) {
      expect_nothing(lines_of(texts[i], i == 3 ? "" : " ", size), "a.txt");
      Bytes cut = lines_of(texts[i], i == 3 ? "" : " ", size);
      cut.size -= 2; /* in the middle of a character, perhaps */
      expect_nothing(cut, "a.txt");
    }
  Bytes marked = LITERAL("\xEF\xBB\xBF"
                         "a text with a mark\n",
                         0);
  expect_nothing(marked, "a.txt");
  expect_nothing((Bytes){0}, "a.txt");
  expect_nothing(LITERAL("a", 0), "a.txt");
}

static void other_texts(void **state) {
  (void)state;
  Bytes dna = {0}, numbers = {0}, log = {0}, lines = {0}, pairs = {0}, dice = {0};
  uint32_t random = 5;
  add_text(&dna, ">chr1\n");
  for (int i = 0; i < 30000; i++) add_text(&dna, (const char *[]){"A", "C", "G", "T", "\n"}[drawn(&random) % 5]);
  for (int i = 0; i < 500; i++) {
    format(&numbers, "%d,%u,%u\n", i, drawn(&random) % 10, drawn(&random) % 10);
    format(&log, "2024-01-01 00:%02d:%02d,123 INFO the same message as ever, of a server that runs and runs\n", i / 60,
           i % 60);
    format(&lines, "{\"text\": \"%0150d\"}\n", i);
    format(&pairs, "%u+%u=\t%u\n", drawn(&random) % 100, drawn(&random) % 100, drawn(&random) % 100);
  }
  for (int i = 0; i < 3000; i++) format(&dice, "%u\n", drawn(&random) % 6);
  expect_nothing(dna, "a.fa");
  expect_nothing(numbers, "a.txt");
  expect_nothing(log, "a.log");
  expect_nothing(lines, "a.jsonl");
  expect_nothing(pairs, "a.tsv");
  expect_nothing(dice, "a.txt");
}

static void sources_and_prose(void **state) {
  (void)state;
  static const char *const texts[] = {
      "#include <stdio.h>\nint main(void) { return a < b && c > d; }\n",
      "# Title\n\nText with <b>tags</b> and `code`.\n",
      "PAGE = \"\"\"<html><body><p>%s</p><p>%s</p></body></html>\"\"\"\nTAG = '<!DOCTYPE html>'\n",
      "<?php echo 1; ?>\n",
      "<|user|>\nhello\n<|assistant|>\nhello\n",
      "[Verse 1]\nTyger Tyger, burning bright,\n",
      "[1] A citation, of a book\n",
      "[ \"quoted\" words in brackets ]\n",
      "{\"a\", \"b\"}, {\"c\"}\n",
      "{ \"a\" }\n",
      "MZ is how programs begin\n",
      "GIF89a is a format of pictures\n",
      "BZh91AY&SY are letters\n",
      "%PDF- is how others begin\n",
      "PK and more\n",
      "ID3 tags are for music\n",
      "*** START OF THE STORY ***\nProject Gutenberg has it.\n",
      "Tyger Tyger, burning bright,\nIn the forests of the night,\nWhat immortal hand or eye,\nCould frame thy,\n",
      "\x1b[31mred\x1b[0m\f and a page\n"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
    expect_nothing(literal(texts[i], strlen(texts[i]), 0), "a.txt");
}

static void chess(void **state) {
  (void)state;
  Bytes games = {0};
  for (int i = 0; i < 20; i++)
    format(&games, "[Event \"Open\"]\n[Site \"?\"]\n[White \"A %d\"]\n\n1. e4 e5 2. Nf3 Nc%d 1-0\n\n", i, i);
  const Findings found = examine(games, "games.pgn");
  assert_int_equal(found.count, 1);
  assert_int_equal(found.items[0].kind, FINDING_CHESS);
  contains(found.items[0].what, "chess games in PGN and is read as plain text");
}

/* The fields of records, in each of their forms. */
static void fields(void **state) {
  (void)state;
  static const struct {
    const char *record, *options;
  } cases[] = {
      {"\"prompt\": \"a\", \"response\": \"b\"", " --prompt-field prompt --response-field response"},
      {"\"completion\": \"a long answer\", \"prompt\": \"b\"", " --prompt-field prompt --response-field completion"},
      {"\"question\": \"a\", \"answer\": \"b\"", " --prompt-field question --response-field answer"},
      {"\"question\": \"a\", \"context\": \"\", \"output\": \"b\"", " --prompt-field prompt --response-field response"},
      {"\"input\": \"a\", \"output\": \"b\"", " --prompt-field input --response-field output"},
      {"\"source\": \"a web page\", \"story\": \"b\"", " --jsonl-field source"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const bool pairs = strstr(cases[i].options, "prompt-field");
    Bytes array = {0}, lines = {0};
    format(&array, "[{%s}]", cases[i].record);
    format(&lines, "{%s}\n{%s}\n", cases[i].record, cases[i].record);
    assert_string_equal(examine(array, "a.log").items[0].options, cases[i].options);
    Findings found = examine(lines, "a.jsonl");
    assert_int_equal(found.count, pairs);
    if (!pairs) continue;
    assert_int_equal(found.items[0].level, FINDING_REFUSED);
    assert_string_equal(found.items[0].options, cases[i].options);
  }
}

/* Near the borders of what is said. */
static void hardly_anything(void **state) {
  (void)state;
  Bytes bars = {0}, joiners = {0}, columns = {0}, tags = {0}, arrow = {0}, wrong = lines_of("one two", " ", 10000);
  uint32_t random = 9;
  for (int i = 0; i < 100; i++) {
    format(&bars, "step %d\r step %u\r done %u\n", i, drawn(&random), drawn(&random));
    format(&joiners, "%d\xEF\xBB\xBF joined %u\n", i, drawn(&random));
    format(&columns, i ? "%d,0.%d,%u\n" : "id,x,y\n", i, i, drawn(&random) % 100);
    format(&tags, "%sone %d in a text without any others, nor many words\n", i ? "" : "<b>Note</b> ", i);
    format(&arrow, "%s<b>%d</b>\n", i ? "" : "< is less, ", i);
  }
  wrong.bytes[5000] = 0xE9;
  expect_nothing(bars, "a.log");
  expect_nothing(joiners, "a.txt");
  expect_nothing(columns, "a.txt");
  expect_nothing(tags, "a.txt");
  expect_nothing(arrow, "a.txt");
  expect_nothing(wrong, "a.txt");
  expect_nothing(LITERAL("%PDF-1.5 is a version of it\n", 0), "a.txt");
  expect(LITERAL("\xEF\xBB\xBF{\"text\": \"b\"}\n", 0), "a", FINDING_JSON_LINES, FINDING_NOTE, "",
         "./train - --jsonl-field text <a");
  expect(LITERAL("PK\3\4 2345678901234567890123456a.txta sword/and a shield", 0), "a", FINDING_FOREIGN, FINDING_REFUSED,
         "compressed (zip)", "unzip -p a | ./train -");
}

static void numbers_of_two_bytes(void **state) {
  (void)state;
  Bytes letters = {0}, others = {0}, deleted = {0};
  uint32_t random = 11;
  for (int i = 0; i < 2000; i++) {
    const uint8_t small[] = {(uint8_t)(drawn(&random) % 65), 0},
                  large[] = {(uint8_t)drawn(&random), (uint8_t)(1 + i % 6)};
    add(&letters, small, 2);
    add(&others, large, 2);
    add_text(&deleted, i % 4 ? "a" : "\x7f");
  }
  expect(letters, "a", FINDING_BINARY, FINDING_WARNING, "hardly text", "./train a --binary");
  expect(others, "a", FINDING_BINARY, FINDING_WARNING, "hardly text", "./train a --binary");
  expect(deleted, "a", FINDING_BINARY, FINDING_WARNING, "25.0 %", "./train a --binary");
}

/* Parts of the same size that begin alike, or end alike. */
static void half_alike(void **state) {
  (void)state;
  for (int which = 0; which < 2; which++) {
    Bytes file = {0}, one = lines_of(english, " ", 100000), two = lines_of(polish, " ", 120000);
    memcpy(two.bytes + (which ? 0 : one.size - 1000), one.bytes + (which ? 0 : one.size - 1000), 1000);
    add(&file, one.bytes, one.size);
    add(&file, two.bytes, one.size);
    free(one.bytes);
    free(two.bytes);
    const Findings found = examine(file, "a.txt");
    for (int i = 0; i < found.count; i++) assert_int_not_equal(found.items[i].kind, FINDING_REPEATS);
  }
}

/* Every beginning of every kind of file, and no byte behind it. */
static void short_files(void **state) {
  (void)state;
  static const char *const begins[] = {"{\"a\": [{\"b\": \"c\\\"d\", \"e\": [1, {\"f\": 2}]}], \"g\": 1}\n{\"a\": 1}",
                                       "[ {\"a\" : \"b\" } ]",
                                       "[\"a\\",
                                       "{\"a\": \"b\\",
                                       "{\"a\\",
                                       "a,b\n\"1\r\n,2\",3\n",
                                       "<p>a</p><!-- b",
                                       "*** START OF THE PROJECT GUTENBERG",
                                       "\xEF\xBB\xBF\xEF\xBB\xBF",
                                       "\xFF\xFE\0a",
                                       "PK\3\4 23456789012345678901234567890",
                                       "%PDF-1.5\n1234567"};
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
    for (size_t size = 0; size <= strlen(begins[i]); size++) {
      examine(literal(begins[i], size, 0), "a.txt");
      examine(literal(begins[i], size, 0), "a.jsonl");
    }
}

/* ---- commands ---- */

static void expect_command(const char *command, bool replaces, const char *name, DoctorRoute route, const char *typed) {
  Finding finding = {.replaces = replaces, .format = FORMAT_TEXT};
  DoctorCommand out = {0};
  strcpy(finding.command, command);
  doctor_command(&out, &finding, name, route);
  assert_string_equal(out.text, typed);
}

static void commands(void **state) {
  (void)state;
  expect_command("zcat @", false, "a b.gz", DOCTOR_ALONE, "zcat 'a b.gz' | ./train -");
  expect_command("zcat @", false, "-", DOCTOR_PIPED, "... | zcat | ./train -");
  expect_command("zcat @", false, "d/a.gz", DOCTOR_AMONG, "zcat d/a.gz >d/a.gz.txt");
  expect_command("zcat @", false, "d/a.txt", DOCTOR_AMONG,
                 "zcat d/a.txt >tmp && mv d/a.txt d/a.txt.original && mv tmp d/a.txt");
  expect_command("zcat @", false, "d/a.tsv", DOCTOR_AMONG, "zcat d/a.tsv >d/a.tsv.txt && mv d/a.tsv d/a.tsv.original");
  expect_command("python3 x <@ | jq y", false, "-", DOCTOR_PIPED, "... | python3 x | jq y | ./train -");
  expect_command("tr -d x <@", true, "it's", DOCTOR_ALONE, "tr -d x <'it'\\''s' | ./train -");
  expect_command("tr -d x <@", true, "-", DOCTOR_PIPED, "... | tr -d x | ./train -");
  expect_command("tr -d x <@", true, "a", DOCTOR_AMONG, "tr -d x <a >tmp && mv tmp a");
  expect_command("pdftotext @ -", false, "-a", DOCTOR_ALONE, "pdftotext ./-a - | ./train -");
  expect_command("pdftotext @ -", false, "-", DOCTOR_PIPED, "... | pdftotext - - | ./train -");
  expect_command("unzip -p #", false, "-", DOCTOR_PIPED, "... >tmp && unzip -p tmp | ./train -");
  expect_command("unzip -p #", false, "a", DOCTOR_ALONE, "unzip -p a | ./train -");
  expect_command("", true, "a", DOCTOR_ALONE, "./train a --binary");
  expect_command("", true, "-", DOCTOR_PIPED, "... | ./train - --binary");
  assert_string_equal(text_shell_word("", 40).text, "''");
  assert_string_equal(text_shell_word("caf\u00e9/a_1.txt", 40).text, "caf\u00e9/a_1.txt");
  assert_string_equal(text_shell_word("a\n$b", 40).text, "'a?$b'");
  assert_string_equal(text_shell_word("-a b", 40).text, "'./-a b'");
  char quotes[2000];
  memset(quotes, '\'', sizeof quotes - 1);
  quotes[sizeof quotes - 1] = '\0';
  assert_int_equal(strlen(text_shell_word(quotes, 9999).text), 4 * (ONE_LINE_BYTES - 4) + 3 + 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(other_encodings),
      cmocka_unit_test(shares_are_counted),
      cmocka_unit_test(wide_characters),
      cmocka_unit_test(foreign_bytes),
      cmocka_unit_test(unknown_bytes),
      cmocka_unit_test(json),
      cmocka_unit_test(markup),
      cmocka_unit_test(long_json),
      cmocka_unit_test(csv),
      cmocka_unit_test(chess),
      cmocka_unit_test(fields),
      cmocka_unit_test(line_ends_and_marks),
      cmocka_unit_test(project_gutenberg),
      cmocka_unit_test(repeats),
      cmocka_unit_test(plain_text),
      cmocka_unit_test(other_texts),
      cmocka_unit_test(sources_and_prose),
      cmocka_unit_test(short_files),
      cmocka_unit_test(hardly_anything),
      cmocka_unit_test(numbers_of_two_bytes),
      cmocka_unit_test(half_alike),
      cmocka_unit_test(commands),
  };
  return cmocka_run_group_tests_name("text_doctor", tests, NULL, NULL);
}
