#include "kernels/fused.h"

#include "Kernels.h"
#include "kernels/cpu/loops.h"
#include "kernels/cpu/threads.h"
#include "kernels/dim_order.h"
#include "kernels/rules/conventions.h"

#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/Version.h>

#include <algorithm>

namespace clampgrad {

using at::Tensor;

namespace {

// ---- On every device ----------------------------------------------------------------------------

// The loop for the instruction set that ATen uses here; the environment variable
// ATEN_CPU_CAPABILITY can lower it.
template <typename T, typename Call>
Loop<T, Call> best_loop() {
#if defined(CLAMPGRAD_X86_SETS)
  const auto capability = at::get_cpu_capability();
  if (capability == "AVX512") {
    return avx512::loop<T, Call>();
  }
  if (capability == "AVX2") {
    return avx2::loop<T, Call>();
  }
#endif
  return baseline::loop<T, Call>();
}

// Calls the kernel of a device. base/path.cpp lets no others through.
template <typename Call>
void run(
    c10::Device device, at::ScalarType dtype, const BuffersOf<Call>& memory, const Call& call) {
#if defined(CLAMPGRAD_WITH_CUDA)
  if (device.is_cuda()) {
    return cuda::run(device, dtype, memory, call);
  }
#endif
  TORCH_INTERNAL_ASSERT(device.is_cpu());
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "clampgrad", [&] {
    static const auto loop = best_loop<scalar_t, Call>();
    const auto s = lanes_of<Lane<scalar_t>>(memory);
    cpu::in_threads(words(s.n), [&](int64_t begin, int64_t end) { loop(s, call, begin, end); });
  });
}

// ---- Forward ------------------------------------------------------------------------------------

int bits_of(const NumberForward& call) {
  return bits_per_element(number_rule(call.convention.gradient));
}
int bits_of(const NumberBackward& call) {
  return bits_per_element(number_rule(call.convention.gradient));
}
template <typename Call> // of Tensors: one for each argument
int bits_of(const Call&) {
  return Call::kIn * Call::kOut;
}

// Writes y and returns the bits.
template <typename Call, typename... In>
Tensor run_forward(const Call& call, const Tensor& y, const In&... in) {
  const auto n = y.numel();
  const c10::SymInt bytes = bytes_of_bits(bits_of(call), n);
  auto bits = empty_in_dim_order(bytes, kContiguous, y.options().dtype(at::kByte));
  // Asked for before the inputs: in place they share memory with y, and copy-on-write may move it.
  auto* out = y.mutable_data_ptr();
  auto* to = static_cast<uint64_t*>(bits.mutable_data_ptr());
  const BuffersOf<Call> memory = {
      {in.tensor.const_data_ptr()...}, {words(in.period)...}, {out}, to, n};
  run(y.device(), y.scalar_type(), memory, call);
  return bits;
}

template <typename T>
Lane<T> lane(T value) {
  if constexpr (sizeof(T) == 2) {
    return value.x;
  } else {
    return value;
  }
}

NumberForward number_forward(const Tensor& x, const Number& min, const Number& max, Convention c) {
  NumberForward call = {0, 0, min.has_value(), max.has_value(), c};
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "clamp", [&] {
    const auto in_lane = [&](const Number& bound) {
      return bound ? lane(in_dtype(bound, x)->to<scalar_t>()) : Lane<scalar_t>();
    };
    call.lo = in_lane(min);
    call.hi = in_lane(max);
  });
  return call;
}

} // namespace

template <typename Call, typename... Others>
std::tuple<Tensor, Tensor> fused_forward(
    const Call& call, int64_t dim_order, const Tensor& self, const Others&... others) {
  // As TensorIterator does: the strides of the arguments where they agree.
  const bool alike = dim_order != kContiguous && (... && (others.strides() == self.strides()));
  auto y = alike ? empty_like_in_dim_order(self, dim_order)
                 : empty_in_dim_order(self.sym_sizes(), dim_order, self.options());
  auto bits = run_forward(
      call, y, repeated_in_dim_order(self, dim_order), repeated_in_dim_order(others, dim_order)...);
  return {std::move(y), std::move(bits)};
}

std::tuple<Tensor, Tensor> clamp_forward(
    const Tensor& self, const Number& min, const Number& max, Convention c, int64_t dim_order) {
  if (dim_order_of(self) != dim_order) { // it is not dense
    const auto y = self.clone();
    return {y, clamp_forward_(y, min, max, c, dim_order)};
  }
  return fused_forward(number_forward(self, min, max, c), dim_order, self);
}

Tensor clamp_forward_(
    const Tensor& self, const Number& min, const Number& max, Convention c, int64_t dim_order) {
  at::assert_no_internal_overlap(self);
  const auto view = permuted(self, dim_order);
  const auto x = view.contiguous();
  const auto bits = run_forward(number_forward(x, min, max, c), x, Repeated{x, x.numel()});
  if (!x.is_alias_of(self)) {
    view.copy_(x);
  }
  return bits;
}

template std::tuple<Tensor, Tensor> fused_forward(
    const PairForward&, int64_t, const Tensor&, const Tensor&);
template std::tuple<Tensor, Tensor> fused_forward(
    const TripleForward&, int64_t, const Tensor&, const Tensor&, const Tensor&);

// ---- Backward -----------------------------------------------------------------------------------

namespace {

// The bits of the elements of `of`, after a check that this is what was saved: a saved-tensor hook
// may move or cast it.
c10::MaybeOwned<Tensor> checked_bits(const Tensor& bits, const Tensor& of, int per_element) {
  const auto bytes = bytes_of_bits(per_element, of.numel());
  TORCH_CHECK(
      bits.scalar_type() == at::kByte && bits.is_contiguous() && bits.numel() == bytes &&
          bits.device() == of.device(),
      "clampgrad: what was saved for ",
      of.numel(),
      " elements on ",
      of.device(),
      " came back as ",
      bits.toString(),
      " of ",
      bits.numel(),
      " elements on ",
      bits.device(),
      " instead of ",
      bytes,
      " bytes; a saved-tensor hook must return what it was given");
  // Kernels read whole words, and what a hook returns may begin at any byte.
  const bool aligned = reinterpret_cast<uintptr_t>(bits.const_data_ptr()) % alignof(uint64_t) == 0;
  return aligned ? c10::MaybeOwned<Tensor>::borrowed(bits)
                 : c10::MaybeOwned<Tensor>::owned(bits.clone());
}

const uint64_t* words_of(const c10::MaybeOwned<Tensor>& bits) {
  return static_cast<const uint64_t*>(bits->const_data_ptr());
}

} // namespace

template <typename Call>
std::array<Tensor, Call::kOut> fused_backward(
    const Saved<Call>& of, const Tensor& grad, const std::array<bool, Call::kOut>& wanted) {
  const auto [g, period] = repeated_in_dim_order(grad, of.dim_order);
  const auto bits = checked_bits(of.bits, grad, bits_of(of.call));
  BuffersOf<Call> memory = {
      {g.const_data_ptr()}, {words(period)}, {}, words_of(bits), grad.numel()};
  std::array<Tensor, Call::kOut> to;
  for (int i = 0; i < Call::kOut; ++i) {
    if (wanted[i]) {
      to[i] = empty_in_dim_order(grad.sym_sizes(), of.dim_order, grad.options());
      memory.out[i] = to[i].mutable_data_ptr();
    }
  }
  run(grad.device(), grad.scalar_type(), memory, of.call);
  return to;
}

template std::array<Tensor, 1> fused_backward(
    const Saved<NumberBackward>&, const Tensor&, const std::array<bool, 1>&);
template std::array<Tensor, 2> fused_backward(
    const Saved<PairBackward>&, const Tensor&, const std::array<bool, 2>&);
template std::array<Tensor, 3> fused_backward(
    const Saved<TripleBackward>&, const Tensor&, const std::array<bool, 3>&);

// ---- As operators -------------------------------------------------------------------------------

namespace native {

namespace {

void unpack(int64_t n, const uint64_t* bits, int per_element, int64_t values, bool* mask) {
  cpu::in_threads(words(n), [&](int64_t begin, int64_t end) {
    for (int64_t w = begin; w < end; ++w) {
      uint64_t chosen = 0;
      for (int v = 0; v < 1 << per_element; ++v) {
        uint64_t here = -(values >> v & 1); // everywhere, if v is one of them
        for (int b = 0; b < per_element; ++b) {
          here &= bits[b * words(n) + w] ^ ((v >> b & 1) - uint64_t{1});
        }
        chosen |= here;
      }
      const auto count = std::min(n - w * kWord, kWord);
      for (int64_t i = 0; i < count; ++i) {
        mask[w * kWord + i] = chosen >> i & 1;
      }
    }
  });
}

} // namespace

Tensor mask(
    const Tensor& bits,
    c10::SymIntArrayRef size,
    int64_t values,
    int64_t bits_per_element,
    int64_t dim_order) {
  TORCH_CHECK_VALUE(
      bits_per_element >= 1 && bits_per_element <= 3,
      "clampgrad: nothing has ",
      bits_per_element,
      " bits per element");
  const auto mask = empty_in_dim_order(size, dim_order, bits.options().dtype(at::kBool));
  if (mask.is_meta()) {
    return mask;
  }
  const auto count = static_cast<int>(bits_per_element);
  const auto saved = checked_bits(bits, mask, count);
  auto* to = mask.mutable_data_ptr<bool>();
#if defined(CLAMPGRAD_WITH_CUDA)
  if (mask.is_cuda()) {
    cuda::unpack(mask.device(), mask.numel(), words_of(saved), count, values, to);
    return mask;
  }
#endif
  unpack(mask.numel(), words_of(saved), count, values, to);
  return mask;
}

} // namespace native
} // namespace clampgrad
