#ifndef INKLING_KERNELS_LOSS_CUH
#define INKLING_KERNELS_LOSS_CUH

#include "kernels/cuda.cuh"

void cuda_cross_entropy(Context *c, float *, void *, int64_t , const int32_t *, int ,
                        int , float , const StepState *, bool ) { fail(&c->error, EXIT_INTERNAL, "cross_entropy is not written yet"); }
void cuda_loss_sum(Context *c, StepState *, const float *, const int32_t *, int ) { fail(&c->error, EXIT_INTERNAL, "loss_sum is not written yet"); }
namespace {

__global__ void begin_step(StepState *state, const float *lr_table, const int32_t *targets) {
  state->lr = lr_table ? lr_table[state->step + 1] : 0.0f;
  state->inv_targets = targets && *targets > 0 ? 1.0f / (float)*targets : 0.0f;
  state->loss_sum = 0;
  state->loss_count = 0;
  state->sequence = 0;
}

__global__ void advance_sequence(StepState *state, int sequences) { state->sequence += sequences; }

} // namespace

void cuda_step_begin(Context *c, StepState *state, const float *lr_table, const int32_t *targets) {
  launch(c, "start of a step", begin_step, 1, 1, 0, state, lr_table, targets);
}

void cuda_next_micro_batch(Context *c, StepState *state, int sequences) {
  launch(c, "next micro-batch", advance_sequence, 1, 1, 0, state, sequences);
}

#endif
