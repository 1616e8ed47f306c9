// Shares on the GPU: one pass forward for the result and the bits, one backward for all gradients.

#include "kernels/cuda/run.cuh"

namespace clampgrad::cuda {

CLAMPGRAD_RUN(PairEncode)
CLAMPGRAD_RUN(PairDecode)
CLAMPGRAD_RUN(TripleEncode)
CLAMPGRAD_RUN(TripleDecode)

} // namespace clampgrad::cuda
