// torch's loops around the functions of at::vec that clamp, maximum and their relatives call. Each
// operator of the namespace LIBRARY fills `out` from `inputs`, `times` times.

#include <ATen/Dispatch.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/Loops.h>
#include <ATen/native/cpu/Reduce.h>
#include <torch/library.h>

#include <limits>

namespace {

using at::Tensor;
using at::TensorList;
using at::native::binary_kernel_reduce_vec;
using at::native::cpu_kernel_vec;
namespace vec = at::vec;

// The elements that fill no vector are not looked at: there must be none.
template <typename T>
T scalar() {
  TORCH_CHECK(false, "an element outside of the vectors");
}

#define LOOP(name, arguments, ...)                                                    \
  void name(const Tensor& out, TensorList inputs, int64_t times) {                    \
    at::TensorIteratorConfig config;                                                  \
    config.add_output(out);                                                           \
    for (const Tensor& input : inputs) {                                              \
      config.add_const_input(input);                                                  \
    }                                                                                 \
    at::TensorIterator iter = config.build();                                         \
    AT_DISPATCH_REDUCED_FLOATING_TYPES(out.scalar_type(), #name, [&] {                \
      using T = scalar_t;                                                             \
      using V = vec::Vectorized<T>;                                                   \
      for (int64_t i = 0; i < times; ++i) {                                           \
        cpu_kernel_vec(iter, [] arguments -> T { return scalar<T>(); }, __VA_ARGS__); \
      }                                                                               \
    });                                                                               \
  }

LOOP(neg, (T), [](V x) { return x.neg(); })
LOOP(relu, (T), [low = V(0)](V x) { return vec::clamp_min(x, low); })
LOOP(relu6, (T), [low = V(0), high = V(6)](V x) { return vec::clamp(x, low, high); })
LOOP(maximum, (T, T), [](V x, V y) { return vec::maximum(x, y); })
LOOP(minimum, (T, T), [](V x, V y) { return vec::minimum(x, y); })
LOOP(clamp_min, (T, T), [](V x, V low) { return vec::clamp_min(x, low); })
LOOP(clamp_max, (T, T), [](V x, V high) { return vec::clamp_max(x, high); })
LOOP(clamp, (T, T, T), [](V x, V low, V high) { return vec::clamp(x, low, high); })
LOOP(clamp_tensor, (T, T, T), [](V x, V low, V high) {
  return vec::minimum(vec::maximum(x, low), high);
})

void amax(const Tensor& out, TensorList inputs, int64_t times) {
  Tensor result = out;
  at::TensorIterator iter = at::TensorIterator::reduce_op(result, inputs[0]);
  AT_DISPATCH_REDUCED_FLOATING_TYPES(out.scalar_type(), "amax", [&] {
    using V = vec::Vectorized<scalar_t>;
    for (int64_t i = 0; i < times; ++i) {
      binary_kernel_reduce_vec(
          iter,
          [](scalar_t x, scalar_t y) -> scalar_t { return x > y || at::_isnan(x) ? x : y; },
          [](V x, V y) { return vec::maximum(x, y); },
          -std::numeric_limits<double>::infinity());
    }
  });
}

TORCH_LIBRARY(LIBRARY, library) {
#define DEFINE(name) library.def(#name, name);
  DEFINE(neg)
  DEFINE(relu)
  DEFINE(relu6)
  DEFINE(maximum)
  DEFINE(minimum)
  DEFINE(clamp_min)
  DEFINE(clamp_max)
  DEFINE(clamp)
  DEFINE(clamp_tensor)
  DEFINE(amax)
}

} // namespace
