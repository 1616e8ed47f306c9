// The rules agree with conventions.yaml, or this file does not compile.
//
// At every point of the contract, the compiler computes what each argument gets: from the masks, as
// the composed path does, and from the bits of a forward, as a fused backward does. So a rule whose
// functions do not fit together, or do not fit the table, is an error of the compiler: the argument
// `line` of AssertAgrees is the row of conventions.yaml that the rule contradicts. What
// only a vector or a Tensor does, tests compare with the table (test/table/test_table.py).

#include "kernels/call.h"
#include "kernels/rules/conventions.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <limits>

#define CLAMPGRAD_INSTANCE checked
#include "kernels/rules/all.h"
#include "kernels/rules/ops.h"
#undef CLAMPGRAD_INSTANCE

namespace clampgrad::checked {
namespace {

using E = Real<float>;
using contract::Point;
using contract::PseudoShare;

// 12 has an exact half, third and quarter. What is blocked is 0 even where g is infinite or NaN.
constexpr float kGrads[] = {
    -12, 0, 12, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};

constexpr bool is_same(float a, float b) {
  return a == b || (a != a && b != b);
}

// ---- By the contract ----------------------------------------------------------------------------

// Returns the result of a call with Tensors: the first active argument, or NaN if none is active.
template <size_t n>
constexpr float expected_result(const Point<n>& point) {
  for (size_t k = 0; k < n; ++k) {
    if (point.active_mask >> k & 1) {
      return static_cast<float>(point.at[k]);
    }
  }
  return std::numeric_limits<float>::quiet_NaN();
}

constexpr float expected_share(float g, int divisor) {
  return divisor == 0 ? 0 : g / static_cast<float>(divisor);
}

// Returns the share of argument k of Tensors. Some conventions give nothing where a constant is
// among several active arguments (depends_on_differentiated in conventions.yaml). This repeats the
// rule of conventions.h on purpose, as an independent check of it.
template <size_t n>
constexpr float expected_share(
    float g, const Point<n>& point, Gradient exact, size_t k, int differentiated_mask) {
  const bool several = point.active_mask & (point.active_mask - 1);
  const bool constant =
      depends_on_differentiated(exact) && several && point.active_mask & ~differentiated_mask;
  return constant ? 0 : expected_share(g, point.tensors[column_of(exact)][k]);
}

// Returns the share of x under a pseudo-gradient, where y is the result.
constexpr float expected_share(float g, float x, float y, Gradient pseudo, bool maximize) {
  const auto* row = contract::kPseudoGradients;
  while (row->gradient != pseudo || row->maximize != maximize) {
    ++row;
  }
  const int position = x == y ? 0 : x < y ? 1 : x > y ? 2 : 3;
  switch (row->shares[position][g < 0 ? 0 : g == 0 ? 1 : g > 0 ? 2 : 3]) {
    case PseudoShare::nothing:
      return 0;
    case PseudoShare::g:
      return g;
    case PseudoShare::one:
      return 1;
    case PseudoShare::minus_one:
      return -1;
  }
}

// Returns the share of argument k of Tensors, where y is the result. Under a pseudo-gradient, a
// bound that is the result gets its share of min_norm.
template <Gradient gradient, bool maximize, size_t n>
constexpr float expected_share(
    float g, const Point<n>& point, float y, size_t k, int differentiated_mask) {
  if constexpr (is_pseudo(gradient)) {
    const float x = point.at[0];
    return k == 0 ? expected_share(g, x, y, gradient, maximize)
        : x == y  ? 0
                  : expected_share(g, point, Gradient::min_norm, k, differentiated_mask);
  } else {
    return expected_share(g, point, gradient, k, differentiated_mask);
  }
}

// ---- By a rule ----------------------------------------------------------------------------------

// Whether each argument k gets expected(k, g), from the masks and from the bits.
template <typename Rule, typename Masks, typename Expected>
constexpr bool matches_contract(
    const Masks& masks,
    const bool (&bits)[Rule::kBits],
    bool selects_larger,
    const Expected& expected) {
  for (const float g : kGrads) {
    float from_masks[Rule::kArguments] = {}, from_bits[Rule::kArguments] = {};
    compute_shares<Rule, E>(g, masks, from_masks);
    BackwardOp<Rule, E>{{}, selects_larger}({g}, bits, from_bits);
    for (size_t k = 0; k < Rule::kArguments; ++k) {
      const float expected_value = expected(k, g);
      if (!is_same(from_masks[k], expected_value) || !is_same(from_bits[k], expected_value)) {
        return false;
      }
    }
  }
  return true;
}

// Returns the line of the first row that the rule contradicts, or 0. `all_mask` is the mask of all
// arguments. If a convention depends on which arguments are differentiated, every mask is
// tried.
template <size_t n, size_t count, typename Matches>
constexpr int find_first_mismatch(
    const Point<n> (&points)[count], Gradient gradient, const Matches& matches, int all_mask) {
  // The bounds of a pseudo-gradient do, too.
  const bool tries_every_mask = is_pseudo(gradient) || depends_on_differentiated(gradient);
  for (const auto& point : points) {
    for (int mask = tries_every_mask ? 0 : all_mask; mask <= all_mask; ++mask) {
      if (!matches(point, mask)) {
        return point.line;
      }
    }
  }
  return 0;
}

template <bool has_lo, bool has_hi, Gradient gradient, bool maximize, size_t n, size_t count>
constexpr int find_number_mismatch(const Point<n> (&points)[count]) {
  constexpr RuleName rule = rule_of(gradient, 1);
  using R = Rule<1, rule, maximize && depends_on_maximize(rule)>;
  const auto matches = [](const Point<n>& point, int) {
    const float x = point.at[0];
    const Bounds<float> bounds = {
        has_lo ? static_cast<float>(point.at[1]) : 0,
        has_hi ? static_cast<float>(point.at[n - 1]) : 0};
    bool bits[R::kBits] = {};
    float y[1] = {};
    NumberForwardOp<R::kBitFormat, has_lo, has_hi, E, float>{{}, bounds, bounds}({x}, bits, y);
    const auto masks =
        number_masks<R::kBitFormat, has_lo, has_hi>(x, E::comparable(x), bounds, y[0]);
    return matches_contract<R>(masks, bits, false, [&](size_t, float g) {
      if constexpr (is_pseudo(gradient)) {
        return expected_share(g, x, y[0], gradient, maximize);
      } else {
        return expected_share(g, point.numbers[column_of(gradient)]);
      }
    });
  };
  return find_first_mismatch(points, gradient, matches, 0);
}

template <PairOperator op, Gradient gradient, bool maximize, size_t count>
constexpr int find_pair_mismatch(const Point<2> (&points)[count]) {
  constexpr RuleName rule = rule_of(gradient, 2);
  constexpr bool pseudo = is_pseudo(gradient), larger = selects_larger(op), skips = skips_nan(op);
  using R = Rule<
      2,
      rule,
      pseudo ? maximize && depends_on_maximize(rule) : is_nan_given_to_both(op, gradient)>;
  const auto matches = [](const Point<2>& point, int differentiated_mask) {
    const float self = point.at[0], other = point.at[1];
    const auto forward_rule = forward_pair_rule(op, gradient, differentiated_mask);
    bool bits[2] = {};
    float y[1] = {};
    PairForwardOp<larger, skips, E>{{}, forward_rule}({self, other}, bits, y);
    const auto masks = pair_masks(
        make_comparand<E>(self),
        make_comparand<E>(other),
        pair_rule_of(op, gradient, differentiated_mask),
        larger,
        skips);
    return is_same(y[0], expected_result(point)) &&
        matches_contract<R>(masks, bits, larger, [&](size_t k, float g) {
             return expected_share<gradient, maximize>(g, point, y[0], k, differentiated_mask);
           });
  };
  return find_first_mismatch(points, gradient, matches, kBothArgs);
}

template <Gradient gradient, bool maximize, size_t count>
constexpr int find_triple_mismatch(const Point<3> (&points)[count]) {
  constexpr RuleName rule = rule_of(gradient, 3);
  using R = Rule<3, rule, maximize && depends_on_maximize(rule)>;
  const auto matches = [](const Point<3>& point, int differentiated_mask) {
    const float x = point.at[0], lo = point.at[1], hi = point.at[2];
    bool bits[3] = {};
    float y[1] = {};
    TripleForwardOp<R::kBitFormat, E>{{}, differentiated_mask}({x, lo, hi}, bits, y);
    const auto masks = triple_masks<R::kBitFormat>(
        make_comparand<E>(x),
        make_comparand<E>(lo),
        make_comparand<E>(hi),
        make_comparand<E>(y[0]),
        differentiated_mask);
    return is_same(y[0], expected_result(point)) &&
        matches_contract<R>(masks, bits, false, [&](size_t k, float g) {
             return expected_share<gradient, maximize>(g, point, y[0], k, differentiated_mask);
           });
  };
  return find_first_mismatch(points, gradient, matches, kAllArgs);
}

// ---- All ----------------------------------------------------------------------------------------

template <Gradient gradient, size_t arguments, int line>
struct AssertAgrees {
  static_assert(line == 0, "a rule contradicts conventions.yaml, in this line");
};

template <Gradient gradient, bool maximize>
[[maybe_unused]] void check() {
  using contract::clamp, contract::clamp_min, contract::clamp_max;
  AssertAgrees<gradient, 1, find_number_mismatch<true, true, gradient, maximize>(clamp)>();
  AssertAgrees<gradient, 1, find_number_mismatch<true, false, gradient, maximize>(clamp_min)>();
  AssertAgrees<gradient, 1, find_number_mismatch<false, true, gradient, maximize>(clamp_max)>();
  AssertAgrees<
      gradient,
      2,
      find_pair_mismatch<PairOperator::clamp_min, gradient, maximize>(clamp_min)>();
  AssertAgrees<
      gradient,
      2,
      find_pair_mismatch<PairOperator::clamp_max, gradient, maximize>(clamp_max)>();
  if constexpr (!is_pseudo(gradient)) {
#define CLAMPGRAD_ASSERT(name) \
  AssertAgrees<                \
      gradient,                \
      2,                       \
      find_pair_mismatch<PairOperator::name, gradient, maximize>(contract::name)>();
    CLAMPGRAD_EXTREMA(CLAMPGRAD_ASSERT)
#undef CLAMPGRAD_ASSERT
  }
  AssertAgrees<gradient, 3, find_triple_mismatch<gradient, maximize>(clamp)>();
}

#define CLAMPGRAD_CHECK(name, value) template void check<Gradient::name, false>();
CLAMPGRAD_EXACT_GRADIENTS(CLAMPGRAD_CHECK)
CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_CHECK)
#undef CLAMPGRAD_CHECK
#define CLAMPGRAD_CHECK(name, value) template void check<Gradient::name, true>();
CLAMPGRAD_PSEUDO_GRADIENTS(CLAMPGRAD_CHECK)
#undef CLAMPGRAD_CHECK

} // namespace
} // namespace clampgrad::checked
