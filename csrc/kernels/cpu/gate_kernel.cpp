// Gates on the CPU: one pass forward, one pass backward.

#include "Kernels.h"
#include "autograd/kernels.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/streams.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"
#include "ops/bounds.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>

#if defined(CLAMPGRAD_X86_ISAS)
#include <immintrin.h>
#endif

namespace clampgrad {
namespace {

// The bounds of one call.
template <typename L>
struct Numbers {
  L lo, hi;
};

// The loops of one dtype, chosen by gate and by which bounds are there.
template <typename T>
struct GateLoops {
  using L = Lane<T>;

  void (*encode[kGates][3])(const Encoded<1, L>&, int64_t, int64_t, const Numbers<L>&);
  void (*decode[kGates])(const Decoded<1, L>&, int64_t, int64_t);
  // dx = g where the gate is open at x, without a recorded gate.
  void (*select[3])(const L*, const L*, L*, int64_t, const Numbers<L>&);
};

} // namespace
} // namespace clampgrad

#define CLAMPGRAD_LOOPS "kernels/cpu/gate_loops.h"
#include "kernels/cpu/foreach_isa.h"

namespace clampgrad {

using namespace clampgrad::cpu;

namespace {

template <typename T>
const GateLoops<T>& best_loops() {
  static const auto best = CLAMPGRAD_BEST(gate_loops<T>());
  return best;
}

using Bound = std::optional<at::Scalar>;

template <typename T>
Numbers<Lane<T>> numbers(const Bound& min, const Bound& max) {
  const auto lane = [](const Bound& bound) {
    const T value = bound ? bound->to<T>() : T(0); // raises on overflow, as torch.clamp does
    Lane<T> bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  };
  return {lane(min), lane(max)};
}

int which(const Bound& min, const Bound& max) {
  return min ? (max ? 0 : 1) : 2;
}

// y may be x.
void encode_flat(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& bits,
    const Bound& min,
    const Bound& max,
    Gate gate) {
  dispatch(x.scalar_type(), "clamp", [&](auto scalar) {
    using T = decltype(scalar);
    const auto bounds = numbers<T>(min, max);
    const auto loop = best_loops<T>().encode[int64_t(gate)][which(min, max)];
    const Encoded<1, Lane<T>> s = {
        {in<T>(x)}, {out<T>(y)}, static_cast<uint64_t*>(bits.mutable_data_ptr()), x.numel()};
    foreach_words(s.n, [&](int64_t begin, int64_t end) { loop(s, begin, end, bounds); });
  });
}

} // namespace

namespace native {

std::tuple<at::Tensor, at::Tensor> clamp_gate_cpu(
    const at::Tensor& self,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max,
    int64_t gate_,
    int64_t order) {
  const auto gate = static_cast<Gate>(gate_);
  const auto x = in_memory_order(self, order);
  const auto bits = empty_bits(self, planes(gate));
  if (!x.is_alias_of(self)) { // not dense: x is a copy of our own
    encode_flat(x, x, bits, min, max, gate);
    return {at::empty_like(self).copy_(x), bits};
  }
  const auto y = empty_in_order(self.sizes(), order, self.options());
  encode_flat(x, y, bits, min, max, gate);
  return {y, bits};
}

at::Tensor& clamp_gate_cpu_(
    at::Tensor& self,
    at::Tensor& bits,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max,
    int64_t gate_,
    int64_t order) {
  at::assert_no_internal_overlap(self);
  const auto gate = static_cast<Gate>(gate_);
  const auto x = in_memory_order(self, order);
  checked_bits(bits, x.numel(), planes(gate));
  encode_flat(x, x, bits, min, max, gate);
  if (!x.is_alias_of(self)) {
    self.copy_(x);
  }
  return self;
}

at::Tensor codes_cpu(
    const at::Tensor& bits, c10::SymIntArrayRef size, int64_t planes, int64_t order) {
  const auto codes = empty_in_order(C10_AS_INTARRAYREF_SLOW(size), order, bits.options());
  const auto n = codes.numel();
  const auto* word = checked_bits(bits, n, static_cast<int>(planes));
  auto* out = static_cast<uint8_t*>(codes.mutable_data_ptr());
  for (int64_t i = 0; i < n; ++i) {
    int code = 0;
    for (int64_t plane = 0; plane < planes; ++plane) {
      code |= static_cast<int>(word[plane * words(n) + i / kWord] >> (i % kWord) & 1) << plane;
    }
    out[i] = static_cast<uint8_t>(code);
  }
  return codes;
}

at::Tensor codes_meta(const at::Tensor& bits, c10::SymIntArrayRef size, int64_t, int64_t) {
  return at::empty_symint(size, bits.options());
}

at::Tensor clamp_mingrad_backward_cpu(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const std::optional<at::Scalar>& min,
    const std::optional<at::Scalar>& max) {
  at::Tensor dx;
  auto iter = at::TensorIteratorConfig()
                  .add_output(dx)
                  .add_const_input(grad_output)
                  .add_const_input(self)
                  .build();
  if (is_nan(min) || is_nan(max)) { // the result is NaN everywhere
    return iter.output().zero_();
  }
  dispatch(iter.dtype(), "clamp_mingrad_backward", [&](auto scalar) {
    using T = decltype(scalar);
    using L = Lane<T>;
    const auto bounds = numbers<T>(min, max);
    const auto select = best_loops<T>().select[which(min, max)];
    iter.for_each([&](char** data, const int64_t* strides, int64_t n) {
      constexpr int64_t size = sizeof(L);
      if (strides[0] == size && strides[1] == size && strides[2] == size) {
        return select(
            reinterpret_cast<const L*>(data[1]),
            reinterpret_cast<const L*>(data[2]),
            reinterpret_cast<L*>(data[0]),
            n,
            bounds);
      }
      for (int64_t i = 0; i < n; ++i) {
        select(
            reinterpret_cast<const L*>(data[1] + i * strides[1]),
            reinterpret_cast<const L*>(data[2] + i * strides[2]),
            reinterpret_cast<L*>(data[0] + i * strides[0]),
            1,
            bounds);
      }
    });
  });
  return iter.output();
}

at::Tensor clamp_mingrad_backward_meta(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const std::optional<at::Scalar>&,
    const std::optional<at::Scalar>&) {
  return at::empty_like(
      at::add(grad_output, self)); // the type promotion and broadcast of an elementwise operator
}

} // namespace native

at::Tensor decode_gate_cpu(
    const at::Tensor& grad, const at::Tensor& bits, Gate gate, int64_t order) {
  const auto g = in_memory_order(grad, order);
  const auto n = g.numel();
  auto* word = checked_bits(bits, n, planes(gate));
  const auto dx = empty_in_order(grad.sizes(), order, grad.options());
  dispatch(g.scalar_type(), "clamp_backward", [&](auto scalar) {
    using T = decltype(scalar);
    const auto loop = best_loops<T>().decode[int64_t(gate)];
    const Decoded<1, Lane<T>> s = {{in<T>(g)}, {out<T>(dx)}, word, n};
    foreach_words(n, [&](int64_t begin, int64_t end) { loop(s, begin, end); });
  });
  return dx;
}

} // namespace clampgrad
