// Clamps between numbers on the GPU.

#include "kernels/cuda/run.cuh"

namespace clampgrad::cuda {

CLAMPGRAD_RUN(NumberForward)
CLAMPGRAD_RUN(Backward<1>)

} // namespace clampgrad::cuda
