#include "autograd/shares.h"

#include "Operators.h"
#include "autograd/formulas.h"
#include "autograd/kernels.h"
#include "ops/sharing.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/VariableTypeUtils.h>

namespace clampgrad {

namespace {

using at::Tensor;

bool is_differentiated(const Tensor& t) {
  return t.defined() &&
      ((at::GradMode::is_enabled() && t.requires_grad()) || torch::autograd::isFwGradDefined(t));
}

bool has(int64_t differentiated, int argument) {
  return (differentiated >> argument & 1) != 0;
}

Tensor both(const Tensor& a, const Tensor& b) {
  return a.logical_and(b);
}

Tensor either(const Tensor& a, const Tensor& b) {
  return a.logical_or(b);
}

// The share of one argument: where a mask holds, one part in `divisor`; the masks exclude each
// other.
struct Share {
  struct Part {
    Tensor where;
    int64_t divisor;
  };
  std::vector<Part> parts;

  // That share of a gradient, or of a tangent. Selects: elsewhere it is an exact 0.
  Tensor of(const Tensor& t) const {
    Tensor result;
    for (const auto& part : parts) {
      const auto scaled = part.divisor == 1 ? t : t / part.divisor;
      result = result.defined() ? at::where(part.where, scaled, result)
                                : at::where(part.where, scaled, 0);
    }
    return result;
  }
};

// ---- Two arguments ------------------------------------------------------------------------------

std::array<Share, 2> pair_shares(
    Tensor self, Tensor other, bool greater_wins, Kind kind, PairRule rule) {
  auto wins = greater_wins ? self.gt(other) : self.lt(other);
  auto loses = greater_wins ? self.lt(other) : self.gt(other);
  const auto tie = self.eq(other);
  if (kind == Kind::nan_skipping_extremum) {
    const auto self_nan = self.isnan(), other_nan = other.isnan();
    wins = either(wins, both(other_nan, self_nan.logical_not()));
    loses = either(loses, both(self_nan, other_nan.logical_not()));
  }
  if (rule.tie == Tie::to_self) {
    wins = either(wins, tie);
  }
  if (rule.nan != NaN::none) {
    const auto nan = either(either(wins, loses), tie).logical_not();
    wins = either(wins, nan);
    loses = rule.nan == NaN::to_both ? either(loses, nan) : loses;
  }
  std::array<Share, 2> shares = {Share{{{wins, 1}}}, Share{{{loses, 1}}}};
  if (rule.tie == Tie::shared) {
    for (auto& share : shares) {
      share.parts.push_back({tie, 2});
    }
  }
  return shares;
}

std::array<Share, 2> extremum_shares(
    const Tensor& self,
    const Tensor& other,
    Extremum op,
    Gradient gradient,
    int64_t differentiated) {
  const auto kind = kind_of(op);
  return pair_shares(
      self, other, greater_wins(op), kind, pair_rule(kind, gradient, differentiated));
}

// ---- Three arguments ----------------------------------------------------------------------------

using Shares = std::array<Share, 3>;

// The inputs that the forward selects in every neighbourhood of the point; none at NaN.
std::array<Tensor, 3> active_inputs(const Tensor& x, const Tensor& lo, const Tensor& hi) {
  const auto number = either(either(x.isnan(), lo.isnan()), hi.isnan()).logical_not();
  return {
      both(x.ge(lo), x.le(hi)),
      both(lo.ge(x), lo.le(hi)),
      both(number, either(hi.le(x), hi.le(lo)))};
}

Shares min_norm_shares(
    const Tensor& x, const Tensor& lo, const Tensor& hi, int64_t differentiated) {
  const auto active = active_inputs(x, lo, hi);
  const auto count = active[0].to(at::kChar) + active[1].to(at::kChar) + active[2].to(at::kChar);
  const auto alone = count.eq(1);
  // A constant among several active inputs makes 0 a subgradient.
  Tensor shared = count.gt(1);
  for (int i = 0; i < 3; ++i) {
    if (!has(differentiated, i)) {
      shared = both(shared, active[i].logical_not());
    }
  }
  const auto two = both(shared, count.eq(2)), three = both(shared, count.eq(3));
  Shares shares;
  for (int i = 0; i < 3; ++i) {
    shares[i].parts = {{both(active[i], alone), 1}, {both(active[i], two), 2}, {three, 3}};
  }
  return shares;
}

// PyTorch up to 2.13.
Shares inclusive_shares(const Tensor& x, const Tensor& lo, const Tensor& hi) {
  return {
      Share{{{both(x.ge(lo), x.le(hi)), 1}}},
      Share{{{both(x.lt(lo), lo.lt(hi)), 1}}},
      Share{{{either(x.gt(hi), hi.lt(lo)), 1}}}};
}

// PyTorch from 2.14 on. At NaN every comparison is false, and what is left is what it does there.
Shares joint_shares(const Tensor& x, const Tensor& lo, const Tensor& hi) {
  const auto ordered = lo.lt(hi);
  const auto tie_lo = both(x.eq(lo), ordered), tie_hi = both(x.eq(hi), ordered);
  const auto tie = either(tie_lo, tie_hi), outside = either(x.lt(lo), x.gt(hi));
  return {
      Share{{{either(outside, tie).logical_not(), 1}, {tie, 2}}},
      Share{{{both(x.lt(lo), lo.le(hi)), 1}, {tie_lo, 2}}},
      Share{{{either(both(x.gt(hi), lo.le(hi)), hi.lt(lo)), 1}, {tie_hi, 2}}}};
}

// minimum(maximum(x, lo), hi) with every tie shared.
Shares half_shares(const Tensor& x, const Tensor& lo, const Tensor& hi) {
  const auto number = either(either(x.isnan(), lo.isnan()), hi.isnan()).logical_not();
  const auto raised = at::maximum(x, lo);
  const auto through = both(number, raised.lt(hi)), tie = both(number, raised.eq(hi));
  const auto over = x.gt(lo), at_lo = x.eq(lo), under = x.lt(lo);
  return {
      Share{
          {{both(through, over), 1},
           {either(both(through, at_lo), both(tie, over)), 2},
           {both(tie, at_lo), 4}}},
      Share{
          {{both(through, under), 1},
           {either(both(through, at_lo), both(tie, under)), 2},
           {both(tie, at_lo), 4}}},
      Share{{{both(number, raised.gt(hi)), 1}, {tie, 2}}}};
}

// What the bounds get beside a pseudo-gradient of x, where x is not y: as in min_norm.
Shares pseudo_shares(const Tensor& x, const Tensor& lo, const Tensor& hi, int64_t differentiated) {
  auto active = active_inputs(x, lo, hi);
  // x = y also at hi, where lo > hi.
  const auto out = either(active[0], both(active[2], x.eq(hi))).logical_not();
  const auto lo_alone = both(both(active[1], active[2].logical_not()), out);
  const auto hi_alone = both(both(active[2], active[1].logical_not()), out);
  Shares shares = {Share{}, Share{{{lo_alone, 1}}}, Share{{{hi_alone, 1}}}};
  if (has(differentiated, 1) && has(differentiated, 2)) {
    const auto two = both(both(active[1], active[2]), out);
    shares[1].parts.push_back({two, 2});
    shares[2].parts.push_back({two, 2});
  }
  return shares;
}

Shares clamp_shares(
    const Tensor& x,
    const Tensor& lo,
    const Tensor& hi,
    Gradient gradient,
    int64_t differentiated) {
  if (!lo.defined() || !hi.defined()) {
    const bool is_min = lo.defined();
    // Bits of the two arguments that are there.
    const auto bits =
        (differentiated & 1) | (is_min ? differentiated & 2 : differentiated >> 1 & 2);
    auto pair = pair_shares(
        x, is_min ? lo : hi, is_min, Kind::clamp, pair_rule(Kind::clamp, gradient, bits));
    return is_min ? Shares{pair[0], pair[1], Share{}} : Shares{pair[0], Share{}, pair[1]};
  }
  switch (gradient) {
    case Gradient::min_norm:
      return min_norm_shares(x, lo, hi, differentiated);
    case Gradient::inclusive:
      return inclusive_shares(x, lo, hi);
    case Gradient::joint:
      return joint_shares(x, lo, hi);
    case Gradient::half:
      return half_shares(x, lo, hi);
    default:
      return pseudo_shares(x, lo, hi, differentiated);
  }
}

// ---- From codes ---------------------------------------------------------------------------------

std::array<Share, 2> pair_shares_in(const Tensor& codes, Sharing sharing) {
  if (is_pseudo(sharing)) {
    return {Share{}, Share{{{codes.eq(kOther), 1}}}};
  }
  const auto both = codes.eq(kBoth);
  auto self = codes.eq(kSelf), other = codes.eq(kOther);
  if (sharing == Sharing::nan_to_both) {
    const auto nan = codes.eq(0);
    self = either(self, nan);
    other = either(other, nan);
  }
  return {Share{{{self, 1}, {both, 2}}}, Share{{{other, 1}, {both, 2}}}};
}

Shares triple_shares_in(const Tensor& codes, Sharing sharing) {
  if (is_pseudo(sharing)) {
    const auto two = codes.eq(beyond::below_both);
    return {
        Share{},
        Share{{{codes.eq(beyond::below_lo), 1}, {two, 2}}},
        Share{{{either(codes.eq(beyond::below_hi), codes.eq(beyond::above)), 1}, {two, 2}}}};
  }
  const auto all = codes.eq(kAll);
  Shares shares;
  for (int i = 0; i < 3; ++i) {
    const int bit = 1 << i;
    const auto two = either(codes.eq(bit | 1 << (i + 1) % 3), codes.eq(bit | 1 << (i + 2) % 3));
    shares[i].parts = {{codes.eq(bit), 1}, {two, 2}};
    if (sharing == Sharing::nested) {
      shares[i].parts.push_back({all, bit == kHi ? 2 : 4});
    } else if (sharing != Sharing::nan_to_ends) {
      shares[i].parts.push_back({all, 3});
    } else if (bit != kLo) {
      shares[i].parts.push_back({all, 1});
    }
  }
  return shares;
}

// What x gets of a pseudo-gradient.
Tensor pseudo_in(const Tensor& grad, const Position& at, Sharing sharing) {
  switch (sharing) {
    case Sharing::with_grad:
      return pseudo_gradient_at(grad, at, Gate::with_grad);
    case Sharing::with_grad_maximize:
      return pseudo_gradient_at(grad, at, Gate::with_grad_maximize);
    case Sharing::restoring:
      return pseudo_gradient_at(grad, at, Gate::restoring);
    case Sharing::restoring_maximize:
      return pseudo_gradient_at(grad, at, Gate::restoring_maximize);
    default:
      return grad;
  }
}

// ---- Both directions ----------------------------------------------------------------------------

// Arguments are compared in the dtype of the result.
Tensor in_result_dtype(const Tensor& t, at::ScalarType dtype) {
  return t.defined() ? t.to(dtype) : t;
}

template <size_t n>
at::ScalarType result_dtype(const std::array<Tensor, n>& args) {
  std::vector<Tensor> defined;
  std::copy_if(args.begin(), args.end(), std::back_inserter(defined), [](const Tensor& t) {
    return t.defined();
  });
  return at::native::result_type(defined);
}

OptionalTensor detached(const Tensor& t) {
  return t.defined() ? OptionalTensor(t.detach()) : std::nullopt;
}

template <size_t n>
Tensor sum_of_shares(const std::array<Share, n>& shares, const std::array<Tensor, n>& tangents) {
  Tensor result;
  for (size_t i = 0; i < n; ++i) {
    if (tangents[i].defined() && !shares[i].parts.empty()) {
      const auto share = shares[i].of(tangents[i]);
      result = result.defined() ? result + share : share;
    }
  }
  return result;
}

// Of the pseudo-gradients straight_through alone has a tangent: all of x's.
void add_tangent_of_self(Share& share, const Tensor& like, Sharing sharing) {
  if (is_pseudo(sharing)) {
    check_has_tangent(
        sharing == Sharing::straight_through ? Gradient::straight_through : Gradient::with_grad);
    share.parts = {{at::ones_like(like, like.options().dtype(at::kBool)), 1}};
  }
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
  const auto shares =
      extremum_shares(self.to(dtype), other.to(dtype), op, gradient, differentiated);
  return {
      wanted[0] ? at::sum_to(shares[0].of(grad), self.sym_sizes()) : Tensor(),
      wanted[1] ? at::sum_to(shares[1].of(grad), other.sym_sizes()) : Tensor()};
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
  const auto shares =
      extremum_shares(self.to(dtype), other.to(dtype), op, gradient, differentiated);
  return sum_of_shares<2>(shares, {self_t.to(dtype), other_t.to(dtype)});
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
  const auto dtype = grad.scalar_type();
  const auto x = self.to(dtype), lo = in_result_dtype(min, dtype), hi = in_result_dtype(max, dtype);
  const auto shares = clamp_shares(x, lo, hi, gradient, differentiated);
  const auto reduced = [&](int i, const Tensor& argument) {
    return wanted[i] ? at::sum_to(shares[i].of(grad), argument.sym_sizes()) : Tensor();
  };
  Tensor of_self;
  if (wanted[0]) {
    if (gradient == Gradient::straight_through) {
      of_self = at::sum_to(grad, self.sym_sizes());
    } else if (is_pseudo(gradient)) {
      const auto result = at::clamp(x.detach(), detached(lo), detached(hi)); // only compared with
      const auto gate = scalar_gate({gradient, maximize});
      of_self = at::sum_to(pseudo_gradient(grad, x, result, gate), self.sym_sizes());
    } else {
      of_self = reduced(0, self);
    }
  }
  return {of_self, reduced(1, min), reduced(2, max)};
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
  const auto dtype = result_dtype<3>({self, min, max});
  auto shares = clamp_shares(
      self.to(dtype),
      in_result_dtype(min, dtype),
      in_result_dtype(max, dtype),
      gradient,
      differentiated);
  if (is_pseudo(gradient)) {
    check_has_tangent(gradient);
    const auto everywhere = at::ones_like(self, self.options().dtype(at::kBool));
    shares[0].parts = {{everywhere, 1}};
  }
  return sum_of_shares<3>(
      shares, {self_t.to(dtype), in_result_dtype(min_t, dtype), in_result_dtype(max_t, dtype)});
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
    auto [self, other] = decode_pair(grad, bits, sharing, clamps_from_below, order, wanted);
    return {self, other};
  }
  const auto codes = clampgrad::_codes_symint(bits, grad.sym_sizes(), 2, order);
  const auto shares = pair_shares_in(codes, sharing);
  Tensor self;
  if (wanted[0] && is_pseudo(sharing)) {
    const auto out = codes.eq(kOther), nowhere = at::zeros_like(out);
    const auto below = clamps_from_below ? out : nowhere, above = clamps_from_below ? nowhere : out;
    self = pseudo_in(grad, {codes.eq(kSelf), below, above}, sharing);
  } else if (wanted[0]) {
    self = shares[0].of(grad);
  }
  return {self, wanted[1] ? shares[1].of(grad) : Tensor()};
}

Tensor pair_jvp(
    const Tensor& self_t,
    const Tensor& other_t,
    const Tensor& bits,
    Sharing sharing,
    int64_t order) {
  const auto codes = clampgrad::_codes_symint(bits, self_t.sym_sizes(), 2, order);
  auto shares = pair_shares_in(codes, sharing);
  add_tangent_of_self(shares[0], codes, sharing);
  return sum_of_shares<2>(shares, {self_t, other_t});
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
    auto [x, lo, hi] = decode_triple(grad, bits, sharing, order, wanted);
    return {x, lo, hi};
  }
  const auto codes = clampgrad::_codes_symint(bits, grad.sym_sizes(), 3, order);
  const auto shares = triple_shares_in(codes, sharing);
  Tensor x;
  if (wanted[0] && is_pseudo(sharing)) {
    const auto below = both(codes.ge(beyond::below_lo), codes.le(beyond::below_none));
    x = pseudo_in(grad, {codes.eq(beyond::inside), below, codes.eq(beyond::above)}, sharing);
  } else if (wanted[0]) {
    x = shares[0].of(grad);
  }
  return {x, wanted[1] ? shares[1].of(grad) : Tensor(), wanted[2] ? shares[2].of(grad) : Tensor()};
}

Tensor triple_jvp(
    const Tensor& self_t,
    const Tensor& min_t,
    const Tensor& max_t,
    const Tensor& bits,
    Sharing sharing,
    int64_t order) {
  const auto codes = clampgrad::_codes_symint(bits, self_t.sym_sizes(), 3, order);
  auto shares = triple_shares_in(codes, sharing);
  add_tangent_of_self(shares[0], codes, sharing);
  return sum_of_shares<3>(shares, {self_t, min_t, max_t});
}

PairGradients clamp_min_tensor_backward(
    const Tensor& grad,
    const Tensor& self,
    const Tensor& min,
    int64_t differentiated,
    std::array<bool, 2> wanted) {
  auto [of_self, of_min, none] = clamp_tensors_backward(
      grad,
      self,
      min,
      {},
      Gradient::min_norm,
      false,
      differentiated,
      {wanted[0], wanted[1], false});
  return {of_self, of_min};
}

PairGradients clamp_max_tensor_backward(
    const Tensor& grad,
    const Tensor& self,
    const Tensor& max,
    int64_t differentiated,
    std::array<bool, 2> wanted) {
  auto [of_self, none, of_max] = clamp_tensors_backward(
      grad,
      self,
      {},
      max,
      Gradient::min_norm,
      false,
      differentiated,
      {wanted[0], false, wanted[1]});
  return {of_self, of_max};
}

} // namespace clampgrad
