/* A chart in a terminal. */
#include "report/chart.h"

#include "base/text.h"
#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>

enum {
  MOST_COLUMNS = 72,
  LEAST_COLUMNS = 16,
  AXIS = 10,
  LINES = 16,
  DOTS_Y = 4 * LINES,
  BRAILLE = 0x2800,
  BETWEEN_LETTERS = 10 /* columns */
};

typedef struct Canvas {
  const Chart *chart;
  ChartRanges ranges;
  int columns;
  uint8_t cells[LINES][MOST_COLUMNS]; /* the dots of a braille character each */
  char marks[LINES][MOST_COLUMNS];    /* letters that replace the dots; 0: none */
} Canvas;

/* Finds the dot of a point, counted from the left and from the top. Returns false when it is not drawn. */
static bool find_dot(const Canvas *c, const ChartPoint *p, int *x, int *y) {
  if (!chart_shows(c->chart, p)) return false;
  *x = (int)(chart_x(c->chart, &c->ranges, p->x) * (2 * c->columns - 1));
  *y = (int)round((1 - chart_y(&c->ranges, p->y)) * (DOTS_Y - 1));
  return true;
}

static void put_dot(Canvas *c, int x, int y) {
  static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  c->cells[y / 4][x / 2] |= bits[y % 4][x % 2];
}

/* The state of a line that is drawn point by point. */
typedef struct Pen {
  int x, y;
  bool down;     /* the previous point is in the plot */
  char letter;   /* 0: none */
  int next_mark; /* the column of the next letter */
} Pen;

/* Also draws dots between neighboring points, so that a steep curve has no gaps. */
static void draw_to(Canvas *c, Pen *pen, const ChartPoint *point) {
  int x = pen->x, y = pen->y;
  const bool here = find_dot(c, point, &x, &y);
  const int count = pen->down ? (int)fmax(1, fmax(x - pen->x, abs(y - pen->y))) : 1;
  for (int k = 1; here && k <= count; k++) {
    const int at_x = pen->down ? pen->x + (x - pen->x) * k / count : x;
    const int at_y = pen->down ? pen->y + (y - pen->y) * k / count : y;
    put_dot(c, at_x, at_y);
    if (!pen->letter || at_x / 2 < pen->next_mark || c->marks[at_y / 4][at_x / 2]) continue;
    c->marks[at_y / 4][at_x / 2] = pen->letter;
    pen->next_mark = at_x / 2 + BETWEEN_LETTERS;
  }
  *pen = (Pen){x, y, here, pen->letter, pen->next_mark};
}

static void put_mark(Canvas *c, const ChartPoint *point, char letter) {
  int x, y;
  if (find_dot(c, point, &x, &y)) c->marks[y / 4][x / 2] = letter;
}

static void draw(Canvas *c) {
  for (int i = 0; i < c->chart->curve_count; i++) {
    const ChartCurve *curve = &c->chart->curves[i];
    Pen pen = {.letter = curve->letter, .next_mark = 2 * i % BETWEEN_LETTERS};
    for (int k = 0; k < curve->count; k++)
      if (curve->no_line) put_mark(c, &curve->points[k], curve->letter);
      else draw_to(c, &pen, &curve->points[k]);
  }
  if (c->chart->mark) put_mark(c, c->chart->mark, '*');
}

static void print_cell(FILE *stream, const Canvas *c, int line, int column, bool utf8) {
  uint8_t bytes[4] = {0};
  const uint8_t dots = c->cells[line][column];
  if (c->marks[line][column]) fputc(c->marks[line][column], stream);
  else if (!dots) fputc(' ', stream);
  else if (!utf8) fputc('.', stream);
  else {
    const size_t size = utf8_write(BRAILLE + dots, bytes);
    fwrite(bytes, 1, size, stream);
  }
}

static void print_canvas(FILE *stream, const Canvas *c, bool utf8) {
  const ChartRange *range = &c->ranges.y;
  for (int line = 0; line < LINES; line++) {
    const double y = range->high - (range->high - range->low) * line / (LINES - 1);
    if (line % 5 == 0) fprintf(stream, "%8.4g %s", y, utf8 ? "\xE2\x94\xA4" : "|");
    else fprintf(stream, "         %s", utf8 ? "\xE2\x94\x82" : "|");
    for (int column = 0; column < c->columns; column++) print_cell(stream, c, line, column, utf8);
    fputc('\n', stream);
  }
  fprintf(stream, "         %s", utf8 ? "\xE2\x94\x94" : "+");
  for (int column = 0; column < c->columns; column++) fputs(utf8 ? "\xE2\x94\x80" : "-", stream);
  fprintf(stream, "\n         0%*s steps\n", c->columns - 6, text_count(c->ranges.x.high).text);
}

bool chart_print(FILE *stream, const Chart *chart, int width, bool utf8) {
  Canvas canvas = {.chart = chart, .columns = width > 0 ? width - AXIS : MOST_COLUMNS};
  if (!chart_find_ranges(chart, &canvas.ranges) || canvas.ranges.x.high <= 0) return false;
  if (canvas.columns > MOST_COLUMNS) canvas.columns = MOST_COLUMNS;
  if (canvas.columns < LEAST_COLUMNS) canvas.columns = LEAST_COLUMNS;
  canvas.ranges.x.low = 0;
  if (chart->title) fprintf(stream, "%s\n", chart->title);
  draw(&canvas);
  print_canvas(stream, &canvas, utf8);
  return true;
}
