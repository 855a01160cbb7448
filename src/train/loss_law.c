#include "train/loss_law.h"

#include <math.h>

/* scripts/measure/loss_law.py fits all of these numbers but LEAST to runs of several texts, each of which has a factor
 * of its own. A text that is read again is worth less each time, all passes together at most 1 + REREAD texts
 * (Muennighoff et al. 2023). Parameters beyond USEFUL (for a megabyte of text) are worth less, too, at most 1 +
 * BEYOND times USEFUL. */
static const double LEAST = 0.3, MODEL = 0.240, MODEL_POWER = 0.285, TEXT = 0.988, TEXT_POWER = 0.153;
static const double REREAD = 2.338, USEFUL = 0.117, USEFUL_POWER = 1.083, BEYOND = 6.986;
static const double TAUGHT = 0.025, MANY = 20; /* a teacher lowers the loss by TAUGHT after MANY epochs */

/* Returns the worth of `amount` if only `useful` of it has its whole worth, and the rest ever less. */
static double worth(double amount, double useful, double most) {
  return amount <= useful ? amount : useful * (1 + most * (1 - exp((1 - amount / useful) / most)));
}

double loss_law(double parameters, double text_bytes, double epochs, bool taught) {
  const double text = text_bytes / 1e6, size = parameters / 1e6;
  const double model = worth(size, USEFUL * pow(text, USEFUL_POWER), BEYOND);
  const double read = worth(text * epochs, text, REREAD);
  return (1 - (taught ? TAUGHT * fmin(epochs, MANY) / MANY : 0)) *
         (LEAST + MODEL * pow(model, -MODEL_POWER) + TEXT * pow(read, -TEXT_POWER));
}
