// The rules agree with conventions.yaml, or this file does not compile.
//
// At every point of the contract, the compiler computes what each argument gets: from the masks, as
// the composed path does, and from the bits of a forward, as a fused backward does. So a rule whose
// functions do not fit together, or do not fit the table, is an error of the compiler: the argument
// `line` of Agrees is the row of conventions.yaml that the rule contradicts. What only a vector or
// a Tensor does, tests compare with the table (test/table/test_table.py).

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
using contract::Gets;
using contract::Point;

// 12 has an exact half, third and quarter. What is blocked is 0 even where g is infinite or NaN.
constexpr float kGrads[] = {
    -12, 0, 12, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()};

constexpr bool is_same(float a, float b) {
  return a == b || (a != a && b != b);
}

// ---- What the contract says ---------------------------------------------------------------------

// Of Tensors: NaN where no argument is selected.
template <size_t n>
constexpr float result_of(const Point<n>& point) {
  for (size_t k = 0; k < n; ++k) {
    if (point.active >> k & 1) {
      return static_cast<float>(point.at[k]);
    }
  }
  return std::numeric_limits<float>::quiet_NaN();
}

constexpr float share_of(float g, int part) {
  return part == 0 ? 0 : g / static_cast<float>(part);
}

// Some conventions give nothing where a constant is among several active arguments.
template <size_t n>
constexpr float share_of(
    float g, const Point<n>& point, Gradient exact, size_t k, int differentiated) {
  const bool several = point.active & (point.active - 1);
  const bool constant = asks(exact) && several && point.active & ~differentiated;
  return constant ? 0 : share_of(g, point.tensors[column_of(exact)][k]);
}

// What x gets under a pseudo-gradient, where y is the result.
constexpr float share_of(float g, float x, float y, Gradient pseudo, bool maximize) {
  const auto* row = contract::kPseudo;
  while (row->gradient != pseudo || row->maximize != maximize) {
    ++row;
  }
  const int position = x == y ? 0 : x < y ? 1 : x > y ? 2 : 3;
  switch (row->gets[position][g < 0 ? 0 : g == 0 ? 1 : g > 0 ? 2 : 3]) {
    case Gets::nothing:
      return 0;
    case Gets::g:
      return g;
    case Gets::one:
      return 1;
    case Gets::minus_one:
      return -1;
  }
}

// What argument k of Tensors gets, where y is the result. Under a pseudo-gradient, a bound that is
// the result gets what min_norm gives it.
template <Gradient gradient, bool maximize, size_t n>
constexpr float share_of(float g, const Point<n>& point, float y, size_t k, int differentiated) {
  if constexpr (is_pseudo(gradient)) {
    const float x = point.at[0];
    return k == 0 ? share_of(g, x, y, gradient, maximize)
        : x == y  ? 0
                  : share_of(g, point, Gradient::min_norm, k, differentiated);
  } else {
    return share_of(g, point, gradient, k, differentiated);
  }
}

// ---- What a rule says ---------------------------------------------------------------------------

// From the masks and from the bits alike, each argument k gets expected(k, g).
template <typename Rule, typename Masks, typename Expected>
constexpr bool agrees(
    const Masks& masks,
    const bool (&bits)[Rule::bits],
    bool takes_larger,
    const Expected& expected) {
  for (const float g : kGrads) {
    float from_masks[Rule::n] = {}, from_bits[Rule::n] = {};
    share<Rule, E>(g, masks, from_masks);
    BackwardOp<Rule, E>{{}, takes_larger}({g}, bits, from_bits);
    for (size_t k = 0; k < Rule::n; ++k) {
      const float due = expected(k, g);
      if (!is_same(from_masks[k], due) || !is_same(from_bits[k], due)) {
        return false;
      }
    }
  }
  return true;
}

// The line of the first row that the rule contradicts, else 0. `all`: of the arguments. Some
// conventions ask which are differentiated; there, every set is tried.
template <size_t n, size_t count, typename Holds>
constexpr int first_wrong(
    const Point<n> (&points)[count], Gradient gradient, const Holds& holds, int all) {
  // A pseudo-gradient asks, too: for the bounds.
  const bool every_set = is_pseudo(gradient) || asks(gradient);
  for (const auto& point : points) {
    for (int differentiated = every_set ? 0 : all; differentiated <= all; ++differentiated) {
      if (!holds(point, differentiated)) {
        return point.line;
      }
    }
  }
  return 0;
}

template <bool has_lo, bool has_hi, Gradient gradient, bool maximize, size_t n, size_t count>
constexpr int wrong_number(const Point<n> (&points)[count]) {
  constexpr RuleName rule = rule_of(gradient, 1);
  using R = Rule<1, rule, maximize && is_directed(rule)>;
  const auto holds = [](const Point<n>& point, int) {
    const float x = point.at[0];
    const Bounds<float> bounds = {
        has_lo ? static_cast<float>(point.at[1]) : 0,
        has_hi ? static_cast<float>(point.at[n - 1]) : 0};
    bool bits[R::bits] = {};
    float y[1] = {};
    NumberForwardOp<R::format, has_lo, has_hi, E, float>{{}, bounds, bounds}({x}, bits, y);
    const auto masks = number_masks<R::format, has_lo, has_hi>(x, E::comparable(x), bounds, y[0]);
    return agrees<R>(masks, bits, false, [&](size_t, float g) {
      if constexpr (is_pseudo(gradient)) {
        return share_of(g, x, y[0], gradient, maximize);
      } else {
        return share_of(g, point.numbers[column_of(gradient)]);
      }
    });
  };
  return first_wrong(points, gradient, holds, 0);
}

template <Extremum op, Gradient gradient, bool maximize, size_t count>
constexpr int wrong_pair(const Point<2> (&points)[count]) {
  constexpr RuleName rule = rule_of(gradient, 2);
  constexpr bool pseudo = is_pseudo(gradient), larger = takes_larger(op), skips = skips_nan(op);
  using R = Rule<2, rule, pseudo ? maximize && is_directed(rule) : nan_to_both(op, gradient)>;
  const auto holds = [](const Point<2>& point, int differentiated) {
    const float self = point.at[0], other = point.at[1];
    const auto recorded = recorded_pair_rule(op, gradient, differentiated);
    bool bits[2] = {};
    float y[1] = {};
    PairForwardOp<larger, skips, E>{{}, recorded}({self, other}, bits, y);
    const auto masks = pair_masks(
        compared<E>(self),
        compared<E>(other),
        pair_rule(op, gradient, differentiated),
        larger,
        skips);
    return is_same(y[0], result_of(point)) &&
        agrees<R>(masks, bits, larger, [&](size_t k, float g) {
             return share_of<gradient, maximize>(g, point, y[0], k, differentiated);
           });
  };
  return first_wrong(points, gradient, holds, kBoth);
}

template <Gradient gradient, bool maximize, size_t count>
constexpr int wrong_triple(const Point<3> (&points)[count]) {
  constexpr RuleName rule = rule_of(gradient, 3);
  using R = Rule<3, rule, maximize && is_directed(rule)>;
  const auto holds = [](const Point<3>& point, int differentiated) {
    const float x = point.at[0], lo = point.at[1], hi = point.at[2];
    bool bits[3] = {};
    float y[1] = {};
    TripleForwardOp<R::format, E>{{}, differentiated}({x, lo, hi}, bits, y);
    const auto masks = triple_masks<R::format>(
        compared<E>(x), compared<E>(lo), compared<E>(hi), compared<E>(y[0]), differentiated);
    return is_same(y[0], result_of(point)) && agrees<R>(masks, bits, false, [&](size_t k, float g) {
             return share_of<gradient, maximize>(g, point, y[0], k, differentiated);
           });
  };
  return first_wrong(points, gradient, holds, kAll);
}

// ---- All ----------------------------------------------------------------------------------------

template <Gradient gradient, size_t arguments, int line>
struct Agrees {
  static_assert(line == 0, "a rule contradicts conventions.yaml, in this line");
};

template <Gradient gradient, bool maximize>
[[maybe_unused]] void check() {
  using contract::clamp, contract::clamp_min, contract::clamp_max;
  Agrees<gradient, 1, wrong_number<true, true, gradient, maximize>(clamp)>();
  Agrees<gradient, 1, wrong_number<true, false, gradient, maximize>(clamp_min)>();
  Agrees<gradient, 1, wrong_number<false, true, gradient, maximize>(clamp_max)>();
  Agrees<gradient, 2, wrong_pair<Extremum::clamp_min, gradient, maximize>(clamp_min)>();
  Agrees<gradient, 2, wrong_pair<Extremum::clamp_max, gradient, maximize>(clamp_max)>();
  if constexpr (!is_pseudo(gradient)) {
    Agrees<gradient, 2, wrong_pair<Extremum::maximum, gradient, maximize>(contract::maximum)>();
    Agrees<gradient, 2, wrong_pair<Extremum::minimum, gradient, maximize>(contract::minimum)>();
    Agrees<gradient, 2, wrong_pair<Extremum::fmax, gradient, maximize>(contract::fmax)>();
    Agrees<gradient, 2, wrong_pair<Extremum::fmin, gradient, maximize>(contract::fmin)>();
  }
  Agrees<gradient, 3, wrong_triple<gradient, maximize>(clamp)>();
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
