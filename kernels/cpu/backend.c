/* The CPU backend's table. */
#include "kernels/cpu/cpu.h"

#define TEXT(isa) #isa
#define NAME(isa) TEXT(isa)
#define ROW(function) .function = CPU(function),
const Backend CPU(backend) = {.name = "cpu", .isa = NAME(CPU_ISA), .natural_dtype = DTYPE_F32, BACKEND_FUNCTIONS(ROW)};
