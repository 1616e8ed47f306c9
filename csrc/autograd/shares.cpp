#include "autograd/shares.h"

#include "Operators.h"
#include "autograd/composed.h"
#include "autograd/formulas.h"
#include "kernels/constant.h"
#include "kernels/fused.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/clamp.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

namespace clampgrad {

namespace {

using namespace composed;
using at::Tensor;
using E = TensorElement;

bool is_differentiated(const Tensor& t) {
  return t.defined() &&
      ((at::GradMode::is_enabled() && t.requires_grad()) || torch::autograd::isFwGradDefined(t));
}

// What each of n arguments gets of a gradient. The transpose is the tangent: the sum of what each
// argument would get of its own.
template <size_t n>
using Shares = std::function<std::array<TensorValue, n>(const Tensor& grad)>;

template <size_t n>
std::array<Tensor, n> gradients(
    const Shares<n>& shares, const Tensor& grad, const std::array<bool, n>& wanted) {
  const auto values = shares(grad);
  std::array<Tensor, n> result;
  for (size_t i = 0; i < n; ++i) {
    result[i] = wanted[i] ? values[i].get(grad) : Tensor();
  }
  return result;
}

template <size_t n>
Tensor tangent(const Shares<n>& shares, const std::array<Tensor, n>& tangents) {
  Tensor result;
  for (size_t i = 0; i < n; ++i) {
    if (tangents[i].defined()) {
      const auto share = shares(tangents[i])[i].get(tangents[i]);
      result = result.defined() ? result + share : share;
    }
  }
  return result;
}

Compared<TensorValue> compared_in(at::ScalarType dtype, const Tensor& t) {
  return compared<E>(TensorValue(t.to(dtype)));
}

template <Sharing sharing>
TensorValue pushed_by_operator(const Tensor& grad, const Position<TensorMask>& at) {
  if constexpr (sharing == Sharing::straight_through) {
    return grad;
  } else {
    return LazyTensor::Compute(
        [at](const Tensor& grad) { return pseudo_gradient_at(grad, at, gate_of(sharing)); });
  }
}

// ---- Two arguments ------------------------------------------------------------------------------

template <Sharing sharing>
Shares<2> shares_in(const PairShares<TensorMask>& among, bool clamps_from_below) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 2> {
    const auto of = shared<E>(TensorValue(grad), among);
    if constexpr (is_pseudo(sharing)) {
      const auto at = position_in_pair(among.self, among.other, clamps_from_below);
      return {pushed_by_operator<sharing>(grad, at), of.other};
    }
    return {of.self, of.other};
  };
}

Shares<2> pair_of(
    const Compared<TensorValue>& self,
    const Compared<TensorValue>& other,
    bool greater_wins,
    PairKind kind,
    Convention convention,
    int64_t differentiated) {
  const auto codes = pair_codes(kind, convention.gradient, differentiated);
  const bool nan_loses = kind == PairKind::nan_skipping_extremum;
  const auto among = greater_wins ? nan_loses ? pair_shares<true, true>(self, other, codes).shares
                                              : pair_shares<true, false>(self, other, codes).shares
      : nan_loses                 ? pair_shares<false, true>(self, other, codes).shares
                                  : pair_shares<false, false>(self, other, codes).shares;
  Shares<2> result;
  with_constant<kSharings>(pair_sharing(convention, codes), [&](auto sharing) {
    result = shares_in<decltype(sharing)::value>(among, greater_wins);
  });
  return result;
}

Shares<2> pair_of_bits(const Tensor& bits, int64_t order, Sharing s, bool clamps_from_below) {
  const RecordedBits in = {bits, 2, order};
  Shares<2> result;
  with_constant<kSharings>(s, [&](auto sharing) {
    constexpr Sharing s = decltype(sharing)::value;
    const auto among = pair_in<s>(kFirstBit, kSecondBit);
    result = shares_in<s>(
        PairShares<TensorMask>{in(among.self), in(among.other), in(among.halved)},
        clamps_from_below);
  });
  return result;
}

// ---- Three arguments ----------------------------------------------------------------------------

Shares<3> shares_in(const TripleShares<TensorMask>& among) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
    const auto of = shared<E>(TensorValue(grad), among);
    return {of.x, of.lo, of.hi};
  };
}

template <Sharing sharing>
Shares<3> shares_in(const Beyond<TensorMask>& at) {
  return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
    const auto bounds = of_bounds<E>(TensorValue(grad), at);
    return {pushed_by_operator<sharing>(grad, at.x), bounds.self, bounds.other};
  };
}

OptionalTensor in_dtype(at::ScalarType dtype, const Tensor& t) {
  return t.defined() ? OptionalTensor(t.detach().to(dtype)) : std::nullopt;
}

// An undefined bound is absent.
Shares<3> triple_of(
    const Tensor& self,
    const Tensor& min,
    const Tensor& max,
    at::ScalarType dtype,
    Convention convention,
    int64_t differentiated) {
  const auto x = compared_in(dtype, self);
  if (!min.defined() || !max.defined()) {
    const bool is_min = min.defined();
    // Bits of the two arguments that are there.
    const auto bits =
        (differentiated & kX) | (is_min ? differentiated & kLo : (differentiated & kHi) >> 1);
    const auto pair = pair_of(
        x, compared_in(dtype, is_min ? min : max), is_min, PairKind::clamp, convention, bits);
    return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
      const auto [of_self, of_bound] = pair(grad);
      return is_min ? std::array<TensorValue, 3>{of_self, of_bound, {}}
                    : std::array<TensorValue, 3>{of_self, {}, of_bound};
    };
  }
  const auto lo = compared_in(dtype, min), hi = compared_in(dtype, max);
  Shares<3> result;
  if (is_pseudo(convention.gradient)) {
    const auto y = compared<E>(TensorValue([=](const Tensor&) { // only compared with
      return at::clamp(*in_dtype(dtype, self), in_dtype(dtype, min), in_dtype(dtype, max));
    }));
    with_constant<kSharings>(triple_sharing(convention), [&](auto sharing) {
      result = shares_in<decltype(sharing)::value>(beyond_bounds(x, lo, hi, y, differentiated));
    });
  } else {
    with_constant<kTripleRules>(triple_rule(convention.gradient), [&](auto constant) {
      constexpr TripleRule rule = decltype(constant)::value;
      if constexpr (rule != TripleRule::pseudo) {
        result = shares_in(triple_shares<rule>(x, lo, hi, differentiated));
      }
    });
  }
  return result;
}

Shares<3> triple_of_bits(const Tensor& bits, int64_t order, Sharing s) {
  const RecordedBits in = {bits, 3, order};
  const Triple<CodeMask> code = {kFirstBit, kSecondBit, kThirdBit};
  Shares<3> result;
  with_constant<kSharings>(s, [&](auto sharing) {
    constexpr Sharing s = decltype(sharing)::value;
    if constexpr (is_pseudo(s)) {
      const auto [x, lo, hi, halved] = beyond_in(code);
      result = shares_in<s>(
          Beyond<TensorMask>{{in(x.inside), in(x.below), in(x.above)}, in(lo), in(hi), in(halved)});
    } else {
      const auto [x, lo, hi, two, three, nested, none] = triple_in<s>(code);
      result = shares_in(
          TripleShares<TensorMask>{in(x), in(lo), in(hi), in(two), in(three), in(nested)});
    }
  });
  return result;
}

// ---- Dtypes and shapes --------------------------------------------------------------------------

// Arguments are compared in the dtype of the result.
template <size_t n>
at::ScalarType result_dtype(const std::array<Tensor, n>& args) {
  std::vector<Tensor> defined;
  std::copy_if(args.begin(), args.end(), std::back_inserter(defined), [](const Tensor& t) {
    return t.defined();
  });
  return at::native::result_type(defined);
}

Tensor to(at::ScalarType dtype, const Tensor& t) {
  return t.defined() ? t.to(dtype) : t;
}

template <size_t n>
std::array<Tensor, n> reduced(std::array<Tensor, n> grads, const std::array<Tensor, n>& args) {
  for (size_t i = 0; i < n; ++i) {
    grads[i] = grads[i].defined() ? at::sum_to(grads[i], args[i].sym_sizes()) : grads[i];
  }
  return grads;
}

PairGradients as_tuple(const std::array<Tensor, 2>& t) {
  return {t[0], t[1]};
}
TripleGradients as_tuple(const std::array<Tensor, 3>& t) {
  return {t[0], t[1], t[2]};
}

} // namespace

int64_t differentiated_inputs(const Tensor& self, const Tensor& other) {
  return is_differentiated(self) | is_differentiated(other) << 1;
}

int64_t differentiated_inputs(
    const Tensor& self, const OptionalTensor& min, const OptionalTensor& max) {
  return is_differentiated(self) | is_differentiated(min.value_or(Tensor())) << 1 |
      is_differentiated(max.value_or(Tensor())) << 2;
}

PairGradients extremum_backward(
    const Tensor& grad,
    const Tensor& self,
    const Tensor& other,
    Extremum op,
    Gradient gradient,
    int64_t differentiated,
    std::array<bool, 2> wanted) {
  if (!grad.defined()) {
    return {};
  }
  const auto dtype = grad.scalar_type();
  const auto shares = pair_of(
      compared_in(dtype, self),
      compared_in(dtype, other),
      greater_wins(op),
      kind_of(op),
      {gradient, false},
      differentiated);
  return as_tuple(reduced<2>(gradients<2>(shares, grad, wanted), {self, other}));
}

Tensor extremum_jvp(
    const Tensor& self_t,
    const Tensor& other_t,
    const Tensor& self,
    const Tensor& other,
    Extremum op,
    Gradient gradient,
    int64_t differentiated) {
  const auto dtype = result_dtype<2>({self, other});
  const auto shares = pair_of(
      compared_in(dtype, self),
      compared_in(dtype, other),
      greater_wins(op),
      kind_of(op),
      {gradient, false},
      differentiated);
  return tangent<2>(shares, {self_t.to(dtype), other_t.to(dtype)});
}

TripleGradients clamp_tensors_backward(
    const Tensor& grad,
    const Tensor& self,
    const Tensor& min,
    const Tensor& max,
    Gradient gradient,
    bool maximize,
    int64_t differentiated,
    std::array<bool, 3> wanted) {
  if (!grad.defined()) {
    return {};
  }
  const auto shares =
      triple_of(self, min, max, grad.scalar_type(), {gradient, maximize}, differentiated);
  return as_tuple(reduced<3>(gradients<3>(shares, grad, wanted), {self, min, max}));
}

Tensor clamp_tensors_jvp(
    const Tensor& self_t,
    const Tensor& min_t,
    const Tensor& max_t,
    const Tensor& self,
    const Tensor& min,
    const Tensor& max,
    Gradient gradient,
    int64_t differentiated) {
  check_has_tangent(triple_sharing({gradient, false}));
  const auto dtype = result_dtype<3>({self, min, max});
  const auto shares = triple_of(self, min, max, dtype, {gradient, false}, differentiated);
  return tangent<3>(shares, {self_t.to(dtype), to(dtype, min_t), to(dtype, max_t)});
}

PairGradients pair_backward(
    const Tensor& grad,
    const Tensor& bits,
    Sharing sharing,
    bool clamps_from_below,
    int64_t order,
    std::array<bool, 2> wanted) {
  if (!grad.defined()) {
    return {};
  }
  if (takes_kernel(grad)) {
    return as_tuple(decode_pair(grad, bits, sharing, clamps_from_below, order, wanted));
  }
  return as_tuple(
      gradients<2>(pair_of_bits(bits, order, sharing, clamps_from_below), grad, wanted));
}

Tensor pair_jvp(
    const Tensor& self_t,
    const Tensor& other_t,
    const Tensor& bits,
    Sharing sharing,
    int64_t order) {
  check_has_tangent(sharing);
  return tangent<2>(pair_of_bits(bits, order, sharing, false), {self_t, other_t});
}

TripleGradients triple_backward(
    const Tensor& grad,
    const Tensor& bits,
    Sharing sharing,
    int64_t order,
    std::array<bool, 3> wanted) {
  if (!grad.defined()) {
    return {};
  }
  if (takes_kernel(grad)) {
    return as_tuple(decode_triple(grad, bits, sharing, order, wanted));
  }
  return as_tuple(gradients<3>(triple_of_bits(bits, order, sharing), grad, wanted));
}

Tensor triple_jvp(
    const Tensor& self_t,
    const Tensor& min_t,
    const Tensor& max_t,
    const Tensor& bits,
    Sharing sharing,
    int64_t order) {
  check_has_tangent(sharing);
  return tangent<3>(triple_of_bits(bits, order, sharing), {self_t, min_t, max_t});
}

} // namespace clampgrad
