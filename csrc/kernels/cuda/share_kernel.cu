// Shares on the GPU: one pass forward for the result and the bits, one backward for all gradients.

#include "kernels/cuda/dispatch.cuh"

namespace clampgrad::cuda {

#define CLAMPGRAD_RUN(kernel, launch, name, ...)                    \
  dispatch(m.dtype, name, [&](auto scalar) {                        \
    using E = ElementOf<decltype(scalar)>;                          \
    with_##kernel<E>(__VA_ARGS__, [&](auto op) { launch(m, op); }); \
  })

void pair_encode(const Forward<2>& m, bool greater_wins, bool nan_loses, PairCodes codes) {
  CLAMPGRAD_RUN(pair_encode, launch_encode, "maximum", greater_wins, nan_loses, codes);
}

void pair_decode(const Backward<2>& m, Sharing sharing, bool clamps_from_below) {
  CLAMPGRAD_RUN(pair_decode, launch_decode, "maximum_backward", sharing, clamps_from_below);
}

void triple_encode(const Forward<3>& m, TripleRule rule, int differentiated) {
  CLAMPGRAD_RUN(triple_encode, launch_encode, "clamp", rule, differentiated);
}

void triple_decode(const Backward<3>& m, Sharing sharing) {
  CLAMPGRAD_RUN(triple_decode, launch_decode, "clamp_backward", sharing);
}

#undef CLAMPGRAD_RUN

} // namespace clampgrad::cuda
