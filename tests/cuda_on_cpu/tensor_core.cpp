/* ldmatrix and mma, by the fragment layouts of the PTX ISA ("Matrix fragments for mma.m16n8k16", "ldmatrix"). Products
 * are summed in fp32 in the order of k; the order within a tensor core is not documented. */
#include "tests/cuda_on_cpu/internal.h"

namespace emu {

static void need_all_lanes(void **payloads, const char *operation) {
  for (int l = 0; l < 32; l++)
    if (!payloads[l]) die("%s needs all 32 lanes, and lane %d has ended", operation, l);
}

/* Number `half` (0: the low one) of two bf16 in a register. */
static float bf16_half(uint32_t word, int half) {
  const uint32_t bits = half ? word & 0xFFFF0000u : word << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
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
      float sum = 0;
      for (int k = 0; k < 16; k++) sum += a[m][k] * b[n][k];
      own->d[i] += sum;
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
