/* The backends of this build, best first. */
#include "kernels.h"

const Backend *const *backend_list(void) {
  static const Backend *const list[] = {
#ifdef INKLING_CUDA
      &cuda_backend,
#endif
      &cpu_backend, NULL};
  return list;
}
