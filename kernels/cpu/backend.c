/* The CPU backend's table. */
#include "kernels/cpu/cpu.h"

#define ROW(function) .function = cpu_##function,
const Backend cpu_backend = {.name = "cpu", .natural_dtype = DTYPE_F32, BACKEND_FUNCTIONS(ROW)};
