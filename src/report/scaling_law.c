#include "report/scaling_law.h"

#include "kernels/philox.h"
#include "base/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const law_term_names[LAW_TERMS] = {"E", "A", "a", "B", "b"};

enum { COLUMNS = 3, REPEATS = 400, GRID = 16, ROUNDS = 14 };
#define LEAST_EXPONENT 0.02
#define LARGEST_EXPONENT 3.0

/* ---- the best factors for given exponents ---- */

/* Points relative to their geometric means, so that all columns are about 1. */
typedef struct Problem {
  int count;
  const double *log_params, *log_tokens; /* [count] */
  const double *loss;                    /* [count] */
  bool of_params, of_tokens;
} Problem;

typedef struct Solution {
  double factors[COLUMNS];   /* of 1, (N/N0)^-a, (D/D0)^-b */
  double exponents[COLUMNS]; /* 0, a, b */
  double squares;            /* sum of squared relative errors */
} Solution;

static double predicted(const Problem *p, const Solution *s, int i) {
  return s->factors[0] + s->factors[1] * exp(-s->exponents[1] * p->log_params[i]) +
         s->factors[2] * exp(-s->exponents[2] * p->log_tokens[i]);
}

/* Solves the normal equations of the columns in `set` by Gaussian elimination. Returns whether all factors are
 * positive, which the best factors within the bounds are for one of the sets. */
static bool solve_set(const double matrix[COLUMNS][COLUMNS], const double right[COLUMNS], int set,
                      double out[COLUMNS]) {
  double m[COLUMNS][COLUMNS + 1];
  int columns[COLUMNS], n = 0;
  for (int c = 0; c < COLUMNS; c++)
    if (set & 1 << c) columns[n++] = c;
  for (int r = 0; r < n; r++) {
    for (int c = 0; c < n; c++) m[r][c] = matrix[columns[r]][columns[c]];
    m[r][n] = right[columns[r]];
  }
  for (int k = 0; k < n; k++) {
    if (!(m[k][k] > 1e-12 * matrix[columns[k]][columns[k]])) return false; /* columns that are equal but for rounding */
    for (int r = k + 1; r < n; r++)
      for (int c = n; c >= k; c--) m[r][c] -= m[r][k] / m[k][k] * m[k][c];
  }
  memset(out, 0, COLUMNS * sizeof *out);
  for (int k = n - 1; k >= 0; k--) {
    double sum = m[k][n];
    for (int c = k + 1; c < n; c++) sum -= m[k][c] * out[columns[c]];
    out[columns[k]] = sum / m[k][k];
    if (!(out[columns[k]] > 0)) return false;
  }
  return true;
}

static void solve_factors(const Problem *p, double a, double b, Solution *best) {
  double matrix[COLUMNS][COLUMNS] = {{0}}, right[COLUMNS] = {0}, squares = 0;
  for (int i = 0; i < p->count; i++) {
    const double weight = 1 / p->loss[i];
    const double row[COLUMNS] = {weight, p->of_params ? weight * exp(-a * p->log_params[i]) : 0,
                                 p->of_tokens ? weight * exp(-b * p->log_tokens[i]) : 0};
    for (int r = 0; r < COLUMNS; r++) {
      for (int c = 0; c < COLUMNS; c++) matrix[r][c] += row[r] * row[c];
      right[r] += row[r];
    }
    squares += 1;
  }
  *best = (Solution){.exponents = {0, a, b}, .squares = INFINITY};
  for (int set = 1; set < 1 << COLUMNS; set++) {
    double x[COLUMNS], sum = squares;
    if ((set & 2 && !p->of_params) || (set & 4 && !p->of_tokens) || !solve_set(matrix, right, set, x)) continue;
    for (int r = 0; r < COLUMNS; r++) sum -= x[r] * right[r]; /* holds at a solution of the normal equations */
    if (sum >= best->squares) continue;
    best->squares = sum;
    memcpy(best->factors, x, sizeof x);
  }
}

/* ---- the best exponents ---- */

static double clamp(double log_exponent) {
  return fmin(log(LARGEST_EXPONENT), fmax(log(LEAST_EXPONENT), log_exponent));
}

/* Tries exponents on a square grid of 2 `most` + 1 points a side around the best ones. */
static void search(const Problem *p, double step, int most, Solution *best) {
  const double a = log(best->exponents[1]), b = log(best->exponents[2]);
  for (int i = p->of_params ? -most : 0; i <= (p->of_params ? most : 0); i++)
    for (int k = p->of_tokens ? -most : 0; k <= (p->of_tokens ? most : 0); k++) {
      Solution other;
      solve_factors(p, exp(clamp(a + i * step)), exp(clamp(b + k * step)), &other);
      if (other.squares < best->squares) *best = other;
    }
}

static void solve(const Problem *p, Solution *best) {
  const double middle = sqrt(LEAST_EXPONENT * LARGEST_EXPONENT);
  double step = log(LARGEST_EXPONENT / LEAST_EXPONENT) / (double)GRID;
  *best = (Solution){.exponents = {0, middle, middle}, .squares = INFINITY};
  search(p, step, GRID / 2, best);
  for (int round = 0; round < ROUNDS; round++) search(p, step /= 2, 2, best);
}

/* ---- intervals ---- */

/* Stores the terms of the law in the units of the points. */
static void store_terms(const Problem *p, const Solution *s, double mean_params, double mean_tokens, double *terms) {
  terms[LAW_E] = s->factors[0];
  terms[LAW_EXPONENT_A] = p->of_params ? s->exponents[1] : (double)NAN;
  terms[LAW_A] = p->of_params ? s->factors[1] * exp(s->exponents[1] * mean_params) : (double)NAN;
  terms[LAW_EXPONENT_B] = p->of_tokens ? s->exponents[2] : (double)NAN;
  terms[LAW_B] = p->of_tokens ? s->factors[2] * exp(s->exponents[2] * mean_tokens) : (double)NAN;
}

/* work: [2 count + LAW_TERMS REPEATS] */
static void find_intervals(LawFit *fit, const Problem *p, const Solution *best, const double means[2], double *work) {
  const int count = p->count;
  double *residuals = work, *loss = work + count, *terms = work + 2 * (size_t)count;
  const double numbers = 1 + 2 * p->of_params + 2 * p->of_tokens, wider = sqrt(count / (count - numbers));
  Problem again = *p;
  again.loss = loss;
  for (int i = 0; i < count; i++) residuals[i] = wider * (p->loss[i] / predicted(p, best, i) - 1);
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    Solution other;
    double found[LAW_TERMS];
    for (int i = 0; i < count; i++) {
      const uint32_t word = philox(1, (uint32_t)i, 0, (uint32_t)repeat, 0).word[0];
      loss[i] = predicted(p, best, i) * fmax(0.01, 1 + residuals[word % (uint32_t)count]);
    }
    solve(&again, &other);
    store_terms(p, &other, means[0], means[1], found);
    for (int t = 0; t < LAW_TERMS; t++) terms[t * REPEATS + repeat] = found[t];
  }
  for (int t = 0; t < LAW_TERMS; t++) {
    qsort(&terms[t * REPEATS], REPEATS, sizeof *terms, array_compare_doubles);
    fit->low[t] = terms[t * REPEATS + REPEATS / 40];
    fit->high[t] = terms[t * REPEATS + REPEATS - 1 - REPEATS / 40];
  }
}

/* ---- the fit ---- */

/* Returns whether sorted logarithms carry a term. */
static bool varies(double *sorted, int count) {
  int values = count > 0;
  qsort(sorted, (size_t)count, sizeof *sorted, array_compare_doubles);
  for (int i = 1; i < count; i++) values += sorted[i] > sorted[i - 1] + 1e-6;
  return values >= LAW_LEAST_VALUES && sorted[count - 1] - sorted[0] >= log(LAW_LEAST_SPAN);
}

int law_points_needed(bool of_params, bool of_tokens) { return 1 + 2 * of_params + 2 * of_tokens + 2; }

bool law_fit(LawFit *fit, const LawPoint *points, int count, LawProblem *problem, Error *error) {
  *fit = (LawFit){.worst = -1};
  *problem = LAW_FEW_POINTS;
  if (count < law_points_needed(true, false)) return true;
  const size_t n = (size_t)count;
  double *all = calloc(5 * n + LAW_TERMS * REPEATS, sizeof *all), means[2] = {0};
  if (!all) return error_memory(error, "a fit");
  double *log_params = all, *log_tokens = all + n, *loss = all + 2 * n, *work = all + 3 * n;
  for (int i = 0; i < count; i++) {
    work[i] = log_params[i] = log(points[i].params);
    work[count + i] = log_tokens[i] = log(points[i].tokens);
    loss[i] = points[i].loss;
    means[0] += log_params[i] / count;
    means[1] += log_tokens[i] / count;
  }
  for (int i = 0; i < count; i++) {
    log_params[i] -= means[0];
    log_tokens[i] -= means[1];
  }
  fit->of_params = varies(work, count);
  fit->of_tokens = varies(work + count, count);
  const Problem p = {count, log_params, log_tokens, loss, fit->of_params, fit->of_tokens};
  *problem = !fit->of_params && !fit->of_tokens                          ? LAW_NOTHING_VARIES
             : count < law_points_needed(fit->of_params, fit->of_tokens) ? LAW_FEW_POINTS
                                                                         : LAW_FITS;
  if (*problem == LAW_FITS) {
    Solution best;
    solve(&p, &best);
    store_terms(&p, &best, means[0], means[1], fit->terms);
    for (int i = 0; i < count; i++) {
      const double miss = predicted(&p, &best, i) / loss[i] - 1;
      fit->error += miss * miss / count;
      if (fit->worst < 0 || fabs(miss) > fabs(fit->worst_error)) fit->worst = i, fit->worst_error = miss;
    }
    fit->error = sqrt(fit->error);
    find_intervals(fit, &p, &best, means, work);
  }
  free(all);
  return true;
}

double law_loss(const LawFit *fit, double params, double tokens) {
  const double *t = fit->terms;
  return t[LAW_E] + (fit->of_params ? t[LAW_A] / pow(params, t[LAW_EXPONENT_A]) : 0) +
         (fit->of_tokens ? t[LAW_B] / pow(tokens, t[LAW_EXPONENT_B]) : 0);
}

bool law_is_determined(const LawFit *fit, LawTerm exponent) {
  const double factor = fit->terms[exponent == LAW_EXPONENT_A ? LAW_A : LAW_B];
  return factor > 0 && fit->high[exponent] < 3 * fit->low[exponent] && fit->high[exponent] < 0.99 * LARGEST_EXPONENT &&
         fit->low[exponent] > 1.01 * LEAST_EXPONENT;
}

void law_optimum(const LawFit *fit, double operations, double *params, double *tokens) {
  const double *t = fit->terms, a = t[LAW_EXPONENT_A], b = t[LAW_EXPONENT_B];
  const double balance = pow(a * t[LAW_A] / (b * t[LAW_B]), 1 / (a + b));
  *params = balance * pow(operations / 6, b / (a + b));
  *tokens = operations / 6 / *params;
}
