#include "ops/sharing.h"

#include <c10/util/Exception.h>

namespace clampgrad {

PairRule pair_rule(Kind kind, Gradient gradient, int64_t differentiated) {
  switch (gradient) {
    case Gradient::min_norm:
      return {differentiated == 0b11 ? Tie::shared : Tie::none, NaN::none};
    case Gradient::half:
      return {Tie::shared, NaN::none};
    case Gradient::joint:
      return {Tie::shared, kind == Kind::nan_skipping_extremum ? NaN::to_self : NaN::to_both};
    case Gradient::inclusive:
      return kind == Kind::clamp   ? PairRule{Tie::to_self, NaN::none}
          : kind == Kind::extremum ? PairRule{Tie::shared, NaN::to_both}
                                   : PairRule{Tie::to_self, NaN::to_self};
    default: // a pseudo-gradient: what is at the bound belongs to self
      return {Tie::to_self, NaN::none};
  }
}

PairCodes pair_codes(PairRule rule) {
  return {
      rule.tie == Tie::shared        ? kBoth
          : rule.tie == Tie::to_self ? kSelf
                                     : 0,
      rule.nan == NaN::to_self ? kSelf : 0};
}

namespace {

Sharing pseudo_sharing(Convention convention) {
  switch (convention.gradient) {
    case Gradient::with_grad:
      return convention.maximize ? Sharing::with_grad_maximize : Sharing::with_grad;
    case Gradient::restoring:
      return convention.maximize ? Sharing::restoring_maximize : Sharing::restoring;
    default:
      return Sharing::straight_through;
  }
}

} // namespace

Sharing pair_sharing(Convention convention, PairRule rule) {
  return is_pseudo(convention.gradient) ? pseudo_sharing(convention)
      : rule.nan == NaN::to_both        ? Sharing::nan_to_both
                                        : Sharing::equal;
}

Rule triple_rule(Gradient gradient) {
  switch (gradient) {
    case Gradient::min_norm:
      return Rule::min_norm;
    case Gradient::inclusive:
      return Rule::inclusive;
    case Gradient::joint:
      return Rule::joint;
    case Gradient::half:
      return Rule::half;
    default:
      return Rule::pseudo;
  }
}

Sharing triple_sharing(Convention convention) {
  return is_pseudo(convention.gradient)        ? pseudo_sharing(convention)
      : convention.gradient == Gradient::half  ? Sharing::nested
      : convention.gradient == Gradient::joint ? Sharing::nan_to_ends
                                               : Sharing::equal;
}

} // namespace clampgrad
