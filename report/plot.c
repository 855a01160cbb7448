#include "report/plot.h"

#include "report/chart.h"
#include "util/text.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 72, LEAST_COLUMNS = 16, AXIS = 10, LINES = 16, DOTS_Y = 4 * LINES, BRAILLE = 0x2800 };

typedef struct Canvas {
  double steps, low, high; /* x from 0 to steps, y from low to high */
  int columns;
  uint8_t cells[LINES][MOST_COLUMNS]; /* dots of braille */
  char marks[LINES][MOST_COLUMNS];    /* instead of dots; 0: none */
} Canvas;

static void include(Canvas *c, double step, double loss) {
  if (!chart_can_draw(loss)) return;
  c->steps = fmax(c->steps, step);
  c->low = fmin(c->low, loss);
  c->high = fmax(c->high, loss);
}

static bool find_ranges(Canvas *c, const History *h) {
  c->low = INFINITY;
  c->high = -INFINITY;
  for (int i = chart_first_counted(h->count); i < h->count; i++)
    include(c, (double)h->points[i].step, h->points[i].loss);
  for (size_t i = 0; i < h->evaluation_count; i++) include(c, (double)h->evaluations[i].step, h->evaluations[i].loss);
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

/* Dots between neighbors, so that a steep curve has no holes. */
static void draw_steps(Canvas *c, const History *h) {
  int x = 0, y = 0;
  bool before = false;
  for (int i = 0; i < h->count; i++) {
    int to_x = x, to_y = y;
    const bool here = place(c, (double)h->points[i].step, h->points[i].loss, &to_x, &to_y);
    const int count = before ? (int)fmax(1, fmax(to_x - x, abs(to_y - y))) : 1;
    for (int k = 1; here && k <= count; k++)
      put_dot(c, before ? x + (to_x - x) * k / count : to_x, before ? y + (to_y - y) * k / count : to_y);
    before = here;
    x = to_x;
    y = to_y;
  }
}

static void draw_evaluations(Canvas *c, const History *h) {
  const HistoryEvaluation *best = history_best(h);
  int x, y;
  for (size_t i = 0; i < h->evaluation_count; i++) {
    const HistoryEvaluation *e = &h->evaluations[i];
    if (place(c, (double)e->step, e->loss, &x, &y) && c->marks[y / 4][x / 2] != '*')
      c->marks[y / 4][x / 2] = e == best ? '*' : 'o';
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

void plot_print(FILE *stream, const History *history, const char *name, int width, bool utf8) {
  const int room = width > 0 ? width - AXIS : MOST_COLUMNS;
  Canvas canvas = {.columns = room > MOST_COLUMNS ? MOST_COLUMNS : room < LEAST_COLUMNS ? LEAST_COLUMNS : room};
  if (!find_ranges(&canvas, history)) {
    fprintf(stream, "%s: %s\n", name,
            history->damaged ? "no line of its metrics.jsonl can be read" : "nothing was measured yet");
    return;
  }
  draw_steps(&canvas, history);
  draw_evaluations(&canvas, history);
  fprintf(stream, "%s: loss, nats per token (%s training, o validation, * best)\n", name, utf8 ? "\xE2\xA3\xBF" : ".");
  for (int line = 0; line < LINES; line++) {
    const double y = canvas.high - (canvas.high - canvas.low) * line / (LINES - 1);
    if (line % 5 == 0) fprintf(stream, "%8.4g %s", y, utf8 ? "\xE2\x94\xA4" : "|");
    else fprintf(stream, "         %s", utf8 ? "\xE2\x94\x82" : "|");
    for (int column = 0; column < canvas.columns; column++) print_cell(stream, &canvas, line, column, utf8);
    fputc('\n', stream);
  }
  fprintf(stream, "         %s", utf8 ? "\xE2\x94\x94" : "+");
  for (int column = 0; column < canvas.columns; column++) fputs(utf8 ? "\xE2\x94\x80" : "-", stream);
  fprintf(stream, "\n         0%*s steps\n", canvas.columns - 6, text_count(canvas.steps).text);
}
