#pragma once
// Which rules a convention takes: docs/adding_a_convention.md. The rules are in numbers.h, pairs.h
// and triples.h. For numbers and for two Tensors they read here what the contract says of a tie;
// check.cpp compares all with the whole contract. A rule goes by the name of a convention;
// conventions may share one.

#include "Contract.h"
#include "base/convention.h"
#include "kernels/constant.h"

namespace clampgrad {

// ---- What the contract says ---------------------------------------------------------------------

constexpr size_t column_of(Gradient exact) {
  size_t column = 0;
  while (contract::kExact[column] != exact) {
    ++column;
  }
  return column;
}

template <size_t count>
constexpr bool is_in(const Gradient (&names)[count], Gradient gradient) {
  for (const Gradient name : names) {
    if (name == gradient) {
      return true;
    }
  }
  return false;
}

// Whether it depends on what is being differentiated.
constexpr bool asks(Gradient exact) {
  return is_in(contract::kAsk, exact);
}

// How arguments compare, as contract::Point says it.
template <size_t n>
constexpr int order_of(const int (&arguments)[n]) {
  int order = 0;
  for (size_t i = 0; i < n * n; ++i) {
    order |= (arguments[i / n] <= arguments[i % n]) << i;
  }
  return order;
}
constexpr int kAllNaN = 0;

// A point of the contract where the arguments compare so.
template <size_t n, size_t count>
constexpr const contract::Point<n>& point_with(
    const contract::Point<n> (&points)[count], int order) {
  const auto* point = points;
  while (point->order != order) {
    ++point;
  }
  return *point;
}

// For each convention, by its value.
template <typename Of>
struct ForEach {
  Of of[kGradients] = {};

  template <typename F>
  constexpr explicit ForEach(const F& rule) {
    for (const Gradient exact : contract::kExact) {
      of[static_cast<size_t>(exact)] = rule(column_of(exact));
    }
  }
  CLAMPGRAD_HOST_DEVICE constexpr const Of& operator[](Gradient gradient) const {
    return of[static_cast<size_t>(gradient)];
  }
};

// ---- Numbers ------------------------------------------------------------------------------------

// What x gets of g at a bound, and where both bounds are equal to x: 0, or n for g / n.
struct NumberRule {
  int tie, both;
};

constexpr ForEach<NumberRule> kNumberRules([](size_t column) {
  return NumberRule{
      point_with(contract::clamp, order_of({0, 0, 1})).numbers[column],
      point_with(contract::clamp, order_of({0, 0, 0})).numbers[column]};
});

// Whether two exact conventions say the same: of x between numbers (n = 1), or of three Tensors.
// There, one that asks what is being differentiated says more than its column.
constexpr bool agree(Gradient a, Gradient b, size_t n) {
  const size_t of_a = column_of(a), of_b = column_of(b);
  if (n == 3 && asks(a) != asks(b)) {
    return false;
  }
  for (const auto& point : contract::clamp) {
    for (size_t k = 0; k < n; ++k) {
      if (n == 1 ? point.numbers[of_a] != point.numbers[of_b]
                 : point.tensors[of_a][k] != point.tensors[of_b][k]) {
        return false;
      }
    }
  }
  return true;
}

// The rule of a convention for n arguments: x alone where the bounds are numbers, else two or three
// Tensors. It is that of the first convention that says the same. With two Tensors, all exact
// conventions read the bits alike; pair_rule says how they differ.
constexpr Gradient rule_of(Gradient gradient, size_t n) {
  if (is_pseudo(gradient)) {
    return gradient;
  }
  const auto* rule = contract::kExact;
  while (n != 2 && !agree(*rule, gradient, n)) {
    ++rule;
  }
  return *rule;
}

// All pseudo-gradients record the same: where x lies.
constexpr Gradient recorded_rule(Gradient rule) {
  return is_pseudo(rule) ? Gradient::with_grad : rule;
}

// A bit for each Tensor, whether it gets a share. For numbers, one bit: whether g passes; or two:
// how much of it, where a tie is shared, or where x lies.
constexpr int bits_per_element(Gradient gradient, size_t n) {
  const NumberRule rule = kNumberRules[gradient];
  return n > 1 ? n : is_pseudo(gradient) || rule.tie > 1 || rule.both > 1 ? 2 : 1;
}

// ---- Two Tensors --------------------------------------------------------------------------------

// Sets of arguments, as bits.
constexpr int kSelf = 1, kOther = 2, kBoth = 3;

// Which arguments get a share at a tie, and which all of g if the result is NaN.
struct PairRule {
  int tie, nan;
};

template <size_t count>
constexpr ForEach<PairRule> pair_rules(const contract::Point<2> (&points)[count]) {
  const auto& tie = point_with(points, order_of({0, 0}));
  const auto& nan = point_with(points, kAllNaN);
  const auto set = [](const int (&parts)[2]) {
    return (parts[0] ? kSelf : 0) | (parts[1] ? kOther : 0);
  };
  return ForEach<PairRule>(
      [&](size_t column) { return PairRule{set(tie.tensors[column]), set(nan.tensors[column])}; });
}

// By the value of the Extremum.
constexpr ForEach<PairRule> kPairRules[] = {
    pair_rules(contract::maximum),
    pair_rules(contract::minimum),
    pair_rules(contract::fmax),
    pair_rules(contract::fmin),
    pair_rules(contract::clamp_min),
    pair_rules(contract::clamp_max)};
static_assert(std::size(kPairRules) == std::size(kExtrema));

// These three are static, because loops call them: Note [One translation unit per instruction set].

// `differentiated` is a set of arguments too.
static constexpr PairRule pair_rule(Extremum op, Gradient gradient, int differentiated) {
  if (is_pseudo(gradient)) {
    return {kSelf, 0}; // what is at the bound belongs to self
  }
  PairRule rule = kPairRules[static_cast<size_t>(op)][gradient];
  if (asks(gradient) && differentiated != kBoth) {
    rule.tie = 0; // a constant among the active arguments makes 0 a subgradient
  }
  return rule;
}

// Whether both arguments get all of g where the result is NaN. The bits say so by a share for
// neither, so under such a rule a tie must give a share to at least one.
static constexpr bool nan_to_both(Extremum op, Gradient gradient) {
  return pair_rule(op, gradient, /*differentiated=*/0).nan == kBoth;
}

// What the bits say.
static constexpr PairRule recorded_pair_rule(Extremum op, Gradient gradient, int differentiated) {
  const PairRule rule = pair_rule(op, gradient, differentiated);
  return {rule.tie, nan_to_both(op, gradient) ? 0 : rule.nan};
}

// ---- Three Tensors ------------------------------------------------------------------------------

constexpr int kX = 1, kLo = 2, kHi = 4, kAll = 7;

// Whether, between a number and a Tensor, the number is treated as a constant Tensor. Otherwise x
// is clamped by one bound and then by the other.
inline bool mixed_at_once(Gradient gradient) {
  return is_pseudo(gradient) || is_in(contract::kAtOnce, gradient);
}

// ---- The result for x
// -----------------------------------------------------------------------------

// Whether x, where it alone is differentiated, gets something only where it alone is active.
template <size_t n, size_t count>
constexpr bool gets_alone(const contract::Point<n> (&points)[count], Gradient exact) {
  for (const auto& point : points) {
    const bool blocked = asks(exact) && point.active & ~kX && point.active & kX;
    if (point.active != kX && point.tensors[column_of(exact)][0] && !blocked) {
      return false;
    }
  }
  return true;
}

// Then the result lies strictly between the bounds just where x does, and masks may be read from
// it.
constexpr ForEach<bool> kResultForX([](size_t column) {
  const Gradient exact = contract::kExact[column];
  return gets_alone(contract::clamp, exact) && gets_alone(contract::maximum, exact) &&
      gets_alone(contract::minimum, exact) && gets_alone(contract::fmax, exact) &&
      gets_alone(contract::fmin, exact) && gets_alone(contract::clamp_min, exact) &&
      gets_alone(contract::clamp_max, exact);
});

// ---- As template arguments ----------------------------------------------------------------------

// Forward mode needs a gradient that is a linear function of the incoming one: everywhere nothing,
// or g, whatever g is.
constexpr bool is_linear(Gradient gradient) {
  for (const auto& pseudo : contract::kPseudo) {
    for (const auto& gets : pseudo.gets) {
      for (const auto one : gets) {
        if (pseudo.gradient == gradient && (one != gets[0] || one > contract::Gets::g)) {
          return false;
        }
      }
    }
  }
  return true;
}

// Whether it depends on the direction: on `maximize`.
constexpr bool is_directed(Gradient gradient) {
  for (const auto& a : contract::kPseudo) {
    for (const auto& b : contract::kPseudo) {
      for (int i = 0; i < 16; ++i) {
        const bool both = a.gradient == gradient && b.gradient == gradient;
        if (both && a.gets[i / 4][i % 4] != b.gets[i / 4][i % 4]) {
          return true;
        }
      }
    }
  }
  return false;
}

// What a forward and its backward have in common, so that the one reads what the other records.
// `variant`: the loss is maximised, or a NaN result gives both of two Tensors all of g.
template <size_t arguments, Gradient name, bool variant>
struct Rule {
  static constexpr size_t n = arguments;
  static constexpr Gradient rule = name, recorded = recorded_rule(rule);
  static constexpr int bits = bits_per_element(rule, n);
  static constexpr bool maximize = variant && is_pseudo(rule);
};

// f(Rule<n, ...>()). Two Tensors have an `op`.
template <size_t n, typename F>
auto with_rule(Convention c, const F& f, Extremum op = {}) {
  return with_constant<kGradients>(c.gradient, [&](auto gradient) {
    constexpr Gradient rule = rule_of(decltype(gradient)::value, n);
    constexpr bool of_pair = n == 2 && !is_pseudo(rule);
    if constexpr (of_pair || is_directed(rule)) {
      const bool variant = of_pair ? nan_to_both(op, c.gradient) : c.maximize;
      return with_constant<2>(
          variant, [&](auto is) { return f(Rule<n, rule, decltype(is)::value>()); });
    } else {
      return f(Rule<n, rule, false>());
    }
  });
}

} // namespace clampgrad
