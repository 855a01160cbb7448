/* The tables of the CPU backend: one for each instruction set, element type and microkernel. */
#include "kernels/cpu/words.h"

#define TEXT(isa) #isa
#define NAME(isa) TEXT(isa)
#define ROW(function) .function = CPU(function),
#define TABLE(isa_name)                                                                                                \
  .name = "cpu", .isa = isa_name, .dtypes = 1u << ELEMENT_DTYPE, .natural_dtype = DTYPE_F32, BACKEND_FUNCTIONS(ROW)

const Backend CPU(backend) = {TABLE(NAME(CPU_ISA))};

#ifdef HAVE_BF16_PRODUCTS
static bool open_avx512bf16(Context **out, const ContextOptions *options, Error *error) {
  return CPU(open_with)(out, options, &CPU(avx512bf16), error);
}
static bool open_amx(Context **out, const ContextOptions *options, Error *error) {
  return CPU(open_with)(out, options, &CPU(amx), error);
}
#pragma GCC diagnostic ignored "-Woverride-init" /* .open */
const Backend cpu_avx512bf16_backend = {TABLE("avx512bf16").open = open_avx512bf16};
const Backend cpu_amx_backend = {TABLE("amx").open = open_amx};
#endif
