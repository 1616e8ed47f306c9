#include "base/convention.h"

#include "base/messages.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace clampgrad {

namespace {

std::string list_names() {
  std::string names;
  for (const auto& one : kNamesAndAliases) {
    names.append(names.empty() ? "" : ", ").append(one.name);
  }
  return names;
}

} // namespace

std::optional<Gradient> find_gradient(std::string_view name) {
  const auto* const end = std::end(kNamesAndAliases);
  const auto* const entry =
      std::find_if(std::begin(kNamesAndAliases), end, [&](const NamedGradient& one) {
        return one.name == name;
      });
  return entry != end ? std::optional(entry->gradient) : std::nullopt;
}

void raise_unknown_gradient(std::string_view name) {
  TORCH_CHECK_VALUE(false, "unknown gradient '", name, "'; expected one of ", list_names());
}

Convention parse_convention(std::string_view name, bool maximize) {
  const auto known = find_gradient(name);
  if (!known) {
    raise_unknown_gradient(name);
  }
  return check_convention(*known, maximize, name);
}

Convention check_convention(Gradient gradient, bool maximize, std::string_view name) {
  const auto value = static_cast<int64_t>(gradient);
  TORCH_CHECK_VALUE(
      value >= 0 && value < kGradientCount, "clampgrad: ", value, " is no clampgrad::Gradient");
  TORCH_CHECK_VALUE(
      !maximize || is_pseudo(gradient),
      messages::format(messages::kMaximizeDoesNotApply, name.empty() ? name_of(gradient) : name));
  return {gradient, maximize};
}

PairOperator parse_pair_operator(std::string_view name) {
  const auto* const position =
      std::find(std::begin(kPairOperatorNames), std::end(kPairOperatorNames), name);
  TORCH_CHECK_VALUE(
      position != std::end(kPairOperatorNames),
      "clampgrad: unknown operator of two Tensors '",
      name,
      "'");
  return static_cast<PairOperator>(position - std::begin(kPairOperatorNames));
}

Gradient parse_exact_gradient(std::string_view gradient, std::string_view op) {
  return check_exact_gradient(
      parse_convention(gradient, /*maximize=*/false).gradient, op, gradient);
}

Gradient check_exact_gradient(Gradient gradient, std::string_view op, std::string_view name) {
  const auto c = check_convention(gradient, /*maximize=*/false);
  name = name.empty() ? name_of(c.gradient) : name;
  TORCH_CHECK_VALUE(!is_pseudo(gradient), messages::format(messages::kForClampsOnly, name, op));
  return gradient;
}

} // namespace clampgrad
