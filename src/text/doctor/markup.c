/* Finds markup: HTML, XML and PostScript. */
#include "text/doctor/findings.h"

#include <string.h>

enum { MARKUP_HTML, MARKUP_FB2, MARKUP_XML, MARKUP_POSTSCRIPT };

/* Returns the size of the tag or comment at `bytes`, which begins with '<'; 0 when it is not one. */
static size_t tag_at(const uint8_t *bytes, size_t size) {
  const size_t limit = size < 1000 ? size : 1000;
  if (limit < 3 || !(doctor_is_letter(bytes[1]) || bytes[1] == '!' || (bytes[1] == '/' && doctor_is_letter(bytes[2]))))
    return 0;
  const uint8_t *end = memchr(bytes, '>', limit);
  return end ? (size_t)(end + 1 - bytes) : 0;
}

static size_t bytes_of_tags(const DoctorView *view) {
  size_t out = 0;
  for (int i = 0; i < view->count; i++) {
    const DoctorSample *s = &view->samples[i];
    for (size_t at = 0, tag; at < s->size; at += tag ? tag : 1) {
      tag = s->bytes[at] == '<' ? tag_at(s->bytes + at, s->size - at) : 0;
      out += tag;
    }
  }
  return out;
}

static bool has_html_tag(const uint8_t *bytes, size_t size) {
  static const char *const tags[] = {"<html", "<p>", "<p ", "<br", "<div", "<span", "<a ", "<li>", "<table", "<h1"};
  for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++)
    if (doctor_search(bytes, size, tags[i]) < size) return true;
  return false;
}

static bool add_tags(const DoctorView *view, Findings *out, int variant) {
  static const char *const names[] = {"HTML", "an FB2 e-book", "XML"};
  static const char *const commands[] = {"pandoc -f html -t plain --wrap=none @",
                                         "pandoc -f fb2 -t plain --wrap=none @", "sed 's/<[^>]*>//g' @"};
  return doctor_add(out, FINDING_MARKUP, variant, commands[variant], "it is %s, and %s are tags", names[variant],
                    doctor_percent(view, (double)bytes_of_tags(view), (double)view->seen).text);
}

bool doctor_find_markup(const DoctorView *view, Findings *out) {
  const DoctorSample *s = &view->samples[0];
  const size_t blanks = doctor_skip_blanks(s->bytes, s->size), size = s->size - blanks;
  const uint8_t *bytes = s->bytes + blanks;
  if (doctor_begins(bytes, size, "%!PS-Adobe"))
    return doctor_add(out, FINDING_MARKUP, MARKUP_POSTSCRIPT, "ps2ascii @",
                      "it is PostScript, which is more commands than text");
  if (size == 0 || bytes[0] != '<') return false;
  if (doctor_begins(bytes, size, "<!doctype html") || doctor_begins(bytes, size, "<html"))
    return add_tags(view, out, MARKUP_HTML);
  const bool xml = doctor_begins(bytes, size, "<?xml");
  if (xml && doctor_search(bytes, size, "<FictionBook") < size) return add_tags(view, out, MARKUP_FB2);
  if (xml) return add_tags(view, out, has_html_tag(bytes, size) ? MARKUP_HTML : MARKUP_XML);
  if (tag_at(bytes, size) == 0 || bytes_of_tags(view) * 20 < view->seen) return false;
  return add_tags(view, out, has_html_tag(bytes, size) ? MARKUP_HTML : MARKUP_XML);
}
