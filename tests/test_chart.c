/* report/chart: the points of a curve are read back out of the picture, and hostile text is escaped. */
#include "report/chart.h"
#include "base/html.h"
#include "tests/cli_helpers.h"

#include <math.h>
#include <string.h>

/* What is written to the stream in between. */
static char written[1 << 18];

static FILE *begin(void) {
  memset(written, 0, sizeof written);
  FILE *stream = fmemopen(written, sizeof written - 1, "w");
  assert_non_null(stream);
  return stream;
}

static const char *draw(const Chart *chart) {
  FILE *stream = begin();
  chart_write(stream, chart);
  assert_int_equal(fclose(stream), 0);
  return written;
}

/* The number of an attribute, ATTRIBUTE="NUMBER". */
static double attribute(const char *svg, const char *name) {
  char key[40];
  snprintf(key, sizeof key, "%s=\"", name);
  const char *at = strstr(svg, key);
  assert_non_null(at);
  return strtod(at + strlen(key), NULL);
}

/* Points of the curve of that color, in the chart's units. */
static int read_points(const char *svg, int color, double x[], double y[], int limit) {
  const double x0 = attribute(svg, "data-x0"), x1 = attribute(svg, "data-x1"), y0 = attribute(svg, "data-y0"),
               y1 = attribute(svg, "data-y1"), left = attribute(svg, "data-left"), right = attribute(svg, "data-right"),
               bottom = attribute(svg, "data-bottom"), top = attribute(svg, "data-top");
  char group[20];
  snprintf(group, sizeof group, "<g class=\"c%d\">", color);
  const char *at = strstr(svg, group), *end;
  assert_non_null(at);
  at = strstr(at, "class=\"curve\" d=\"");
  assert_non_null(at);
  at += strlen("class=\"curve\" d=\"");
  int count = 0;
  for (; *at != '"' && count < limit; at = end) {
    assert_true(*at == 'M' || *at == 'L');
    const double px = strtod(at + 1, (char **)&end), py = strtod(end, (char **)&end);
    x[count] = x0 + (px - left) / (right - left) * (x1 - x0);
    y[count++] = y0 + (bottom - py) / (bottom - top) * (y1 - y0);
  }
  return count;
}

static void points_are_read_back(void **state) {
  (void)state;
  enum { POINTS = 40 };
  ChartPoint train[POINTS], validation[3];
  double x[POINTS], y[POINTS];
  for (int log = 0; log < 2; log++) {
    for (int i = 0; i < POINTS; i++)
      train[i] = (ChartPoint){25.0 * i, 0.1 + 4 * exp(-0.1 * i), (double)NAN, (double)NAN, ""};
    for (int i = 0; i < 3; i++)
      validation[i] = (ChartPoint){300.0 * (i + 1), 2.0 / (i + 1) + 1, (double)NAN, (double)NAN, "an evaluation"};
    const ChartCurve curves[] = {{"training", 0, false, train, POINTS, false, 0},
                                 {"validation", 1, true, validation, 3, false, 0}};
    const Chart chart = {.title = "t", .note = "n", .id = "i", .log = log, .curves = curves, .curve_count = 2};
    const char *svg = draw(&chart);
    assert_int_equal(read_points(svg, 0, x, y, POINTS), POINTS);
    const double pixel_x = 975 / (attribute(svg, "data-right") - attribute(svg, "data-left")),
                 pixel_y = (attribute(svg, "data-y1") - attribute(svg, "data-y0")) /
                           (attribute(svg, "data-bottom") - attribute(svg, "data-top"));
    for (int i = 0; i < POINTS; i++) {
      const double expected = log ? log10(train[i].y) : train[i].y;
      assert_true(fabs(x[i] - train[i].x) < pixel_x / 2 && fabs(y[i] - expected) < pixel_y / 2);
    }
    assert_int_equal(read_points(svg, 1, x, y, POINTS), 3);
    assert_true(fabs(x[1] - 600) < pixel_x / 2);
    int dots = 0;
    for (const char *at = svg; (at = strstr(at, "<title>an evaluation</title>")); at++) dots++;
    assert_int_equal(dots, 3);
  }
}

/* The values of an option: a logarithmic axis; dots alone, and a bound of y. */
static void options(void **state) {
  (void)state;
  const double nan = (double)NAN;
  ChartPoint points[] = {{1e-4, 3, nan, nan, ""}, {1e-2, 2, nan, nan, ""}, {1, 50, nan, nan, ""}};
  const ChartCurve curve = {"c", 0, true, points, 3, true, 0};
  const Chart chart = {.title = "t",
                       .note = "n",
                       .id = "i",
                       .x = CHART_LOGARITHMS,
                       .x_name = "<lr>",
                       .y_most = 4,
                       .curves = &curve,
                       .curve_count = 1};
  const char *svg = draw(&chart);
  double at[3];
  int dots = 0;
  for (const char *dot = svg; (dot = strstr(dot, "cx=\"")); dot++) at[dots++] = strtod(dot + 4, NULL);
  assert_int_equal(dots, 3);
  assert_true(fabs((at[1] - at[0]) - (at[2] - at[1])) < 0.2);
  assert_null(strstr(svg, "class=\"curve\""));
  assert_true(attribute(svg, "data-y1") < 4.2);
  assert_non_null(strstr(svg, ">0.01<"));
  assert_non_null(strstr(svg, ">&lt;lr&gt;<"));
}

/* Numbers that cannot be drawn leave a gap, and a chart of nothing says so. */
static void gaps(void **state) {
  (void)state;
  const double nan = (double)NAN;
  ChartPoint points[] = {{1, 2, nan, nan, ""},        {2, nan, nan, nan, ""}, {3, 3, 2, 4, ""},
                         {4, INFINITY, nan, nan, ""}, {nan, 5, nan, nan, ""}, {6, 4, 3, 5, ""},
                         {7, 1e300, nan, nan, ""}};
  ChartCurve curve = {"c", 0, false, points, 7, false, 0};
  const ChartLevel levels[] = {{"inside", 3.5}, {"above", 99}, {"below", -5}, {"none", nan}};
  Chart chart = {
      .title = "t", .note = "n", .id = "i", .curves = &curve, .curve_count = 1, .levels = levels, .level_count = 4};
  const char *svg = draw(&chart);
  int pieces = 0;
  for (const char *at = strstr(svg, "class=\"curve\" d=\""); *at && *at != '>'; at++) pieces += *at == 'M';
  assert_int_equal(pieces, 3);
  assert_non_null(strstr(svg, "class=\"band\""));
  assert_non_null(strstr(svg, "inside 3.5<"));
  assert_non_null(strstr(svg, "above 99 (above the picture)<"));
  assert_non_null(strstr(svg, "below -5 (below the picture)<"));
  assert_null(strstr(svg, "nan"));
  assert_null(strstr(svg, "inf"));
  curve.count = 1; /* a single point is a dot */
  svg = draw(&chart);
  assert_non_null(strstr(svg, "class=\"dot\""));
  curve.count = 0;
  svg = draw(&chart);
  assert_null(strstr(svg, "<svg"));
  assert_non_null(strstr(svg, "nothing was measured yet"));
  points[0].y = 0;
  curve.count = 1;
  chart.log = true; /* which zero does not have */
  svg = draw(&chart);
  assert_null(strstr(svg, "<svg"));
}

/* All words stand above the picture, where they wrap; long names lose their middle, colors that are used again are
 * dashed. */
static void names_stand_above_the_picture(void **state) {
  (void)state;
  const double nan = (double)NAN;
  const char *name = "runs/of/november/a-run-with-a-name-that-is-longer-than-sixty-bytes-of-text.run";
  ChartPoint points[] = {{1, 2, nan, nan, ""}, {2, 3, nan, nan, ""}};
  const ChartCurve curves[] = {{name, 3, false, points, 2, false, 0},
                               {"b\"<i>", 3 + CHART_COLORS, false, points, 2, false, 0}};
  const ChartLevel level = {"guessing", 2.5};
  const Chart chart = {.title = "T<",
                       .note = "N<",
                       .id = "i",
                       .curves = curves,
                       .curve_count = 2,
                       .levels = &level,
                       .level_count = 1,
                       .mark = &points[0]};
  const char *svg = draw(&chart), *picture = strstr(svg, "<svg");
  char title[200];
  snprintf(title, sizeof title, "<li class=\"c3\" title=\"%s\">", name);
  const char *words[] = {"<p class=\"title\" id=\"i-title\">T&lt;</p>",
                         "<p class=\"note\" id=\"i-note\">N&lt;</p>",
                         title,
                         ">runs/of/november/a-run-with-...-than-sixty-bytes-of-text.run</li>",
                         "<li class=\"c3 dashed\">b&quot;&lt;i&gt;</li>",
                         "the model that is kept</li>",
                         "guessing 2.5</li>"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const char *at = strstr(svg, words[i]);
    if (!at || at > picture) fail_msg("%s is not above the picture of\n%s", words[i], svg);
  }
  assert_null(strstr(picture, "guessing"));
  assert_null(strstr(picture, "class=\"name"));
  assert_non_null(strstr(picture, "<g class=\"c3 dashed\">"));
}

static void text_is_escaped(void **state) {
  (void)state;
  FILE *stream = begin();
  const char hostile[] = "</pre><script>\"'&\x01\xff\xc3\xa4\n\0";
  html_write(stream, hostile, sizeof hostile - 1);
  fclose(stream);
  assert_string_equal(written,
                      "&lt;/pre&gt;&lt;script&gt;&quot;&#39;&amp;\xEF\xBF\xBD\xEF\xBF\xBD\xc3\xa4\n\xEF\xBF\xBD");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(points_are_read_back), cmocka_unit_test(options),
                                     cmocka_unit_test(gaps), cmocka_unit_test(names_stand_above_the_picture),
                                     cmocka_unit_test(text_is_escaped)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
