#include "train/loss_law.h"

#include <math.h>

/* scripts/measure/loss_law.py fits all of these numbers but LEAST to runs of several texts, each of which has a factor
 * of its own. A text that is read again is worth less each time, all passes together at most 1 + REREAD texts
 * (Muennighoff et al. 2023). Parameters beyond USEFUL (for a megabyte of text) are worth less, too, at most 1 +
 * BEYOND times USEFUL. */
static const double LEAST = 0.3, MODEL = 0.228, MODEL_POWER = 0.291, TEXT = 0.953, TEXT_POWER = 0.154;
static const double REREAD = 2.361, USEFUL = 0.112, USEFUL_POWER = 1.107, BEYOND = 7.117;

/* Returns the worth of `amount` if only `useful` of it has its whole worth, and the rest ever less. */
static double worth(double amount, double useful, double most) {
  return amount <= useful ? amount : useful * (1 + most * (1 - exp((1 - amount / useful) / most)));
}

double loss_law(double parameters, double text_bytes, double epochs) {
  const double text = text_bytes / 1e6, size = parameters / 1e6;
  const double model = worth(size, USEFUL * pow(text, USEFUL_POWER), BEYOND);
  const double read = worth(text * epochs, text, REREAD);
  return LEAST + MODEL * pow(model, -MODEL_POWER) + TEXT * pow(read, -TEXT_POWER);
}
