#include "base/sharing.h"

#include <c10/util/Exception.h>

namespace clampgrad {

PairCodes pair_codes(PairKind kind, Gradient gradient, int64_t differentiated) {
  switch (gradient) {
    case Gradient::min_norm:
      return {differentiated == kBoth ? kBoth : 0, 0};
    case Gradient::half:
      return {kBoth, 0};
    case Gradient::joint:
      return {kBoth, kind == PairKind::nan_skipping_extremum ? kSelf : kBoth};
    case Gradient::inclusive:
      return kind == PairKind::clamp   ? PairCodes{kSelf, 0}
          : kind == PairKind::extremum ? PairCodes{kBoth, kBoth}
                                       : PairCodes{kSelf, kSelf};
    default: // a pseudo-gradient: what is at the bound belongs to self
      return {kSelf, 0};
  }
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

Sharing pair_sharing(Convention convention, PairCodes codes) {
  return is_pseudo(convention.gradient) ? pseudo_sharing(convention)
      : codes.nan == kBoth              ? Sharing::nan_to_both
                                        : Sharing::equal;
}

TripleRule triple_rule(Gradient gradient) {
  switch (gradient) {
    case Gradient::min_norm:
      return TripleRule::min_norm;
    case Gradient::inclusive:
      return TripleRule::inclusive;
    case Gradient::joint:
      return TripleRule::joint;
    case Gradient::half:
      return TripleRule::half;
    default:
      return TripleRule::pseudo;
  }
}

Sharing triple_sharing(Convention convention) {
  return is_pseudo(convention.gradient)        ? pseudo_sharing(convention)
      : convention.gradient == Gradient::half  ? Sharing::nested
      : convention.gradient == Gradient::joint ? Sharing::nan_to_ends
                                               : Sharing::equal;
}

} // namespace clampgrad
