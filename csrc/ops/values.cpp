#include "ops/values.h"

#include "Kernels.h"
#include "kernels/fused.h"
#include "kernels/values.h"
#include "ops/front_doors.h"
#include "ops/record.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace clampgrad {

using at::Tensor;

namespace {

bool flushes_subnormals() {
#if defined(__SSE2__)
  constexpr unsigned kDenormalsAreZero = 0x0040, kFlushToZero = 0x8000;
  return _mm_getcsr() & (kDenormalsAreZero | kFlushToZero);
#else
  return false;
#endif
}

// Before torch 2.13, a tensor may have names, which ATen hands on.
template <typename T>
auto has_names(const T& t, int) -> decltype(t.has_names()) {
  return t.has_names();
}
template <typename T>
bool has_names(const T&, long) {
  return false;
}

// Whether fmax and fmin return the last of +0 and -0. This is up to the C library and the compiler
// that torch was built with, so torch is tried.
bool fmax_selects_last(at::ScalarType dtype) {
  const auto selects_last = [](at::ScalarType of) {
    return call_hidden_from_modes([&] {
      const Tensor zero = at::zeros({1}, of);
      return at::fmax(zero, zero.neg()).signbit().item<bool>();
    });
  };
  static const bool of_half = selects_last(at::kHalf), of_bfloat16 = selects_last(at::kBFloat16);
  return dtype == at::kHalf ? of_half : of_bfloat16;
}

void count_write(const Tensor& out) {
  if (out.defined() && !out.is_inference()) {
    torch::autograd::increment_version(out);
  }
}

template <typename Call>
Tensor compute_into(const Call& call, const Tensor& out, at::TensorList args) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(true).add_owned_output(out);
  for (const auto& t : args) {
    config.add_owned_const_input(t);
  }
  auto iter = call_hidden_from_modes([&] { return config.build(); });
  compute_values(call, iter);
  count_write(out);
  return iter.output();
}

} // namespace

// ---- Whether our kernel computes the values -----------------------------------------------------

bool values::is_unobserved() {
  return !flushes_subnormals() && !at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
}

bool values::is_computable(const Tensor& self) {
#if defined(__x86_64__) // elsewhere nobody has compared the values with ATen's
  return self.is_cpu() && is_fusable_dtype(self.scalar_type()) && is_plain(self) &&
      !has_names(self, 0);
#else
  return false;
#endif
}

// Kernels take neither a NaN, which is the result everywhere, nor what torch may refuse.
bool values::is_computable(const Tensor& self, const at::Scalar& bound) {
  return !bound.isSymbolic() && !bound.isComplex() && !is_nan(bound) && !overflows(bound, self);
}

bool values::is_computable(const Tensor& self, const Tensor& bound) {
  return !bound.defined() ||
      (at::isReducedFloatingType(self.scalar_type()) && bound.scalar_type() == self.scalar_type() &&
       is_computable(bound));
}

bool values::is_writable(const Tensor& out, at::ScalarType dtype) {
  return is_computable(out) && out.scalar_type() == dtype && !is_differentiated(out) &&
      (!out.is_inference() || c10::InferenceMode::is_enabled());
}

// ---- By our kernel -----------------------------------------------------------------------------

Tensor values::compute(
    const Tensor& out, const Tensor& self, const OptionalScalar& min, const OptionalScalar& max) {
  const auto call = number_values(self, min, max);
  if (!self.is_contiguous() || (out.defined() && !out.is_same(self))) {
    return compute_into(call, out, self);
  }
  const auto y = out.defined() ? out : call_hidden_from_modes([&] { return empty_result(self); });
  compute_values(call, self, y);
  count_write(out);
  return y;
}

Tensor values::compute(
    const Tensor& out, const Tensor& self, const OptionalTensor& min, const OptionalTensor& max) {
  if (is_given(min) && is_given(max)) {
    return compute_into(TensorValues<3>(), out, {self, *min, *max});
  }
  return is_given(min) ? compute(out, PairOperator::clamp_min, self, *min)
                       : compute(out, PairOperator::clamp_max, self, *max);
}

Tensor values::compute(
    const Tensor& out, PairOperator op, const Tensor& self, const Tensor& other) {
  const bool last = skips_nan(op) && fmax_selects_last(self.scalar_type());
  return compute_into(TensorValues<2>{op, last}, out, {self, other});
}

// ---- By our kernel or ATen's -------------------------------------------------------------------

Tensor values::extremum(PairOperator op, const Tensor& self, const Tensor& other) {
  return are_computable(self, other) ? compute({}, op, self, other)
                                     : aten_extremum(op, self, other);
}

Tensor& values::extremum_out(
    PairOperator op, Tensor& out, const Tensor& self, const Tensor& other) {
#define CLAMPGRAD_ATEN(name) at::name##_out,
  constexpr Tensor& (*kAten[])(
      Tensor&, const Tensor&, const Tensor&) = {CLAMPGRAD_EXTREMA(CLAMPGRAD_ATEN)};
#undef CLAMPGRAD_ATEN
  if (!are_computable_in(out, self, other)) {
    return kAten[static_cast<size_t>(op)](out, self, other);
  }
  compute(out, op, self, other);
  return out;
}

} // namespace clampgrad
