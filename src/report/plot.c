#include "report/plot.h"

#include "report/chart.h"
#include "base/text.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

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
  uint8_t cells[LINES][MOST_COLUMNS]; /* the dots of a braille character each */
  char marks[LINES][MOST_COLUMNS];    /* letters that replace the dots; 0: none */
} Canvas;

/* The plotted losses of a run: of its evaluations (`validation`) or of its logged steps. */
static int loss_count(const History *h, bool validation) { return validation ? (int)h->evaluation_count : h->count; }

static double loss_of(const History *h, bool validation, int i, int64_t *step) {
  *step = validation ? h->evaluations[i].step : h->points[i].step;
  return validation ? h->evaluations[i].val_loss : h->points[i].loss;
}

static void include_losses(Canvas *c, const History *h, bool validation) {
  const int count = loss_count(h, validation);
  for (int i = validation ? 0 : chart_first_counted(count); i < count; i++) {
    int64_t step;
    const double loss = loss_of(h, validation, i, &step);
    if (!chart_can_draw(loss)) continue;
    c->steps = fmax(c->steps, (double)step);
    c->low = fmin(c->low, loss);
    c->high = fmax(c->high, loss);
  }
}

/* Returns whether there is something to draw, and makes an empty range of losses wider. */
static bool has_range(Canvas *c) {
  if (c->high - c->low < 1e-6) c->low = c->high - fmax(1e-6, fabs(c->high) * 0.01);
  return isfinite(c->high) && c->steps > 0;
}

/* Finds the dot of a loss, counted from the left and from the top. Returns false when it is outside of the plot. */
static bool find_dot(const Canvas *c, int64_t step, double loss, int *x, int *y) {
  if (!chart_can_draw(loss) || (double)step > c->steps) return false;
  const double depth = fmin(1, fmax(0, (c->high - loss) / (c->high - c->low)));
  *x = (int)((double)step / c->steps * (2 * c->columns - 1));
  *y = (int)round(depth * (DOTS_Y - 1));
  return true;
}

static void put_dot(Canvas *c, int x, int y) {
  static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
  c->cells[y / 4][x / 2] |= bits[y % 4][x % 2];
}

/* The state of a curve that is drawn point by point. */
typedef struct Pen {
  int x, y;
  bool down;     /* the previous point is in the plot */
  char letter;   /* the run's letter, repeated on its curve; 0: none */
  int next_mark; /* the column of the next letter */
} Pen;

/* Also draws dots between neighboring points, so that a steep curve has no gaps. */
static void draw_to(Canvas *c, Pen *pen, int64_t step, double loss) {
  int x = pen->x, y = pen->y;
  const bool here = find_dot(c, step, loss, &x, &y);
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

static void draw_curve(Canvas *c, const History *h, bool validation, Pen pen) {
  for (int i = 0; i < loss_count(h, validation); i++) {
    int64_t step;
    const double loss = loss_of(h, validation, i, &step);
    draw_to(c, &pen, step, loss);
  }
}

static void mark_evaluations(Canvas *c, const History *h) {
  const MetricsLine *kept = history_kept(h);
  int x, y;
  for (size_t i = 0; i < h->evaluation_count; i++) {
    const MetricsLine *e = &h->evaluations[i];
    if (find_dot(c, e->step, e->val_loss, &x, &y) && c->marks[y / 4][x / 2] != '*')
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
  include_losses(canvas, h, false);
  include_losses(canvas, h, true);
  if (!has_range(canvas)) {
    fprintf(stream, "%s: %s\n", name.text,
            h->damaged ? "no line of its metrics.jsonl can be read" : "nothing was measured yet");
    return;
  }
  draw_curve(canvas, h, false, (Pen){0});
  mark_evaluations(canvas, h);
  fprintf(stream, "%s: loss, nats per token (%s training, o validation, * best)\n", name.text,
          utf8 ? "\xE2\xA3\xBF" : ".");
  print_canvas(stream, canvas, utf8);
}

/* ---- several runs ---- */

static char letter_of(int run) { return letters[run % (int)(sizeof letters - 1)]; }

static void print_name(FILE *stream, const FoundRun *run, int index) {
  const History *h = &run->history;
  const MetricsLine *kept = history_kept(h);
  fprintf(stream, "%c %s", letter_of(index), text_one_line(run->dir, NAME_BYTES).text);
  if (kept)
    fprintf(stream, ": the kept model has %.4f over %s the validation text", kept->val_loss,
            kept->all ? "all of" : "the beginning of");
  else if (!h->count) fputs(": nothing was measured yet", stream);
  fputc('\n', stream);
}

static void print_several(FILE *stream, Canvas *canvas, const FoundRun *runs, int count, bool utf8) {
  bool validation = true; /* every run with measurements has evaluations */
  for (int i = 0; i < count; i++)
    validation = validation && (runs[i].history.evaluation_count || !runs[i].history.count);
  for (int i = 0; i < count; i++) include_losses(canvas, &runs[i].history, validation);
  if (has_range(canvas)) {
    for (int i = 0; i < count; i++) {
      const Pen pen = {.letter = letter_of(i), .next_mark = 2 * i % BETWEEN_LETTERS};
      draw_curve(canvas, &runs[i].history, validation, pen);
    }
    fprintf(stream, "%s loss of %d runs, nats per token\n", validation ? "validation" : "training", count);
    print_canvas(stream, canvas, utf8);
  }
  for (int i = 0; i < count; i++) print_name(stream, &runs[i], i);
}

void plot_print(FILE *stream, const FoundRun *runs, int count, int width, bool utf8) {
  const int columns = width > 0 ? width - AXIS : MOST_COLUMNS;
  Canvas canvas = {.columns = columns > MOST_COLUMNS    ? MOST_COLUMNS
                              : columns < LEAST_COLUMNS ? LEAST_COLUMNS
                                                        : columns,
                   .low = INFINITY,
                   .high = -INFINITY};
  if (count == 1) print_one(stream, &canvas, runs, utf8);
  else print_several(stream, &canvas, runs, count, utf8);
}
