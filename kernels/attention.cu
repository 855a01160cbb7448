/* Rotary positions and attention: a translation unit of its own, because it compiles for minutes. */
#include "kernels/attention.cuh"
#include "kernels/attention_backward.cuh"
