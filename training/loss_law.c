#include "training/loss_law.h"

#include <math.h>

/* scripts/loss_law.py fits these numbers to runs of several texts, each of which has a factor of its own. A text that is
 * read again is worth less each time, all passes together at most 1 + REREAD texts (Muennighoff et al. 2023); so are
 * parameters beyond USEFUL times the megabytes of the text. */
static const double LEAST = 0.408, MODEL = 0.268, MODEL_POWER = 0.166, TEXT = 0.516, TEXT_POWER = 0.237;
static const double REREAD = 2.28, USEFUL = 0.225, USEFUL_POWER = 0.953, BEYOND = 10;

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
