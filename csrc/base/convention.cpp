#include "base/convention.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <optional>

namespace clampgrad {

namespace {

std::optional<Gradient> gradient_named(std::string_view name) {
  for (size_t i = 0; i < kGradientNames.size(); ++i) {
    if (name == kGradientNames[i]) {
      return static_cast<Gradient>(i);
    }
  }
  for (const auto& alias : kAliases) {
    if (name == alias.name) {
      return alias.gradient;
    }
  }
  return std::nullopt;
}

} // namespace

Convention parse_convention(std::string_view name, bool maximize) {
  const auto gradient = gradient_named(name);
  TORCH_CHECK_VALUE(
      gradient, "unknown gradient '", name, "'; expected one of ", c10::Join(", ", kGradientNames));
  TORCH_CHECK_VALUE(
      !maximize || is_pseudo(*gradient),
      "maximize=True does not apply to gradient='",
      name,
      "': only 'with_grad' and 'restoring' depend on whether the loss is maximised");
  return {*gradient, maximize};
}

Gradient parse_exact(std::string_view name, bool maximize, std::string_view operation) {
  const auto gradient = parse_convention(name, maximize).gradient;
  TORCH_CHECK_VALUE(
      !is_pseudo(gradient),
      "gradient='",
      name,
      "' is defined for clamps only, not for ",
      operation);
  return gradient;
}

Gate scalar_gate(Convention convention) {
  switch (convention.gradient) {
    case Gradient::min_norm:
    case Gradient::joint:
      return Gate::strict;
    case Gradient::inclusive:
      return Gate::inclusive;
    case Gradient::half:
      return Gate::half;
    case Gradient::with_grad:
      return convention.maximize ? Gate::with_grad_maximize : Gate::with_grad;
    case Gradient::restoring:
      return convention.maximize ? Gate::restoring_maximize : Gate::restoring;
    case Gradient::straight_through:
      break;
  }
  TORCH_INTERNAL_ASSERT(false, "straight_through has no gate");
}

} // namespace clampgrad
