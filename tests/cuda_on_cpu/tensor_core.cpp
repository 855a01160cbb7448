/* ldmatrix and mma, by the fragment layouts of the PTX ISA ("Matrix fragments for mma.m16n8k16", "ldmatrix"). How a
 * tensor core adds is not documented. Here it adds as those of Hopper are believed to: the 16 products and the
 * accumulator are cut to a common grid, 2^-25 of the largest, and their sum is cut to fp32. */
#include "tests/cuda_on_cpu/internal.h"

namespace emu {

void need_all_lanes(void **payloads, const char *operation) {
  for (int l = 0; l < 32; l++)
    if (!payloads[l]) die("%s needs all 32 lanes, and lane %d has ended", operation, l);
}

float bf16_half(uint32_t word, int half) {
  const uint32_t bits = half ? word & 0xFFFF0000u : word << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

float sum_of_products(float c, const float *a, const float *b) {
  double terms[17] = {double(c)}, largest = fabs(double(c)), sum = 0;
  for (int k = 0; k < 16; k++) {
    terms[k + 1] = double(a[k]) * double(b[k]);
    largest = fmax(largest, fabs(terms[k + 1]));
    sum += terms[k + 1]; /* infinite or NaN as on a card */
  }
  sum += double(c);
  if (!(fabs(sum) <= DBL_MAX) || !(largest > 0)) return float(sum);
  const int exponent = ilogb(largest) - 25;
  const double grid = ldexp(1.0, exponent), cells = ldexp(1.0, -exponent);
  sum = 0;
  for (double term : terms) sum += trunc(term * cells) * grid;
  return cut_to_float(sum);
}

void finish_mma_m16n8k16_bf16(void **payloads) {
  float a[16][16], b[8][16]; /* a[m][k], b[n][k] */
  need_all_lanes(payloads, "mma.sync");
  for (int l = 0; l < 32; l++) {
    const auto *own = static_cast<const MmaFragments *>(payloads[l]);
    const int group = l / 4, column = l % 4 * 2;
    for (int half = 0; half < 2; half++) {
      a[group][column + half] = bf16_half(own->a[0], half);
      a[group + 8][column + half] = bf16_half(own->a[1], half);
      a[group][column + 8 + half] = bf16_half(own->a[2], half);
      a[group + 8][column + 8 + half] = bf16_half(own->a[3], half);
      b[group][column + half] = bf16_half(own->b[0], half);
      b[group][column + 8 + half] = bf16_half(own->b[1], half);
    }
  }
  for (int l = 0; l < 32; l++) {
    const auto *own = static_cast<const MmaFragments *>(payloads[l]);
    for (int i = 0; i < 4; i++) {
      const int m = l / 4 + i / 2 * 8, n = l % 4 * 2 + i % 2;
      own->d[i] = sum_of_products(own->d[i], a[m], b[n]);
    }
  }
}

static void load_matrices(void **payloads, bool transpose) {
  need_all_lanes(payloads, "ldmatrix");
  for (int l = 0; l < 32; l++)
    for (int matrix = 0; matrix < 4; matrix++) {
      auto element = [&](int row, int column) {
        const auto *lane = static_cast<const MatrixRow *>(payloads[matrix * 8 + row]);
        return lane->row[column / 2] >> column % 2 * 16 & 0xFFFF;
      };
      const int row = l / 4, column = l % 4 * 2;
      static_cast<MatrixRow *>(payloads[l])->out[matrix] = transpose
                                                               ? element(column, row) | element(column + 1, row) << 16
                                                               : element(row, column) | element(row, column + 1) << 16;
    }
}

void finish_ldmatrix(void **payloads) { load_matrices(payloads, false); }
void finish_ldmatrix_trans(void **payloads) { load_matrices(payloads, true); }

} // namespace emu
