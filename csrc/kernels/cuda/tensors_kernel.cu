// Two and three Tensors on the GPU.

#include "kernels/cuda/run.cuh"

namespace clampgrad::cuda {

CLAMPGRAD_RUN(TensorForward<2>)
CLAMPGRAD_RUN(Backward<2>)
CLAMPGRAD_RUN(TensorForward<3>)
CLAMPGRAD_RUN(Backward<3>)

} // namespace clampgrad::cuda
