#include "report/plot.h"

#include "report/chart.h"
#include "util/text.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_COLUMNS = 72,
  LEAST_COLUMNS = 16,
  AXIS = 10,
  LINES = 16,
  DOTS_Y = 4 * LINES,
  BRAILLE = 0x2800,
  BETWEEN_LETTERS = 10, /* columns */
  NAME_BYTES = 250
};

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

typedef struct Canvas {
  double steps, low, high; /* x from 0 to steps, y from low to high */
  int columns;
  uint8_t cells[LINES][MOST_COLUMNS]; /* dots of braille */
  char marks[LINES][MOST_COLUMNS];    /* instead of dots; 0: none */
} Canvas;

static void include(Canvas *c, int64_t step, double loss) {
  if (!chart_can_draw(loss)) return;
  c->steps = fmax(c->steps, (double)step);
  c->low = fmin(c->low, loss);
  c->high = fmax(c->high, loss);
}

static void include_steps(Canvas *c, const History *h) {
  for (int i = chart_first_counted(h->count); i < h->count; i++) include(c, h->points[i].step, h->points[i].loss);
}

static void include_evaluations(Canvas *c, const History *h) {
  for (size_t i = 0; i < h->evaluation_count; i++) include(c, h->evaluations[i].step, h->evaluations[i].loss);
}

/* Whether there is something to draw. */
static bool has_range(Canvas *c) {
  if (c->high - c->low < 1e-6) c->low = c->high - fmax(1e-6, fabs(c->high) * 0.01);
  return isfinite(c->high) && c->steps > 0;
}

/* From the left and from above. False: not in the picture. */
static bool place(const Canvas *c, double step, double loss, int *x, int *y) {
  if (!chart_can_draw(loss) || step > c->steps) return false;
  const double share = fmin(1, fmax(0, (c->high - loss) / (c->high - c->low)));
  *x = (int)(step / c->steps * (2 * c->columns - 1));
  *y = (int)round(share * (DOTS_Y - 1));
  return true;
}

static void put_dot(Canvas *c, int x, int y) {
  static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  c->cells[y / 4][x / 2] |= bits[y % 4][x % 2];
}

/* A curve as it is drawn point by point. */
typedef struct Pen {
  int x, y;
  bool down;     /* the point before was in the picture */
  char letter;   /* of the run, written on its curve; 0: none */
  int next_mark; /* the column of its next letter */
} Pen;

/* Dots between neighbors, so that a steep curve has no holes. */
static void draw_to(Canvas *c, Pen *pen, int64_t step, double loss) {
  int x = pen->x, y = pen->y;
  const bool here = place(c, (double)step, loss, &x, &y);
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

static void draw_steps(Canvas *c, const History *h, Pen pen) {
  for (int i = 0; i < h->count; i++) draw_to(c, &pen, h->points[i].step, h->points[i].loss);
}

static void draw_line_of_evaluations(Canvas *c, const History *h, Pen pen) {
  for (size_t i = 0; i < h->evaluation_count; i++) draw_to(c, &pen, h->evaluations[i].step, h->evaluations[i].loss);
}

static void draw_evaluations(Canvas *c, const History *h) {
  const HistoryEvaluation *kept = history_kept(h);
  int x, y;
  for (size_t i = 0; i < h->evaluation_count; i++) {
    const HistoryEvaluation *e = &h->evaluations[i];
    if (place(c, (double)e->step, e->loss, &x, &y) && c->marks[y / 4][x / 2] != '*')
      c->marks[y / 4][x / 2] = kept && e->step == kept->step ? '*' : 'o';
  }
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
  for (int line = 0; line < LINES; line++) {
    const double y = c->high - (c->high - c->low) * line / (LINES - 1);
    if (line % 5 == 0) fprintf(stream, "%8.4g %s", y, utf8 ? "\xE2\x94\xA4" : "|");
    else fprintf(stream, "         %s", utf8 ? "\xE2\x94\x82" : "|");
    for (int column = 0; column < c->columns; column++) print_cell(stream, c, line, column, utf8);
    fputc('\n', stream);
  }
  fprintf(stream, "         %s", utf8 ? "\xE2\x94\x94" : "+");
  for (int column = 0; column < c->columns; column++) fputs(utf8 ? "\xE2\x94\x80" : "-", stream);
  fprintf(stream, "\n         0%*s steps\n", c->columns - 6, text_count(c->steps).text);
}

/* ---- one run ---- */

static void print_one(FILE *stream, Canvas *canvas, const FoundRun *run, bool utf8) {
  const History *h = &run->history;
  const OneLine name = text_one_line(run->dir, NAME_BYTES);
  include_steps(canvas, h);
  include_evaluations(canvas, h);
  if (!has_range(canvas)) {
    fprintf(stream, "%s: %s\n", name.text,
            h->damaged ? "no line of its metrics.jsonl can be read" : "nothing was measured yet");
    return;
  }
  draw_steps(canvas, h, (Pen){0});
  draw_evaluations(canvas, h);
  fprintf(stream, "%s: loss, nats per token (%s training, o validation, * best)\n", name.text,
          utf8 ? "\xE2\xA3\xBF" : ".");
  print_canvas(stream, canvas, utf8);
}

/* ---- several runs ---- */

static char letter_of(int run) { return letters[run % (int)(sizeof letters - 1)]; }

static void print_name(FILE *stream, const FoundRun *run, int index) {
  const History *h = &run->history;
  const HistoryEvaluation *kept = history_kept(h);
  fprintf(stream, "%c %s", letter_of(index), text_one_line(run->dir, NAME_BYTES).text);
  if (kept)
    fprintf(stream, ": the kept model has %.4f over %s the validation text", kept->loss,
            kept->all ? "all of" : "the beginning of");
  else if (!h->count) fputs(": nothing was measured yet", stream);
  fputc('\n', stream);
}

static void print_several(FILE *stream, Canvas *canvas, const FoundRun *runs, int count, bool utf8) {
  bool validation = true; /* of every run that has measured something */
  for (int i = 0; i < count; i++)
    validation = validation && (runs[i].history.evaluation_count || !runs[i].history.count);
  for (int i = 0; i < count; i++) (validation ? include_evaluations : include_steps)(canvas, &runs[i].history);
  if (has_range(canvas)) {
    for (int i = 0; i < count; i++) {
      const Pen pen = {.letter = letter_of(i), .next_mark = 2 * i % BETWEEN_LETTERS};
      (validation ? draw_line_of_evaluations : draw_steps)(canvas, &runs[i].history, pen);
    }
    fprintf(stream, "%s loss of %d runs, nats per token\n", validation ? "validation" : "training", count);
    print_canvas(stream, canvas, utf8);
  }
  for (int i = 0; i < count; i++) print_name(stream, &runs[i], i);
}

void plot_print(FILE *stream, const FoundRun *runs, int count, int width, bool utf8) {
  const int room = width > 0 ? width - AXIS : MOST_COLUMNS;
  Canvas canvas = {.columns = room > MOST_COLUMNS    ? MOST_COLUMNS
                              : room < LEAST_COLUMNS ? LEAST_COLUMNS
                                                     : room,
                   .low = INFINITY,
                   .high = -INFINITY};
  if (count == 1) print_one(stream, &canvas, runs, utf8);
  else print_several(stream, &canvas, runs, count, utf8);
}
