/* Recognizes files that are not text by their first bytes. */
#include "text/doctor/findings.h"

#include "base/path.h"
#include "base/utf8.h"

#include <limits.h>
#include <string.h>

typedef struct Magic {
  size_t at; /* offset of the bytes in the file */
  const char *bytes;
  size_t size;
  const char *what, *command; /* command NULL: no command extracts text */
  bool spelled;               /* a text may contain the same characters there, so is_text() must be false, too */
} Magic;

#define BYTES(text) text, sizeof text - 1
#define PICTURE "tesseract @ -"

static const char pandas[] = "python3 -c 'import pandas,sys; pandas.read_parquet(sys.argv[1]).to_json(\"/dev/stdout\","
                             "orient=\"records\",lines=True)' #";

static const Magic magics[] = {
    {0, BYTES("\x1f\x8b"), "compressed (gzip)", "zcat @", false},
    {0, BYTES("\x1f\x9d"), "compressed (compress)", "zcat @", false},
    {0, BYTES("\x28\xb5\x2f\xfd"), "compressed (zstd)", "zstdcat @", false},
    {0, BYTES("\xfd\x37zXZ\0"), "compressed (xz)", "xzcat @", false},
    {4, BYTES("1AY&SY"), "compressed (bzip2)", "bzcat @", true},
    {0, BYTES("\x04\x22\x4d\x18"), "compressed (lz4)", "lz4cat @", false},
    {0, BYTES("LZIP\1"), "compressed (lzip)", "lzip -dc @", false},
    {0, BYTES("7z\xbc\xaf\x27\x1c"), "a 7z archive", "7z e -so #", false},
    {0, BYTES("Rar!\x1a\x07"), "a RAR archive", "unrar p -inul #", false},
    {257, BYTES("ustar"), "a tar archive", "tar -xOf @", true},
    {0, BYTES("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"), "an old Word or Office document", "catdoc @", false},
    {0, BYTES("{\\rtf1"), "an RTF document", "pandoc -f rtf -t plain --wrap=none @", false},
    {60, BYTES("BOOKMOBI"), "a MOBI e-book, of which ebook-convert of calibre makes text", NULL, true},
    {0, BYTES("AT&TFORM"), "a DjVu document", "djvutxt #", true},
    {0, BYTES("\x89PNG\r\n\x1a\n"), "a PNG picture", PICTURE, false},
    {0, BYTES("\xff\xd8\xff"), "a JPEG picture", PICTURE, false},
    {0, BYTES("GIF8"), "a GIF picture", PICTURE, true},
    {0, BYTES("II*\0"), "a TIFF picture", PICTURE, false},
    {0, BYTES("MM\0*"), "a TIFF picture", PICTURE, false},
    {8, BYTES("WEBP"), "a WebP picture", PICTURE, true},
    {8, BYTES("WAVE"), "a WAV recording", NULL, true},
    {8, BYTES("AVI "), "an AVI film", NULL, true},
    {4, BYTES("ftyp"), "an MP4 or HEIC file", NULL, true},
    {0, BYTES("\x1a\x45\xdf\xa3"), "a Matroska film", NULL, false},
    {0, BYTES("ID3"), "an MP3 recording", NULL, true},
    {0, BYTES("OggS\0"), "an Ogg recording", NULL, false},
    {0, BYTES("fLaC\0"), "a FLAC recording", NULL, false},
    {0, BYTES("\177ELF"), "an executable (ELF)", NULL, false},
    {0, BYTES("MZ"), "an executable (PE)", NULL, true},
    {0, BYTES("\xcf\xfa\xed\xfe"), "an executable (Mach-O)", NULL, false},
    {0, BYTES("\xca\xfe\xba\xbe"), "an executable (Java or Mach-O)", NULL, false},
    {0, BYTES("!<arch>\n"), "a library of object files", NULL, true},
    {0, BYTES("SQLite format 3\0"), "an SQLite database", NULL, false},
    {0, BYTES("PAR1"), "a Parquet table", pandas, true},
    {0, BYTES("ARROW1\0"), "an Arrow table", NULL, false},
    {0, BYTES("\x89HDF\r\n\x1a\n"), "an HDF5 file", NULL, false},
    {0, BYTES("\x93NUMPY"), "a NumPy array", NULL, false},
    {0, BYTES("GGUF"), "a model's weights (GGUF)", NULL, true}};

enum { MAGICS = sizeof magics / sizeof magics[0], VARIANT_PDF = MAGICS, VARIANT_TAR, VARIANT_ZIP };

/* Returns whether the first 512 bytes look like text: no NUL, and less than 10 % that is not UTF-8. */
static bool is_text(const DoctorSample *s) {
  const size_t size = utf8_complete(s->bytes, s->size < 512 ? s->size : 512);
  size_t wrong = 0;
  for (size_t i = 0, length; i < size; i += length) {
    uint32_t point;
    length = utf8_read(s->bytes + i, size - i, &point);
    if (length == 1 && point == 0) return false;
    wrong += length == 0;
    length += length == 0;
  }
  return wrong * 10 < size;
}

static bool is_compressed(const char *what) { return strncmp(what, "compressed (", 12) == 0; }

/* Returns the format of a compressed file's content: that of "p.tsv" for "p.tsv.gz". */
static TextFormat content_format(const DoctorView *view) {
  const char *base = path_base(view->name), *dot = strrchr(base, '.');
  char inside[NAME_MAX + 1];
  snprintf(inside, sizeof inside, "%.*s", dot ? (int)(dot - base) : 0, base);
  return text_has_ending(inside) ? text_format_of(inside) : view->format;
}

static bool report(const DoctorView *view, Findings *out, int variant, const char *what, const char *command) {
  Finding *finding = doctor_add(out, FINDING_FOREIGN, variant, command, "it is %s, not plain text", what);
  if (!command) finding->advice = "to train on its bytes anyway";
  if (is_compressed(what)) finding->format = content_format(view);
  if (command == pandas) {
    strcpy(finding->options, " --jsonl-field text");
    finding->format = FORMAT_JSONL;
  }
  return true;
}

/* ---- archives of several files ---- */

/* Reports what a zip archive is. The names of its first members, uncompressed at its beginning, tell. */
static bool report_zip(const DoctorView *view, Findings *out) {
  static const struct {
    const char *member, *what, *command;
  } kinds[] = {{"mimetypeapplication/epub+zip", "an EPUB e-book", "pandoc -f epub -t plain --wrap=none @"},
               {"mimetypeapplication/vnd.oasis.opendocument.text", "an OpenDocument text",
                "pandoc -f odt -t plain --wrap=none @"},
               {"word/", "a Word document (docx)", "pandoc -f docx -t plain --wrap=none @"},
               {"xl/", "an Excel workbook (xlsx)", NULL},
               {"ppt/", "a PowerPoint presentation (pptx)", NULL},
               {"META-INF/MANIFEST.MF", "a Java archive", NULL},
               {"/data.pkl", "a model's weights (PyTorch)", NULL}};
  enum { KINDS = sizeof kinds / sizeof kinds[0] };
  const DoctorSample *s = &view->samples[0];
  const size_t size = s->size < DOCTOR_HEAD ? s->size : DOCTOR_HEAD;
  for (int i = 0; i < KINDS; i++) {
    const bool anywhere = i < 2 || i > 4; /* else, for office documents, the name must begin a member's name */
    for (size_t at = 0; at < size; at++) {
      at += doctor_search(s->bytes + at, size - at, kinds[i].member);
      const bool begins = at >= 30 && at < size && memcmp(s->bytes + at - 30, "PK\3\4", 4) == 0;
      if (at < size && (anywhere || begins))
        return report(view, out, VARIANT_ZIP + 1 + i, kinds[i].what, kinds[i].command);
    }
  }
  return report(view, out, VARIANT_ZIP, "compressed (zip)", "unzip -p #");
}

static bool is_tar(const char *name) {
  static const char *const endings[] = {".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".tar.zst"};
  for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
    if (text_ends_with(name, endings[i])) return true;
  return false;
}

/* ---- all files ---- */

static bool is_pdf(const DoctorSample *s) {
  if (s->size < 16 || memcmp(s->bytes, "%PDF-", 5) != 0) return false;
  const size_t line = doctor_search(s->bytes, 12, "\n"), other = doctor_search(s->bytes, 12, "\r");
  return s->bytes[5] >= '1' && s->bytes[5] <= '9' && s->bytes[6] == '.' && (line < 12 || other < 12);
}

bool doctor_find_foreign(const DoctorView *view, Findings *out) {
  const DoctorSample *s = &view->samples[0];
  if (is_pdf(s)) return report(view, out, VARIANT_PDF, "a PDF document", "pdftotext @ -");
  if (s->size >= 30 && memcmp(s->bytes, "PK\3\4", 4) == 0) return report_zip(view, out);
  for (int i = 0; i < MAGICS; i++) {
    const Magic *m = &magics[i];
    if (s->size < m->at + m->size || memcmp(s->bytes + m->at, m->bytes, m->size) != 0) continue;
    if (m->spelled && is_text(s)) continue;
    if (is_compressed(m->what) && is_tar(view->name))
      return report(view, out, VARIANT_TAR, "a compressed tar archive", "tar -xOf @");
    return report(view, out, i, m->what, m->command);
  }
  return false;
}
