/* The scaling law of losses over sizes and texts: L(N, D) = E + A/N^a + B/D^b, with N parameters and D tokens of
 * training (Hoffmann et al. 2022, "Training Compute-Optimal Large Language Models", approach 3). */
#ifndef INKLING_REPORT_SCALING_LAW_H
#define INKLING_REPORT_SCALING_LAW_H

#include "base/error.h"

#include <stdbool.h>

typedef struct LawPoint {
  double params, tokens, loss; /* all > 0; the loss in any unit */
} LawPoint;

/* E, A, a, B, b; E, A and B have the unit of the loss and are not negative. */
typedef enum LawTerm { LAW_E, LAW_A, LAW_EXPONENT_A, LAW_B, LAW_EXPONENT_B, LAW_TERMS } LawTerm;
extern const char *const law_term_names[LAW_TERMS];

typedef struct LawFit {
  bool of_params, of_tokens;              /* which terms are in the law: an N or D that hardly varies is left out */
  double terms[LAW_TERMS];                /* NaN: left out */
  double low[LAW_TERMS], high[LAW_TERMS]; /* intervals that contain 95 % of bootstrap fits */
  double error;                           /* root mean square of (predicted - L) / L */
  int worst;                              /* index of the point with the largest error */
  double worst_error;                     /* (predicted - L) / L there */
} LawFit;

/* Why the points do not determine a law. */
typedef enum LawProblem { LAW_FITS, LAW_FEW_POINTS, LAW_NOTHING_VARIES } LawProblem;

enum { LAW_LEAST_VALUES = 3 }; /* a term needs so many different N or D */
#define LAW_LEAST_SPAN 3.0     /* whose largest is so many times the smallest */

/* Returns the number of points that a law with these terms needs: two more than it has numbers. */
int law_points_needed(bool of_params, bool of_tokens);

/* Minimizes the sum of squared relative errors: for given exponents by linear least squares with bounds, and over the
 * exponents, between 0.02 and 3, by a search on grids. Intervals: the fit is repeated on its own predictions with
 * resampled residuals. The same points give the same result. *problem says why there is no fit. EXIT_MEMORY. */
bool law_fit(LawFit *fit, const LawPoint *points, int count, LawProblem *problem, Error *error);

double law_loss(const LawFit *fit, double params, double tokens);

/* Returns whether the interval of an exponent excludes values three times as large as others. */
bool law_is_determined(const LawFit *fit, LawTerm exponent);

/* Stores the N and D with the lowest loss for C = 6 N D operations; both terms must be in the law. */
void law_optimum(const LawFit *fit, double operations, double *params, double *tokens);

#endif
