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

// Undefined where not wanted; summed to the sizes of `args` where there are some.
template <size_t n>
auto backward(
    const Shares<n>& shares,
    const Tensor& grad,
    const std::array<bool, n>& wanted,
    const std::array<Tensor, n>* args = nullptr) {
  std::array<Tensor, n> result;
  if (grad.defined()) {
    const auto values = shares(grad);
    for (size_t i = 0; i < n; ++i) {
      if (wanted[i]) {
        const auto& share = values[i].get(grad);
        result[i] = args ? at::sum_to(share, (*args)[i].sym_sizes()) : share;
      }
    }
  }
  return std::tuple_cat(std::move(result));
}

template <size_t n>
Tensor jvp(const Shares<n>& shares, const std::array<Tensor, n>& tangents) {
  Tensor result;
  for (size_t i = 0; i < n; ++i) {
    if (tangents[i].defined()) {
      const auto share = shares(tangents[i])[i].get(tangents[i]);
      result = result.defined() ? result + share : share;
    }
  }
  return result;
}

// Tangents in the dtype of the result.
template <size_t n>
std::array<Tensor, n> promoted(std::array<Tensor, n> tangents, const std::array<Tensor, n>& args) {
  at::native::ResultTypeState types = {};
  for (const auto& arg : args) {
    types = arg.defined() ? at::native::update_result_type_state(arg, types) : types;
  }
  for (auto& t : tangents) {
    t = t.defined() ? t.to(at::native::result_type(types)) : t;
  }
  return tangents;
}

// Arguments are compared in the dtype of the result, which is the gradient's.
Compared<TensorValue> compared_in_dtype(const Tensor& t) {
  return compared<E>(TensorValue([t](const Tensor& like) { return t.to(like.scalar_type()); }));
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
    const Tensor& self_,
    const Tensor& other_,
    bool greater_wins,
    PairKind kind,
    Convention convention,
    int64_t differentiated) {
  const auto self = compared_in_dtype(self_), other = compared_in_dtype(other_);
  const auto codes = pair_codes(kind, convention.gradient, differentiated);
  const bool nan_loses = kind == PairKind::nan_skipping_extremum;
  PairShares<TensorMask> among;
  with_constant<2>(greater_wins, [&](auto greater) {
    with_constant<2>(nan_loses, [&](auto loses) {
      constexpr bool g = decltype(greater)::value, l = decltype(loses)::value;
      among = pair_shares<g, l>(self, other, codes).shares;
    });
  });
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

// An undefined bound is absent.
Shares<3> triple_of(
    const Tensor& self,
    const Tensor& min,
    const Tensor& max,
    Convention convention,
    int64_t differentiated) {
  if (!min.defined() || !max.defined()) {
    const bool is_min = min.defined();
    // Bits of the two arguments that are there.
    const auto bits =
        (differentiated & kX) | (is_min ? differentiated & kLo : (differentiated & kHi) >> 1);
    const auto pair = pair_of(self, is_min ? min : max, is_min, PairKind::clamp, convention, bits);
    return [=](const Tensor& grad) -> std::array<TensorValue, 3> {
      const auto [of_self, of_bound] = pair(grad);
      return is_min ? std::array<TensorValue, 3>{of_self, of_bound, {}}
                    : std::array<TensorValue, 3>{of_self, {}, of_bound};
    };
  }
  const auto x = compared_in_dtype(self), lo = compared_in_dtype(min), hi = compared_in_dtype(max);
  Shares<3> result;
  if (is_pseudo(convention.gradient)) {
    const auto y = compared<E>(TensorValue([=](const Tensor& like) { // only compared with
      const auto dtype = like.scalar_type();
      return at::clamp(self.detach().to(dtype), min.detach().to(dtype), max.detach().to(dtype));
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

Shares<2> extremum_of(
    const Tensor& self,
    const Tensor& other,
    Extremum op,
    Gradient gradient,
    int64_t differentiated) {
  return pair_of(
      self, other, greater_wins(op), kind_of(op), {gradient, /*maximize=*/false}, differentiated);
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
  const std::array<Tensor, 2> args = {self, other};
  return backward<2>(extremum_of(self, other, op, gradient, differentiated), grad, wanted, &args);
}

Tensor extremum_jvp(
    const Tensor& self_t,
    const Tensor& other_t,
    const Tensor& self,
    const Tensor& other,
    Extremum op,
    Gradient gradient,
    int64_t differentiated) {
  return jvp<2>(
      extremum_of(self, other, op, gradient, differentiated),
      promoted<2>({self_t, other_t}, {self, other}));
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
  const std::array<Tensor, 3> args = {self, min, max};
  return backward<3>(
      triple_of(self, min, max, {gradient, maximize}, differentiated), grad, wanted, &args);
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
  return jvp<3>(
      triple_of(self, min, max, {gradient, false}, differentiated),
      promoted<3>({self_t, min_t, max_t}, {self, min, max}));
}

PairGradients pair_backward(
    const Tensor& grad,
    const Tensor& bits,
    Sharing sharing,
    bool clamps_from_below,
    int64_t order,
    std::array<bool, 2> wanted) {
  if (grad.defined() && takes_kernel(grad)) {
    return std::tuple_cat(decode_pair(grad, bits, sharing, clamps_from_below, order, wanted));
  }
  return backward<2>(pair_of_bits(bits, order, sharing, clamps_from_below), grad, wanted);
}

Tensor pair_jvp(
    const Tensor& self_t,
    const Tensor& other_t,
    const Tensor& bits,
    Sharing sharing,
    int64_t order) {
  check_has_tangent(sharing);
  return jvp<2>(pair_of_bits(bits, order, sharing, false), {self_t, other_t});
}

TripleGradients triple_backward(
    const Tensor& grad,
    const Tensor& bits,
    Sharing sharing,
    int64_t order,
    std::array<bool, 3> wanted) {
  if (grad.defined() && takes_kernel(grad)) {
    return std::tuple_cat(decode_triple(grad, bits, sharing, order, wanted));
  }
  return backward<3>(triple_of_bits(bits, order, sharing), grad, wanted);
}

Tensor triple_jvp(
    const Tensor& self_t,
    const Tensor& min_t,
    const Tensor& max_t,
    const Tensor& bits,
    Sharing sharing,
    int64_t order) {
  check_has_tangent(sharing);
  return jvp<3>(triple_of_bits(bits, order, sharing), {self_t, min_t, max_t});
}

} // namespace clampgrad
