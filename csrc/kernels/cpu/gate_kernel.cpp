// Gates on the CPU: one pass forward, one pass backward.

#include "Kernels.h"
#include "autograd/kernels.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/memory_order.h"
#include "kernels/saved_bits.h"
#include "ops/bounds.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace clampgrad::cpu {
namespace {

// The loops of one element type, chosen by gate and by which bounds are there.
template <typename T>
struct Loops {
  using Encode = void (*)(
      const T*, T*, uint64_t*, int64_t, int64_t, int64_t, const Bounds<T>&, const Bounds<Key<T>>&);
  using Decode = void (*)(const T*, T*, const uint64_t*, int64_t, int64_t, int64_t);
  // dx = g where the gate is open at x, without a recorded gate.
  using Select = void (*)(const T*, const T*, T*, int64_t, const Bounds<Key<T>>&);

  Encode encode[kGates][3];
  Decode decode[kGates];
  Select select[3];
};

} // namespace
} // namespace clampgrad::cpu

#define CLAMPGRAD_LOOPS "kernels/cpu/gate_loops.h"
#include "kernels/cpu/foreach_isa.h"

namespace clampgrad::cpu {
namespace {

template <typename T>
const Loops<T>& best_loops() {
  static const Loops<T> chosen = [] {
#if defined(CLAMPGRAD_X86_ISAS)
    if (isas().avx512) {
      return avx512::loops<T>();
    }
    if (isas().avx2) {
      return avx2::loops<T>();
    }
#endif
    return baseline::loops<T>();
  }();
  return chosen;
}

template <typename T, typename scalar_t>
T convert(const at::Scalar& bound) {
  return reinterpret<T>(bound.to<scalar_t>()); // raises on overflow, as torch.clamp does
}

// Words a thread should have: ATen's grain of elements.
constexpr int64_t kGrain = at::internal::GRAIN_SIZE / kWord;

using Bound = std::optional<at::Scalar>;

// y may be x.
void encode_flat(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& bits,
    const Bound& min,
    const Bound& max,
    Gate gate) {
  dispatch(x.scalar_type(), "clamp", [&](auto element, auto scalar) {
    using T = decltype(element);
    using scalar_t = decltype(scalar);
    const Bounds<T> bounds = {
        min ? convert<T, scalar_t>(*min) : T(0), max ? convert<T, scalar_t>(*max) : T(0)};
    const Bounds<Key<T>> keys = {key_of(bounds.lo), key_of(bounds.hi)};
    const auto loop = best_loops<T>().encode[int64_t(gate)][min ? (max ? 0 : 1) : 2];
    const auto n = x.numel();
    const auto* in = static_cast<const T*>(x.const_data_ptr());
    auto* out = static_cast<T*>(y.mutable_data_ptr());
    auto* word = static_cast<uint64_t*>(bits.mutable_data_ptr());
    at::parallel_for(0, words(n), kGrain, [&](int64_t begin, int64_t end) {
      loop(in, out, word, n, begin, end, bounds, keys);
    });
  });
}

} // namespace
} // namespace clampgrad::cpu

namespace clampgrad {

using namespace clampgrad::cpu;

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
  dispatch(iter.dtype(), "clamp_mingrad_backward", [&](auto element, auto scalar) {
    using T = decltype(element);
    using scalar_t = decltype(scalar);
    const Bounds<Key<T>> keys = {
        key_of(min ? convert<T, scalar_t>(*min) : T(0)),
        key_of(max ? convert<T, scalar_t>(*max) : T(0))};
    const auto select = best_loops<T>().select[min ? (max ? 0 : 1) : 2];
    iter.for_each([&](char** data, const int64_t* strides, int64_t n) {
      constexpr int64_t size = sizeof(T);
      if (strides[0] == size && strides[1] == size && strides[2] == size) {
        return select(
            reinterpret_cast<const T*>(data[1]),
            reinterpret_cast<const T*>(data[2]),
            reinterpret_cast<T*>(data[0]),
            n,
            keys);
      }
      for (int64_t i = 0; i < n; ++i) {
        select(
            reinterpret_cast<const T*>(data[1] + i * strides[1]),
            reinterpret_cast<const T*>(data[2] + i * strides[2]),
            reinterpret_cast<T*>(data[0] + i * strides[0]),
            1,
            keys);
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
  const auto* word = checked_bits(bits, n, planes(gate));
  const auto dx = empty_in_order(grad.sizes(), order, grad.options());
  dispatch(g.scalar_type(), "clamp_backward", [&](auto element, auto) {
    using T = decltype(element);
    const auto loop = best_loops<T>().decode[int64_t(gate)];
    const auto* in = static_cast<const T*>(g.const_data_ptr());
    auto* out = static_cast<T*>(dx.mutable_data_ptr());
    at::parallel_for(0, words(n), kGrain, [&](int64_t begin, int64_t end) {
      loop(in, out, word, n, begin, end);
    });
  });
  return dx;
}

} // namespace clampgrad
