// Two and three Tensors on the GPU.

#include "kernels/cuda/run.cuh"

namespace clampgrad::cuda {

CLAMPGRAD_RUN(PairForward)
CLAMPGRAD_RUN(PairBackward)
CLAMPGRAD_RUN(TripleForward)
CLAMPGRAD_RUN(TripleBackward)

} // namespace clampgrad::cuda
