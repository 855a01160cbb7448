#include "report/table.h"

#include "base/html.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const table_format_names[TABLE_FORMATS + 1] = {"text", "md", "html", "csv", "json", NULL};

enum { DIGITS = 10 };

/* Formats a value for people, in allocated memory. NULL: out of memory, which json_memory_ok() reports. */
static char *readable(const json_t *value) {
  enum { BYTES = 400 };
  const bool is_switch = json_is_boolean(value);
  const double real = json_real_value(value);
  if (!is_switch && !json_is_real(value)) return json_value_text(value, DIGITS);
  char *text = json_allocate(BYTES);
  if (text && is_switch) strcpy(text, json_is_true(value) ? "yes" : "no");
  else if (text) snprintf(text, BYTES, fabs(real) < 1e5 ? "%.5g" : "%.0f", real);
  return text;
}

/* ---- text: aligned columns ---- */

/* Returns the bytes of the first `count` characters. */
static size_t bytes_of(const char *text, int count) {
  size_t i = 0;
  while (text[i] && (count > 0 || utf8_continues((uint8_t)text[i]))) count -= !utf8_continues((uint8_t)text[i++]);
  return i;
}

/* Returns one line of at most `limit` characters. A longer text loses its middle. */
static OneLine shorten(const char *text, int limit) {
  static const char dots[] = "...";
  OneLine line = text_one_line(text, ONE_LINE_BYTES - 1);
  const int count = utf8_characters(line.text), kept = limit - (int)strlen(dots);
  if (count <= limit) return line;
  if (kept < 2) {
    line.text[bytes_of(line.text, limit)] = '\0';
    return line;
  }
  char *out = line.text + bytes_of(line.text, kept / 2);
  const char *tail = line.text + bytes_of(line.text, count - (kept - kept / 2));
  memcpy(out, dots, strlen(dots));
  memmove(out + strlen(dots), tail, strlen(tail) + 1);
  return line;
}

static OneLine cell(const Table *table, const json_t *row, const char *column) {
  char *text = readable(json_object_get(row, column));
  const OneLine line = shorten(text ? text : "", table->widest);
  free(text);
  return line;
}

int table_column_width(const Table *table, const char *column) {
  int width = utf8_characters(shorten(column, table->widest).text);
  for (size_t i = 0; i < table->row_count; i++) {
    const int of_cell = utf8_characters(cell(table, table->rows[i], column).text);
    if (of_cell > width) width = of_cell;
  }
  return width;
}

/* Columns of numbers are aligned to the right. */
static bool is_of_numbers(const Table *table, const char *column) {
  bool numbers = false;
  for (size_t i = 0; i < table->row_count; i++) {
    const json_t *value = json_object_get(table->rows[i], column);
    if (value && !json_is_null(value) && !json_is_number(value)) return false;
    numbers = numbers || json_is_number(value);
  }
  return numbers;
}

typedef struct Layout {
  int width;
  bool right;
} Layout;

/* Prints a line of cells, or of column names (row NULL), without trailing spaces. */
static void print_line(const Table *table, const Layout *layout, const json_t *row, FILE *stream) {
  int blanks = 0;
  for (size_t i = 0; i < table->column_count; i++) {
    const OneLine text = row ? cell(table, row, table->columns[i]) : shorten(table->columns[i], table->widest);
    const int pad = layout[i].width - utf8_characters(text.text);
    if (text.text[0]) fprintf(stream, "%*s%s", blanks + (layout[i].right ? pad : 0), "", text.text);
    blanks = text.text[0] ? (layout[i].right ? 0 : pad) : blanks + layout[i].width;
    blanks += TABLE_GAP;
  }
  fputc('\n', stream);
}

static void print_text(const Table *table, FILE *stream) {
  Layout *layout = json_allocate(table->column_count * sizeof *layout);
  if (!layout) return;
  for (size_t i = 0; i < table->column_count; i++)
    layout[i] = (Layout){table_column_width(table, table->columns[i]), is_of_numbers(table, table->columns[i])};
  print_line(table, layout, NULL, stream);
  for (size_t i = 0; i < table->row_count; i++) print_line(table, layout, table->rows[i], stream);
  free(layout);
}

/* ---- Markdown, HTML and CSV (RFC 4180) ---- */

static void markdown_text(FILE *stream, const char *text) {
  for (const char *c = text; *c; c++)
    fprintf(stream, "%s%c", *c == '|' ? "\\" : "", (unsigned char)*c < ' ' || *c == 0x7F ? ' ' : *c);
}

/* Prints the values of a row, or the names of the columns (row NULL), and what ends the line. */
static void print_cells(const Table *table, const json_t *row, TableFormat format, const char *end, FILE *stream) {
  for (size_t i = 0; i < table->column_count; i++) {
    const json_t *value = row ? json_object_get(row, table->columns[i]) : NULL;
    char *text = format == TABLE_CSV ? json_value_text(value, DIGITS) : readable(value);
    const char *shown = !row ? table->columns[i] : text ? text : "";
    if (format == TABLE_HTML) {
      html_write_element(stream, row && i ? "td" : "th", shown);
    } else if (format == TABLE_MARKDOWN) {
      fputs("| ", stream);
      markdown_text(stream, shown);
      fputc(' ', stream);
    } else {
      fputs(i ? "," : "", stream);
      text_print_csv(stream, shown, strlen(shown), ',');
    }
    free(text);
  }
  fputs(end, stream);
}

static void print_markdown(const Table *table, FILE *stream) {
  print_cells(table, NULL, TABLE_MARKDOWN, "|\n", stream);
  for (size_t i = 0; i < table->column_count; i++) fputs("|---", stream);
  fputs("|\n", stream);
  for (size_t i = 0; i < table->row_count; i++) print_cells(table, table->rows[i], TABLE_MARKDOWN, "|\n", stream);
}

static void print_html(const Table *table, FILE *stream) {
  fputs("<div class=\"wide\"><table>\n<thead><tr>", stream);
  print_cells(table, NULL, TABLE_HTML, "</tr></thead>\n<tbody>\n", stream);
  for (size_t i = 0; i < table->row_count; i++) {
    fputs("<tr>", stream);
    print_cells(table, table->rows[i], TABLE_HTML, "</tr>\n", stream);
  }
  fputs("</tbody></table></div>\n", stream);
}

static void print_csv(const Table *table, FILE *stream) {
  print_cells(table, NULL, TABLE_CSV, "\r\n", stream);
  for (size_t i = 0; i < table->row_count; i++) print_cells(table, table->rows[i], TABLE_CSV, "\r\n", stream);
}

/* ---- JSON ---- */

static void print_object(const Table *table, const json_t *row, FILE *stream) {
  json_t *out = json_object();
  for (size_t i = 0; i < table->column_count; i++) {
    json_t *value = json_object_get(row, table->columns[i]);
    json_object_set(out, table->columns[i], value ? value : json_null());
  }
  json_dumpf(out, stream, JSON_REAL_PRECISION(DIGITS));
  json_decref(out);
}

static void print_json(const Table *table, FILE *stream) {
  for (size_t i = 0; i < table->row_count; i++) {
    fputs(i ? ",\n " : "[", stream);
    print_object(table, table->rows[i], stream);
  }
  fputs("]\n", stream);
}

void table_print(const Table *table, TableFormat format, FILE *stream) {
  static void (*const prints[])(const Table *, FILE *) = {[TABLE_TEXT] = print_text,
                                                          [TABLE_MARKDOWN] = print_markdown,
                                                          [TABLE_HTML] = print_html,
                                                          [TABLE_CSV] = print_csv,
                                                          [TABLE_JSON] = print_json};
  prints[format](table, stream);
}
