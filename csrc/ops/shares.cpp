#include "autograd/formulas.h"

#include "Operators.h"
#include "autograd/composed.h"
#include "kernels/constant.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/clamp.h>

#include <type_traits>

namespace clampgrad {

namespace {

using namespace composed;
using at::Tensor;
using E = TensorElement;

// What each of n arguments gets of a gradient. The transpose is the tangent: the sum of what each
// argument would get of its own.
template <size_t n>
using Shares = std::function<std::array<TensorValue, n>(const Tensor& grad)>;

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
  const auto among = with_constant<2>(greater_wins, [&](auto greater) {
    return with_constant<2>(nan_loses, [&](auto loses) {
      constexpr bool g = decltype(greater)::value, l = decltype(loses)::value;
      return pair_shares<g, l>(self, other, codes).shares;
    });
  });
  return with_constant<kSharings>(pair_sharing(convention, codes), [&](auto sharing) {
    return shares_in<decltype(sharing)::value>(among, greater_wins);
  });
}

Shares<2> shares(const RecordedPair& of) {
  const RecordedBits in = {of.bits, 2, of.order};
  return with_constant<kSharings>(of.call.sharing, [&](auto sharing) {
    constexpr Sharing s = decltype(sharing)::value;
    const auto among = pair_in<s>(kFirstBit, kSecondBit);
    return shares_in<s>(
        PairShares<TensorMask>{in(among.self), in(among.other), in(among.halved)},
        of.call.clamps_from_below);
  });
}

Shares<2> shares(const ExtremumShares& of) {
  const Convention convention = {of.gradient, /*maximize=*/false};
  return pair_of(
      of.args[0], of.args[1], greater_wins(of.op), kind_of(of.op), convention, of.differentiated);
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

Shares<3> shares(const ClampShares& of) {
  const auto &self = of.args[0], &min = of.args[1], &max = of.args[2];
  const auto convention = of.convention;
  const auto differentiated = of.differentiated;
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
  if (is_pseudo(convention.gradient)) {
    const auto y = compared<E>(TensorValue([=](const Tensor& like) { // only compared with
      const auto dtype = like.scalar_type();
      return at::clamp(self.detach().to(dtype), min.detach().to(dtype), max.detach().to(dtype));
    }));
    return with_constant<kSharings>(triple_sharing(convention), [&](auto sharing) {
      return shares_in<decltype(sharing)::value>(beyond_bounds(x, lo, hi, y, differentiated));
    });
  }
  return with_constant<kGradients>(convention.gradient, [&](auto constant) {
    constexpr Gradient rule = decltype(constant)::value;
    if constexpr (is_pseudo(rule)) {
      return Shares<3>(); // see above
    } else {
      return shares_in(triple_shares<rule>(x, lo, hi, differentiated));
    }
  });
}

Shares<3> shares(const RecordedTriple& of) {
  const RecordedBits in = {of.bits, 3, of.order};
  const Triple<CodeMask> code = {kFirstBit, kSecondBit, kThirdBit};
  return with_constant<kSharings>(of.call.sharing, [&](auto sharing) {
    constexpr Sharing s = decltype(sharing)::value;
    if constexpr (is_pseudo(s)) {
      const auto [x, lo, hi, halved] = beyond_in(code);
      return shares_in<s>(
          Beyond<TensorMask>{{in(x.inside), in(x.below), in(x.above)}, in(lo), in(hi), in(halved)});
    } else {
      const auto [x, lo, hi, two, three, nested, none] = triple_in<s>(code);
      return shares_in(
          TripleShares<TensorMask>{in(x), in(lo), in(hi), in(two), in(three), in(nested)});
    }
  });
}

// ---- Of any -------------------------------------------------------------------------------------

Sharing sharing_of(const ExtremumShares&) {
  return Sharing::equal; // or another one that is linear
}
Sharing sharing_of(const ClampShares& of) {
  return triple_sharing(of.convention);
}
template <typename Recorded>
Sharing sharing_of(const Recorded& of) {
  return of.call.sharing;
}

template <typename Of>
constexpr bool reads_bits = std::is_same_v<Of, RecordedPair> || std::is_same_v<Of, RecordedTriple>;

// In the dtype of the result.
template <size_t n>
std::array<Tensor, n> promoted(std::array<Tensor, n> tangents, const std::array<Tensor, n>& args) {
  const auto dtype = at::native::result_type(at::TensorList(args.data(), n));
  for (auto& t : tangents) {
    t = t.defined() ? t.to(dtype) : t;
  }
  return tangents;
}

} // namespace

template <typename Of, size_t n>
std::array<Tensor, n> gradients(
    const Of& of, const Tensor& grad, const std::array<bool, n>& wanted) {
  std::array<Tensor, n> result;
  if (!grad.defined()) {
    return result;
  }
  if constexpr (reads_bits<Of>) {
    if (takes_kernel(grad)) {
      return decode(of, grad, wanted);
    }
  }
  const auto values = shares(of)(grad);
  for (size_t i = 0; i < n; ++i) {
    if (wanted[i]) {
      result[i] = values[i].get(grad);
      if constexpr (!reads_bits<Of>) {
        result[i] = at::sum_to(result[i], of.args[i].sym_sizes());
      }
    }
  }
  return result;
}

template <typename Of, size_t n>
Tensor tangent(const Of& of, std::array<Tensor, n> tangents) {
  check_has_tangent(sharing_of(of));
  if constexpr (!reads_bits<Of>) {
    tangents = promoted(std::move(tangents), of.args);
  }
  const auto shares_of = shares(of);
  Tensor result;
  for (size_t i = 0; i < n; ++i) {
    if (tangents[i].defined()) {
      const auto share = shares_of(tangents[i])[i].get(tangents[i]);
      result = result.defined() ? result + share : share;
    }
  }
  return result;
}

#define CLAMPGRAD_SHARES(Of, n)                                                                   \
  template std::array<Tensor, n> gradients(const Of&, const Tensor&, const std::array<bool, n>&); \
  template Tensor tangent(const Of&, std::array<Tensor, n>);
CLAMPGRAD_SHARES(ExtremumShares, 2)
CLAMPGRAD_SHARES(ClampShares, 3)
CLAMPGRAD_SHARES(RecordedPair, 2)
CLAMPGRAD_SHARES(RecordedTriple, 3)
#undef CLAMPGRAD_SHARES

} // namespace clampgrad
